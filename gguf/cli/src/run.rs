//! From the command line to the exit code.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::screen::printable;
use crate::talk::{end_line, not_written, say};
use crate::{Failure, Result, words};

/// Runs a program: parses `A` from the command line, calls `f`, prints a failure as one line `error: ..` to
/// stderr and maps it to the exit code. A closed pipe on stdout is success. An unknown level in `GGUF_CPU` is
/// refused first, whether or not the program computes anything. A mapped file that is shortened meanwhile is a failure
/// too ([`gguf::fault`]). An option's alias of several letters may stand behind
/// one dash: `-ub 512`, `-ub512`. Options of llama.cpp that the program has not are answered before clap sees them.
pub fn run<A: clap::Parser>(f: impl FnOnce(A) -> Result<()>) -> ExitCode {
    start(|_, args| args, f)
}

/// As [`run`], for a program with subcommands that has a usual one: `default` is put in where the command line
/// names none. Options may stand in front of the subcommand.
pub fn run_with_default<A: clap::Parser>(default: &str, f: impl FnOnce(A) -> Result<()>) -> ExitCode {
    start(|command, args| subcommand_first(command, args, default), f)
}

/// Runs a program whose memory is prepared and whose words `arrange` puts in order.
fn start<A: clap::Parser>(
    arrange: impl FnOnce(&clap::Command, Vec<OsString>) -> Vec<OsString>,
    f: impl FnOnce(A) -> Result<()>,
) -> ExitCode {
    let command = A::command();
    let words =
        crate::memory::prepare().and_then(|()| words::prepared(&command, std::env::args_os().collect()));
    match words {
        Ok(words) => execute(arrange(&command, words), f),
        Err(failure) => end(failure),
    }
}

fn execute<A: clap::Parser>(args: Vec<OsString>, f: impl FnOnce(A) -> Result<()>) -> ExitCode {
    gguf::fault::install();
    let args = match A::try_parse_from(args) {
        Ok(args) => args,
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            let printed = e.print().and_then(|()| io::stdout().flush());
            return printed.map_or_else(|e| end(not_written(&e)), |()| ExitCode::SUCCESS);
        }
        Err(e) => {
            say(&usage_line(&e.render().to_string()));
            return ExitCode::from(2);
        }
    };
    let checked = gguf_blocks::Level::asked_for().map_err(|e| Failure::Usage(e.to_string()));
    checked
        .and_then(|_| f(args))
        .map_or_else(end, |()| ExitCode::SUCCESS)
}

/// Says why a program stops, on a line of its own, and with which code.
fn end(failure: Failure) -> ExitCode {
    let (line, code) = match failure {
        Failure::Closed => return ExitCode::SUCCESS,
        Failure::Reported => return ExitCode::from(1),
        Failure::Input(line) => (line, 1),
        Failure::Usage(line) => (line, 2),
    };
    end_line();
    say(&format!("error: {}", one_line(&line)));
    ExitCode::from(code)
}

/// Characters of an error that are shown: names in files may be of any length.
const MAX_CHARS: usize = 2000;

/// A message on one line, without controls that names from files may bring along, and not endless.
fn one_line(message: &str) -> String {
    let line = message.replace('\n', " ");
    let line = printable(&line);
    match line.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{} .. ({} bytes more)", &line[..end], line.len() - end),
        None => line.into_owned(),
    }
}

/// clap's message about a wrong command line on one line, without the usage that follows it.
fn usage_line(message: &str) -> String {
    let mut line = String::new();
    for part in message.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if part.starts_with("Usage:") || part.starts_with("For more information") {
            break;
        }
        if !line.is_empty() {
            line.push_str(if part.starts_with("tip:") { "; " } else { " " });
        }
        line.push_str(part);
    }
    line.push_str(" (see `--help`)");
    line
}

/// Moves the subcommand to the front of the arguments, or puts `default` there if none is named. The first
/// argument that is neither an option nor an option's value is the subcommand if it is the name of one.
fn subcommand_first(command: &clap::Command, mut args: Vec<OsString>, default: &str) -> Vec<OsString> {
    let own = words::Own::of(command);
    let mut i = 1;
    while let Some(arg) = args.get(i).and_then(|a| a.to_str()) {
        if words::asks_for_help(arg) {
            return args;
        }
        if arg == "--" || !arg.starts_with('-') {
            break;
        }
        i += if own.takes_next(arg) { 2 } else { 1 };
    }
    let named = args.get(i).and_then(|a| a.to_str());
    let name = match named {
        Some("help") => return args,
        Some(name) if command.find_subcommand(name).is_some() => args.remove(i),
        _ => default.into(),
    };
    args.insert(1.min(args.len()), name);
    args
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::{Parser, Subcommand};

    use super::{subcommand_first, usage_line};
    use crate::words;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(subcommand)]
        command: Command,
    }

    #[derive(Debug, PartialEq, Subcommand)]
    enum Command {
        Show {
            file: String,
            #[arg(long)]
            json: bool,
            #[arg(short, long, alias = "ke")]
            key: Option<String>,
        },
        Check {
            file: String,
            #[arg(long)]
            json: bool,
        },
    }

    fn parse(line: &str) -> Result<Command, clap::Error> {
        let args: Vec<OsString> = std::iter::once("tool")
            .chain(line.split_whitespace())
            .map(Into::into)
            .collect();
        let command = <Cli as clap::CommandFactory>::command();
        let args = words::prepared(&command, args).expect("no option of llama.cpp");
        let args = subcommand_first(&command, args, "show");
        Cli::try_parse_from(args).map(|c| c.command)
    }

    #[test]
    fn options_stand_anywhere_and_the_usual_subcommand_can_be_left_out() {
        let show = |json, key: Option<&str>| Command::Show {
            file: "f".to_owned(),
            json,
            key: key.map(str::to_owned),
        };
        for (line, expected) in [
            ("f", show(false, None)),
            ("show f --json", show(true, None)),
            ("--json f", show(true, None)),
            ("f --json", show(true, None)),
            ("--json show f", show(true, None)),
            ("--key check f", show(false, Some("check"))),
            ("-k check f", show(false, Some("check"))),
            ("--key=check f", show(false, Some("check"))),
            ("-ke check f", show(false, Some("check"))),
            ("-ke=check f", show(false, Some("check"))),
            ("-ke0-7 f", show(false, Some("0-7"))),
            // Of the option of one letter.
            ("-kex0 f", show(false, Some("ex0"))),
            ("-- f", show(false, None)),
            (
                "--json check f",
                Command::Check {
                    file: "f".to_owned(),
                    json: true,
                },
            ),
            (
                "check f",
                Command::Check {
                    file: "f".to_owned(),
                    json: false,
                },
            ),
        ] {
            assert_eq!(parse(line).expect(line), expected, "{line}");
        }
    }

    #[test]
    fn wrong_command_lines_give_one_line() {
        let line = |args| usage_line(&parse(args).expect_err(args).render().to_string());
        let text = line("f --jsom");
        assert_eq!(
            text,
            "error: unexpected argument '--jsom' found; tip: a similar argument exists: '--json' (see `--help`)"
        );
        assert_eq!(
            line(""),
            "error: the following required arguments were not provided: <FILE> (see `--help`)"
        );
        assert!(
            line("f --key").contains("a value is required for '--key <KEY>'"),
            "{}",
            line("f --key")
        );
    }
}

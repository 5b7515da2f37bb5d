//! From the command line to the exit code.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::screen::printable;
use crate::talk::say;
use crate::{Failure, Result};

/// Runs a program: parses `A` from the command line, calls `f`, prints a failure as one line `error: ..` to
/// stderr and maps it to the exit code. A closed pipe on stdout is success. An unknown level in `GGUF_CPU` is
/// refused first, whether or not the program computes anything. A mapped file that is shortened meanwhile is a failure
/// too ([`gguf::fault`]). An option's alias of several letters may stand behind
/// one dash: `-ub 512`, `-ub512`.
pub fn run<A: clap::Parser>(f: impl FnOnce(A) -> Result<()>) -> ExitCode {
    prepared(|| execute(long_aliases(&A::command(), std::env::args_os().collect()), f))
}

/// As [`run`], for a program with subcommands that has a usual one: `default` is put in where the command line
/// names none. Options may stand in front of the subcommand.
pub fn run_with_default<A: clap::Parser>(default: &str, f: impl FnOnce(A) -> Result<()>) -> ExitCode {
    prepared(|| {
        let command = A::command();
        let args = long_aliases(&command, std::env::args_os().collect());
        execute(subcommand_first(&command, args, default), f)
    })
}

/// Runs a program whose memory is prepared, or says why that cannot be.
fn prepared(program: impl FnOnce() -> ExitCode) -> ExitCode {
    match crate::memory::prepare() {
        Ok(()) => program(),
        Err(failure) => {
            say(&format!("error: {failure}"));
            ExitCode::from(2)
        }
    }
}

fn execute<A: clap::Parser>(args: Vec<OsString>, f: impl FnOnce(A) -> Result<()>) -> ExitCode {
    gguf::fault::install();
    let args = match A::try_parse_from(args) {
        Ok(args) => args,
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            // A closed pipe is all that can go wrong here.
            drop(e.print());
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            say(&usage_line(&e.render().to_string()));
            return ExitCode::from(2);
        }
    };
    let checked = gguf_blocks::Level::asked_for().map_err(|e| Failure::Usage(e.to_string()));
    let (line, code) = match checked.and_then(|_| f(args)) {
        Ok(()) | Err(Failure::Closed) => return ExitCode::SUCCESS,
        Err(Failure::Reported) => return ExitCode::from(1),
        Err(Failure::Input(line)) => (line, 1),
        Err(Failure::Usage(line)) => (line, 2),
    };
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

/// Options with several letters behind one dash, as llama.cpp has them (`-ub`), which clap alone would read as several
/// options: an option that has the letters as an alias gets its second dash. Its value may stand right behind it where
/// it begins with a digit, as behind an option of one letter: `-ub512`.
fn long_aliases(command: &clap::Command, mut args: Vec<OsString>) -> Vec<OsString> {
    let commands = || std::iter::once(command).chain(command.get_subcommands());
    let options = || commands().flat_map(clap::Command::get_arguments);
    let known = |name: &str, with_value: bool| {
        options().any(|a| {
            let is_alias = a.get_all_aliases().is_some_and(|all| all.contains(&name));
            is_alias && (!with_value || a.get_action().takes_values())
        })
    };
    let ours = args.iter().position(|a| a == "--").unwrap_or(args.len());
    for arg in args.iter_mut().take(ours).skip(1) {
        let Some(text) = arg.to_str().and_then(|a| a.strip_prefix('-')) else {
            continue;
        };
        if known(text, false) {
            *arg = format!("--{text}").into();
            continue;
        }
        let value = text.find(|c: char| c == '=' || c.is_ascii_digit());
        if let Some((name, value)) = value.and_then(|at| text.split_at_checked(at))
            && known(name, true)
        {
            *arg = format!("--{name}={}", value.strip_prefix('=').unwrap_or(value)).into();
        }
    }
    args
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
    let mut i = 1;
    while let Some(arg) = args.get(i).and_then(|a| a.to_str()) {
        if matches!(arg, "-h" | "--help" | "-V" | "--version") {
            return args;
        }
        if arg == "--" || !arg.starts_with('-') {
            break;
        }
        i += if takes_next(command, arg) { 2 } else { 1 };
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

/// Whether an option takes the next argument as its value, in any of the subcommands.
fn takes_next(command: &clap::Command, option: &str) -> bool {
    let mut options = command.get_subcommands().flat_map(clap::Command::get_arguments);
    options.any(|a| {
        let name = option.strip_prefix("--").unwrap_or_default();
        let alias = a.get_all_aliases().is_some_and(|all| all.contains(&name));
        let long = alias || a.get_long() == Some(name);
        let short = a
            .get_short()
            .is_some_and(|s| option.strip_prefix('-').is_some_and(|o| o.chars().eq([s])));
        (long || short) && a.get_action().takes_values()
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::{Parser, Subcommand};

    use super::{long_aliases, subcommand_first, usage_line};

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
        let args = subcommand_first(&command, long_aliases(&command, args), "show");
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

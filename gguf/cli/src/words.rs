//! The words of a command line before clap reads them: spellings that llama.cpp's programs take, and options that they
//! have and these have not.
//!
//! Only options are looked at. The word behind an option that takes a value is that value, whatever it looks like
//! (`-p -ub`), and behind `--` there are no options. Where options of several subcommands have the same name, one that
//! takes a value decides for all.

use std::ffi::OsString;

use clap::{Arg, Command};

use crate::{Failure, Result, foreign};

/// The options of a program and of its subcommands.
#[derive(Clone, Copy)]
pub(crate) struct Own<'a> {
    command: &'a Command,
}

/// An option as it is typed: `--name` or `--name=value`, `-n`, `-nvalue` or `-n=value`.
#[derive(Clone, Copy)]
struct Typed<'a> {
    /// Without its dashes; with `long` without its value.
    name: &'a str,
    long: bool,
    has_value: bool,
}

impl<'a> Typed<'a> {
    /// `None` for words that are no options.
    fn of(word: &'a str) -> Option<Self> {
        let (long, text) = match word.strip_prefix("--") {
            Some(text) => (true, text),
            None => (false, word.strip_prefix('-')?),
        };
        let (name, has_value) = text
            .split_once('=')
            .map_or((text, false), |(name, _)| (name, true));
        (!name.is_empty()).then_some(Self {
            name,
            long,
            has_value,
        })
    }
}

impl<'a> Own<'a> {
    pub(crate) fn of(command: &'a Command) -> Self {
        Self { command }
    }

    fn args(self) -> impl Iterator<Item = &'a Arg> {
        std::iter::once(self.command)
            .chain(self.command.get_subcommands())
            .flat_map(Command::get_arguments)
    }

    fn long(self, name: &str) -> impl Iterator<Item = &'a Arg> {
        let is_it = move |a: &&Arg| {
            let alias = a.get_all_aliases().is_some_and(|all| all.contains(&name));
            alias || a.get_long() == Some(name)
        };
        self.args().filter(is_it)
    }

    fn short(self, letter: char) -> impl Iterator<Item = &'a Arg> {
        self.args().filter(move |a| a.get_short() == Some(letter))
    }

    /// Whether an option, with its dashes, is one of the program's, also as `-ub` for an alias `ub`.
    pub(crate) fn has(self, option: &str) -> bool {
        let Some(typed) = Typed::of(option) else {
            return false;
        };
        let mut letters = typed.name.chars();
        let short = letters.next().filter(|_| letters.next().is_none() && !typed.long);
        self.long(typed.name).next().is_some() || short.is_some_and(|c| self.short(c).next().is_some())
    }

    /// Whether an option takes the next word as its value.
    pub(crate) fn takes_next(self, option: &str) -> bool {
        let Some(typed) = Typed::of(option).filter(|t| !t.has_value) else {
            return false;
        };
        if typed.long {
            return self.long(typed.name).any(needs_value);
        }
        // Letters together are flags, up to one that takes what stands behind it.
        let mut rest = typed.name.chars();
        while let Some(letter) = rest.next() {
            let mut found = self.short(letter).peekable();
            if found.peek().is_none() {
                return false;
            }
            if found.any(|a| a.get_action().takes_values()) {
                return rest.as_str().is_empty() && self.short(letter).any(needs_value);
            }
        }
        false
    }

    /// The spelling that clap takes, where that is another one. An alias of several letters may stand behind one dash,
    /// and a value that begins with a digit right behind it, as behind an option of one letter: `-ub 512`, `-ub512`.
    /// Names may be written with `_` for `-`.
    fn spelled(self, word: &str) -> Option<String> {
        if let Some(text) = word.strip_prefix("--") {
            let end = text.find('=').unwrap_or(text.len());
            let (name, value) = text.split_at(end);
            let dashed = name.replace('_', "-");
            let is_it =
                dashed != name && self.long(name).next().is_none() && self.long(&dashed).next().is_some();
            return is_it.then(|| format!("--{dashed}{value}"));
        }
        let text = word.strip_prefix('-')?;
        let is_alias = |name: &str, with_value: bool| {
            let alias = |a: &&Arg| a.get_all_aliases().is_some_and(|all| all.contains(&name));
            let mut found = self.args().filter(alias);
            found.any(|a| !with_value || a.get_action().takes_values())
        };
        if is_alias(text, false) {
            return Some(format!("--{text}"));
        }
        let at = text.find(|c: char| c == '=' || c.is_ascii_digit())?;
        let (name, value) = text.split_at(at);
        is_alias(name, true).then(|| format!("--{name}={}", value.strip_prefix('=').unwrap_or(value)))
    }
}

fn needs_value(arg: &Arg) -> bool {
    arg.get_action().takes_values() && arg.get_num_args().is_none_or(|n| n.min_values() > 0)
}

/// Whether a word asks for what the program prints about itself, whatever else there is.
pub(crate) fn asks_for_help(word: &str) -> bool {
    matches!(word, "-h" | "--help" | "-V" | "--version")
}

/// The command line, the program's name first, as clap takes it.
///
/// # Errors
/// An option of llama.cpp that the program has not.
pub(crate) fn prepared(command: &Command, mut args: Vec<OsString>) -> Result<Vec<OsString>> {
    let own = Own::of(command);
    let mut i = 1;
    while i < args.len() {
        let word = args[i].to_str().unwrap_or_default();
        if word == "--" || asks_for_help(word) {
            break;
        }
        if let Some(spelled) = own.spelled(word) {
            args[i] = spelled.into();
        }
        let word = args[i].to_str().unwrap_or_default();
        let name = word.split('=').next().unwrap_or_default().replace('_', "-");
        let answer = (!own.has(&name)).then(|| foreign::answer(command.get_name(), &name));
        if let Some(answer) = answer.flatten() {
            return Err(Failure::Usage(answer));
        }
        i += 1 + usize::from(own.takes_next(word));
    }
    Ok(args)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::{Arg, ArgAction, Command};

    use super::prepared;

    /// `gguf-run` with some options.
    fn command() -> Command {
        let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
        Command::new("gguf-run").args([
            Arg::new("prompt").long("prompt").short('p'),
            Arg::new("predict").long("predict").short('n').alias("n-predict"),
            Arg::new("ubatch").long("ubatch-size").alias("ub"),
            Arg::new("share").long("share").num_args(0..=1),
            flag("quiet").short('q'),
            flag("single-turn").alias("st"),
        ])
    }

    /// The words apart by blanks, or the answer.
    fn words(line: &str) -> Result<String, String> {
        let args = std::iter::once("gguf-run").chain(line.split_whitespace());
        let found = prepared(&command(), args.map(OsString::from).collect());
        let found = found.map_err(|e| e.to_string())?;
        let found: Vec<_> = found[1..].iter().map(|w| w.to_str().expect("UTF-8")).collect();
        Ok(found.join(" "))
    }

    #[test]
    fn spellings_of_llama_cpp_become_those_of_clap() {
        for (line, expected) in [
            ("-ub 4 -ub=4 -ub4", "--ub 4 --ub=4 --ub=4"),
            ("-st -q --n_predict 4", "--st -q --n-predict 4"),
            (
                "--single_turn --ubatch_size=a_b",
                "--single-turn --ubatch-size=a_b",
            ),
            ("--no_such x", "--no_such x"),
            // Values stay as they are, and so does what is no option.
            ("-p -ub --prompt --n_predict", "-p -ub --prompt --n_predict"),
            ("-qp -ub -ub 4", "-qp -ub --ub 4"),
            ("-q -- -ub", "-q -- -ub"),
            ("--share -ub 4", "--share --ub 4"),
        ] {
            assert_eq!(words(line).as_deref(), Ok(expected), "{line}");
        }
    }

    #[test]
    fn options_of_llama_cpp_are_answered_where_they_are_options() {
        for line in [
            "-ngl 99",
            "-p hi -ngl 99",
            "-ngl",
            "-ngl=99",
            "-q -ngl",
            "--share -ngl",
            "-phi -ngl",
            "a -ngl",
        ] {
            let answer = words(line).expect_err(line);
            assert!(answer.starts_with("`-ngl`: "), "{line}: {answer}");
        }
        assert!(words("--n_gpu_layers 99").is_err_and(|a| a.starts_with("`--n-gpu-layers`: ")));
        assert!(words("--n-gpu-layers=99").is_err_and(|a| a.starts_with("`--n-gpu-layers`: ")));
        for line in [
            "-p -ngl",
            "--prompt --jinja",
            "-qp -fa",
            "--prompt=-ngl",
            "-p=-ngl",
            "-- -ngl",
            "--help -ngl",
            "ngl",
        ] {
            assert_eq!(words(line).as_deref(), Ok(line), "{line}");
        }
    }
}

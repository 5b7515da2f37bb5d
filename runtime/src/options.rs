//! Command-line options that the programs over a [`crate::Session`] share.

use std::ffi::OsString;

use clap::error::Error;
use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser};

use crate::chunks::ChunkSettings;

/// `-ub`, `--ubatch-size`.
#[derive(Args, Clone, Copy, Debug)]
pub struct UbatchArgs {
    /// Tokens that go through the layers together (short: -ub)
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub ubatch_size: usize,
}

/// Tokens of a chunk where none are given.
const N_CTX: usize = 512;

/// How a text is cut and evaluated: `-c`, `-b`, `-ub`, `--chunks`.
#[derive(Args, Clone, Copy, Debug)]
pub struct ChunkArgs {
    /// Tokens of a chunk [default: 512]
    #[arg(short = 'c', long, value_name = "N")]
    pub ctx_size: Option<usize>,
    /// Tokens that are evaluated together; whole chunks as far as they fit
    #[arg(short, long, value_name = "N", default_value_t = 2048)]
    pub batch_size: usize,
    #[command(flatten)]
    #[expect(missing_docs, reason = "described by its own options")]
    pub ubatch: UbatchArgs,
    /// Chunks to use at most; all if not given
    #[arg(long, value_name = "N")]
    pub chunks: Option<usize>,
}

impl ChunkArgs {
    /// Tokens of a chunk: as given, else the usual number.
    pub fn n_ctx(&self) -> usize {
        self.ctx_size.unwrap_or(N_CTX)
    }

    /// The settings for chunks of `n_ctx` tokens.
    pub fn settings(&self, n_ctx: usize) -> ChunkSettings {
        ChunkSettings {
            n_ctx,
            n_batch: self.batch_size,
            limit: self.chunks,
        }
    }
}

/// Options with two letters behind one dash, as llama.cpp has them, with their long form.
const TWO_LETTERS: &[(&str, &str)] = &[("-ub", "--ubatch-size")];

/// A command line that also understands [`TWO_LETTERS`], which clap alone would read as two options.
#[derive(Clone, Copy, Debug)]
pub struct TwoLetter<A>(pub A);

impl<A: FromArgMatches> FromArgMatches for TwoLetter<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        A::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<A: CommandFactory> CommandFactory for TwoLetter<A> {
    fn command() -> Command {
        A::command()
    }

    fn command_for_update() -> Command {
        A::command_for_update()
    }
}

impl<A: Parser> Parser for TwoLetter<A> {
    fn try_parse_from<I, T>(args: I) -> Result<Self, Error>
    where
        I: IntoIterator<Item = T>,
        T: Into<OsString> + Clone,
    {
        let long = |arg: OsString| -> OsString {
            let known = TWO_LETTERS.iter().find(|(short, _)| arg == *short);
            known.map_or(arg.clone(), |(_, long)| long.into())
        };
        A::try_parse_from(args.into_iter().map(|a| long(a.into()))).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        chunks: ChunkArgs,
    }

    #[test]
    fn two_letters_are_one_option() {
        let parse = |line: &str| TwoLetter::<Line>::try_parse_from(line.split(' '));
        let args = parse("x -b 64 -ub 16 -c 32").unwrap().0.chunks;
        assert_eq!(
            (args.batch_size, args.ubatch.ubatch_size, args.ctx_size),
            (64, 16, Some(32))
        );
        assert_eq!(parse("x").unwrap().0.chunks.ubatch.ubatch_size, 512);
        assert!(parse("x -ub").is_err());
        Line::command().debug_assert();
    }
}

//! `gguf-bench`: tokens per second for prompts and for generation, and how far that is from what the memory allows.
//!
//! The command line ([`args`], lists in [`list`]) is multiplied out to a [`plan`]; [`run`] opens the models, times
//! their start ([`cold`]) and the tests, one repetition after another or [`in_turn`] with another program, with [`load`]
//! watching what else the machine does. A generated token must
//! read its weights and the cache ([`traffic`]), which is set against a measured read bandwidth ([`bandwidth`]).
//! [`stats`] sums repetitions up, [`report`] and [`record`] write them, [`plot`] draws them through [`svg`].

mod args;
mod bandwidth;
mod cold;
mod in_turn;
mod list;
mod load;
mod plan;
mod plot;
mod record;
mod report;
mod run;
mod stats;
mod svg;
mod timing;
mod traffic;

/// The program.
pub fn main() -> std::process::ExitCode {
    gguf_cli::run(|args: args::Args| run::run(&args))
}

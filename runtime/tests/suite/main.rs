//! The library on small random models and on the trained one, the programs as a user runs them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod allocations;
mod bench;
mod cli;
mod common;
mod divergence;
mod forward;
mod load;
mod model;
mod naive;
mod perplexity;
#[cfg(target_os = "linux")]
mod placement;
mod run;
#[path = "../../../tests/src/skip.rs"]
mod skip;
mod state;
mod tasks;
mod tokenizer;
mod vocabularies;

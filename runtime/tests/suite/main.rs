//! The library on small random models and on the trained one, the programs as a user runs them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli;
mod common;
mod forward;
mod model;
mod naive;
mod run;
mod tokenizer;
mod vocabularies;

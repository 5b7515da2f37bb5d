//! Command lines of the program, run in a folder with a small model.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod command_line;
mod fixture;
mod outputs;
mod refusals;
mod stops;

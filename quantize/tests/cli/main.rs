//! Command lines of the program, run in a folder with a small model.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod command_line;
mod fixture;
mod importance;
mod model;
mod origin;
mod outputs;
mod plan;
mod refusals;
mod stops;

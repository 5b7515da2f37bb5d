//! The program against the reference's matrix, against itself, and on bad input.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod files;
mod golden;
mod order;
mod resume;
mod runs;

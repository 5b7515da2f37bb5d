//! The program from the outside: one module for each command. One binary, since each costs a link.

#[expect(dead_code, reason = "shared with other tests")]
#[path = "../../../gguf/tests/common/mod.rs"]
mod common;
mod models;

mod check;
mod cli;
mod data;
mod diff;
mod edit;
mod estimate;
mod hash;
mod relayout;
mod report;
mod show;
mod split_merge;

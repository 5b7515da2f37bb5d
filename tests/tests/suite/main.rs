//! What crosses crates. One binary, since each costs a link.

#[expect(dead_code, reason = "shared with other tests")]
#[path = "../../../gguf/tests/common/mod.rs"]
mod common;
mod corpus;
mod environment;
mod faults;
mod importance;
mod logits;
mod malformed;
#[cfg(target_os = "linux")]
mod memory;
mod paths;
mod pipeline;
mod speeds;
mod supply;
mod tree;
mod unknown_type;

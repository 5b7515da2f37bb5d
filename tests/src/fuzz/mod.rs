//! The bodies of the fuzz targets in `tests/fuzz`. Each takes any bytes and panics where something is wrong with what the
//! suite makes of them. The corpora there are also given to them by `tests/tests/suite/corpus.rs`, so that every input
//! that was ever of interest stays tested.
//!
//! Beside panics the fuzzer finds what takes too long, what takes more memory than the limits that `tests/fuzz/run` gives
//! it, and what the address sanitizer reports.

mod base;
mod blocks;
pub mod checkpoint;
mod container;
mod folder;
mod imatrix;
mod kernels;
mod model;
pub mod seeds;
mod template;
mod tokenizer;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, that of its folder in `tests/fuzz/corpus`.
    pub name: &'static str,
    /// The body.
    pub run: fn(&[u8]),
    /// Bytes of the longest input that the fuzzer makes.
    pub max_len: usize,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    target("container", container::container, 4096),
    target("split-set", container::split_set, 4096),
    target("imatrix", imatrix::imatrix, 4096),
    target("base-file", base::base_file, 4096),
    target("safetensors", checkpoint::safetensors, 16384),
    target("config", checkpoint::config, 24576),
    target("vocabulary", checkpoint::vocabulary, 16384),
    target("tokenizer", tokenizer::tokenizer, 8192),
    target("chat-template", template::chat_template, 4096),
    target("blocks", blocks::blocks, 2048),
    target("kernels", kernels::kernels, 4096),
    target("model", model::model, 16384),
    target("state", model::state, 20480),
];

const fn target(name: &'static str, run: fn(&[u8]), max_len: usize) -> Target {
    Target { name, run, max_len }
}

/// The target of a name.
///
/// # Panics
/// If there is none.
pub fn target_of(name: &str) -> &'static Target {
    let found = TARGETS.iter().find(|t| t.name == name);
    found.unwrap_or_else(|| panic!("no target `{name}`"))
}

/// `n` bytes of the input, which begins again where it ends; zeros if it is empty.
fn cycled(data: &[u8], n: usize) -> Vec<u8> {
    if data.is_empty() {
        return vec![0; n];
    }
    data.iter().copied().cycle().take(n).collect()
}

/// `n` floats of the bits of the input.
fn floats(data: &[u8], n: usize) -> Vec<f32> {
    let bytes = cycled(data, n * 4);
    let words = bytes.as_chunks::<4>().0.iter();
    words.map(|&w| f32::from_le_bytes(w)).collect()
}

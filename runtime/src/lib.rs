//! CPU inference.

pub mod bench;
pub mod kernels;
pub mod kv;
pub mod perplexity;

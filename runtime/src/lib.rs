//! CPU inference.

pub mod bench;
pub mod kernels;
pub mod kv;
pub mod observe;
pub mod perplexity;

pub use observe::{Input, Observe};

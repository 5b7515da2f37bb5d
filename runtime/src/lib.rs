//! CPU inference.

pub mod bench;
pub mod chunks;
mod error;
mod ffn;
mod forward;
pub mod kernels;
pub mod kv;
mod memory;
mod mixers;
mod model;
mod moe;
mod observe;
pub mod options;
pub mod perplexity;
mod session;
mod tokenizer;

pub use error::{Error, Result};
pub use model::Model;
pub use observe::{Input, Observe};
pub use session::{Logits, LogitsSink, MemoryPlan, Session, Settings, Token};
pub use tokenizer::Tokenizer;

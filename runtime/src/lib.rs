//! CPU inference.

pub mod bench;
mod error;
mod ffn;
mod forward;
pub mod kernels;
pub mod kv;
mod mixers;
mod model;
mod moe;
mod observe;
pub mod perplexity;
mod session;

pub use error::{Error, Result};
pub use model::Model;
pub use observe::{Input, Observe};
pub use session::{Logits, LogitsSink, MemoryPlan, Session, Settings, Token};

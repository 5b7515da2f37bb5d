//! The GGUF container.
#![deny(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss
)]

pub mod atomic;
mod cursor;
mod encode;
mod error;
pub mod key;
mod layout;
pub mod limits;
mod metadata;
mod parse;
mod read;
mod sniff;
pub mod source;
mod tensor;
pub mod validate;
mod value;
mod write;

pub use error::{Error, Malformed, Result};
pub use layout::{Layout, TensorSpec};
pub use metadata::Metadata;
pub use read::{Endian, GgufFile, Header};
pub use tensor::{Shape, TensorInfo};
pub use value::{Array, Value, ValueType};
pub use write::Writer;

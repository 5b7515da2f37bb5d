//! The GGUF container.

pub mod atomic;
mod error;
pub mod key;
mod layout;
mod metadata;
mod read;
pub mod source;
mod tensor;
pub mod validate;
mod value;
mod write;

pub use error::{Error, Result};
pub use layout::{Layout, TensorSpec};
pub use metadata::Metadata;
pub use read::{Endian, GgufFile, Header};
pub use tensor::{Shape, TensorInfo};
pub use value::{Array, Value, ValueType};
pub use write::Writer;

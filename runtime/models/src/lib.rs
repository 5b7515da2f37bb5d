//! Architecture descriptions shared by convert, quantize, imatrix, inspect and the runtime.

pub mod arch;
mod error;
pub mod file_type;
mod hparams;
pub mod names;
pub mod spec;
pub mod vocab;

pub use error::{Error, Result};
pub use hparams::HParams;
pub use names::Role;
pub use spec::LayerSpec;

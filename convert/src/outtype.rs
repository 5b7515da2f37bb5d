//! Which type each tensor of the output gets.

use gguf_blocks::{Format, registry};
use gguf_models::file_type::{self, FileType};

use crate::Result;
use crate::error::Error;
use crate::map::Output;
use crate::source::Weights;

/// What the matrices become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutType {
    /// Type of the matrices.
    pub(crate) format: &'static Format,
    /// What stands in `general.file_type`.
    pub(crate) file_type: &'static FileType,
}

impl OutType {
    /// Resolves `--outtype`. `auto` is the format of the first tensor with two dimensions or more if that is
    /// BF16, else F16, so that the output is about as large as most checkpoints.
    pub(crate) fn resolve(name: &str, weights: &Weights) -> Result<Self> {
        let name = if name.eq_ignore_ascii_case("auto") {
            let first = weights.tensors.iter().find(|t| t.shape.len() >= 2);
            first
                .map(|t| t.dtype.name)
                .filter(|n| *n == "BF16")
                .unwrap_or("F16")
        } else {
            name
        };
        let unknown = || {
            Error::unsupported(
                format!("type `{name}`"),
                "convert to bf16, then use gguf-quantize",
            )
        };
        let format = registry::by_name(name).ok_or_else(unknown)?;
        let file_type = file_type::by_name(name).ok_or_else(unknown)?;
        Ok(Self { format, file_type })
    }

    /// The type of one tensor, and what to tell if it is not the one that was asked for.
    pub(crate) fn of(self, output: &Output) -> Result<(&'static Format, Option<String>)> {
        if output.stays_f32() {
            return Ok((plain("F32")?, None));
        }
        if self.format.geometry.row_bytes(output.shape.n_cols()).is_some() {
            return Ok((self.format, None));
        }
        let note = format!(
            "tensor `{}` becomes F16: its rows of {} are not whole blocks of {} for {}",
            output.name,
            output.shape.n_cols(),
            self.format.geometry.block_elems,
            self.format.name
        );
        Ok((plain("F16")?, Some(note)))
    }
}

/// A type of plain floats; every build has these.
pub(crate) fn plain(name: &str) -> Result<&'static Format> {
    registry::by_name(name).ok_or_else(|| Error::unsupported(format!("type `{name}`"), "this build lacks it"))
}

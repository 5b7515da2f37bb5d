//! Which type each tensor of the output gets.

use gguf_blocks::{Format, registry};
use gguf_models::Role;
use gguf_models::file_type::{self, FileType};

use crate::Result;
use crate::error::Error;
use crate::map::Output;
use crate::source::{SourceTensor, Weights};
use crate::view::View;

/// The name that takes what the checkpoint has.
pub(crate) const AUTO: &str = "auto";

/// The names that choose one type for all matrices, as the reference converter has them.
pub(crate) const PLAIN: [&str; 7] = [AUTO, "f32", "f16", "bf16", "q8_0", "tq1_0", "tq2_0"];

/// What `--outtype` asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// One type for all matrices, by its name in [`PLAIN`].
    Plain(&'static str),
    /// A file type of the quantizer.
    Encoded(&'static FileType),
}

impl Goal {
    /// From a name, an alias or a number.
    ///
    /// # Errors
    /// An unknown name, with all that there are.
    pub(crate) fn of(name: &str) -> gguf_cli::Result<Self> {
        let known = file_type::by_name(name).map_or(name, |t| t.name);
        if let Some(plain) = PLAIN.iter().find(|p| p.eq_ignore_ascii_case(known)) {
            return Ok(Self::Plain(plain));
        }
        gguf_quantize::parse_file_type(name)
            .map(Self::Encoded)
            .map_err(|e| match e {
                gguf_cli::Failure::Usage(line) => {
                    gguf_cli::Failure::Usage(format!("--outtype: {line}, {AUTO}"))
                }
                e => e,
            })
    }
}

/// What the matrices become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutType {
    /// Type of the matrices.
    pub(crate) format: &'static Format,
    /// What stands in `general.file_type`.
    pub(crate) file_type: &'static FileType,
}

impl OutType {
    /// Resolves a name of [`PLAIN`]. `auto` is the format of the first plain tensor with two dimensions or more if
    /// that is BF16, else F16, so that the output is about as large as most checkpoints.
    pub(crate) fn resolve(name: &str, weights: &Weights) -> Result<Self> {
        let name = if name.eq_ignore_ascii_case(AUTO) {
            let is_matrix = |t: &&SourceTensor| t.shape.len() >= 2 && t.matrix(0).is_plain();
            let first = weights.tensors.iter().find(is_matrix);
            let native = first.and_then(|t| t.matrix(0).native());
            native.map(|f| f.name).filter(|n| *n == "BF16").unwrap_or("F16")
        } else {
            name
        };
        let is_plain = PLAIN.iter().any(|p| p.eq_ignore_ascii_case(name));
        let format = registry::by_name(name).filter(|_| is_plain);
        let file_type = file_type::by_name(name);
        match (format, file_type) {
            (Some(format), Some(file_type)) => Ok(Self { format, file_type }),
            _ => Err(Error::unsupported(
                format!("type `{name}` for all matrices"),
                format!("expected one of {}", PLAIN.join(", ")),
            )),
        }
    }

    /// The type of one tensor, and what to tell if it is not the one that was asked for.
    /// A `wide` one has values that the type cannot hold.
    pub(crate) fn of(self, output: &Output, wide: bool) -> Result<(&'static Format, Option<String>)> {
        if output.stays_f32() {
            return Ok((plain("F32")?, None));
        }
        // A quantized form that is kept.
        let native = output.views.first().and_then(View::native);
        if let Some(kept) = native.filter(|f| f.geometry.block_elems > 1) {
            return Ok((kept, None));
        }
        if wide {
            let format = native
                .filter(|f| f.name == "BF16")
                .map_or_else(|| plain("F32"), Ok)?;
            let note = format!(
                "tensor `{}` becomes {}: it has values beyond the range of {}",
                output.name, format.name, self.format.name
            );
            return Ok((format, Some(note)));
        }
        let is_end = matches!(output.role, Role::TokenEmbd | Role::Output);
        if is_end && self.format.name.starts_with("TQ") {
            return Ok((plain("F16")?, None));
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

//! One file per architecture. To add one: write the file, add its `mod` line and its entry in
//! `ARCHITECTURES`.

mod qwen3moe;

use gguf::Metadata;

use crate::effects::Effect;
use crate::hf::{Fixed, TensorRule};
use crate::hparams::Row;
use crate::spec::ModelSpec;
use crate::{Error, HParams, Result, Role};

/// A tensor that a model of the architecture has: its shape (row length first) and whether it must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorExpectation {
    /// What it is.
    pub role: Role,
    /// Layer, for roles inside layers.
    pub layer: Option<usize>,
    /// Dimensions, row length first.
    pub shape: Vec<u64>,
    /// Whether the model cannot do without. (`output.weight` may be absent: tied to the embedding.)
    pub required: bool,
}

impl TensorExpectation {
    /// A tensor outside layers that must be there.
    pub fn whole(role: Role, shape: &[usize]) -> Self {
        Self {
            role,
            layer: None,
            shape: shape.iter().map(|&d| d as u64).collect(),
            required: true,
        }
    }

    /// A tensor of a layer that must be there.
    pub fn layer(role: Role, layer: usize, shape: &[usize]) -> Self {
        Self {
            layer: Some(layer),
            ..Self::whole(role, shape)
        }
    }

    /// The same, but the model can do without it.
    #[must_use]
    pub fn optional(self) -> Self {
        Self {
            required: false,
            ..self
        }
    }

    /// The GGUF name.
    pub fn name(&self) -> String {
        self.role.gguf_name(self.layer.unwrap_or(0))
    }
}

/// Everything that is particular to one architecture.
#[derive(Debug)]
pub struct Architecture {
    /// `general.architecture`.
    pub name: &'static str,
    /// Class names in a checkpoint's `architectures`.
    pub hf_classes: &'static [&'static str],
    /// Hyper-parameters beside [`crate::hparams::GENERIC`], in the order in which a converter writes them. A
    /// row with the key of a generic one takes its place.
    pub hparams: &'static [Row],
    /// Keys that the description takes for granted beside or against [`crate::effects::GENERIC`], with the
    /// values that it holds for.
    pub effects: &'static [Effect],
    /// Settings of a checkpoint that the description takes for granted.
    pub fixed: &'static [Fixed],
    /// From a checkpoint's tensors to GGUF's, first match wins. Groups, so that architectures can share them.
    pub hf_tensors: &'static [&'static [TensorRule]],
    /// The forward pass.
    pub model: fn(&HParams) -> Result<ModelSpec>,
    /// The tensors.
    pub tensors: fn(&HParams) -> Vec<TensorExpectation>,
}

static ARCHITECTURES: &[&Architecture] = &[&qwen3moe::ARCHITECTURE];

/// Every architecture of this build.
pub fn all() -> &'static [&'static Architecture] {
    ARCHITECTURES
}

/// By `general.architecture`; the error lists those known.
pub fn by_name(name: &str) -> Result<&'static Architecture> {
    all()
        .iter()
        .copied()
        .find(|a| a.name == name)
        .ok_or_else(|| Error::UnknownArchitecture {
            found: name.into(),
            known: all().iter().map(|a| a.name).collect::<Vec<_>>().join(", ").into(),
        })
}

/// By class name of a checkpoint.
pub fn by_hf_class(class: &str) -> Result<&'static Architecture> {
    all()
        .iter()
        .copied()
        .find(|a| a.hf_classes.contains(&class))
        .ok_or_else(|| Error::UnknownArchitecture {
            found: class.into(),
            known: all()
                .iter()
                .flat_map(|a| a.hf_classes)
                .copied()
                .collect::<Vec<_>>()
                .join(", ")
                .into(),
        })
}

/// The architecture and hyper-parameters that a GGUF file's metadata names.
pub fn describe(metadata: &Metadata) -> Result<(&'static Architecture, HParams)> {
    let name = metadata.string(gguf::key::ARCHITECTURE)?.ok_or_else(|| {
        Error::mismatch(
            format!("metadata key `{}`", gguf::key::ARCHITECTURE),
            "a string",
            "nothing",
        )
    })?;
    let arch = by_name(name)?;
    Ok((arch, HParams::from_gguf(arch.name, metadata)?))
}

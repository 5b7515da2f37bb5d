//! One file per architecture. To add one: write the file, add its `mod` line and its entry in [`all`].

use crate::spec::ModelSpec;
use crate::{HParams, Result, Role};

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

/// Everything that is particular to one architecture.
#[derive(Debug)]
pub struct Architecture {
    /// `general.architecture`.
    pub name: &'static str,
    /// Class names in a checkpoint's `architectures`.
    pub hf_classes: &'static [&'static str],
    /// The forward pass.
    pub model: fn(&HParams) -> Result<ModelSpec>,
    /// The tensors.
    pub tensors: fn(&HParams) -> Vec<TensorExpectation>,
}

/// Every architecture of this build.
pub fn all() -> &'static [&'static Architecture] {
    &[]
}

/// By `general.architecture`; the error lists those known.
pub fn by_name(_name: &str) -> Result<&'static Architecture> {
    todo!()
}

/// By class name of a checkpoint.
pub fn by_hf_class(_class: &str) -> Result<&'static Architecture> {
    todo!()
}

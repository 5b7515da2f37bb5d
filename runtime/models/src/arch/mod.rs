//! One file per architecture. To add one: write the file out of [`parts`], add its `mod` line and its entry in
//! `ARCHITECTURES`.

mod deepseek2;
mod dots1;
mod ernie4_5_moe;
mod gemma;
mod gemma2;
mod gemma3;
mod glm4moe;
mod gpt_oss;
mod granitemoe;
mod hunyuan_moe;
mod llama;
mod llama4;
mod minimax_m2;
mod olmoe;
pub mod parts;
mod passes;
mod phi3;
mod qwen2;
mod qwen2moe;
mod qwen3;
mod qwen3moe;
mod qwen3next;
mod seed_oss;
mod smollm3;

use gguf::Metadata;
use serde_json::Value as Json;

use crate::effects::Effect;
use crate::hf::{Fixed, TensorRule};
use crate::hparams::{GENERIC, Row};
use crate::spec::ModelSpec;
use crate::{Error, HParams, Part, Result, Role};

/// A tensor that a model of the architecture has: its shape (row length first) and whether it must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorExpectation {
    /// What it is.
    pub role: Role,
    /// Which part of it.
    pub part: Part,
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
            part: Part::Main,
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

    /// The same, but the bias that goes with it.
    #[must_use]
    pub fn bias(self) -> Self {
        Self {
            part: Part::Bias,
            ..self
        }
    }

    /// The GGUF name.
    pub fn name(&self) -> String {
        self.role.part_name(self.part, self.layer.unwrap_or(0))
    }
}

/// What a converter does with layers behind the last one of the model, which predict further tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mtp {
    /// There are none.
    Absent,
    /// They are left out.
    Dropped,
    /// They become the last blocks, which `nextn_predict_layers` counts, unless they are not wanted.
    Kept,
}

/// A tensor that is computed from the config.
#[derive(Clone, Debug, PartialEq)]
pub struct Computed {
    /// What it is: a vector outside layers.
    pub role: Role,
    /// Its values.
    pub values: Vec<f32>,
}

/// Everything that is particular to one architecture.
#[derive(Debug)]
pub struct Architecture {
    /// `general.architecture`.
    pub name: &'static str,
    /// Class names in a checkpoint's `architectures`.
    pub hf_classes: &'static [&'static str],
    /// Hyper-parameters that most architectures share, [`GENERIC`]; none where the reference converter has an order of
    /// its own.
    pub generic: &'static [Row],
    /// Its own hyper-parameters, in the order in which the reference converter writes them. A row with the key of an
    /// earlier one replaces its value.
    pub hparams: &'static [&'static [Row]],
    /// Rows of routing and rotation that the reference converter leaves to a loader's defaults. A converter writes
    /// them behind all others where the key is not there yet.
    pub explicit: &'static [&'static [Row]],
    /// Keys that the forward pass takes for granted beside or against [`crate::effects::GENERIC`], with the
    /// values that it holds for.
    pub effects: &'static [Effect],
    /// Settings of a checkpoint that the description takes for granted.
    pub fixed: &'static [Fixed],
    /// Types of rotation in a checkpoint's settings that are known beside `default`.
    pub rope_types: &'static [&'static str],
    /// From a checkpoint's tensors to GGUF's, first match wins. Groups, so that architectures can share them;
    /// stacks of experts belong together where their rules are in one group.
    pub hf_tensors: &'static [&'static [TensorRule]],
    /// What becomes of a checkpoint's layers that predict further tokens.
    pub mtp: fn(&Json) -> Mtp,
    /// Tensors that are computed from the config, in front of all others.
    pub computed: fn(&Json, &HParams) -> Result<Vec<Computed>>,
    /// The forward pass.
    pub forward: fn(&HParams) -> ModelSpec,
    /// The tensors.
    pub tensors: fn(&HParams) -> Vec<TensorExpectation>,
}

impl Architecture {
    /// The forward pass, whose sizes fit each other.
    ///
    /// # Errors
    /// Hyper-parameters that make a part of a layer empty, or parts that do not fit; each names the layer.
    pub fn model(&self, h: &HParams) -> Result<ModelSpec> {
        let model = (self.forward)(h);
        model.check(self.name)?;
        Ok(model)
    }

    /// Nothing: what an architecture does not say of itself.
    const BASE: Self = Self {
        name: "",
        hf_classes: &[],
        generic: GENERIC,
        hparams: &[],
        explicit: &[],
        effects: &[],
        fixed: &[],
        rope_types: &[],
        hf_tensors: &[],
        mtp: |_| Mtp::Absent,
        computed: |_, _| Ok(Vec::new()),
        forward: |h| {
            passes::model(h, |il| {
                unreachable!("layer {il} of an architecture without layers")
            })
        },
        tensors: |_| Vec::new(),
    };
}

static ARCHITECTURES: &[&Architecture] = &[
    &deepseek2::ARCHITECTURE,
    &dots1::ARCHITECTURE,
    &ernie4_5_moe::ARCHITECTURE,
    &gemma2::ARCHITECTURE,
    &gemma3::ARCHITECTURE,
    &glm4moe::ARCHITECTURE,
    &gpt_oss::ARCHITECTURE,
    &granitemoe::ARCHITECTURE,
    &hunyuan_moe::ARCHITECTURE,
    &llama::ARCHITECTURE,
    &llama4::ARCHITECTURE,
    &minimax_m2::ARCHITECTURE,
    &olmoe::ARCHITECTURE,
    &phi3::ARCHITECTURE,
    &qwen2::ARCHITECTURE,
    &qwen2moe::ARCHITECTURE,
    &qwen3::ARCHITECTURE,
    &qwen3moe::ARCHITECTURE,
    &qwen3next::ARCHITECTURE,
    &seed_oss::ARCHITECTURE,
    &smollm3::ARCHITECTURE,
];

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_lists_every_architecture() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
        let readme = std::fs::read_to_string(path).expect("the README is there");
        let list = readme
            .lines()
            .find_map(|line| line.strip_prefix("- Architectures: "))
            .expect("a line");
        let quoted: Vec<_> = list.split('`').skip(1).step_by(2).collect();
        let names: Vec<_> = all().iter().map(|a| a.name).collect();
        assert_eq!(quoted, names);
    }

    #[test]
    fn classes_and_names_are_unique() {
        let mut names: Vec<_> = all().iter().map(|a| a.name).collect();
        let mut classes: Vec<_> = all().iter().flat_map(|a| a.hf_classes).collect();
        assert!(names.is_sorted(), "by name, so that lists are in order");
        classes.sort();
        let n = (names.len(), classes.len());
        names.dedup();
        classes.dedup();
        assert_eq!((names.len(), classes.len()), n);
    }
}

//! From a checkpoint's tensors to the output's: names, shapes, and for every output the stretches of source
//! files that it is made of.

use std::collections::{BTreeMap, HashSet};

use gguf::Shape;
use gguf_models::arch::Architecture;
use gguf_models::hf::{self, Match, Transform};
use gguf_models::{HParams, Role};

use crate::Result;
use crate::error::{Error, shortened};
use crate::source::{Dtype, SourceTensor, Weights};
use crate::view::{Select, View};

/// How many names a message lists.
const N_SHOWN: usize = 3;

/// A tensor of the output.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    /// What it is.
    pub(crate) role: Role,
    /// GGUF name.
    pub(crate) name: String,
    /// Dimensions, row length first.
    pub(crate) shape: Shape,
    /// Its matrices, in order.
    pub(crate) views: Vec<View>,
}

/// The experts of a layer seen so far: by the rule's place among the architecture's rules, then by expert.
type Stacks<'a> = BTreeMap<(usize, usize), &'a SourceTensor>;

/// Maps every tensor of a checkpoint, in the order in which the reference converter writes them.
///
/// # Errors
/// Tensors that the architecture has no place for, number formats without a decoder, shapes that a transform
/// cannot take, and stacks with missing or surplus experts.
pub(crate) fn outputs(arch: &Architecture, hparams: &HParams, weights: &Weights) -> Result<Vec<Output>> {
    let mut outputs = Vec::new();
    let mut stacks: BTreeMap<usize, Stacks<'_>> = BTreeMap::new();
    let mut unknown = Vec::new();
    for tensor in &weights.tensors {
        if hf::is_ignored(&tensor.name) {
            continue;
        }
        let Some(found) = hf::match_name(arch, &tensor.name) else {
            unknown.push(format!("`{}`", tensor.name));
            continue;
        };
        require_weights(tensor)?;
        let layer = found.layer.unwrap_or(0);
        match found.rule.transform {
            Transform::Copy => outputs.push(copy(found.rule.role, layer, tensor)?),
            Transform::SplitRows { second } => {
                outputs.extend(split_rows([found.rule.role, second], layer, tensor)?);
            }
            Transform::StackExperts => {
                let stack = stacks.entry(layer).or_default();
                collect(arch, hparams, &found, tensor, stack)?;
                if stack.len() == stack_rules(arch).count() * hparams.n_expert {
                    outputs.extend(stack_experts(arch, hparams, layer, stack)?);
                    stacks.remove(&layer);
                }
            }
            _ => {
                return Err(Error::unsupported(
                    format!("tensor `{}`", tensor.name),
                    "its transform is new",
                ));
            }
        }
    }
    if !unknown.is_empty() {
        let object = format!("tensors that architecture `{}` has no place for", arch.name);
        return Err(Error::mismatch(
            object,
            "none",
            shortened(&unknown, N_SHOWN, ", "),
        ));
    }
    if let Some((&layer, stack)) = stacks.first_key_value() {
        return Err(missing_experts(arch, hparams, layer, stack));
    }
    check_unique(&outputs)?;
    Ok(outputs)
}

/// Two tensors of a checkpoint must not have one role, as with experts that are there alone and fused.
fn check_unique(outputs: &[Output]) -> Result<()> {
    let mut seen = HashSet::new();
    match outputs.iter().find(|o| !seen.insert(o.name.as_str())) {
        Some(twice) => {
            let object = format!("tensors of the checkpoint for `{}`", twice.name);
            Err(Error::mismatch(object, "one", "more"))
        }
        None => Ok(()),
    }
}

/// The checkpoint's tensor of a role that is neither stacked nor split.
pub(crate) fn find<'a>(arch: &Architecture, role: Role, weights: &'a Weights) -> Option<&'a SourceTensor> {
    weights
        .tensors
        .iter()
        .find(|t| hf::match_name(arch, &t.name).is_some_and(|m| m.rule.role == role))
}

/// The name that a checkpoint has for a role outside layers.
pub(crate) fn hf_name(arch: &Architecture, role: Role) -> &'static str {
    hf::rules(arch).find(|r| r.role == role).map_or("", |r| r.pattern)
}

fn require_weights(tensor: &SourceTensor) -> Result<()> {
    if tensor.dtype.format().is_some() {
        return Ok(());
    }
    let hint = format!("weights are read from {}", Dtype::supported());
    Err(Error::unsupported(
        format!("dtype `{}` of tensor `{}`", tensor.dtype.name, tensor.name),
        hint,
    ))
}

fn copy(role: Role, layer: usize, tensor: &SourceTensor) -> Result<Output> {
    let shape = gguf_shape(tensor, &tensor.shape)?;
    Ok(Output {
        role,
        name: role.gguf_name(layer),
        shape,
        views: whole(tensor).collect(),
    })
}

/// Every matrix of a tensor as it is.
fn whole(tensor: &SourceTensor) -> impl Iterator<Item = View> {
    (0..tensor.n_matrices()).map(|i| View::whole(tensor.matrix(i)))
}

/// Cuts every matrix of `[.., 2 r, c]` into the rows of the first and of the second role.
fn split_rows(roles: [Role; 2], layer: usize, tensor: &SourceTensor) -> Result<[Output; 2]> {
    let (stacked, rows, cols) = match tensor.shape.as_slice() {
        [stacked @ .., rows, cols] if rows.is_multiple_of(2) => (stacked, rows / 2, *cols),
        other => {
            let object = format!("shape of tensor `{}`", tensor.name);
            return Err(Error::mismatch(
                object,
                "matrices with an even number of rows",
                format!("{other:?}"),
            ));
        }
    };
    let shape = gguf_shape(tensor, &[stacked, &[rows, cols]].concat())?;
    Ok([0, 1].map(|half| {
        let role = roles[half as usize];
        let view = |i| View {
            rows: Select::span(half * rows, rows),
            ..View::whole(tensor.matrix(i))
        };
        Output {
            role,
            name: role.gguf_name(layer),
            shape,
            views: (0..tensor.n_matrices()).map(view).collect(),
        }
    }))
}

/// The rules whose stacks belong together, with their places among the architecture's rules.
fn stack_rules(arch: &Architecture) -> impl Iterator<Item = (usize, &'static hf::TensorRule)> {
    hf::rules(arch)
        .enumerate()
        .filter(|(_, rule)| rule.transform == Transform::StackExperts)
}

fn collect<'a>(
    arch: &Architecture,
    hparams: &HParams,
    found: &Match,
    tensor: &'a SourceTensor,
    stack: &mut Stacks<'a>,
) -> Result<()> {
    let expert = found.expert.unwrap_or(0);
    if expert >= hparams.n_expert {
        let object = format!("expert of tensor `{}`", tensor.name);
        let expected = format!("below the {} experts of config.json", hparams.n_expert);
        return Err(Error::mismatch(object, expected, expert));
    }
    let place = stack_rules(arch)
        .find(|(_, rule)| std::ptr::eq(*rule, found.rule))
        .map_or(0, |(i, _)| i);
    match stack.insert((place, expert), tensor) {
        Some(other) => {
            let found = format!("`{}` and `{}`", other.name, tensor.name);
            Err(Error::mismatch(
                format!("tensors for expert {expert}"),
                "one",
                found,
            ))
        }
        None => Ok(()),
    }
}

fn stack_experts(
    arch: &Architecture,
    hparams: &HParams,
    layer: usize,
    stack: &Stacks<'_>,
) -> Result<Vec<Output>> {
    stack_rules(arch)
        .map(|(place, rule)| {
            let experts: Vec<_> = stack
                .range((place, 0)..=(place, usize::MAX))
                .map(|(_, tensor)| *tensor)
                .collect();
            let Some(first) = experts.first() else {
                return Err(missing_experts(arch, hparams, layer, stack));
            };
            if let Some(odd) = experts.iter().find(|t| t.shape != first.shape) {
                let object = format!("shape of tensor `{}`", odd.name);
                let expected = format!("{:?} as of `{}`", first.shape, first.name);
                return Err(Error::mismatch(object, expected, format!("{:?}", odd.shape)));
            }
            let stacked = [&[experts.len() as u64], first.shape.as_slice()].concat();
            let shape = gguf_shape(first, &stacked)?;
            let views = experts.iter().flat_map(|t| whole(t)).collect();
            Ok(Output {
                role: rule.role,
                name: rule.role.gguf_name(layer),
                shape,
                views,
            })
        })
        .collect()
}

fn missing_experts(arch: &Architecture, hparams: &HParams, layer: usize, stack: &Stacks<'_>) -> Error {
    let mut missing = Vec::new();
    for (place, rule) in stack_rules(arch) {
        let experts = (0..hparams.n_expert).filter(|&e| !stack.contains_key(&(place, e)));
        missing.extend(experts.take(N_SHOWN + 1).map(|expert| {
            let name = rule.pattern.replace("{layer}", &layer.to_string());
            format!("`{}`", name.replace("{expert}", &expert.to_string()))
        }));
    }
    let n = stack_rules(arch).count() * hparams.n_expert - stack.len();
    let shown = missing
        .iter()
        .take(N_SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    let found = format!("none of {n} tensors");
    Error::mismatch(format!("experts of layer {layer}"), shown, found)
}

/// Row length last to row length first.
fn gguf_shape(tensor: &SourceTensor, dims: &[u64]) -> Result<Shape> {
    let reversed: Vec<u64> = dims.iter().rev().copied().collect();
    Shape::new(&reversed).ok_or_else(|| {
        let object = format!("shape of tensor `{}`", tensor.name);
        Error::mismatch(object, "at most 4 dimensions", format!("{dims:?}"))
    })
}

//! Compares a file's tensors with what its architecture needs.

use std::collections::{HashMap, HashSet};

use gguf::validate::Finding;
use gguf::{GgufFile, Shape};

use crate::arch::{Architecture, TensorExpectation};
use crate::component::split_layer;
use crate::{Component, HParams, Part, Role};

/// Compares the tensors of a file with the architecture's. Missing tensors and wrong shapes are severe;
/// tensors that the architecture does not have are merely unusual.
pub fn check(file: &GgufFile, arch: &Architecture, hparams: &HParams) -> Vec<Finding> {
    let tensors: Vec<_> = file.tensors.iter().map(|t| (t.name.as_str(), t.shape)).collect();
    let mut hparams = hparams.clone();
    // Without a vocabulary nothing but a key that loaders pass over says how many tokens there are.
    if !file.metadata.contains(gguf::key::TOKENS)
        && let Some(embedding) = file.tensor(&Role::TokenEmbd.gguf_name(0))
    {
        hparams.n_vocab = usize::try_from(embedding.shape.n_rows()).unwrap_or(hparams.n_vocab);
    }
    let mut findings = check_shapes(&tensors, arch, &hparams);
    for finding in &mut findings {
        if let Some(tensor) = file.tensor(&finding.object) {
            finding.at = Some(file.tensor_range(tensor).start);
            finding.part = tensor.part;
        }
    }
    findings
}

/// The same for tensors that are only planned: names and shapes.
pub fn check_shapes(tensors: &[(&str, Shape)], arch: &Architecture, hparams: &HParams) -> Vec<Finding> {
    let mut left: HashMap<&str, &Shape> = tensors.iter().map(|(name, shape)| (*name, shape)).collect();
    // A layer that predicts further tokens may be announced by its key alone, as by checkpoints that come without it.
    let layers: HashSet<usize> = tensors
        .iter()
        .filter_map(|(name, _)| split_layer(name))
        .map(|(il, _)| il as usize)
        .collect();
    let is_only_announced =
        |layer: Option<usize>| layer.is_some_and(|il| il >= hparams.n_layer_main() && !layers.contains(&il));
    let mut findings = Vec::new();
    for expected in (arch.tensors)(hparams) {
        let name = expected.name();
        if expected.part == Part::Main {
            findings.extend(check_factors(&expected, hparams, &mut left));
        }
        match left.remove(name.as_str()) {
            Some(shape) if same_shape(shape.dims(), &expected.shape) => {}
            Some(shape) => {
                let what = format!("shape: expected {:?}, found {:?}", expected.shape, shape.dims());
                findings.push(finding(true, name, what));
            }
            None if expected.required && !is_only_announced(expected.layer) => {
                let what = format!("expected a tensor of shape {:?}, found none", expected.shape);
                findings.push(finding(true, name, what));
            }
            None => {}
        }
    }
    for (name, _) in tensors.iter().filter(|(name, _)| left.contains_key(name)) {
        let what = format!("architecture `{}` has no tensor of this name", arch.name);
        findings.push(finding(false, (*name).to_owned(), what));
    }
    findings
}

/// Factors that may go with any weights: one number, or one for each expert.
fn check_factors(
    of: &TensorExpectation,
    hparams: &HParams,
    left: &mut HashMap<&str, &Shape>,
) -> Option<Finding> {
    let n_expert = [hparams.n_expert as u64];
    let dims: &[u64] = match Component::of(&of.name()) {
        Component::Experts => &n_expert,
        _ => &[1],
    };
    [Part::Scale, Part::InputScale].into_iter().find_map(|part| {
        let name = of.role.part_name(part, of.layer.unwrap_or(0));
        // Roles that are no weights have no factors.
        let shape = (name != of.name()).then(|| left.remove(name.as_str()))??;
        let what = format!("shape: expected {dims:?}, found {:?}", shape.dims());
        (!same_shape(shape.dims(), dims)).then(|| finding(true, name, what))
    })
}

fn finding(severe: bool, object: String, what: String) -> Finding {
    if severe {
        Finding::severe(object, None, what, "convert the model again")
    } else {
        Finding::unusual(object, None, what, "nothing, if the model works")
    }
}

/// Trailing dimensions of 1 may be written or left out.
fn same_shape(a: &[u64], b: &[u64]) -> bool {
    let n = a.len().max(b.len());
    let dim = |dims: &[u64], i: usize| dims.get(i).copied().unwrap_or(1);
    (0..n).all(|i| dim(a, i) == dim(b, i))
}

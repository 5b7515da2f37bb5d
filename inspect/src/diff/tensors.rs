//! What sets the lists of tensors of two models apart.

use std::collections::{BTreeMap, HashSet};

use gguf::{GgufFile, TensorInfo};
use serde::Serialize;

/// A tensor that only one model has.
#[derive(Debug, Serialize)]
pub(super) struct Lone<'a> {
    pub(super) name: &'a str,
    #[serde(rename = "type")]
    pub(super) type_name: String,
    pub(super) shape: &'a [u64],
    pub(super) bytes: u64,
}

/// A tensor of another type or shape.
#[derive(Debug, Serialize)]
pub(super) struct Changed<'a> {
    pub(super) name: &'a str,
    pub(super) type_a: String,
    pub(super) type_b: String,
    pub(super) shape_a: &'a [u64],
    pub(super) shape_b: &'a [u64],
    pub(super) bytes_a: u64,
    pub(super) bytes_b: u64,
}

/// Tensors of a type in both models.
#[derive(Debug, Default, Serialize)]
pub(super) struct TypeSizes {
    pub(super) tensors_a: u64,
    pub(super) tensors_b: u64,
    pub(super) bytes_a: u64,
    pub(super) bytes_b: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Differences<'a> {
    /// Only B has them.
    pub(super) added: Vec<Lone<'a>>,
    /// Only A has them.
    pub(super) removed: Vec<Lone<'a>>,
    pub(super) changed: Vec<Changed<'a>>,
    /// By type name.
    pub(super) by_type: BTreeMap<String, TypeSizes>,
    /// Tensors of both, in the order of A.
    #[serde(skip)]
    pub(super) pairs: Vec<(&'a TensorInfo, &'a TensorInfo)>,
    /// Whether the tensors that both have stand in another order.
    #[serde(skip)]
    pub(super) reordered: bool,
    /// How many of them stand at another place: file or offset.
    #[serde(skip)]
    pub(super) n_moved: usize,
}

/// Compares by name the tensors that are wanted.
pub(super) fn compare<'a>(
    a: &'a GgufFile,
    b: &'a GgufFile,
    wanted: &dyn Fn(&str) -> bool,
) -> Differences<'a> {
    let (in_a, in_b) = (select(a, wanted), select(b, wanted));
    let lone = |t: &'a TensorInfo| Lone {
        name: &t.name,
        type_name: t.type_name(),
        shape: t.shape.dims(),
        bytes: t.n_bytes,
    };
    let mut found = Differences {
        added: in_b
            .iter()
            .filter(|t| a.tensor(&t.name).is_none())
            .map(|t| lone(t))
            .collect(),
        removed: in_a
            .iter()
            .filter(|t| b.tensor(&t.name).is_none())
            .map(|t| lone(t))
            .collect(),
        changed: Vec::new(),
        by_type: BTreeMap::new(),
        pairs: in_a
            .iter()
            .filter_map(|t| Some((*t, b.tensor(&t.name)?)))
            .collect(),
        reordered: false,
        n_moved: 0,
    };
    for (x, y) in &found.pairs {
        found.n_moved += usize::from((x.part, x.offset) != (y.part, y.offset));
        if x.type_id != y.type_id || x.shape.dims() != y.shape.dims() {
            found.changed.push(Changed {
                name: &x.name,
                type_a: x.type_name(),
                type_b: y.type_name(),
                shape_a: x.shape.dims(),
                shape_b: y.shape.dims(),
                bytes_a: x.n_bytes,
                bytes_b: y.n_bytes,
            });
        }
    }
    let in_b_too = in_b.iter().filter(|t| a.tensor(&t.name).is_some());
    found.reordered = !found
        .pairs
        .iter()
        .map(|(_, y)| &y.name)
        .eq(in_b_too.map(|t| &t.name));
    for t in in_a {
        let sizes = found.by_type.entry(t.type_name()).or_default();
        sizes.tensors_a += 1;
        sizes.bytes_a = sizes.bytes_a.saturating_add(t.n_bytes);
    }
    for t in in_b {
        let sizes = found.by_type.entry(t.type_name()).or_default();
        sizes.tensors_b += 1;
        sizes.bytes_b = sizes.bytes_b.saturating_add(t.n_bytes);
    }
    found
}

/// The wanted tensors in their order; of several with the same name the first.
fn select<'a>(file: &'a GgufFile, wanted: &dyn Fn(&str) -> bool) -> Vec<&'a TensorInfo> {
    let mut seen = HashSet::new();
    let tensors = file.tensors.iter();
    tensors
        .filter(|t| wanted(&t.name) && seen.insert(t.name.as_str()))
        .collect()
}

impl Differences<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

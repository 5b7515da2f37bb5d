//! What the page shows of a model, gathered in one pass over its tensors.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gguf::GgufFile;
use gguf_models::component::{Component, split_layer};

use crate::show::Sums;

/// The number of a layer; `None` for tensors outside of all layers.
pub(super) type Layer = Option<u32>;

/// Sums of layers and components.
pub(super) struct Parts {
    /// For each layer its components.
    pub(super) cells: BTreeMap<Layer, BTreeMap<Component, Sums>>,
    /// For each layer all of it.
    pub(super) layers: BTreeMap<Layer, Sums>,
}

impl Parts {
    pub(super) fn of(file: &GgufFile) -> Self {
        let mut parts = Self {
            cells: BTreeMap::new(),
            layers: BTreeMap::new(),
        };
        for tensor in &file.tensors {
            let layer = split_layer(&tensor.name).map(|(n, _)| n);
            let cell = parts.cells.entry(layer).or_default();
            cell.entry(Component::of(&tensor.name)).or_default().add(tensor);
            parts.layers.entry(layer).or_default().add(tensor);
        }
        parts
    }
}

/// A table of layers and kinds of tensors with at most one value in a cell.
pub(super) struct Grid {
    /// Names of tensors without `blk.N.` and `.weight`, in the order of the model.
    pub(super) kinds: Vec<String>,
    pub(super) layers: BTreeSet<u32>,
    pub(super) cells: BTreeMap<(u32, usize), Cell>,
}

/// A value, as a number for the colour and as text.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) value: f64,
    pub(super) text: String,
    /// More, for a pointer that rests on the cell.
    pub(super) title: String,
}

impl Grid {
    /// The tensors inside layers for which `value` has one.
    pub(super) fn of<'a>(names: impl Iterator<Item = &'a str>, value: impl Fn(&str) -> Option<Cell>) -> Self {
        let mut grid = Self {
            kinds: Vec::new(),
            layers: BTreeSet::new(),
            cells: BTreeMap::new(),
        };
        let mut places: HashMap<&str, usize> = HashMap::new();
        for name in names {
            let Some((layer, stem)) = split_layer(name) else {
                continue;
            };
            let Some(cell) = value(name) else {
                continue;
            };
            let kind = stem.strip_suffix(".weight").unwrap_or(stem);
            let i = *places.entry(kind).or_insert_with(|| {
                grid.kinds.push(kind.to_owned());
                grid.kinds.len() - 1
            });
            grid.layers.insert(layer);
            grid.cells.insert((layer, i), cell);
        }
        grid
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The smallest and largest finite value.
    pub(super) fn range(&self) -> (f64, f64) {
        let finite = self.cells.values().map(|c| c.value).filter(|v| v.is_finite());
        finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| {
            (lo.min(v), hi.max(v))
        })
    }
}

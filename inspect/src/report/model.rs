//! What the page shows of a model, gathered in one pass over its tensors.

use std::collections::{BTreeMap, HashMap};

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

/// Columns of a table. Models have up to fifty, and three for each expert where those are not stacked; browsers lay out
/// all cells, also empty ones.
const MAX_KINDS: usize = 512;

/// A table of layers and kinds of tensors with at most one value in a cell.
pub(super) struct Grid {
    /// Names of tensors without `blk.N.` and `.weight`, in the order of the model; of too many those that the most
    /// layers have.
    pub(super) kinds: Vec<String>,
    /// For each layer its cells by their kind.
    pub(super) layers: BTreeMap<u32, BTreeMap<usize, Cell>>,
    /// Kinds that are too many.
    pub(super) n_left_out: usize,
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
            layers: BTreeMap::new(),
            n_left_out: 0,
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
            grid.layers.entry(layer).or_default().insert(i, cell);
        }
        grid.leave_out();
        grid
    }

    /// Leaves out what is beyond [`MAX_KINDS`].
    fn leave_out(&mut self) {
        self.n_left_out = self.kinds.len().saturating_sub(MAX_KINDS);
        if self.n_left_out == 0 {
            return;
        }
        let mut n_layers = vec![0usize; self.kinds.len()];
        for kind in self.layers.values().flat_map(BTreeMap::keys) {
            n_layers[*kind] += 1;
        }
        let mut order: Vec<usize> = (0..self.kinds.len()).collect();
        order.sort_by_key(|&kind| std::cmp::Reverse(n_layers[kind]));
        order.truncate(MAX_KINDS);
        order.sort_unstable();
        for cells in self.layers.values_mut() {
            let kept = std::mem::take(cells).into_iter();
            *cells = kept
                .filter_map(|(kind, cell)| Some((order.binary_search(&kind).ok()?, cell)))
                .collect();
        }
        self.layers.retain(|_, cells| !cells.is_empty());
        self.kinds = order
            .into_iter()
            .map(|kind| std::mem::take(&mut self.kinds[kind]))
            .collect();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The smallest and largest finite value.
    pub(super) fn range(&self) -> (f64, f64) {
        let cells = self.layers.values().flat_map(BTreeMap::values);
        let finite = cells.map(|c| c.value).filter(|v| v.is_finite());
        finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| {
            (lo.min(v), hi.max(v))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html;

    fn heat(names: &[String]) -> String {
        let grid = Grid::of(names.iter().map(String::as_str), |name| {
            Some(Cell {
                value: 1.0,
                text: "F32".to_owned(),
                title: name.to_owned(),
            })
        });
        html::heat(&grid, "bits", false)
    }

    #[test]
    fn a_table_is_as_long_as_its_tensors_are_many() {
        for (n_layers, n_kinds) in [(2000, 2000), (500, 500), (2000, 1), (1, 2000)] {
            let n = n_layers.max(n_kinds);
            let names: Vec<String> = (0..n)
                .map(|i| format!("blk.{}.part{}.weight", i % n_layers, i % n_kinds))
                .collect();
            let page = heat(&names);
            assert!(page.len() < 300 * n, "{} bytes of {n} tensors", page.len());
        }
    }

    #[test]
    fn rows_are_as_wide_as_the_header() {
        let names = ["blk.0.a", "blk.0.e", "blk.1.b", "blk.1.c", "blk.2.d", "blk.3.a"].map(str::to_owned);
        let page = heat(&names);
        let rows: Vec<&str> = page.split("<tr>").skip(1).collect();
        assert_eq!(rows.len(), 5);
        for row in rows {
            let spans = row.split("colspan=\"").skip(1);
            let more = spans.map(|s| s.split('"').next().and_then(|n| n.parse::<usize>().ok()));
            let more: usize = more.map(|n| n.expect("a number") - 1).sum();
            assert_eq!(
                row.matches("</td>").count() + row.matches("</th>").count() + more,
                6,
                "{row}"
            );
        }
    }

    #[test]
    fn of_too_many_kinds_the_usual_ones_stay_and_the_others_are_counted() {
        let rare = (0..MAX_KINDS + 5).map(|i| format!("blk.0.rare{i}"));
        let usual = (0..3).flat_map(|layer| ["x", "y"].map(|kind| format!("blk.{layer}.{kind}.weight")));
        let names: Vec<String> = rare.chain(usual).collect();
        let page = heat(&names);
        assert!(page.contains("<th>y</th></tr>") && page.contains("title=\"blk.2.x.weight\""));
        assert!(page.contains("<th>rare509</th><th>x</th>"));
        assert!(
            page.contains("7 more kinds of tensors are not shown"),
            "{}",
            &page[page.len() - 200..]
        );
    }
}

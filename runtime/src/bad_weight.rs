//! Weights that are no finite numbers.

use crate::pool;
use std::borrow::Cow;
use std::fmt;

use gguf::{GgufFile, TensorInfo};
use gguf_blocks::Unit;
use gguf_models::component::{Component, layer_of};

/// Elements that are decoded together.
const PIECE: usize = 1 << 20;

/// A weight that is no finite number.
#[derive(Clone, Debug, PartialEq)]
pub struct BadWeight {
    /// Name of its tensor.
    pub tensor: String,
    /// Type of the tensor.
    pub kind: String,
    /// The expert, in a stack of them; another matrix of such a stack counts as further rows.
    pub expert: Option<usize>,
    /// Row in the expert, or in the tensor.
    pub row: usize,
    /// Column.
    pub col: usize,
    /// The value.
    pub value: f32,
}

impl fmt::Display for BadWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tensor, kind, .. } = self;
        write!(f, "tensor `{tensor}` ({kind}), ")?;
        if let Some(expert) = self.expert {
            write!(f, "expert {expert}, ")?;
        }
        write!(f, "row {}, column {}, is {}", self.row, self.col, self.value)
    }
}

impl BadWeight {
    /// The first in the embedding and the layers up to `last`, or in the whole model, layer by layer. What cannot be
    /// read or decoded counts as sound. Tensors that are not in memory are read piece by piece.
    pub fn first(file: &GgufFile, last: Option<usize>) -> Option<Self> {
        let mut tensors: Vec<(Option<usize>, &TensorInfo)> = file
            .tensors
            .iter()
            .map(|t| (layer_of(&t.name), t))
            .filter(|(layer, t)| match (layer, last) {
                (_, None) => true,
                (Some(layer), Some(last)) => *layer <= last,
                (None, Some(_)) => Component::of(&t.name) == Component::Embedding,
            })
            .collect();
        tensors.sort_by_key(|(layer, _)| *layer);
        tensors.into_iter().find_map(|(_, t)| Self::of(file, t))
    }

    /// The first of a tensor.
    pub fn of(file: &GgufFile, t: &TensorInfo) -> Option<Self> {
        let format = t.format()?;
        let decode = format.decode?;
        let n_cols = usize::try_from(t.shape.n_cols()).ok()?;
        let n_rows = usize::try_from(t.shape.n_rows()).ok()?;
        // Rows that are decoded together.
        let unit_rows = match format.geometry.unit() {
            Unit::Block => 1,
            Unit::Rows => format.geometry.interleave,
            Unit::Tensor => n_rows,
        };
        let n_units = n_rows.checked_div(unit_rows)?.max(1);
        let unit_bytes = usize::try_from(t.n_bytes).ok()? / n_units;
        if unit_bytes == 0 {
            return None;
        }
        let step = (PIECE / (unit_rows * n_cols).max(1)).clamp(1, n_units);
        let in_memory = file.part(t).source().bytes().is_some();
        let whole = if in_memory {
            file.tensor_bytes(t).ok()?
        } else {
            Cow::default()
        };
        let mut piece = Vec::new();
        let (row, col, value) = (0..n_units).step_by(step).find_map(|first| {
            let n_bytes = step.min(n_units - first) * unit_bytes;
            let at = first * unit_bytes;
            let bytes = if in_memory {
                whole.get(at..at + n_bytes)?
            } else {
                piece.resize(n_bytes, 0);
                file.read_tensor(t, at as u64, &mut piece).ok()?;
                &piece
            };
            let units = bytes.chunks_exact(unit_bytes).enumerate();
            let found = pool::map(units, |(unit, bytes)| {
                let mut values = vec![0.0f32; unit_rows * n_cols];
                decode(bytes, &mut values);
                let at = values.iter().position(|v| !v.is_finite())?;
                Some(((first + unit) * unit_rows + at / n_cols, at % n_cols, values[at]))
            });
            found.into_iter().flatten().next()
        })?;
        let per_expert = usize::try_from(t.shape.dim(1)).ok()?;
        let is_stack = t.shape.dim(2) > 1 && Component::of(&t.name) == Component::Experts;
        Some(Self {
            tensor: t.name.clone(),
            kind: t.type_name(),
            expert: is_stack.then(|| row / per_expert),
            row: if is_stack { row % per_expert } else { row },
            col,
            value,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gguf::{Layout, Metadata, Shape, TensorSpec, Writer};
    use gguf_blocks::registry;

    use super::*;

    const UP: &str = "blk.2.ffn_up_exps.weight";
    const HEADS: &str = "blk.0.attn_k_b.weight";

    /// F32 tensors of three matrices of two rows of 4, of which one value each is no number.
    #[expect(
        clippy::disallowed_methods,
        reason = "an input of the test, no output of a program"
    )]
    fn write(path: &Path) {
        let format = registry::by_name("F32").unwrap();
        let shape = Shape::new(&[4, 2, 3]).unwrap();
        let specs = [UP, HEADS].map(|name| TensorSpec::new(name, shape, format.id));
        let layout = Layout::plan(&Metadata::new(), specs.to_vec()).unwrap();
        let mut writer = Writer::new(Vec::new(), &layout).unwrap();
        for value in [f32::NAN, f32::NEG_INFINITY] {
            let mut values = [1.0; 24];
            // Matrix 1, row 1, column 2.
            values[14] = value;
            writer.write(&values.map(f32::to_le_bytes).concat()).unwrap();
        }
        std::fs::write(path, writer.finish().unwrap()).unwrap();
    }

    #[test]
    fn the_first_is_found_mapped_or_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        write(&path);
        for file in [
            GgufFile::open(&path).unwrap(),
            gguf::OpenOptions::new().mapped().open(&path).unwrap(),
        ] {
            let told = |last| BadWeight::first(&file, last).unwrap().to_string();
            let heads = "tensor `blk.0.attn_k_b.weight` (F32), row 3, column 2, is -inf";
            assert_eq!((told(None).as_str(), told(Some(1)).as_str()), (heads, heads));
            let up = BadWeight::of(&file, file.tensor(UP).unwrap()).unwrap();
            assert_eq!(
                (up.expert, up.row, up.col, up.value.is_nan()),
                (Some(1), 1, 2, true)
            );
        }
    }
}

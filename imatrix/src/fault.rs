//! What is said of numbers that are not finite.

use gguf::{GgufFile, TensorInfo};
use gguf_blocks::Unit;
use gguf_cli::Failure;
use gguf_runtime::Error;

use crate::collect::Fault;

/// Elements that are decoded together.
const PIECE: usize = 1 << 20;

impl Fault {
    /// Where it was met, for a text in chunks of `n_ctx` tokens, and the weight that is to blame, if one is.
    pub(crate) fn describe(&self, n_ctx: usize, file: &GgufFile) -> String {
        let chunk = self.token / n_ctx as u64 + 1;
        let place = layer_of(&self.tensor).map_or_else(String::new, |l| format!(", layer {l}"));
        let expert = self.expert.map_or_else(String::new, |e| format!(", expert {e}"));
        let origin = blame(file, layer_of(&self.tensor));
        format!(
            "chunk {chunk}{place}: input of tensor `{}`{expert}, column {}: expected a finite number, found {}; \
             {origin}",
            self.tensor, self.column, self.value
        )
    }
}

/// What becomes of an evaluation's error: the weight that is to blame goes with numbers that are not finite.
pub(crate) fn explain(e: Error, file: &GgufFile) -> Failure {
    let last = match e {
        Error::NonFinite { .. } => None,
        Error::NonFiniteState { layer, .. } => Some(layer),
        e => return e.into(),
    };
    Failure::Input(format!("{e}; {}", blame(file, last)))
}

/// The weight to blame for a number behind some of the layers up to `last`, or of all, in a phrase.
fn blame(file: &GgufFile, last: Option<usize>) -> String {
    first_bad_weight(file, last).map_or_else(
        || "all weights up to there are finite".to_owned(),
        |weight| format!("the model's {weight}"),
    )
}

/// The layer of a tensor, by its name.
pub(crate) fn layer_of(tensor: &str) -> Option<usize> {
    tensor.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// The first weight that is no finite number in the embedding and the layers up to `last`, or in the whole model.
fn first_bad_weight(file: &GgufFile, last: Option<usize>) -> Option<String> {
    let mut tensors: Vec<_> = file
        .tensors
        .iter()
        .map(|t| (layer_of(&t.name), t))
        .filter(|(layer, t)| match (layer, last) {
            (_, None) => true,
            (Some(layer), Some(last)) => *layer <= last,
            (None, Some(_)) => t.name.starts_with("token_embd"),
        })
        .collect();
    tensors.sort_by_key(|(layer, _)| *layer);
    tensors.into_iter().find_map(|(_, t)| bad_weight(file, t))
}

fn bad_weight(file: &GgufFile, t: &TensorInfo) -> Option<String> {
    let format = t.format()?;
    let n_cols = usize::try_from(t.shape.n_cols()).ok()?;
    let n_rows = usize::try_from(t.shape.n_rows()).ok()?;
    // Rows that cannot be taken apart are decoded at once.
    let step = match format.geometry.unit() {
        Unit::Block => (PIECE / n_cols.max(1)).clamp(1, n_rows.max(1)),
        Unit::Rows | Unit::Tensor => n_rows.max(1),
    };
    let bytes = file.tensor_bytes(t).ok()?;
    let row_bytes = usize::try_from(format.geometry.row_bytes(n_cols as u64)?).ok()?;
    let mut values = vec![0.0; n_cols * step];
    for first in (0..n_rows).step_by(step) {
        let n = step.min(n_rows - first);
        let piece = if step == n_rows {
            &*bytes
        } else {
            bytes.get(first * row_bytes..(first + n) * row_bytes)?
        };
        let values = &mut values[..n * n_cols];
        format.decode_rows(n_cols, piece, values)?;
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            let (row, column) = (first + at / n_cols, at % n_cols);
            let per_matrix = usize::try_from(t.shape.dim(1)).ok()?;
            let place = if t.shape.dim(2) > 1 {
                format!("expert {}, row {}", row / per_matrix, row % per_matrix)
            } else {
                format!("row {row}")
            };
            return Some(format!(
                "tensor `{}`, {place}, column {column}, is {}",
                t.name, values[at]
            ));
        }
    }
    None
}

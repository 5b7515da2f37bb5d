//! How layers mix positions: one file a kind.

pub(crate) mod delta_net;
pub(crate) mod gqa;
pub(crate) mod mla;

use gguf_models::spec::{Rope, Temperature};

use crate::kernels::elementwise::RopeTable;
use crate::pool;

/// The table of a rotation.
pub(crate) fn table(ropes: &[RopeTable], rope: Option<Rope>) -> Option<&RopeTable> {
    ropes.iter().find(|t| Some(*t.rope()) == rope)
}

/// Grows query rows of `n_cols` elements with their positions.
pub(crate) fn apply_temperature(t: Temperature, q: &mut [f32], n_cols: usize, place: &[(u32, u32)]) {
    let rows = q.chunks_mut(n_cols).zip(place);
    pool::rows(rows, |(row, &(_, pos))| {
        let step = (pos as usize + t.offset) / t.length.max(1);
        // Through f64, so that no platform's single-precision library decides about the bits.
        let factor = 1.0 + t.scale * (((step + 1) as f64).ln() as f32);
        if factor != 1.0 {
            for v in row {
                *v *= factor;
            }
        }
    });
}

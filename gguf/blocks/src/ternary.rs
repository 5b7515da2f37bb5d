//! What the ternary types have in common: values of -1, 0 and 1 times the largest magnitude of a block.

use crate::half_bulk::f32_to_f16;
use crate::search::{round_away, signed_max};

/// The scale, a half, and the codes 0, 1 and 2 of the values -1, 0 and 1.
pub(crate) fn search(x: &[f32; 256]) -> ([u8; 2], [u8; 256]) {
    let d = signed_max(x).abs();
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    // Out of range only where `1 / d` overflows, which has no defined result in the reference.
    let codes = x.map(|x| (round_away(x * inverse).clamp(-1, 1) + 1) as u8);
    (f32_to_f16(d).to_le_bytes(), codes)
}

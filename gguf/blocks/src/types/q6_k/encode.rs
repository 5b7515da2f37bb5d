//! The encoder of `Q6_K`.

use zerocopy::FromZeros;

use super::Q6K;
use crate::Importance;
use crate::half_bulk::f32_to_f16;
use crate::packing::flatten;
use crate::rows::{self, half};
use crate::search::{TINY, clamp, nint, signed_max, symmetric};
use crate::simd::{Encode, Simd};

/// Values of a sub-block.
const SUB: usize = 16;

impl Encode for Q6K {
    #[inline(always)]
    fn encode<S: Simd>(_: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        let (groups, blocks) = rows::pairs::<Q6K, 256>(src, out);
        match importance {
            Importance::None => {
                for (x, block) in groups.iter().zip(blocks) {
                    *block = search(x, &x.map(|x| x * x));
                }
            }
            Importance::Column(weights) => {
                let weights = rows::weights::<256>(src, weights);
                for ((x, w), block) in groups.iter().zip(weights).zip(blocks) {
                    *block = search(x, w);
                }
            }
        }
    }
}

/// Finds a scale for each sub-block, rounds the scales and chooses the codes again for them.
fn search(x: &[f32; 256], w: &[f32; 256]) -> Q6K {
    let subs = x.as_chunks::<SUB>().0;
    let mut scales = [0.0; 16];
    let mut codes = [[0; SUB]; 16];
    for (k, (x, w)) in subs.iter().zip(w.as_chunks::<SUB>().0).enumerate() {
        scales[k] = symmetric(32.0, x, w, &mut codes[k]);
    }
    let max = signed_max(&scales);
    if max.abs() < TINY {
        return Q6K::new_zeroed();
    }
    let inverse = -128.0 / max;
    let d = f32_to_f16(1.0 / inverse).to_le_bytes();
    let scales = scales.map(|s| nint(inverse * s).min(127.0) as i32 as i8);
    for ((x, codes), scale) in subs.iter().zip(&mut codes).zip(scales) {
        let scale = half(d) * f32::from(scale);
        if scale == 0.0 {
            continue;
        }
        for (code, x) in codes.iter_mut().zip(x) {
            *code = (clamp(nint(x / scale), -32.0, 31.0) + 32.0) as i32 as u8;
        }
    }
    pack(d, scales, &flatten(&codes))
}

/// The opposite of [`super::unpack_codes`].
fn pack(d: [u8; 2], scales: [i8; 16], codes: &[u8; 256]) -> Q6K {
    let ql = std::array::from_fn(|byte| {
        let low = byte / 64 * 128 + byte % 64;
        codes[low] & 15 | codes[low + 64] << 4
    });
    let qh = std::array::from_fn(|byte| {
        let first = byte / 32 * 128 + byte % 32;
        (0..4).fold(0, |bits, j| bits | codes[first + 32 * j] >> 4 << (2 * j))
    });
    Q6K { ql, qh, scales, d }
}

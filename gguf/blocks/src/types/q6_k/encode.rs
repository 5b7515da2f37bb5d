//! The encoder of `Q6_K`.

use zerocopy::FromZeros;

use super::Q6K;
use crate::Importance;
use crate::half_bulk::f32_to_f16;
use crate::rows::half;
use crate::search::{SuperBlock, TINY, nint, recode, signed_max, sixteenths, super_blocks, symmetric};
use crate::simd::{Encode, LANES, Lanes, Simd};

impl Encode for Q6K {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        super_blocks::<S, Self>(simd, src, importance, out);
    }
}

impl SuperBlock for Q6K {
    #[inline(always)]
    fn search<S: Simd>(simd: S, x: &[f32; 256], importance: Option<(&[f32; 256], f32)>) -> Self {
        let lanes = sixteenths(simd, x);
        let w = if let Some((importance, _)) = importance {
            sixteenths(simd, importance)
        } else {
            let mut w = lanes;
            for w in &mut w {
                *w = *w * *w;
            }
            w
        };
        search(simd, x, &lanes, &w)
    }
}

/// Finds a scale for each sub-block, rounds the scales and chooses the codes again for them. `lanes` are the values
/// side by side.
#[inline(always)]
fn search<S: Simd>(simd: S, x: &[f32; 256], lanes: &[S::Lanes; LANES], w: &[S::Lanes; LANES]) -> Q6K {
    let (found_scales, found) = symmetric(simd, 32.0, lanes, w);
    let found_scales = found_scales.to_array();
    let max = signed_max(&found_scales);
    if max.abs() < TINY {
        return Q6K::new_zeroed();
    }
    let inverse = -128.0 / max;
    let d = f32_to_f16(1.0 / inverse).to_le_bytes();
    let (mut scales, mut unrounded) = ([0; LANES], [0.0; LANES]);
    for k in 0..LANES {
        scales[k] = nint(inverse * found_scales[k]).min(127.0) as i32 as i8;
        unrounded[k] = half(d) * f32::from(scales[k]);
    }
    pack(d, scales, &recode(simd, 32.0, x, &unrounded, &found))
}

/// The opposite of [`super::unpack_codes`].
#[inline(always)]
fn pack(d: [u8; 2], scales: [i8; 16], codes: &[u8; 256]) -> Q6K {
    let mut block = Q6K {
        ql: [0; 128],
        qh: [0; 64],
        scales,
        d,
    };
    let groups = codes.as_chunks::<32>().0;
    for (i, ql) in block.ql.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let first = i / 2 * 4 + i % 2;
        for (q, (low, high)) in ql.iter_mut().zip(groups[first].iter().zip(&groups[first + 2])) {
            *q = low & 15 | high << 4;
        }
    }
    for (half, qh) in block.qh.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for j in 0..4 {
            for (q, code) in qh.iter_mut().zip(&groups[4 * half + j]) {
                *q |= code >> 4 << (2 * j);
            }
        }
    }
    block
}

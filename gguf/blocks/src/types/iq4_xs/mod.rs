//! `IQ4_XS`: super-blocks of 256 values; each 32 of them as `d · (scale - 32) · LEVELS[q]` with 6-bit scales and
//! sixteen levels that are denser near zero.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::half_bulk::f32_to_f16;
use crate::iq4::{self, LEVELS};
use crate::packing::{from_nibbles, nibbles};
use crate::rows::{self, half};
use crate::search::{batch, clamp, nint, signed_max, sums_of_squares, transpose};
use crate::simd::{Encode, LANES, Simd, encoder};
use crate::{Format, Geometry, Importance, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ4XS {
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// The high two bits of scale `k` at bit `2 · k`, little-endian.
    scales_h: [u8; 2],
    /// The low four bits of the scales, two a byte.
    scales_l: [u8; 4],
    /// Of each 32 elements: element `j` in the low four bits of byte `j`, element `j + 16` in the high four.
    qs: [[u8; 16]; 8],
}

const _: () = assert!(size_of::<IQ4XS>() == 136);

impl IQ4XS {
    /// The value of a code step of each sub-block.
    #[inline]
    fn sub_scales(&self) -> [f32; 8] {
        let d = half(self.d);
        std::array::from_fn(|k| d * f32::from(self.sub_scale(k)))
    }

    /// Scale `k` in the block's unit: six bits.
    fn sub_scale(&self, k: usize) -> i8 {
        let low = self.scales_l[k / 2] >> (k % 2 * 4) & 15;
        let high = u16::from_le_bytes(self.scales_h) >> (2 * k) & 3;
        (low | (high << 4) as u8) as i8 - 32
    }
}

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(23),
    name: "IQ4_XS",
    geometry: Geometry::blocks(256, size_of::<IQ4XS>()),
    decode: Some(decode),
    encode: Some(encoder::<IQ4XS>),
    encode_cost: 128,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<IQ4XS>(cpu)),
    doc: "16 uneven levels; 6-bit scales for 32 values each",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<IQ4XS, 256>(bytes, out, |b, out| {
        let subs = out.as_chunks_mut::<32>().0.iter_mut().zip(&b.qs);
        for ((out, qs), scale) in subs.zip(b.sub_scales()) {
            for (v, q) in out.iter_mut().zip(from_nibbles(qs)) {
                *v = scale * f32::from(LEVELS[usize::from(q)]);
            }
        }
    });
}

impl Encode for IQ4XS {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        let (groups, blocks) = rows::pairs::<IQ4XS, 256>(src, out);
        let subs = src.as_chunks::<32>().0;
        let weights = match importance {
            Importance::None => None,
            Importance::Column(weights) => Some(rows::weights::<32>(src, weights)),
        };
        // Lanes are the sub-blocks of two super-blocks.
        for (i, blocks) in blocks.chunks_mut(2).enumerate() {
            let first = LANES * i;
            let x = transpose(simd, batch(subs, first));
            let mut importance = None;
            if let Some(weights) = weights {
                let sums = sums_of_squares(&groups[2 * i], &groups[2 * i + blocks.len() - 1]);
                let sigma2 = std::array::from_fn(|j| sums[j / 8] * (2.0 / 256.0));
                importance = Some((batch(weights, first), simd.load(&sigma2)));
            }
            let w = iq4::weights(simd, &x, importance);
            let scales = iq4::scale(simd, &x, &w);
            for (k, block) in blocks.iter_mut().enumerate() {
                *block = finish(simd, &groups[2 * i + k], &scales.as_chunks::<8>().0[k]);
            }
        }
    }
}

/// Rounds the scales of the sub-blocks and chooses the codes for them.
#[inline(always)]
fn finish<S: Simd>(simd: S, x: &[f32; 256], scales: &[f32; 8]) -> IQ4XS {
    // The codes follow from the unit before it is rounded to a half.
    let d = -signed_max(scales) / 32.0;
    let inverse = iq4::inverse(d);
    let (mut low, mut high) = ([0; 4], 0);
    let mut qs = [[0; 16]; 8];
    for (k, x) in x.as_chunks::<32>().0.iter().enumerate() {
        let scale = clamp(nint(inverse * scales[k]), -32.0, 31.0);
        qs[k] = nibbles(&iq4::codes(simd, iq4::inverse(d * scale), x));
        let stored = (scale + 32.0) as i32 as u8;
        low[k / 2] |= (stored & 15) << (k % 2 * 4);
        high |= u16::from(stored >> 4) << (2 * k);
    }
    IQ4XS {
        d: f32_to_f16(d).to_le_bytes(),
        scales_h: high.to_le_bytes(),
        scales_l: low,
        qs,
    }
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<IQ4XS>(bytes, |b| rows::is_finite(b.d))
}

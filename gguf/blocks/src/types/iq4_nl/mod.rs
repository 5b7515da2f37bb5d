//! `IQ4_NL`: 32 values as `d · LEVELS[q]` with sixteen levels that are denser near zero.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::half_bulk::f32_to_f16;
use crate::iq4::{self, LEVELS};
use crate::packing::{from_nibbles, nibbles};
use crate::rows::{self, half};
use crate::search::{batch, transpose};
use crate::simd::{Encode, LANES, Simd, encoder};
use crate::{Format, Geometry, Importance, TypeId};

/// One block of 32 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ4NL {
    /// The scale, a half.
    d: [u8; 2],
    /// Element `j` in the low four bits of byte `j`, element `j + 16` in the high four.
    qs: [u8; 16],
}

const _: () = assert!(size_of::<IQ4NL>() == 18);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(20),
    name: "IQ4_NL",
    geometry: Geometry::blocks(32, size_of::<IQ4NL>()),
    decode: Some(decode),
    encode: Some(encoder::<IQ4NL>),
    encode_cost: 120,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<IQ4NL>(cpu)),
    doc: "16 uneven levels with one scale for 32 values",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<IQ4NL, 32>(bytes, out, |b, out| {
        let d = half(b.d);
        for (v, q) in out.iter_mut().zip(from_nibbles(&b.qs)) {
            *v = d * f32::from(LEVELS[usize::from(q)]);
        }
    });
}

impl Encode for IQ4NL {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        let (groups, blocks) = rows::pairs::<IQ4NL, 32>(src, out);
        let weights = match importance {
            Importance::None => None,
            Importance::Column(weights) => Some(rows::weights::<32>(src, weights)),
        };
        for (i, blocks) in blocks.chunks_mut(LANES).enumerate() {
            let first = LANES * i;
            let x = transpose(simd, batch(groups, first));
            let mut importance = None;
            if let Some(weights) = weights {
                let mut sum = simd.splat(0.0);
                for x in x {
                    sum = sum + x * x;
                }
                importance = Some((batch(weights, first), sum * simd.splat(2.0 / 32.0)));
            }
            let w = iq4::weights(simd, &x, importance);
            let scales = iq4::scale(simd, &x, &w);
            for (j, block) in blocks.iter_mut().enumerate() {
                block.d = f32_to_f16(scales[j]).to_le_bytes();
                block.qs = nibbles(&iq4::codes(simd, iq4::inverse(scales[j]), &groups[first + j]));
            }
        }
    }
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<IQ4NL>(bytes, |b| rows::is_finite(b.d))
}

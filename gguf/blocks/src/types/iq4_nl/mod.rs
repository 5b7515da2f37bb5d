//! `IQ4_NL`: 32 values as `d · LEVELS[q]` with sixteen levels that are denser near zero.

mod kernel;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::half_bulk::f32_to_f16;
use crate::iq4::{self, LEVELS};
use crate::packing::{from_nibbles, nibbles};
use crate::rows::{self, half};
use crate::search::sum_of_squares;
use crate::simd::{Encode, Simd, encoder};
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
    check,
    kernel: |_| Some(kernel::KERNEL),
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
    fn encode<S: Simd>(_: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        let (groups, blocks) = rows::pairs::<IQ4NL, 32>(src, out);
        let importance = match importance {
            Importance::None => None,
            Importance::Column(weights) => Some(rows::weights::<32>(src, weights)),
        };
        for (i, (x, block)) in groups.iter().zip(blocks).enumerate() {
            let sigma2 = sum_of_squares(x) * (2.0 / 32.0);
            let scale = iq4::scale(x, &iq4::weights(x, importance.map(|w| &w[i]), sigma2));
            block.d = f32_to_f16(scale).to_le_bytes();
            block.qs = nibbles(&iq4::codes(iq4::inverse(scale), x));
        }
    }
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<IQ4NL>(bytes, |b| rows::is_finite(b.d))
}

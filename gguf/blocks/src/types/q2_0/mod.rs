//! `Q2_0`: 64 values as `d · (q - 1)` with `q` in 0..=3. Importance changes nothing.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::rows::{self, half};
use crate::simd::{Encode, Simd, encoder};
use crate::{Format, Geometry, Importance, TypeId, ternary};

/// One block of 64 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q2_0 {
    /// The scale, a half.
    d: [u8; 2],
    /// Element `j`: two bits at `2 * (j % 4)` of byte `j / 4`.
    qs: [u8; 16],
}

const _: () = assert!(size_of::<Q2_0>() == 18);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(42),
    name: "Q2_0",
    geometry: Geometry::blocks(64, size_of::<Q2_0>()),
    decode: Some(decode),
    encode: Some(encoder::<Q2_0>),
    encode_cost: 20,
    check,
    doc: "2-bit integers with one scale for 64 values",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<Q2_0, 64>(bytes, out, |b, out| {
        let d = half(b.d);
        for (j, v) in out.iter_mut().enumerate() {
            let q = b.qs[j / 4] >> (2 * (j % 4)) & 3;
            *v = f32::from(q as i8 - 1) * d;
        }
    });
}

impl Encode for Q2_0 {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], _: Importance<'_>, out: &mut [u8]) {
        let (groups, blocks) = rows::pairs::<Q2_0, 64>(src, out);
        for (x, block) in groups.iter().zip(blocks) {
            // The unit is the largest magnitude, so code 3 is never the nearest.
            let (d, codes) = ternary::search(simd, x);
            block.d = d;
            for (q, codes) in block.qs.iter_mut().zip(codes.as_chunks::<4>().0) {
                *q = (0..4).fold(0, |bits, j| bits | codes[j] << (2 * j));
            }
        }
    }
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<Q2_0>(bytes, |b| rows::is_finite(b.d))
}

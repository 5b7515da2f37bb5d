//! `Q1_0`: 128 signs with one scale. Importance changes nothing. `ik_llama.cpp` calls the same type `Q1_0_G128`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::half_bulk::f32_to_f16;
use crate::rows::{self, half};
use crate::simd::{Encode, Simd, encoder};
use crate::{Format, Geometry, Importance, TypeId};

/// One block of 128 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q1_0 {
    /// The scale, a half.
    d: [u8; 2],
    /// The bit of element `j` is bit `j % 8` of byte `j / 8`: set for `d`, clear for `-d`.
    qs: [u8; 16],
}

const _: () = assert!(size_of::<Q1_0>() == 18);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(41),
    name: "Q1_0",
    geometry: Geometry::blocks(128, size_of::<Q1_0>()),
    decode: Some(decode),
    encode: Some(encoder::<Q1_0>),
    encode_cost: 13,
    check,
    doc: "Signs with one scale for 128 values",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<Q1_0, 128>(bytes, out, |b, out| {
        let d = half(b.d);
        for (j, v) in out.iter_mut().enumerate() {
            let set = b.qs[j / 8] >> (j % 8) & 1 == 1;
            *v = if set { d } else { -d };
        }
    });
}

impl Encode for Q1_0 {
    #[inline(always)]
    fn encode<S: Simd>(_: S, src: &[f32], _: Importance<'_>, out: &mut [u8]) {
        let (groups, blocks) = rows::pairs::<Q1_0, 128>(src, out);
        for (x, block) in groups.iter().zip(blocks) {
            let mean = x.iter().fold(0.0, |sum, x| sum + x.abs()) / 128.0;
            block.d = f32_to_f16(mean).to_le_bytes();
            for (q, x) in block.qs.iter_mut().zip(x.as_chunks::<8>().0) {
                *q = (0..8).fold(0, |bits, j| bits | u8::from(x[j] >= 0.0) << j);
            }
        }
    }
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<Q1_0>(bytes, |b| rows::is_finite(b.d))
}

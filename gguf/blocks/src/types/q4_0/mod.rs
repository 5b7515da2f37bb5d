//! `Q4_0`: 32 values as `d · (q - 8)` with `q` in 0..=15.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::blocks32::{Signed, encode_signed};
use crate::packing::{from_nibbles, nibbles};
use crate::rows::{self, half};
use crate::simd::{Encode, Simd, encoder};
use crate::{Format, Geometry, Importance, TypeId};

/// One block of 32 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q4_0 {
    /// The scale, a half.
    d: [u8; 2],
    /// Element `j` in the low four bits of byte `j`, element `j + 16` in the high four.
    qs: [u8; 16],
}

const _: () = assert!(size_of::<Q4_0>() == 18);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(2),
    name: "Q4_0",
    geometry: Geometry::blocks(32, size_of::<Q4_0>()),
    decode: Some(decode),
    encode: Some(encoder::<Q4_0>),
    encode_cost: 56,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<Q4_0>(cpu)),
    doc: "4-bit integers with one scale for 32 values",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<Q4_0, 32>(bytes, out, |b, out| {
        let d = half(b.d);
        for (v, q) in out.iter_mut().zip(from_nibbles(&b.qs)) {
            *v = f32::from(q as i8 - 8) * d;
        }
    });
}

impl Encode for Q4_0 {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        encode_signed::<S, Self>(simd, src, importance, out);
    }
}

impl Signed for Q4_0 {
    const N_MAX: f32 = 8.0;

    #[inline(always)]
    fn pack(d: [u8; 2], codes: &[u8; 32]) -> Self {
        Self {
            d,
            qs: nibbles(codes),
        }
    }
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<Q4_0>(bytes, |b| rows::is_finite(b.d))
}

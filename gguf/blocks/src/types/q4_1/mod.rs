//! `Q4_1`: 32 values as `d · q + m` with `q` in 0..=15.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::blocks32::{WithMinimum, encode_with_minimum};
use crate::packing::{from_nibbles, nibbles};
use crate::rows::{self, half};
use crate::simd::{Encode, Simd, encoder};
use crate::{Format, Geometry, Importance, TypeId};

/// One block of 32 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q4_1 {
    /// The scale, a half.
    d: [u8; 2],
    /// The minimum, a half.
    m: [u8; 2],
    /// Element `j` in the low four bits of byte `j`, element `j + 16` in the high four.
    qs: [u8; 16],
}

const _: () = assert!(size_of::<Q4_1>() == 20);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(3),
    name: "Q4_1",
    geometry: Geometry::blocks(32, size_of::<Q4_1>()),
    decode: Some(decode),
    encode: Some(encoder::<Q4_1>),
    encode_cost: 170,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<Q4_1>(cpu)),
    doc: "4-bit integers with one scale and one minimum for 32 values",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<Q4_1, 32>(bytes, out, |b, out| {
        let (d, m) = (half(b.d), half(b.m));
        for (v, q) in out.iter_mut().zip(from_nibbles(&b.qs)) {
            *v = f32::from(q) * d + m;
        }
    });
}

impl Encode for Q4_1 {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        encode_with_minimum::<S, Self>(simd, src, importance, out);
    }
}

impl WithMinimum for Q4_1 {
    const N_MAX: f32 = 15.0;

    #[inline(always)]
    fn pack(d: [u8; 2], m: [u8; 2], codes: &[u8; 32]) -> Self {
        Self {
            d,
            m,
            qs: nibbles(codes),
        }
    }
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<Q4_1>(bytes, |b| rows::is_finite(b.d) && rows::is_finite(b.m))
}

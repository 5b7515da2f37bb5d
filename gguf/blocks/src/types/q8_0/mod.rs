//! `Q8_0`: 32 values as `d · q` with `q` in -127..=127. Importance changes nothing.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::half_bulk::f32_to_f16;
use crate::rows::{self, half};
use crate::search::{largest_magnitude, round_away, split};
use crate::simd::{Encode, Simd, encoder};
use crate::{Format, Geometry, Importance, TypeId};

/// One block of 32 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q8_0 {
    /// The scale, a half.
    d: [u8; 2],
    /// The values in order.
    qs: [i8; 32],
}

const _: () = assert!(size_of::<Q8_0>() == 34);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(8),
    name: "Q8_0",
    geometry: Geometry::blocks(32, size_of::<Q8_0>()),
    decode: Some(decode),
    encode: Some(encoder::<Q8_0>),
    encode_cost: 5,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<Q8_0>(cpu)),
    doc: "8-bit integers with one scale for 32 values",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<Q8_0, 32>(bytes, out, |b, out| {
        let d = half(b.d);
        for (v, q) in out.iter_mut().zip(b.qs) {
            *v = f32::from(q) * d;
        }
    });
}

impl Encode for Q8_0 {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], _: Importance<'_>, out: &mut [u8]) {
        let (groups, blocks) = rows::pairs::<Q8_0, 32>(src, out);
        for (x, block) in groups.iter().zip(blocks) {
            let d = largest_magnitude(x) / 127.0;
            let inverse = simd.splat(if d == 0.0 { 0.0 } else { 1.0 / d });
            let [a, b] = split(simd, x);
            block.d = f32_to_f16(d).to_le_bytes();
            let codes = simd.low_bytes([round_away(simd, a * inverse), round_away(simd, b * inverse)]);
            for (q, code) in block.qs.iter_mut().zip(codes) {
                *q = code as i8;
            }
        }
    }
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<Q8_0>(bytes, |b| rows::is_finite(b.d))
}

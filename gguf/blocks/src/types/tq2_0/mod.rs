//! `TQ2_0`: 256 values as `d · (q - 1)` with `q` in 0..=2, two bits each. Importance changes nothing.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::packing::{from_two_bits, two_bits};
use crate::rows::{self, half};
use crate::simd::{Encode, Simd, encoder};
use crate::{Format, Geometry, Importance, TypeId, ternary};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TQ2_0 {
    /// Element `i`: two bits at `2 * (i % 128 / 32)` of byte `32 * (i / 128) + i % 32`.
    qs: [u8; 64],
    /// The scale, a half.
    d: [u8; 2],
}

const _: () = assert!(size_of::<TQ2_0>() == 66);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(35),
    name: "TQ2_0",
    geometry: Geometry::blocks(256, size_of::<TQ2_0>()),
    decode: Some(decode),
    encode: Some(encoder::<TQ2_0>),
    encode_cost: 4,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<TQ2_0>(cpu)),
    doc: "Ternary values in 2 bits with one scale for 256 values",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<TQ2_0, 256>(bytes, out, |b, out| {
        let d = half(b.d);
        for (v, q) in out.iter_mut().zip(from_two_bits(&b.qs)) {
            *v = f32::from(q as i8 - 1) * d;
        }
    });
}

impl Encode for TQ2_0 {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], _: Importance<'_>, out: &mut [u8]) {
        let (groups, blocks) = rows::pairs::<TQ2_0, 256>(src, out);
        for (x, block) in groups.iter().zip(blocks) {
            let (d, codes) = ternary::search(simd, x);
            *block = TQ2_0 {
                qs: two_bits(&codes),
                d,
            };
        }
    }
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<TQ2_0>(bytes, |b| rows::is_finite(b.d))
}

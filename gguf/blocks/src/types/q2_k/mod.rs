//! `Q2_K`: super-blocks of 256 values; each 16 of them as `d · scale · q - dmin · min` with `q` in 0..=3 and
//! 4-bit scales and minima.

mod encode;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::packing::from_two_bits;
use crate::rows::{self, half};
use crate::simd::encoder;
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q2K {
    /// Of each 16 values: the scale in the low four bits, the minimum in the high four.
    scales: [u8; 16],
    /// Element `i`: two bits at `2 * (i % 128 / 32)` of byte `32 * (i / 128) + i % 32`.
    qs: [u8; 64],
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// Unit of the minima, a half.
    dmin: [u8; 2],
}

const _: () = assert!(size_of::<Q2K>() == 84);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(10),
    name: "Q2_K",
    geometry: Geometry::blocks(256, size_of::<Q2K>()),
    decode: Some(decode),
    encode: Some(encoder::<Q2K>),
    encode_cost: 227,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<Q2K>(cpu)),
    doc: "2-bit integers; 4-bit scales and minima for 16 values each",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<Q2K, 256>(bytes, out, |b, out| {
        let (d, dmin) = (half(b.d), half(b.dmin));
        let codes = from_two_bits(&b.qs);
        let subs = out
            .as_chunks_mut::<16>()
            .0
            .iter_mut()
            .zip(codes.as_chunks::<16>().0);
        for ((out, codes), packed) in subs.zip(b.scales) {
            let scale = d * f32::from(packed & 15);
            let min = dmin * f32::from(packed >> 4);
            for (v, q) in out.iter_mut().zip(codes) {
                *v = scale * f32::from(*q) - min;
            }
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<Q2K>(bytes, |b| rows::is_finite(b.d) && rows::is_finite(b.dmin))
}

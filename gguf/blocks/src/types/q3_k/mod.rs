//! `Q3_K`: super-blocks of 256 values; each 16 of them as `d · (scale - 32) · (q - 4)` with `q` in 0..=7 and 6-bit
//! scales.

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
struct Q3K {
    /// The third bit of element `i` is bit `i / 32` of byte `i % 32`.
    hmask: [u8; 32],
    /// Element `i`: two bits at `2 * (i % 128 / 32)` of byte `32 * (i / 128) + i % 32`.
    qs: [u8; 64],
    /// Sixteen 6-bit scales: see `scales`.
    scales: [u8; 12],
    /// Unit of the scales, a half.
    d: [u8; 2],
}

const _: () = assert!(size_of::<Q3K>() == 110);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(11),
    name: "Q3_K",
    geometry: Geometry::blocks(256, size_of::<Q3K>()),
    decode: Some(decode),
    encode: Some(encoder::<Q3K>),
    encode_cost: 61,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<Q3K>(cpu)),
    doc: "3-bit integers; 6-bit scales for 16 values each",
    ..Format::MAINLINE
};

/// The sixteen 6-bit scales: low four bits of two scales in each of the first eight bytes, then the high two bits
/// of scales `k`, `k + 4`, `k + 8` and `k + 12` in each of the last four.
#[inline]
fn unpack_scales(packed: &[u8; 12]) -> [u8; 16] {
    std::array::from_fn(|k| packed[k % 8] >> (k / 8 * 4) & 15 | (packed[8 + k % 4] >> (k / 4 * 2) & 3) << 4)
}

/// The opposite of [`unpack_scales`].
fn pack_scales(scales: &[u8; 16]) -> [u8; 12] {
    let mut packed = [0; 12];
    for (k, scale) in scales.iter().enumerate() {
        packed[k % 8] |= (scale & 15) << (k / 8 * 4);
        packed[8 + k % 4] |= (scale >> 4 & 3) << (k / 4 * 2);
    }
    packed
}

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<Q3K, 256>(bytes, out, |b, out| {
        let d = half(b.d);
        let mut codes = from_two_bits(&b.qs);
        for (group, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (code, mask) in codes.iter_mut().zip(b.hmask) {
                *code |= (mask >> group & 1) << 2;
            }
        }
        let subs = out
            .as_chunks_mut::<16>()
            .0
            .iter_mut()
            .zip(codes.as_chunks::<16>().0);
        for ((out, codes), scale) in subs.zip(unpack_scales(&b.scales)) {
            let scale = d * f32::from(scale as i8 - 32);
            for (v, q) in out.iter_mut().zip(codes) {
                *v = scale * f32::from(*q as i8 - 4);
            }
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<Q3K>(bytes, |b| rows::is_finite(b.d))
}

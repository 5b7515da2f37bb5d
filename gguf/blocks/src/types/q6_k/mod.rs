//! `Q6_K`: super-blocks of 256 values; each 16 of them as `d · scale · (q - 32)` with `q` in 0..=63 and 8-bit
//! scales.

mod encode;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::rows::{self, half};
use crate::simd::encoder;
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q6K {
    /// Low four bits: see `decode_block`.
    ql: [u8; 128],
    /// High two bits, four elements a byte.
    qh: [u8; 64],
    /// The scale of each 16 values.
    scales: [i8; 16],
    /// Unit of the scales, a half.
    d: [u8; 2],
}

const _: () = assert!(size_of::<Q6K>() == 210);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(14),
    name: "Q6_K",
    geometry: Geometry::blocks(256, size_of::<Q6K>()),
    decode: Some(decode),
    encode: Some(encoder::<Q6K>),
    encode_cost: 41,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<Q6K>(cpu)),
    doc: "6-bit integers; 8-bit scales for 16 values each",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<Q6K, 256>(bytes, out, |b, out| {
        let d = half(b.d);
        let codes = unpack_codes(b);
        let subs = out
            .as_chunks_mut::<16>()
            .0
            .iter_mut()
            .zip(codes.as_chunks::<16>().0);
        for ((out, codes), scale) in subs.zip(b.scales) {
            let scale = d * f32::from(scale);
            for (v, q) in out.iter_mut().zip(codes) {
                *v = scale * f32::from(*q as i8 - 32);
            }
        }
    });
}

/// The codes in order. Of each 128 elements, element `32 · j + e` has its low bits in the low (`j < 2`) or high half
/// of byte `32 · (j % 2) + e` of `ql`, and its high bits at `2 · j` of byte `e` of `qh`.
#[inline]
fn unpack_codes(b: &Q6K) -> [u8; 256] {
    let mut codes = [0; 256];
    for (group, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (n, j) = (group / 4, group % 4);
        let low = &b.ql.as_chunks::<32>().0[2 * n + j % 2];
        let high = &b.qh.as_chunks::<32>().0[n];
        for ((code, low), high) in codes.iter_mut().zip(low).zip(high) {
            *code = low >> (j / 2 * 4) & 15 | (high >> (2 * j) & 3) << 4;
        }
    }
    codes
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<Q6K>(bytes, |b| rows::is_finite(b.d))
}

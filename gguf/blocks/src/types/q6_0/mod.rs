//! `Q6_0`: 32 values as `d · (q - 32)` with `q` in 0..=63.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ik;
use crate::packing::from_nibbles;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// One block of 32 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q6_0 {
    /// The scale, a half.
    d: [u8; 2],
    /// The high two bits of element `i` at `4 * (i % 16 / 8) + 2 * (i / 16)` of byte `i % 8`.
    qh: [u8; 8],
    /// Low four bits: element `j` in the low half of byte `j`, element `j + 16` in the high half.
    qs: [u8; 16],
}

const _: () = assert!(size_of::<Q6_0>() == 26);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(133),
    name: "Q6_0",
    geometry: Geometry::blocks(32, size_of::<Q6_0>()),
    decode: Some(decode),
    check,
    doc: "6-bit integers with one scale for 32 values",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<Q6_0, 32>(bytes, out, |b, out| {
        let mut codes = from_nibbles(&b.qs);
        for (i, code) in codes.iter_mut().enumerate() {
            let shift = 4 * (i % 16 / 8) + 2 * (i / 16);
            *code |= (b.qh[i % 8] >> shift & 3) << 4;
        }
        ik::integers(32, half(b.d), &codes, out);
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<Q6_0>(bytes, |b| rows::is_finite(b.d))
}

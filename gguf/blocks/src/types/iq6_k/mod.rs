//! `IQ6_K`: super-blocks of 256 values; each 16 of them have an 8-bit scale and 64 levels on a cubic, moved up by one
//! or not.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ik;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ6K {
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// Bit `k` moves the levels of sub-block `k` up.
    extra: [u8; 2],
    /// The scale of each 16 values.
    scales: [i8; 16],
    /// Low four bits: of each 64 values, element `j` in the low half of byte `j`, element `j + 32` in the high half.
    qs: [u8; 128],
    /// The high two bits of element `i` at `2 * (i % 128 / 32)` of byte `32 * (i / 128) + i % 32`.
    qh: [u8; 64],
}

const _: () = assert!(size_of::<IQ6K>() == 212);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(141),
    name: "IQ6_K",
    geometry: Geometry::blocks(256, size_of::<IQ6K>()),
    decode: Some(decode),
    check,
    doc: "64 levels on a cubic; 8-bit scales for 16 values each",
    ..Format::IK
};

/// The level of a code; not a whole number.
fn level(code: u8) -> f32 {
    let q = f32::from(code);
    -127.0 + q * (6.2568 + q * (-0.11218 + q * 0.0011972))
}

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<IQ6K, 256>(bytes, out, |b, out| {
        let d = half(b.d);
        let codes = ik::codes(|ib, j| {
            let high = b.qh[32 * (ib / 4) + j] >> (2 * (ib % 4)) & 3;
            b.qs[32 * (ib / 2) + j] >> (ib % 2 * 4) & 15 | high << 4
        });
        ik::subs::<16>(&codes, out, |k, codes, out| {
            let scale = d * f32::from(b.scales[k]);
            let up = f32::from(ik::bit(b.extra, k));
            for (v, code) in out.iter_mut().zip(codes) {
                *v = scale * (level(*code) + up);
            }
        });
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<IQ6K>(bytes, |b| rows::is_finite(b.d))
}

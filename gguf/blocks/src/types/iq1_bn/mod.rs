//! `IQ1_BN`: ternary values, times a scale of the row, five of them in a byte and 16 in 3.2 bytes.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// One block of 64 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ1BN {
    /// For each 16 values: five in each byte.
    ql: [[u8; 3]; 4],
    /// The last of each 16 values.
    extra: u8,
}

const _: () = assert!(size_of::<IQ1BN>() == 13);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(134),
    name: "IQ1_BN",
    geometry: Geometry::blocks(64, size_of::<IQ1BN>()).with_header(2),
    decode: Some(decode),
    check,
    doc: "Ternary values, five in a byte, with one scale a row",
    ..Format::IK
};

/// What brings each of five values to the top of the byte that holds them.
const FACTORS: [u8; 5] = [81, 27, 9, 3, 1];

/// The value -1, 0 or 1 that is `factor` times away from the top of a byte.
fn value(byte: u8, factor: u8) -> f32 {
    let v = u16::from(byte.wrapping_mul(factor));
    f32::from(((v + (v >> 1)) >> 7) as i8 - 1)
}

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ1BN, 2, 1, 64>(bytes, out, |d, b, _, out| {
        let d = half(*d);
        let groups = out.as_chunks_mut::<16>().0.iter_mut().zip(&b.ql);
        for (i, (out, ql)) in groups.enumerate() {
            for (j, v) in out[..15].iter_mut().enumerate() {
                *v = value(ql[j / 5], FACTORS[j % 5]) * d;
            }
            out[15] = value(b.extra, FACTORS[i]) * d;
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ1BN, 2, 1>(bytes, rows::is_finite)
}

//! `IQ2_BN`: ternary values in two bits, times a scale of the row.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups::{self, single};
use crate::{Format, Geometry, TypeId};

/// One block of 64 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ2BN {
    /// Element `i`: two bits at `2 * (i / 16)` of byte `i % 16`.
    qs: [u8; 16],
}

const _: () = assert!(size_of::<IQ2BN>() == 16);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(135),
    name: "IQ2_BN",
    geometry: Geometry::blocks(64, size_of::<IQ2BN>()).with_header(4),
    decode: Some(decode),
    check,
    doc: "Ternary values in 2 bits with one scale a row",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ2BN, 4, 1, 64>(bytes, out, |d, b, _, out| {
        for (i, v) in out.iter_mut().enumerate() {
            let q = b.qs[i % 16] >> (i / 16 * 2) & 3;
            *v = f32::from(q as i8 - 1) * single(*d);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ2BN, 4, 1>(bytes, groups::is_finite_single)
}

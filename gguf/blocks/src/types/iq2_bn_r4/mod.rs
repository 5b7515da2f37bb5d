//! `IQ2_BN_R4`: 4 interleaved rows of what is `IQ2_BN` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups::{self, single};
use crate::{Format, Geometry, TypeId};

/// 64 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ2BNR4 {
    /// Of each 16 elements of four rows: element `e` at `2 * (e / 4)` of byte `e % 4`.
    qs: [[[u8; 4]; 4]; 4],
}

const _: () = assert!(size_of::<IQ2BNR4>() == 64);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(335),
    name: "IQ2_BN_R4",
    geometry: Geometry::interleaved(4, 64, size_of::<IQ2BNR4>()).with_header(4),
    decode: Some(decode),
    check,
    doc: "IQ2_BN, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ2BNR4, 4, 4, 64>(bytes, out, |d, b, k, out| {
        for (e, v) in out.iter_mut().enumerate() {
            let q = b.qs[e / 16][k][e % 4] >> (e % 16 / 4 * 2) & 3;
            *v = f32::from(q as i8 - 1) * single(*d);
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ2BNR4, 4, 4>(bytes, groups::is_finite_single)
}

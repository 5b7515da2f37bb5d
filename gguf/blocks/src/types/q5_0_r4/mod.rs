//! `Q5_0_R4`: 4 interleaved rows of what is `Q5_0` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::ik;
use crate::interleaved::nibble;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// 32 values of each of 4 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q5_0R4 {
    /// The scale of each row, a half.
    d: [[u8; 2]; 4],
    /// The fifth bits: element `e` of row `k` at `e / 16 + 2 * (e % 16 / 4)` of byte `4 * k + e % 4`.
    qh: [u8; 16],
    /// Low four bits, in the order of `interleaved::nibble`.
    qs: [u8; 64],
}

const _: () = assert!(size_of::<Q5_0R4>() == 88);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(206),
    name: "Q5_0_R4",
    geometry: Geometry::interleaved(4, 32, size_of::<Q5_0R4>()),
    decode: Some(decode),
    check,
    doc: "Q5_0, 4 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<Q5_0R4, 0, 4, 32>(bytes, out, |_, b, k, out| {
        let codes: [u8; 32] = std::array::from_fn(|e| {
            let high = b.qh[4 * k + e % 4] >> (e / 16 + e % 16 / 4 * 2) & 1;
            nibble(&b.qs, k, e) | high << 4
        });
        ik::integers(16, half(b.d[k]), &codes, out);
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<Q5_0R4, 0, 4>(bytes, |_, b, k| rows::is_finite(b.d[k]))
}

//! `MXFP4_R8`: 8 interleaved rows of what is `MXFP4` otherwise.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::mxfp4::half_scale;
use crate::groups;
use crate::ik;
use crate::interleaved::far_nibble;
use crate::packing::DOUBLED_FP4;
use crate::{Format, Geometry, TypeId};

/// 32 values of each of 8 rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MXFP4R8 {
    /// The exponent of each row's scale, biased by 127; 255 stands for no number.
    e: [u8; 8],
    /// The codes, in the order of `interleaved::far_nibble`.
    qs: [u8; 128],
}

const _: () = assert!(size_of::<MXFP4R8>() == 136);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(353),
    name: "MXFP4_R8",
    geometry: Geometry::interleaved(8, 32, size_of::<MXFP4R8>()),
    decode: Some(decode),
    check,
    doc: "MXFP4, 8 rows interleaved",
    ..Format::IK
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<MXFP4R8, 0, 8, 32>(bytes, out, |_, b, k, out| {
        let codes: [u8; 32] = std::array::from_fn(|e| far_nibble(8, &b.qs, k, e));
        ik::levels(&DOUBLED_FP4, half_scale(b.e[k]), &codes, out);
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check::<MXFP4R8, 0, 8>(bytes, |_, b, k| b.e[k] != 0xff)
}

//! `IQ2_KL`: a row has a scale; super-blocks of 256 values, each 32 of them with a 6-bit scale; two neighbours are one of
//! 32 pairs of levels.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups;
use crate::ik;
use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IQ2KL {
    /// The high two bits of the scale of each 32 values.
    scales_h: [u8; 2],
    /// The low four bits of the scales, plus 32: of sub-blocks 0 to 3 in the low halves, of 4 to 7 in the high.
    scales_l: [u8; 4],
    /// Low four bits of the pairs: of each 64 values, pairs of the first 32 in the low halves, of the others in the high.
    qs: [u8; 64],
    /// The fifth bit of pair `j` of sub-block `k` is bit `k` of byte `j`.
    qh: [u8; 16],
}

const _: () = assert!(size_of::<IQ2KL>() == 86);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(157),
    name: "IQ2_KL",
    geometry: Geometry::blocks(256, size_of::<IQ2KL>()).with_header(2),
    decode: Some(decode),
    check,
    doc: "32 pairs of levels; 6-bit scales for 32 values each; one scale a row",
    ..Format::IK
};

/// Levels of two neighbours.
const PAIRS: [[i8; 2]; 32] = [
    [-63, -23],
    [-63, 13],
    [-40, -63],
    [-40, -10],
    [-40, 13],
    [-40, 47],
    [-23, -40],
    [-23, -23],
    [-23, 1],
    [-23, 13],
    [-23, 28],
    [-10, -63],
    [-10, 1],
    [-10, 13],
    [-10, 47],
    [1, -23],
    [1, -10],
    [1, 1],
    [1, 13],
    [1, 28],
    [13, -40],
    [13, -23],
    [13, -10],
    [13, 1],
    [13, 13],
    [28, -63],
    [28, -23],
    [28, 1],
    [28, 28],
    [28, 47],
    [47, -23],
    [47, 13],
];

fn decode(bytes: &[u8], out: &mut [f32]) {
    groups::decode::<IQ2KL, 2, 1, 256>(bytes, out, |d, b, _, out| {
        let d = half(*d);
        for (k, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let stored = ik::nibble_of_halves(&b.scales_l, k) | ik::pair(&b.scales_h, k) << 4;
            let scale = d * f32::from(stored as i8 - 32);
            for (j, out) in out.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                let low = b.qs[16 * (k / 2) + j] >> (k % 2 * 4) & 15;
                let pair = PAIRS[usize::from(low | (b.qh[j] >> k & 1) << 4)];
                *out = pair.map(|level| scale * f32::from(level));
            }
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    groups::check_headers::<IQ2KL, 2, 1>(bytes, rows::is_finite)
}

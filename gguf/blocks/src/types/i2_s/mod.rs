//! `I2_S`: ternary values in two bits with one scale for the whole tensor.
//!
//! Its bits were taken from a description and not compared with `ik_llama.cpp`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::groups::single;
use crate::rows;
use crate::{Format, Geometry, TypeId};

/// One block of 128 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct I2S {
    /// Element `i`: two bits at `6 - 2 * (i / 32)` of byte `i % 32`.
    qs: [u8; 32],
}

const _: () = assert!(size_of::<I2S>() == 32);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(36),
    name: "I2_S",
    geometry: Geometry {
        tensor_trailer_bytes: TRAILER,
        ..Geometry::blocks(128, size_of::<I2S>())
    },
    decode: Some(decode),
    check,
    doc: "Ternary values in 2 bits with one scale a tensor",
    ..Format::IK
};

/// Bytes behind the blocks: the scale, a single, and 28 bytes that are not used.
const TRAILER: usize = 32;

/// The blocks of a tensor and its scale.
fn split(bytes: &[u8]) -> (&[u8], f32) {
    let (blocks, trailer) = bytes
        .split_last_chunk::<TRAILER>()
        .expect("a tensor has its scale behind its blocks");
    let [d0, d1, d2, d3, ..] = *trailer;
    (blocks, single([d0, d1, d2, d3]))
}

fn decode(bytes: &[u8], out: &mut [f32]) {
    let (blocks, d) = split(bytes);
    rows::decode::<I2S, 128>(blocks, out, |b, out| {
        for (i, v) in out.iter_mut().enumerate() {
            let q = b.qs[i % 32] >> (6 - i / 32 * 2) & 3;
            *v = d * f32::from(q as i8 - 1);
        }
    });
}

/// An unsound scale is one of the first block.
fn check(bytes: &[u8]) -> Option<usize> {
    let (_, d) = split(bytes);
    (!d.is_finite()).then_some(0)
}

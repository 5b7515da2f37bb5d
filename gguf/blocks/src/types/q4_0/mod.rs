//! `Q4_0`: 32 values as `d · (q - 8)` with `q` in 0..=15.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::half_bulk::f32_to_f16;
use crate::packing::{from_nibbles, nibbles};
use crate::rows::{self, half};
use crate::search::{signed_max, spread, sum_of_squares, symmetric, truncate};
use crate::simd::{Encode, Simd, encoder};
use crate::{Format, Geometry, Importance, TypeId};

/// One block of 32 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q4_0 {
    /// The scale, a half.
    d: [u8; 2],
    /// Element `j` in the low four bits of byte `j`, element `j + 16` in the high four.
    qs: [u8; 16],
}

const _: () = assert!(size_of::<Q4_0>() == 18);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(2),
    name: "Q4_0",
    geometry: Geometry::blocks(32, size_of::<Q4_0>()),
    decode: Some(decode),
    encode: Some(encoder::<Q4_0>),
    check,
    kernel: |cpu| Some(kernel::kernel(cpu)),
    doc: "4-bit integers with one scale for 32 values",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<Q4_0, 32>(bytes, out, |b, out| {
        let d = half(b.d);
        for (v, q) in out.iter_mut().zip(from_nibbles(&b.qs)) {
            *v = f32::from(q as i8 - 8) * d;
        }
    });
}

impl Encode for Q4_0 {
    #[inline(always)]
    fn encode<S: Simd>(_: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        let (groups, blocks) = rows::pairs::<Q4_0, 32>(src, out);
        match importance {
            Importance::None => {
                for (x, block) in groups.iter().zip(blocks) {
                    *block = nearest(x);
                }
            }
            Importance::Column(weights) => {
                let sigma2 = sum_of_squares(src) / src.len() as f32;
                let weights = rows::weights::<32>(src, weights);
                for ((x, w), block) in groups.iter().zip(weights).zip(blocks) {
                    let mut codes = [0; 32];
                    let d = symmetric(8.0, x, &spread(x, w, sigma2), &mut codes);
                    *block = Q4_0 {
                        d: f32_to_f16(d).to_le_bytes(),
                        qs: nibbles(&codes),
                    };
                }
            }
        }
    }
}

/// The scale that gives the value of largest magnitude the code 0, and the codes nearest to it.
fn nearest(x: &[f32; 32]) -> Q4_0 {
    let d = signed_max(x) / -8.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let codes = x.map(|x| (truncate(x * inverse + 8.5) as i8).min(15) as u8);
    Q4_0 {
        d: f32_to_f16(d).to_le_bytes(),
        qs: nibbles(&codes),
    }
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<Q4_0>(bytes, |b| rows::is_finite(b.d))
}

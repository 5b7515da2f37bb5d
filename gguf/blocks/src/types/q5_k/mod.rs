//! `Q5_K`: super-blocks of 256 values; each 32 of them as `d · scale · q - dmin · min` with `q` in 0..=31 and
//! 6-bit scales and minima.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::packing::{nibble_halves, striped_bits};
use crate::rows::{self, half};
use crate::search::Grid;
use crate::simd::{Encode, Simd, encoder};
use crate::six_bit::{self, SixBit, SuperBlock};
use crate::{Format, Geometry, Importance, TypeId};

/// One block of 256 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q5K {
    /// Unit of the scales, a half.
    d: [u8; 2],
    /// Unit of the minima, a half.
    dmin: [u8; 2],
    /// Eight 6-bit scales and minima: see `six_bit`.
    scales: [u8; 12],
    /// The fifth bit of element `i` is bit `i / 32` of byte `i % 32`.
    qh: [u8; 32],
    /// Of each 64 elements: element `e < 32` in the low four bits of byte `e`, element `32 + e` in the high four.
    qs: [u8; 128],
}

const _: () = assert!(size_of::<Q5K>() == 176);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(13),
    name: "Q5_K",
    geometry: Geometry::blocks(256, size_of::<Q5K>()),
    decode: Some(decode),
    encode: Some(encoder::<Q5K>),
    encode_cost: 167,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<Q5K>(cpu)),
    doc: "5-bit integers; 6-bit scales and minima for 32 values each",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<Q5K, 256>(bytes, out, |b, out| {
        let (d, dmin) = (half(b.d), half(b.dmin));
        let (scales, mins) = six_bit::unpack(&b.scales);
        for (k, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let scale = d * f32::from(scales[k]);
            let min = dmin * f32::from(mins[k]);
            let qs = &b.qs.as_chunks::<32>().0[k / 2];
            for ((v, q), h) in out.iter_mut().zip(qs).zip(b.qh) {
                let q = q >> (k % 2 * 4) & 15 | (h >> k & 1) << 4;
                *v = scale * f32::from(q) - min;
            }
        }
    });
}

impl Encode for Q5K {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], importance: Importance<'_>, out: &mut [u8]) {
        six_bit::encode_row::<S, Self>(simd, src, importance, out);
    }
}

impl SixBit for Q5K {
    const GRID: Grid = Grid {
        n_max: 31.0,
        first: -0.5,
        step: 0.1,
        steps: 15,
    };

    #[inline(always)]
    fn pack(s: &SuperBlock) -> Self {
        Self {
            d: s.d,
            dmin: s.dmin,
            scales: s.scales,
            qh: striped_bits(&s.codes, 4),
            qs: nibble_halves(&s.codes),
        }
    }
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<Q5K>(bytes, |b| rows::is_finite(b.d) && rows::is_finite(b.dmin))
}

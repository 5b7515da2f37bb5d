//! `TQ1_0`: 256 values as `d · (t - 1)` with `t` in 0..=2, five to a byte. Importance changes nothing.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod x86;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::rows::{self, half};
use crate::simd::{Encode, Simd, encoder};
use crate::{Format, Geometry, Importance, TypeId, ternary};

/// One block of 256 values. A byte is a fraction of 256 whose first base-3 digits are the trits.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TQ1_0 {
    /// Five trits a byte: see [`RUNS`].
    qs: [u8; 48],
    /// Four trits a byte.
    qh: [u8; 4],
    /// The scale, a half.
    d: [u8; 2],
}

const _: () = assert!(size_of::<TQ1_0>() == 54);

/// Runs of bytes over `qs` and `qh` together: first byte, bytes, trits of each. Trit `n` of byte `m` of a run is
/// element `bytes · n + m` of its elements.
const RUNS: [(usize, usize, usize); 3] = [(0, 32, 5), (32, 16, 5), (48, 4, 4)];

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(34),
    name: "TQ1_0",
    geometry: Geometry::blocks(256, size_of::<TQ1_0>()),
    decode: Some(decode),
    encode: Some(encoder::<TQ1_0>),
    encode_cost: 5,
    check,
    kernel: |cpu| Some(crate::kernel::kernel::<TQ1_0>(cpu)),
    doc: "Ternary values, five in a byte, with one scale for 256 values",
    ..Format::MAINLINE
};

/// The trits in order.
#[inline]
fn unpack_trits(b: &TQ1_0) -> [u8; 256] {
    let mut bytes = [0; 52];
    bytes[..48].copy_from_slice(&b.qs);
    bytes[48..].copy_from_slice(&b.qh);
    let mut trits = [0; 256];
    let mut at = 0;
    for (first, n_bytes, n_trits) in RUNS {
        let run = &mut bytes[first..first + n_bytes];
        for _ in 0..n_trits {
            for (trit, byte) in trits[at..at + n_bytes].iter_mut().zip(run.iter_mut()) {
                *trit = ((u16::from(*byte) * 3) >> 8) as u8;
                *byte = byte.wrapping_mul(3);
            }
            at += n_bytes;
        }
    }
    trits
}

/// The opposite of [`unpack_trits`].
fn pack_trits(trits: &[u8; 256]) -> ([u8; 48], [u8; 4]) {
    let mut bytes = [0; 52];
    let mut at = 0;
    for (first, n_bytes, n_trits) in RUNS {
        for (m, byte) in bytes[first..first + n_bytes].iter_mut().enumerate() {
            let digits = (0..n_trits).fold(0, |q, n| q * 3 + u16::from(trits[at + n_bytes * n + m]));
            let digits = if n_trits < 5 { digits * 3 } else { digits };
            *byte = (digits * 256).div_ceil(243) as u8;
        }
        at += n_bytes * n_trits;
    }
    (
        std::array::from_fn(|i| bytes[i]),
        std::array::from_fn(|i| bytes[48 + i]),
    )
}

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<TQ1_0, 256>(bytes, out, |b, out| {
        let d = half(b.d);
        for (v, t) in out.iter_mut().zip(unpack_trits(b)) {
            *v = f32::from(t as i8 - 1) * d;
        }
    });
}

impl Encode for TQ1_0 {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, src: &[f32], _: Importance<'_>, out: &mut [u8]) {
        let (groups, blocks) = rows::pairs::<TQ1_0, 256>(src, out);
        for (x, block) in groups.iter().zip(blocks) {
            let (d, codes) = ternary::search(simd, x);
            let (qs, qh) = pack_trits(&codes);
            *block = TQ1_0 { qs, qh, d };
        }
    }
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<TQ1_0>(bytes, |b| rows::is_finite(b.d))
}

//! Integer products at level NEON with dot products of bytes: unpacking is the portable one, which the compiler
//! vectorizes; the products of tiles are here.

#![expect(
    unsafe_code,
    reason = "loads through references, one instruction as assembly, and entry into code compiled for `dotprod`"
)]

use std::arch::aarch64::{
    float32x4_t, int32x4_t, uint8x16_t, vaddq_s32, vcvtq_f32_s32, vdupq_n_f32, vdupq_n_s32, vdupq_n_u8,
    veorq_u8, vfmaq_f32, vfmsq_f32, vld1q_f32, vld1q_s32, vld1q_u8, vmulq_f32, vmulq_s32, vshrq_n_s32,
    vst1q_f32,
};

use super::{Columns, IntBlock, IntKernel, check_columns, each_tile, portable};
use crate::activation::GroupScale;
use crate::tile::{GROUP, Minima, ROWS, Tile, TileKind};

/// Chunks of four columns in a group.
const CHUNKS: usize = GROUP / 4;

/// Numbers in a register.
const LANES: usize = 4;

/// What the bytes of wide kinds are lowered by to be signed.
const MIDDLE: u8 = 128;

/// The kernels of a type.
pub(super) fn kernel<B: IntBlock>() -> IntKernel {
    IntKernel {
        dot: |rows, _, x, tile, acc| portable::dot::<B>(rows, x, tile, acc, products::<B>),
        multiply: |tiles, x, _, acc| each_tile(tiles, x, acc, products::<B>),
        ..portable::kernel::<B>()
    }
}

fn products<B: IntBlock>(tile: &Tile, x: Columns<'_>, acc: &mut [[f32; ROWS]]) {
    // SAFETY: `kernel` hands this out, which `super::kernel` calls for a `Cpu` that has the level.
    unsafe { multiply(const { B::KIND }, tile, x, acc) }
}

#[target_feature(enable = "neon,dotprod")]
fn multiply(kind: TileKind, tile: &Tile, x: Columns<'_>, acc: &mut [[f32; ROWS]]) {
    check_columns(&x, tile.n_groups(), acc.len());
    for part in 0..ROWS / LANES {
        match acc.len() {
            1 => columns::<1>(kind, tile, x, part, acc),
            2 => columns::<2>(kind, tile, x, part, acc),
            _ => columns::<4>(kind, tile, x, part, acc),
        }
    }
}

/// `N` columns with four rows, those from `4 * part` on.
#[target_feature(enable = "neon,dotprod")]
fn columns<const N: usize>(
    kind: TileKind,
    tile: &Tile,
    x: Columns<'_>,
    part: usize,
    acc: &mut [[f32; ROWS]],
) {
    let n_groups = tile.n_groups();
    let q = x.q.as_chunks::<4>().0.chunks_exact(CHUNKS * N);
    let scales = &x.scales.as_chunks::<N>().0[..n_groups];
    let mut total = [vdupq_n_f32(0.0); N];
    for c in 0..N {
        total[c] = load(&acc[c], part);
    }
    let mut sums = [vdupq_n_f32(0.0); N];
    for (g, (q, s)) in q.zip(scales).enumerate() {
        let [low, high] = halves::<N>(kind, tile, g, part, q, s);
        let int = |half: usize| vshrq_n_s32::<16>(load_pairs(&tile.int_scale[g][half], part));
        let float = |half: usize, d| vmulq_f32(load(&tile.scale[g][half], part), vdupq_n_f32(d));
        for c in 0..N {
            let (low, high, d) = (low[c], high[c], s[c].d);
            if kind.int_scales {
                let i = if kind.halves {
                    vaddq_s32(vmulq_s32(low, int(0)), vmulq_s32(high, int(1)))
                } else {
                    vmulq_s32(vaddq_s32(low, high), int(0))
                };
                sums[c] = vfmaq_f32(sums[c], vcvtq_f32_s32(i), vdupq_n_f32(d));
            } else if kind.halves {
                total[c] = vfmaq_f32(total[c], vcvtq_f32_s32(low), float(0, d));
                total[c] = vfmaq_f32(total[c], vcvtq_f32_s32(high), float(1, d));
            } else {
                total[c] = vfmaq_f32(total[c], vcvtq_f32_s32(vaddq_s32(low, high)), float(0, d));
            }
            if !kind.int_scales && kind.mins == Minima::Float {
                total[c] = vfmsq_f32(total[c], load(&tile.min[g], part), vdupq_n_f32(s[c].sum));
            }
        }
    }
    if kind.int_scales {
        for c in 0..N {
            total[c] = vfmaq_f32(total[c], load(&tile.unit, part), sums[c]);
            total[c] = take_minima(kind, tile, part, scales.iter().map(|s| &s[c]), total[c]);
        }
    }
    for c in 0..N {
        store(&mut acc[c], part, total[c]);
    }
}

/// `sum((v - offset) * q)` of both halves of group `g`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn halves<const N: usize>(
    kind: TileKind,
    tile: &Tile,
    g: usize,
    part: usize,
    q: &[[i8; 4]],
    s: &[GroupScale; N],
) -> [[int32x4_t; N]; 2] {
    let v = tile.v[g].as_chunks::<16>().0;
    let signed = if kind.wide() { MIDDLE } else { 0 };
    let mut sums = [[vdupq_n_s32(0); N]; 2];
    for (half, sums) in sums.iter_mut().enumerate() {
        for c in 0..N {
            let lower = i32::from(signed) - i32::from(kind.offset);
            sums[c] = vdupq_n_s32(lower * i32::from(s[c].int[half]));
        }
        for chunk in half * CHUNKS / 2..(half + 1) * CHUNKS / 2 {
            let v = veorq_u8(load_bytes(&v[chunk * ROWS / LANES + part]), vdupq_n_u8(signed));
            for c in 0..N {
                let q = vdupq_n_s32(i32::from_ne_bytes(q[chunk * N + c].map(|q| q as u8)));
                sums[c] = add_products(sums[c], v, q);
            }
        }
    }
    sums
}

/// `sum` and the four products of signed bytes of each lane.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_products(mut sum: int32x4_t, v: uint8x16_t, q: int32x4_t) -> int32x4_t {
    // The intrinsic of this instruction is not in stable Rust.
    // SAFETY: it works on registers only, and this code is compiled for machines that have it.
    unsafe {
        std::arch::asm!(
            "sdot {0:v}.4s, {1:v}.16b, {2:v}.16b",
            inout(vreg) sum,
            in(vreg) v,
            in(vreg) q,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// Takes the minima of a super-block of integer scales from the sum of one column.
#[target_feature(enable = "neon,dotprod")]
fn take_minima<'a>(
    kind: TileKind,
    tile: &Tile,
    part: usize,
    scales: impl Iterator<Item = &'a GroupScale>,
    mut total: float32x4_t,
) -> float32x4_t {
    match kind.mins {
        Minima::None => total,
        Minima::Float => {
            for (min, s) in tile.min.iter().zip(scales) {
                total = vfmsq_f32(total, load(min, part), vdupq_n_f32(s.sum));
            }
            total
        }
        Minima::Int => {
            let mut sum = vdupq_n_f32(0.0);
            for (min, s) in tile.int_min.iter().zip(scales) {
                let mut int = [0; LANES];
                for (int, min) in int.iter_mut().zip(&min[part * LANES..]) {
                    *int = i32::from(min[0]) * i32::from(s.int[0]) + i32::from(min[1]) * i32::from(s.int[1]);
                }
                sum = vfmaq_f32(sum, vcvtq_f32_s32(load_ints(&int)), vdupq_n_f32(s.d));
            }
            vfmsq_f32(total, load(&tile.min_unit, part), sum)
        }
    }
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn load(rows: &[f32; ROWS], part: usize) -> float32x4_t {
    // SAFETY: the reference is to 16 readable bytes.
    unsafe { vld1q_f32(rows.as_chunks::<LANES>().0[part].as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn store(rows: &mut [f32; ROWS], part: usize, v: float32x4_t) {
    // SAFETY: the reference is to 16 writable bytes.
    unsafe { vst1q_f32(rows.as_chunks_mut::<LANES>().0[part].as_mut_ptr(), v) }
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn load_bytes(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: the reference is to 16 readable bytes.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn load_ints(ints: &[i32; LANES]) -> int32x4_t {
    // SAFETY: the reference is to 16 readable bytes.
    unsafe { vld1q_s32(ints.as_ptr()) }
}

/// Loads two small numbers of each row.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn load_pairs(rows: &[[i16; 2]; ROWS], part: usize) -> int32x4_t {
    // SAFETY: the reference is to 16 readable bytes, and the load needs no more than their own alignment.
    unsafe { vld1q_s32(rows.as_chunks::<LANES>().0[part].as_ptr().cast()) }
}

//! Products of f32 panels with f32 activations, also used by attention.
//!
//! Eight values of the panel lie in eight lanes. One column of activations adds, in order of its elements,
//! `lane += panel[k] * x[k]` from 0, in f32 without fusing.

use gguf_blocks::tile::{Panel, ROWS};
use gguf_blocks::{Cpu, Level};

use super::acts::Acts;

/// Rows of eight lanes, `stride` elements apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) stride: usize,
}

/// `sum over k of lanes[k] * x[k]` for each of `N` rows `x` of one length, not more than there are rows of
/// lanes.
pub(crate) fn products<const N: usize>(cpu: Cpu, lanes: Lanes<'_>, x: [&[f32]; N]) -> [[f32; ROWS]; N] {
    let n = x.first().map_or(0, |x| x.len());
    assert!(x.iter().all(|x| x.len() == n), "rows have one length");
    assert!(
        n == 0 || (n - 1) * lanes.stride + ROWS <= lanes.data.len(),
        "{n} rows of lanes are there"
    );
    match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86::products(lanes, x),
        _ => {
            let mut sums = [[0.0; ROWS]; N];
            for (sums, x) in sums.iter_mut().zip(x) {
                for (k, x) in x.iter().enumerate() {
                    for (sum, lane) in sums.iter_mut().zip(&lanes.data[k * lanes.stride..][..ROWS]) {
                        *sum += lane * x;
                    }
                }
            }
            sums
        }
    }
}

/// Lanes in which sums of a row are kept.
pub(super) const SUMS: usize = 8;

/// `acc[p] += panel . x[source[p]]` for every pair, over the columns of `panel`, which starts at `first_col`.
///
/// The product of a row and a column is kept in eight sums: element `k` goes to sum `k % 8` with `fma`, in order, and
/// elements up to the next multiple of eight are zeros. Then
/// `acc += ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))`.
pub(super) fn multiply(
    cpu: Cpu,
    panel: &Panel,
    x: &Acts,
    first_col: usize,
    source: &[u32],
    acc: &mut [[f32; ROWS]],
) {
    assert_eq!(source.len(), acc.len(), "a pair has one sum");
    let column = |&row: &u32| &x.row(row as usize)[first_col..first_col + panel.n_cols()];
    // As many columns as can share the loads of the panel.
    let (threes, rest) = source.as_chunks::<3>();
    let (acc_threes, acc_rest) = acc.as_chunks_mut::<3>();
    for (source, acc) in threes.iter().zip(acc_threes) {
        columns(cpu, panel, source.each_ref().map(column), acc);
    }
    for (source, acc) in rest.iter().zip(acc_rest) {
        columns(cpu, panel, [column(source)], std::array::from_mut(acc));
    }
}

/// `N` columns of as many elements as the panel has columns.
fn columns<const N: usize>(cpu: Cpu, panel: &Panel, x: [&[f32]; N], acc: &mut [[f32; ROWS]; N]) {
    match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86::multiply_panel(panel, x, acc),
        _ => {
            for (x, acc) in x.into_iter().zip(acc) {
                for (w, acc) in panel.v.iter().zip(acc) {
                    *acc += dot(&w[..panel.n_cols()], x);
                }
            }
        }
    }
}

fn dot(w: &[f32], x: &[f32]) -> f32 {
    let mut sums = [0.0f32; SUMS];
    for (w, x) in w.chunks(SUMS).zip(x.chunks(SUMS)) {
        for (i, sum) in sums.iter_mut().enumerate() {
            let at = |v: &[f32]| v.get(i).copied().unwrap_or_default();
            *sum = at(w).mul_add(at(x), *sum);
        }
    }
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

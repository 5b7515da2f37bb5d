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

/// `acc[p] += panel . x[source[p]]` for every pair, over the columns of `panel`, which starts at `first_col`.
/// Each panel's sum is added as a whole.
pub(super) fn multiply(
    cpu: Cpu,
    panel: &Panel,
    x: &Acts,
    first_col: usize,
    source: &[u32],
    acc: &mut [[f32; ROWS]],
) {
    let n_cols = panel.n_cols();
    let lanes = Lanes {
        data: panel.v[..n_cols].as_flattened(),
        stride: ROWS,
    };
    let column = |&row: &u32| &x.row(row as usize)[first_col..first_col + n_cols];
    // As many columns as can share the loads of the panel.
    let (eights, rest) = source.as_chunks::<8>();
    let (fours, ones) = rest.as_chunks::<4>();
    let (acc_eights, acc) = acc.as_chunks_mut::<8>();
    let (acc_fours, acc_ones) = acc.as_chunks_mut::<4>();
    for (source, acc) in eights.iter().zip(acc_eights) {
        add(acc, products(cpu, lanes, source.each_ref().map(column)));
    }
    for (source, acc) in fours.iter().zip(acc_fours) {
        add(acc, products(cpu, lanes, source.each_ref().map(column)));
    }
    for (source, acc) in ones.iter().zip(acc_ones) {
        add(std::slice::from_mut(acc), products(cpu, lanes, [column(source)]));
    }
}

fn add<const N: usize>(acc: &mut [[f32; ROWS]], sums: [[f32; ROWS]; N]) {
    for (acc, sum) in acc.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
        *acc += sum;
    }
}

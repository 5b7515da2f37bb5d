//! Products of f32 panels with f32 activations.

use gguf_blocks::kernel::{SUMS, add_products, total};
use gguf_blocks::tile::{Panel, ROWS};
use gguf_blocks::{Cpu, Level};

use super::acts::Acts;

/// `acc[p] += panel . x[source[p]]` for every pair, over the columns of `panel`, which starts at `first_col`.
///
/// Sums are kept as [`FloatDot`](gguf_blocks::kernel::FloatDot) says.
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
    match (cpu.level(), cpu.level().base()) {
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, _) => super::x86::multiply_panel_512(panel, x, acc),
        #[cfg(target_arch = "x86_64")]
        (_, Level::Avx2) => super::x86::multiply_panel(panel, x, acc),
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
    let mut sums = [0.0; SUMS];
    for (w, x) in w.chunks(SUMS).zip(x.chunks(SUMS)) {
        add_products(&mut sums, |i| w.get(i).copied(), x);
    }
    total(sums)
}

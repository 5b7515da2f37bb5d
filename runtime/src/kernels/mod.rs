//! Matrix products and attention: loops per CPU level over the small pieces that tensor types supply.
//!
//! All functions run on the threads of the [pool](crate::pool) that their caller has entered. Results do not depend on
//! the number of threads or on the CPU level.

mod acts;
pub(crate) mod attention;
pub mod elementwise;
mod exp;
pub(crate) mod float;
// The one helper of both crates' tests.
#[cfg(all(test, unix, target_arch = "x86_64"))]
#[path = "../../../gguf/blocks/src/guard.rs"]
mod guard;
mod product;
pub(crate) mod rows;
pub mod sums;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
mod x86_sums;

use gguf_blocks::kernel::Kernel;
use gguf_blocks::{Cpu, Format};

pub use acts::Acts;
pub use exp::exp;

use crate::memory::GridMut;
use crate::session::Compute;
use product::{Path, Product};

/// A stack of weight matrices of one tensor: `n_mats` matrices of `n_rows` rows of `n_cols` elements. A plain
/// weight is a stack of one.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// The tensor's type.
    pub format: &'static Format,
    /// The tensor's bytes as they are in the file.
    pub bytes: &'a [u8],
    /// Elements of a row.
    pub n_cols: usize,
    /// Rows of one matrix.
    pub n_rows: usize,
    /// Matrices (experts).
    pub n_mats: usize,
    /// How they are multiplied.
    pub compute: Compute,
}

/// A weight, and where its products go.
pub type Output<'a> = (Weights<'a>, &'a mut [f32]);

/// `y[t][r] = w.row(r) . x[t]` for every activation row, of each weight with its `y`, as one piece of work for the
/// threads. `y` has `n * n_rows` elements. Weights must be stacks of one.
pub fn matmul<const N: usize>(cpu: Cpu, outputs: [Output<'_>; N], x: &mut Acts) {
    let plain = outputs.iter().all(|(w, _)| w.n_mats == 1);
    assert!(plain, "a plain product has one matrix");
    let rows = x.take_rows();
    let (source, starts) = (&rows[..x.n()], [0, x.n()]);
    run(cpu, outputs, x, source, &starts);
    x.put_rows(rows);
}

/// Products with one matrix of the stack per group: pairs `group_starts[m] .. group_starts[m + 1]` use
/// matrix `m`; pair `p` multiplies activation row `source[p]`; its result is `y[p * n_rows ..]`. Of each stack with its
/// `y`, as one piece of work for the threads.
/// `group_starts` has `n_mats + 1` entries and ends with `source.len()`.
pub fn matmul_grouped<const N: usize>(
    cpu: Cpu,
    outputs: [Output<'_>; N],
    x: &mut Acts,
    source: &[u32],
    group_starts: &[usize],
) {
    let sorted = group_starts.is_sorted() && group_starts.first() == Some(&0);
    for (w, _) in &outputs {
        assert!(
            sorted && group_starts.len() == w.n_mats + 1,
            "{} matrices have groups {group_starts:?}",
            w.n_mats
        );
    }
    assert_eq!(
        group_starts.last(),
        Some(&source.len()),
        "the groups hold all pairs"
    );
    assert!(
        source.iter().all(|&s| (s as usize) < x.n()),
        "the pairs use {} activation rows",
        x.n()
    );
    run(cpu, outputs, x, source, group_starts);
}

/// All products together if they take their activations in one form, else one after the other.
fn run<const N: usize>(
    cpu: Cpu,
    outputs: [Output<'_>; N],
    x: &mut Acts,
    source: &[u32],
    group_starts: &[usize],
) {
    let paths = outputs.each_ref().map(|(w, _)| Path::of(cpu, w, x.n_cols()));
    if paths.windows(2).all(|two| two[0].takes_the_same(two[1])) {
        if let Some(&path) = paths.first() {
            prepare(cpu, path, x, source, group_starts);
        }
        compute(cpu, paths, outputs, x, source, group_starts);
    } else {
        for (path, output) in paths.into_iter().zip(outputs) {
            prepare(cpu, path, x, source, group_starts);
            compute(cpu, [path], [output], x, source, group_starts);
        }
    }
}

/// Brings the activations into the form that kernels need.
fn prepare(cpu: Cpu, path: Path, x: &mut Acts, source: &[u32], group_starts: &[usize]) {
    match path {
        Path::Kernel(Kernel::Int(_)) => x.quantize(cpu, source, group_starts),
        Path::Kernel(Kernel::Float { round, .. }) => x.round(round),
        Path::Decoder(_) | Path::WholeRows => x.round(None),
    }
}

/// The last checks of sizes are here; below here they hold.
fn compute<const N: usize>(
    cpu: Cpu,
    paths: [Path; N],
    outputs: [Output<'_>; N],
    x: &Acts,
    source: &[u32],
    group_starts: &[usize],
) {
    let mut paths = paths.into_iter();
    let products = outputs.each_ref().map(|(w, y)| Product {
        cpu,
        path: paths.next().expect("one for each output"),
        w: *w,
        row_bytes: row_bytes(w, y.len(), source.len()),
        x,
        source,
        group_starts,
    });
    Product::run_each(&products, outputs.map(|(w, y)| GridMut::new(y, w.n_rows)));
}

/// Bytes of a row of `w`, whose products with `n_pairs` columns are `n_products` numbers.
fn row_bytes(w: &Weights<'_>, n_products: usize, n_pairs: usize) -> usize {
    let geometry = w.format.geometry;
    let row_bytes = geometry
        .row_bytes(w.n_cols as u64)
        .expect("a row is a whole number of blocks") as usize;
    let n_bytes = (w.n_rows.checked_mul(w.n_mats))
        .and_then(|n_rows| geometry.tensor_bytes(w.n_cols as u64, n_rows as u64));
    assert_eq!(
        n_bytes,
        Some(w.bytes.len() as u64),
        "{} matrices of {} rows of {row_bytes} bytes",
        w.n_mats,
        w.n_rows
    );
    assert_eq!(
        n_products,
        n_pairs * w.n_rows,
        "a pair has a result for each of {} rows",
        w.n_rows
    );
    row_bytes
}

#[cfg(test)]
mod tests;

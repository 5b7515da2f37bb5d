//! Matrix products and attention: loops per CPU level over the small pieces that tensor types supply.
//!
//! All functions run on the threads of the [pool](crate::pool) that their caller has entered. Results do not depend on
//! the number of threads or on the CPU level.

mod acts;
pub(crate) mod attention;
pub mod elementwise;
mod exp;
pub(crate) mod float;
mod product;
pub(crate) mod rows;
pub mod sums;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(all(test, unix, target_arch = "x86_64"))]
mod x86_guard;
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

/// `y[t][r] = w.row(r) . x[t]` for every activation row. `y` has `n * n_rows` elements. Weights must be a
/// stack of one.
pub fn matmul(cpu: Cpu, w: Weights<'_>, x: &mut Acts, y: &mut [f32]) {
    assert_eq!(w.n_mats, 1, "a plain product has one matrix");
    let path = Path::of(cpu, &w, x.n_cols());
    let rows = x.take_rows();
    let (source, starts) = (&rows[..x.n()], [0, x.n()]);
    prepare(cpu, path, x, source, &starts);
    run(cpu, path, w, x, source, &starts, y);
    x.put_rows(rows);
}

/// Products with one matrix of the stack per group: pairs `group_starts[m] .. group_starts[m + 1]` use
/// matrix `m`; pair `p` multiplies activation row `source[p]`; its result is `y[p * n_rows ..]`.
/// `group_starts` has `n_mats + 1` entries and ends with `source.len()`.
pub fn matmul_grouped(
    cpu: Cpu,
    w: Weights<'_>,
    x: &mut Acts,
    source: &[u32],
    group_starts: &[usize],
    y: &mut [f32],
) {
    let sorted = group_starts.is_sorted() && group_starts.first() == Some(&0);
    assert!(
        sorted && group_starts.len() == w.n_mats + 1,
        "{} matrices have groups {group_starts:?}",
        w.n_mats
    );
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
    let path = Path::of(cpu, &w, x.n_cols());
    prepare(cpu, path, x, source, group_starts);
    run(cpu, path, w, x, source, group_starts, y);
}

/// Brings the activations into the form that kernels need.
fn prepare(cpu: Cpu, path: Path, x: &mut Acts, source: &[u32], group_starts: &[usize]) {
    match path {
        Path::Kernel(Kernel::Int(_)) => x.quantize(cpu, source, group_starts),
        Path::Kernel(Kernel::Float { round, .. }) => x.round(round),
        Path::Decoder(_) | Path::WholeRows => x.round(None),
    }
}

/// The last checks of sizes; below here they hold.
fn run(
    cpu: Cpu,
    path: Path,
    w: Weights<'_>,
    x: &Acts,
    source: &[u32],
    group_starts: &[usize],
    y: &mut [f32],
) {
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
        y.len(),
        source.len() * w.n_rows,
        "a pair has a result for each of {} rows",
        w.n_rows
    );
    if w.n_rows > 0 {
        let product = Product {
            cpu,
            path,
            w,
            row_bytes,
            x,
            source,
            group_starts,
        };
        product.run(GridMut::new(y, w.n_rows));
    }
}

#[cfg(test)]
mod tests;

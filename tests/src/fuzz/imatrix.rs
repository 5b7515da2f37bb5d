//! Importance matrices of both forms.

use std::path::Path;

use gguf::source;
use gguf_imatrix_format::stats::Statistics;
use gguf_imatrix_format::{Imatrix, Index, Merger};

/// Reads any bytes as a matrix, whole and by columns. What is sound must survive being written, in both forms, and being
/// added up.
pub(super) fn imatrix(data: &[u8]) {
    let source = || source::bytes("fuzz.imatrix".into(), data.to_vec());
    let index = Index::from_source(source());
    let Ok(matrix) = Imatrix::from_source(source()) else {
        return;
    };
    let index = index.expect("an index asks for no more than the whole");
    by_columns(&matrix, &index);
    Statistics::of(&matrix);
    matrix.lost_in_legacy();
    let dir = tempfile::tempdir().expect("a folder");
    rewrite(&matrix, dir.path());
    let mut sum = Merger::new(matrix.clone());
    sum.add(matrix).expect("a matrix fits itself");
    sum.finish();
}

/// What the index reads of the file is what the whole has.
fn by_columns(matrix: &Imatrix, index: &Index) {
    assert_eq!(index.entries.len(), matrix.entries.len());
    for (name, place) in &index.entries {
        let whole = matrix.importance(name).expect("the same entries");
        let read = index
            .mean_squares(name, 0..place.n_values)
            .expect("it is in memory");
        let read = read.expect("all columns are there");
        let same =
            whole.len() == read.len() && whole.iter().zip(&read).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{name}: {whole:?} became {read:?}");
        if let Some(means) = index.column_means(name).expect("it is in memory") {
            let shrunk = index
                .shrunk(name, 0..place.n_values, &means, 4)
                .expect("it is in memory");
            assert_eq!(shrunk.expect("all columns are there").len(), whole.len());
        }
        assert!(
            index
                .mean_squares(name, 0..place.n_values + 1)
                .expect("no read")
                .is_none()
        );
    }
}

fn rewrite(matrix: &Imatrix, dir: &Path) {
    let path = dir.join("new");
    if matrix.write_gguf(&path, false, &[]).is_ok() {
        let again = Imatrix::read(&path).expect("what was written can be read");
        assert_eq!(again.entries.len(), matrix.entries.len());
        assert_eq!(again.datasets, matrix.datasets);
        assert_eq!(
            (again.chunk_count, again.chunk_size),
            (matrix.chunk_count, matrix.chunk_size)
        );
        assert_eq!(again.origin, matrix.origin);
        for (a, b) in again.entries.iter().zip(&matrix.entries) {
            // Counts are stored as f32.
            let counts = b.1.counts.iter().map(|&c| c as f32 as u64);
            assert!(a.0 == b.0 && a.1.sums == b.1.sums && a.1.means == b.1.means);
            assert!(a.1.counts.iter().copied().eq(counts));
        }
    }
    let path = dir.join("old");
    if matrix.write_legacy(&path, false, &[]).is_ok() {
        same_in_legacy(
            matrix,
            &Imatrix::read(&path).expect("what was written can be read"),
        );
    }
}

/// The legacy form has the means of all weights that saw something, as sums over the chunks that the weight saw.
fn same_in_legacy(matrix: &Imatrix, again: &Imatrix) {
    let seen = matrix
        .entries
        .iter()
        .filter(|(_, e)| e.counts.iter().any(|&c| c > 0));
    let mut most = u64::from(matrix.chunk_count);
    let mut n_seen = 0;
    for (name, entry) in seen {
        n_seen += 1;
        let most_seen = entry.counts.iter().max().expect("a count");
        let n_chunks = most_seen.div_ceil(u64::from(matrix.chunk_size.max(1)));
        most = most.max(n_chunks);
        let found = again.entries.get(name).expect("it is written");
        assert!(
            found.counts == [n_chunks] && found.means.is_empty(),
            "{name}: {found:?}"
        );
        let means = matrix.importance(name).expect("an entry");
        let sums = means.iter().map(|mean| (mean * n_chunks as f32).to_bits());
        assert!(
            found.sums.iter().map(|sum| sum.to_bits()).eq(sums),
            "{name}: {means:?} became {found:?}"
        );
    }
    assert_eq!(again.entries.len(), n_seen);
    assert_eq!((u64::from(again.chunk_count), again.chunk_size), (most, 1));
    assert!(
        again
            .datasets
            .iter()
            .eq(matrix.datasets.last().filter(|d| !d.is_empty())),
        "{:?} became {:?}",
        matrix.datasets,
        again.datasets
    );
}

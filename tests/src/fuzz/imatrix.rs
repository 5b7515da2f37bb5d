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
        for (a, b) in again.entries.iter().zip(&matrix.entries) {
            // Counts are stored as f32.
            let counts = b.1.counts.iter().map(|&c| c as f32 as u64);
            assert!(a.0 == b.0 && a.1.sums == b.1.sums && a.1.means == b.1.means);
            assert!(a.1.counts.iter().copied().eq(counts));
        }
    }
    let path = dir.join("old");
    if matrix.write_legacy(&path, false, &[]).is_ok() {
        Imatrix::read(&path).expect("what was written can be read");
    }
}

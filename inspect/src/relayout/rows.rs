//! The bytes of rearranged tensors, head by head.

use gguf::{GgufFile, Result, TensorInfo};

use super::layout::{Mla, Source};

/// Bytes of a tensor that are copied at a time.
const PIECE: u64 = 1 << 20;

/// Hands out the bytes of a tensor of the output in order.
///
/// # Errors
/// A read that fails; what `on` returns.
pub(super) fn write(
    file: &GgufFile,
    source: &Source<'_>,
    mla: &Mla,
    on: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let (rank, nope, value) = (mla.rank, mla.nope, mla.value);
    for head in 0..mla.n_head {
        match source {
            Source::Same(t) => {
                return copy(file, t, on);
            }
            Source::Keys(kv) => {
                let first = head * (nope + value);
                let rows = read_rows(file, kv, rank, first, nope)?;
                on(&transposed(&rows, rank, nope, element_bytes(kv)))?;
            }
            Source::Values(kv) => {
                let first = head * (nope + value) + nope;
                on(&read_rows(file, kv, rank, first, value)?)?;
            }
            Source::Joined { k, v } => {
                let rows = read_rows(file, k, nope, head * rank, rank)?;
                on(&transposed(&rows, nope, rank, element_bytes(k)))?;
                on(&read_rows(file, v, rank, head * value, value)?)?;
            }
        }
    }
    Ok(())
}

fn copy(file: &GgufFile, t: &TensorInfo, on: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut buf = vec![0; PIECE.min(t.n_bytes) as usize];
    let mut at = 0;
    while at < t.n_bytes {
        let piece = &mut buf[..PIECE.min(t.n_bytes - at) as usize];
        file.read_tensor(t, at, piece)?;
        on(piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Types here have elements of whole bytes.
fn element_bytes(t: &TensorInfo) -> u64 {
    t.n_bytes / t.shape.n_elems()
}

fn read_rows(file: &GgufFile, t: &TensorInfo, n_cols: u64, first: u64, n: u64) -> Result<Vec<u8>> {
    let row_bytes = n_cols * element_bytes(t);
    let mut rows = vec![0; (n * row_bytes) as usize];
    file.read_tensor(t, first * row_bytes, &mut rows)?;
    Ok(rows)
}

/// `n_rows` rows of `n_cols` elements with rows and columns exchanged.
fn transposed(rows: &[u8], n_cols: u64, n_rows: u64, size: u64) -> Vec<u8> {
    let (n_cols, n_rows, size) = (n_cols as usize, n_rows as usize, size as usize);
    let mut out = Vec::with_capacity(rows.len());
    for col in 0..n_cols {
        for row in 0..n_rows {
            let at = (row * n_cols + col) * size;
            out.extend_from_slice(&rows[at..at + size]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::transposed;

    #[test]
    fn rows_become_columns_and_back() {
        let rows: Vec<u8> = (0..24).collect();
        let turned = transposed(&rows, 3, 4, 2);
        assert_eq!(turned[..8], [0, 1, 6, 7, 12, 13, 18, 19]);
        assert_eq!(transposed(&turned, 4, 3, 2), rows);
    }
}

//! How many bytes a row of a tensor takes.

/// The shape of a tensor type's storage. The row is the unit, because some types carry a per-row header
/// and some interleave several rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Elements in one block.
    pub block_elems: usize,
    /// Bytes of one block.
    pub block_bytes: usize,
    /// Bytes in front of the blocks of each row (0 for every mainline type).
    pub row_header_bytes: usize,
    /// Rows stored interleaved as one group (1 for every mainline type).
    pub interleave: usize,
}

impl Geometry {
    /// A type made of plain blocks: no row header, no interleaving.
    pub const fn blocks(block_elems: usize, block_bytes: usize) -> Self {
        Self {
            block_elems,
            block_bytes,
            row_header_bytes: 0,
            interleave: 1,
        }
    }

    /// Bytes of a row of `n_cols` elements; `None` if `n_cols` is not a whole number of blocks or the
    /// product overflows.
    pub fn row_bytes(&self, n_cols: u64) -> Option<u64> {
        let elems = self.block_elems as u64;
        if !n_cols.is_multiple_of(elems) {
            return None;
        }
        (n_cols / elems)
            .checked_mul(self.block_bytes as u64)?
            .checked_add(self.row_header_bytes as u64)
    }

    /// Bits of storage for each element, row headers left out.
    pub fn bits_per_weight(&self) -> f64 {
        self.block_bytes as f64 * 8.0 / self.block_elems as f64
    }
}

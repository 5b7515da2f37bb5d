//! How many bytes the rows of a tensor take.

/// The shape of a tensor type's storage. The row is the unit, because some types carry a per-row header
/// and some interleave several rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Elements in one block.
    pub block_elems: usize,
    /// Bytes of one block.
    pub block_bytes: usize,
    /// Bytes in front of the blocks of each row (0 for every mainline type). Interleaved rows have theirs together,
    /// in front of the group.
    pub row_header_bytes: usize,
    /// Rows stored interleaved as one group (1 for every mainline type).
    pub interleave: usize,
    /// Bytes behind the rows of the whole tensor (0 for every mainline type).
    pub tensor_trailer_bytes: usize,
}

/// The least that can be decoded and checked by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A block; rows are blocks and nothing else.
    Block,
    /// A group of [`Geometry::interleave`] rows, 1 or more, with the headers of all in front.
    Rows,
    /// All rows of a tensor and its trailer.
    Tensor,
}

impl Geometry {
    /// A type made of plain blocks: no row header, no interleaving, no trailer.
    pub const fn blocks(block_elems: usize, block_bytes: usize) -> Self {
        Self {
            block_elems,
            block_bytes,
            row_header_bytes: 0,
            interleave: 1,
            tensor_trailer_bytes: 0,
        }
    }

    /// `rows` interleaved rows; `group_bytes` holds `block_elems` elements of each.
    pub(crate) const fn interleaved(rows: usize, block_elems: usize, group_bytes: usize) -> Self {
        assert!(group_bytes.is_multiple_of(rows), "a whole number of bytes a row");
        Self {
            interleave: rows,
            ..Self::blocks(block_elems, group_bytes / rows)
        }
    }

    /// The same with a header in front of each row.
    pub(crate) const fn with_header(self, row_header_bytes: usize) -> Self {
        Self {
            row_header_bytes,
            ..self
        }
    }

    /// What can be decoded by itself.
    pub fn unit(&self) -> Unit {
        match self {
            _ if self.tensor_trailer_bytes > 0 => Unit::Tensor,
            _ if self.row_header_bytes > 0 || self.interleave > 1 => Unit::Rows,
            _ => Unit::Block,
        }
    }

    /// Whether a row is blocks and nothing else, so that rows and parts of rows can be taken by themselves.
    pub fn is_plain(&self) -> bool {
        self.unit() == Unit::Block
    }

    /// Rows that are decoded in one call, out of `n_rows`.
    pub(crate) fn unit_rows(&self, n_rows: usize) -> usize {
        match self.unit() {
            Unit::Rows => self.interleave,
            Unit::Block | Unit::Tensor => n_rows,
        }
    }

    /// Bytes of a row of `n_cols` elements with its header; `None` if `n_cols` is not a whole number of blocks or
    /// the product overflows.
    pub fn row_bytes(&self, n_cols: u64) -> Option<u64> {
        let elems = self.block_elems as u64;
        if !n_cols.is_multiple_of(elems) {
            return None;
        }
        (n_cols / elems)
            .checked_mul(self.block_bytes as u64)?
            .checked_add(self.row_header_bytes as u64)
    }

    /// Bytes of a tensor of `n_rows` rows (of all its matrices together) of `n_cols` elements; `None` if `n_cols`
    /// is not a whole number of blocks, `n_rows` not a whole number of interleaved groups, or the sum overflows.
    pub fn tensor_bytes(&self, n_cols: u64, n_rows: u64) -> Option<u64> {
        if !n_rows.is_multiple_of(self.interleave as u64) {
            return None;
        }
        self.row_bytes(n_cols)?
            .checked_mul(n_rows)?
            .checked_add(self.tensor_trailer_bytes as u64)
    }

    /// The number of rows for which [`Self::tensor_bytes`] is `n_bytes`, if there is one.
    pub(crate) fn rows_in(&self, n_cols: u64, n_bytes: u64) -> Option<u64> {
        let rows = n_bytes.checked_sub(self.tensor_trailer_bytes as u64)?;
        let n_rows = rows.checked_div(self.row_bytes(n_cols)?)?;
        (self.tensor_bytes(n_cols, n_rows) == Some(n_bytes)).then_some(n_rows)
    }

    /// Bits of storage for each element, row headers and trailers left out.
    pub fn bits_per_weight(&self) -> f64 {
        self.block_bytes as f64 * 8.0 / self.block_elems as f64
    }
}

//! What the file says of a tensor.

use gguf_blocks::{Format, TypeId};

/// Dimensions, row length first: `[n_cols, n_rows, n_matrices, ..]`. At most four; those not given are 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    dims: [u64; 4],
    n_dims: usize,
}

impl Shape {
    /// A shape of up to four dimensions, row length first; `None` if there are more or the number of
    /// elements overflows i64.
    pub fn new(_dims: &[u64]) -> Option<Self> {
        todo!()
    }

    /// The dimensions as given.
    pub fn dims(&self) -> &[u64] {
        &self.dims[..self.n_dims]
    }

    /// Elements of a row.
    pub fn n_cols(&self) -> u64 {
        self.dims[0]
    }

    /// Rows of all matrices together.
    pub fn n_rows(&self) -> u64 {
        self.dims[1] * self.dims[2] * self.dims[3]
    }

    /// Dimension `i` (0 = row length), 1 if not given.
    pub fn dim(&self, i: usize) -> u64 {
        self.dims[i]
    }

    /// Elements.
    pub fn n_elems(&self) -> u64 {
        self.dims.iter().product()
    }
}

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, for instance `blk.0.attn_q.weight`.
    pub name: String,
    /// Dimensions, row length first.
    pub shape: Shape,
    /// Type number; may be one this build does not know.
    pub type_id: TypeId,
    /// First byte, counted from the start of the data section.
    pub offset: u64,
    /// Bytes. Of an unknown type: the room up to the next tensor or the end.
    pub n_bytes: u64,
}

impl TensorInfo {
    /// The type's record, if this build knows the type.
    pub fn format(&self) -> Option<&'static Format> {
        gguf_blocks::registry::by_id(self.type_id)
    }

    /// The type's name, or `type 4242`.
    pub fn type_name(&self) -> String {
        todo!()
    }
}

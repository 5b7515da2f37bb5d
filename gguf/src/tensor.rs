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
    /// elements overflows i64. A dimension of 0 counts as 1 in that test, so that no partial product can
    /// overflow either.
    pub fn new(dims: &[u64]) -> Option<Self> {
        let mut all = [1; 4];
        all.get_mut(..dims.len())?.copy_from_slice(dims);
        all.iter()
            .try_fold(1_i64, |n, &d| n.checked_mul(i64::try_from(d).ok()?.max(1)))?;
        Some(Self {
            dims: all,
            n_dims: dims.len(),
        })
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

    /// Bytes of a tensor of this shape and type; `None` if a row is not a whole number of blocks, the rows
    /// not a whole number of interleaved groups, or the product overflows.
    pub fn n_bytes(&self, format: &Format) -> Option<u64> {
        format.geometry.tensor_bytes(self.n_cols(), self.n_rows())
    }
}

impl std::fmt::Display for Shape {
    /// `[4096, 32000]`, row length first.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.dims()).finish()
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
    /// Bytes. Of an unknown type, and where rows are not whole blocks: the room up to the next tensor or the
    /// end of the file.
    pub n_bytes: u64,
    /// The file it stands in: 0 but for later shards of a split set.
    pub part: usize,
}

impl TensorInfo {
    /// The type's record, if this build knows the type.
    pub fn format(&self) -> Option<&'static Format> {
        gguf_blocks::registry::by_id(self.type_id)
    }

    /// The type's name, or `type 4242`.
    pub fn type_name(&self) -> String {
        match self.format() {
            Some(format) => format.name.to_owned(),
            None => format!("type {}", self.type_id.0),
        }
    }

    /// Bits of storage for each element, `None` for a tensor without elements.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn bits_per_weight(&self) -> Option<f64> {
        let n = self.shape.n_elems();
        (n > 0).then(|| self.n_bytes as f64 * 8.0 / n as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;

    #[test]
    fn missing_dimensions_are_one() {
        let shape = Shape::new(&[288, 4]).expect("two dimensions");
        assert_eq!(shape.dims(), [288, 4]);
        assert_eq!(
            (shape.n_cols(), shape.n_rows(), shape.dim(3), shape.n_elems()),
            (288, 4, 1, 1152)
        );
        assert_eq!(Shape::new(&[]).map(|s| s.n_elems()), Some(1));
        assert_eq!(shape.to_string(), "[288, 4]");
    }

    #[test]
    fn products_that_overflow_are_refused() {
        assert!(Shape::new(&[1 << 63]).is_none());
        assert!(Shape::new(&[(1 << 42) + 1, 1 << 21]).is_none());
        assert!(
            Shape::new(&[0, 1 << 40, 1 << 40]).is_none(),
            "the product of rows would wrap"
        );
        assert!(Shape::new(&[1, 1, 1, 1, 1]).is_none());
        assert!(Shape::new(&[(1 << 63) - 1, 1, 1, 1]).is_some());
    }
}

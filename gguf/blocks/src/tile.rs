//! Eight rows of weights unpacked for matrix products: as bytes ([`Tile`]) or as f32 ([`Panel`]).
//!
//! Every integer type is, per row and per 16 values, `w = s * v - m` with `v` a small integer. Within a group
//! of 32 columns the bytes are ordered by chunks of four columns: `v[group][chunk][row][col % 4]`, so that one
//! 256-bit register holds four columns of all eight rows and the sums of the eight rows stay in eight lanes.

/// Rows in a tile.
pub const ROWS: usize = 8;
/// Columns in a group.
pub const GROUP: usize = crate::activation::GROUP;
/// Groups (of 32 columns) a tile can hold: one super-block.
pub const MAX_GROUPS: usize = 8;
/// Columns a tile or panel can hold.
pub const MAX_COLS: usize = GROUP * MAX_GROUPS;

/// What the numbers of a type's tiles look like; kernels choose how far they can add in 16 bits from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileKind {
    /// Whether `v` is signed or unsigned.
    pub signed: bool,
    /// The largest magnitude of `v`, at most 128 for signed and 127 for unsigned ones.
    pub max: u8,
    /// Whether both halves of a group share scale and minimum; only those of half 0 are filled then.
    pub whole_group: bool,
    /// Whether `m` can be other than zero; the minima are not filled if not.
    pub has_min: bool,
}

/// Up to [`MAX_GROUPS`] groups of 32 columns of 8 rows.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub struct Tile {
    /// Values: see the module's text for the order. Signed ones are stored as their two's complement.
    pub v: [[u8; GROUP * ROWS]; MAX_GROUPS],
    /// Scales: `[group][half][row]`.
    pub scale: [[[f32; ROWS]; 2]; MAX_GROUPS],
    /// Minima: `[group][half][row]`.
    pub min: [[[f32; ROWS]; 2]; MAX_GROUPS],
    n_groups: usize,
}

impl Tile {
    /// An empty tile.
    pub fn new() -> Box<Self> {
        Box::new(Self {
            v: [[0; GROUP * ROWS]; MAX_GROUPS],
            scale: [[[0.0; ROWS]; 2]; MAX_GROUPS],
            min: [[[0.0; ROWS]; 2]; MAX_GROUPS],
            n_groups: 0,
        })
    }

    /// Groups in use.
    pub fn n_groups(&self) -> usize {
        self.n_groups
    }

    /// Sets how many groups the next unpacking fills; at most [`MAX_GROUPS`].
    pub fn set_groups(&mut self, n: usize) {
        assert!(n <= MAX_GROUPS, "a tile holds at most {MAX_GROUPS} groups");
        self.n_groups = n;
    }

    /// Stores one row's group of values.
    pub(crate) fn set_values(&mut self, group: usize, row: usize, v: &[u8; GROUP]) {
        for (chunk, four) in v.as_chunks::<4>().0.iter().enumerate() {
            let at = (chunk * ROWS + row) * 4;
            self.v[group][at..at + 4].copy_from_slice(four);
        }
    }
}

/// Up to [`MAX_COLS`] columns of 8 rows as f32.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub struct Panel {
    /// Values: `[column][row]`.
    pub v: [[f32; ROWS]; MAX_COLS],
    n_cols: usize,
}

impl Panel {
    /// An empty panel.
    pub fn new() -> Box<Self> {
        Box::new(Self {
            v: [[0.0; ROWS]; MAX_COLS],
            n_cols: 0,
        })
    }

    /// Columns in use.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Sets how many columns the next unpacking fills; at most [`MAX_COLS`].
    pub fn set_cols(&mut self, n: usize) {
        assert!(n <= MAX_COLS, "a panel holds at most {MAX_COLS} columns");
        self.n_cols = n;
    }
}

//! Eight rows of weights unpacked to bytes, interleaved for the prompt kernels.
//!
//! Every integer type is, per row and per 16 values, `w = s * v - m` with `v` a small integer. Within a group
//! of 32 columns the bytes are ordered by chunks of four columns: `v[group][chunk][row][col % 4]`, so that one
//! 256-bit register holds four columns of all eight rows and the sums of the eight rows stay in eight lanes.

/// Rows in a tile.
pub const ROWS: usize = 8;
/// Groups (of 32 columns) a tile can hold: one super-block.
pub const MAX_GROUPS: usize = 8;

/// What the numbers of a type's tiles look like; kernels choose how far they can add in 16 bits from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileKind {
    /// Whether `v` is signed (-128..=127) or unsigned (0..=`max`).
    pub signed: bool,
    /// The largest unsigned value.
    pub max: u8,
    /// Whether both halves of a group share scale and minimum.
    pub whole_group: bool,
    /// Whether `m` can be other than zero.
    pub has_min: bool,
}

/// Up to [`MAX_GROUPS`] groups of 32 columns of 8 rows.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub struct Tile {
    /// Values: see the module's text for the order.
    pub v: [[u8; 32 * ROWS]; MAX_GROUPS],
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
            v: [[0; 32 * ROWS]; MAX_GROUPS],
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
}

//! Eight rows of weights unpacked for matrix products: as bytes ([`Tile`]) or as f32 ([`Panel`]).
//!
//! Every integer type is, per row and per 16 or 32 values, `w = s * (v - offset) - m` with `v` a small integer. Within
//! a group of 32 columns the bytes are ordered by chunks of four columns: `v[group][chunk][row][col % 4]`, so that one
//! 256-bit register holds four columns of all eight rows and the sums of the eight rows stay in eight lanes.

/// Rows in a tile.
pub const ROWS: usize = 8;
/// Columns in a group.
pub const GROUP: usize = crate::activation::GROUP;
/// Groups (of 32 columns) a tile can hold: one super-block.
pub const MAX_GROUPS: usize = 8;
/// Columns a tile or panel can hold.
pub const MAX_COLS: usize = GROUP * MAX_GROUPS;

/// Columns of activations that are multiplied together, at most.
pub const MAX_COLUMNS: usize = 4;

/// Columns of half a group.
pub(crate) const HALF: usize = GROUP / 2;

/// What minima a type has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Minima {
    /// None.
    None,
    /// A number for each group.
    Float,
    /// A small integer for each half, in a unit of the super-block.
    Int,
}

/// What the numbers of a type's tiles look like. Parts that a kind does not have are not filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileKind {
    /// The largest `v`; kernels choose how far they can add in 16 bits from it.
    pub max: u8,
    /// What values are to be lowered by.
    pub offset: u8,
    /// Whether halves of a group have scales of their own.
    pub halves: bool,
    /// Whether scales are integers in a unit of the super-block.
    pub int_scales: bool,
    /// The minima.
    pub mins: Minima,
}

impl TileKind {
    /// Whether there are values above 127: two of their products do not fit into 16 bits.
    pub const fn wide(&self) -> bool {
        self.max > 127
    }
}

/// Up to [`MAX_GROUPS`] groups of 32 columns of 8 rows.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub struct Tile {
    /// Values: see the module's text for the order.
    pub v: [[u8; GROUP * ROWS]; MAX_GROUPS],
    /// Float scales: `[group][half][row]`.
    pub scale: [[[f32; ROWS]; 2]; MAX_GROUPS],
    /// Integer scales: `[group][half][row]`, each twice, as pairs of 16 bits are multiplied with them.
    pub int_scale: [[[[i16; 2]; ROWS]; 2]; MAX_GROUPS],
    /// What the sums of both halves of the activations are multiplied with to lower the values by the offset, for
    /// integer scales: `[group][row]`.
    pub lower: [[[i16; 2]; ROWS]; MAX_GROUPS],
    /// Float minima: `[group][row]`.
    pub min: [[f32; ROWS]; MAX_GROUPS],
    /// Integer minima of both halves: `[group][row]`.
    pub int_min: [[[i16; 2]; ROWS]; MAX_GROUPS],
    /// Unit of the integer scales: `[row]`.
    pub unit: [f32; ROWS],
    /// Unit of the integer minima: `[row]`.
    pub min_unit: [f32; ROWS],
    n_groups: usize,
}

impl Tile {
    /// An empty tile.
    pub fn new() -> Box<Self> {
        Box::new(Self {
            v: [[0; GROUP * ROWS]; MAX_GROUPS],
            scale: [[[0.0; ROWS]; 2]; MAX_GROUPS],
            int_scale: [[[[0; 2]; ROWS]; 2]; MAX_GROUPS],
            lower: [[[0; 2]; ROWS]; MAX_GROUPS],
            min: [[0.0; ROWS]; MAX_GROUPS],
            int_min: [[[0; 2]; ROWS]; MAX_GROUPS],
            unit: [0.0; ROWS],
            min_unit: [0.0; ROWS],
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
            self.v[group][(chunk * ROWS + row) * 4..][..4].copy_from_slice(four);
        }
    }

    /// Stores the integer scales of one row's group and what lowers its values.
    pub(crate) fn set_int_scales(&mut self, kind: TileKind, group: usize, row: usize, [low, high]: [i8; 2]) {
        let scales = if kind.halves { [low, high] } else { [low; 2] };
        for (half, scale) in scales.into_iter().enumerate() {
            self.int_scale[group][half][row] = [i16::from(scale); 2];
        }
        self.lower[group][row] = scales.map(|scale| -i16::from(kind.offset) * i16::from(scale));
    }
}

/// Room for columns in a form of the CPU level's own, while it multiplies tiles with them.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "only levels of x86 spread columns")
)]
pub struct Spread(pub(crate) Vec<SpreadGroup>);

impl Spread {
    /// Room for the columns of a super-block.
    pub fn new() -> Self {
        Self(vec![SpreadGroup::EMPTY; MAX_GROUPS])
    }
}

impl Default for Spread {
    fn default() -> Self {
        Self::new()
    }
}

/// A group of some columns with each number as often as a tile has rows. Parts that a type does not need are not filled.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpreadGroup {
    /// The values of each four rows of each column: `[chunk][column][row of the tile]`. For wide kinds in 16 bits, where
    /// a chunk is first the even two of four rows and then the odd ones.
    pub(crate) q: [[[[u8; 4]; ROWS]; MAX_COLUMNS]; GROUP / 2],
    /// Scales: `[column][row of the tile]`.
    pub(crate) d: [[f32; ROWS]; MAX_COLUMNS],
    /// Sums: `[column][row of the tile]`.
    pub(crate) sum: [[f32; ROWS]; MAX_COLUMNS],
    /// Sums of both halves as whole numbers: `[column][row of the tile]`.
    pub(crate) int: [[[i16; 2]; ROWS]; MAX_COLUMNS],
}

impl SpreadGroup {
    const EMPTY: Self = Self {
        q: [[[[0; 4]; ROWS]; MAX_COLUMNS]; GROUP / 2],
        d: [[0.0; ROWS]; MAX_COLUMNS],
        sum: [[0.0; ROWS]; MAX_COLUMNS],
        int: [[[0; 2]; ROWS]; MAX_COLUMNS],
    };
}

/// Up to [`MAX_COLS`] columns of 8 rows as f32.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub struct Panel {
    /// Values: `[row][column]`.
    pub v: [[f32; MAX_COLS]; ROWS],
    n_cols: usize,
}

impl Panel {
    /// An empty panel.
    pub fn new() -> Box<Self> {
        Box::new(Self {
            v: [[0.0; MAX_COLS]; ROWS],
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

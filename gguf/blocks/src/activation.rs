//! Activations quantized to 8 bits for integer products: groups of 32 values with a scale each.
//!
//! Per group: `d = max|x| / 127`, `q = round_ties_even(x / d)`, and the sums of `q` over both halves, which
//! types with a minimum or an offset need. A group of zeros has `d = 0` and `q = 0`.

/// Values that share a scale.
pub const GROUP: usize = 32;

/// One quantized activation row, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Q8Row<'a> {
    /// The values, a multiple of 32 of them, each in -127..=127.
    pub q: &'a [i8],
    /// The scale of each group of 32.
    pub d: &'a [f32],
    /// The sum of `q` over each 16 values, two a group.
    pub sum16: &'a [i16],
}

//! Loops over rows that are more than plain blocks: with a header in front, interleaved, or both. One call takes
//! one group of rows. Lengths are checked here, once for each group.

use crate::rows::{self, Stored};

/// The headers of `R` rows, `H` bytes each, and the blocks behind them, each with elements of all rows.
fn split<B: Stored, const H: usize, const R: usize>(bytes: &[u8]) -> ([&[u8; H]; R], &[B]) {
    let (headers, blocks) = bytes
        .split_at_checked(R * H)
        .expect("a group has a header for each row");
    let header = |k| {
        headers[k * H..][..H]
            .try_into()
            .expect("a slice of `H` bytes is an array")
    };
    (std::array::from_fn(header), rows::blocks(blocks))
}

/// Calls `one` for each block and row `k` of the group with the place of its `N` values in that row.
#[inline]
pub(crate) fn decode<B: Stored, const H: usize, const R: usize, const N: usize>(
    bytes: &[u8],
    out: &mut [f32],
    one: impl Fn(&[u8; H], &B, usize, &mut [f32; N]),
) {
    let (headers, blocks) = split::<B, H, R>(bytes);
    let n_cols = blocks.len() * N;
    assert_eq!(
        out.len(),
        R * n_cols,
        "a group has a value for each element of its blocks"
    );
    for (k, header) in headers.into_iter().enumerate() {
        let row = out[k * n_cols..][..n_cols].as_chunks_mut::<N>().0;
        for (block, out) in blocks.iter().zip(row) {
            one(header, block, k, out);
        }
    }
}

/// The first block and row for which `sound` is false, as the block's index row after row.
#[inline]
pub(crate) fn check<B: Stored, const H: usize, const R: usize>(
    bytes: &[u8],
    sound: impl Fn(&[u8; H], &B, usize) -> bool,
) -> Option<usize> {
    let (headers, blocks) = split::<B, H, R>(bytes);
    blocks.iter().enumerate().find_map(|(b, block)| {
        let k = (0..R).find(|&k| !sound(headers[k], block, k))?;
        Some(k * blocks.len() + b)
    })
}

/// The check of rows in which only the header can be unsound.
#[inline]
pub(crate) fn check_headers<B: Stored, const H: usize, const R: usize>(
    bytes: &[u8],
    sound: impl Fn([u8; H]) -> bool,
) -> Option<usize> {
    let (headers, blocks) = split::<B, H, R>(bytes);
    let k = headers.into_iter().position(|header| !sound(*header))?;
    Some(k * blocks.len())
}

/// The value of a stored single.
#[inline]
pub(crate) fn single(bytes: [u8; 4]) -> f32 {
    f32::from_le_bytes(bytes)
}

/// Whether a stored single is neither infinite nor NaN.
#[inline]
pub(crate) fn is_finite_single(bytes: [u8; 4]) -> bool {
    single(bytes).is_finite()
}

//! Loops over the blocks of a row, shared by the types made of plain blocks. Lengths are checked here, once for
//! each row.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Importance;
use crate::half_bulk::f16_to_f32;

/// A block struct that any bytes of its size are a value of.
pub(crate) trait Stored: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned {}

impl<B: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned> Stored for B {}

/// The blocks of a row.
pub(crate) fn blocks<B: Stored>(bytes: &[u8]) -> &[B] {
    let whole = bytes.len() / size_of::<B>() * size_of::<B>();
    assert_eq!(bytes.len(), whole, "a row is whole blocks");
    <[B]>::ref_from_bytes(bytes).expect("the length is whole blocks and blocks need no alignment")
}

/// The blocks of a row that is written.
pub(crate) fn blocks_mut<B: Stored>(bytes: &mut [u8]) -> &mut [B] {
    let whole = bytes.len() / size_of::<B>() * size_of::<B>();
    assert_eq!(bytes.len(), whole, "a row is whole blocks");
    <[B]>::mut_from_bytes(bytes).expect("the length is whole blocks and blocks need no alignment")
}

/// Calls `one` for each block with the place of its `N` values.
#[inline]
pub(crate) fn decode<B: Stored, const N: usize>(
    bytes: &[u8],
    out: &mut [f32],
    one: impl Fn(&B, &mut [f32; N]),
) {
    let blocks = blocks::<B>(bytes);
    assert_eq!(
        out.len(),
        blocks.len() * N,
        "a row has a value for each element of its blocks"
    );
    for (block, out) in blocks.iter().zip(out.as_chunks_mut::<N>().0) {
        one(block, out);
    }
}

/// Groups of `N` values of a row and the blocks they are to be stored in.
pub(crate) fn pairs<'a, B: Stored, const N: usize>(
    src: &'a [f32],
    out: &'a mut [u8],
) -> (&'a [[f32; N]], &'a mut [B]) {
    let blocks = blocks_mut::<B>(out);
    assert_eq!(
        src.len(),
        blocks.len() * N,
        "a row has a value for each element of its blocks"
    );
    (src.as_chunks::<N>().0, blocks)
}

/// The importance of each group of `N` values of a row.
pub(crate) fn weights<'a, const N: usize>(src: &[f32], importance: &'a [f32]) -> &'a [[f32; N]] {
    assert_eq!(
        importance.len(),
        src.len(),
        "importance has a weight for each column"
    );
    importance.as_chunks::<N>().0
}

/// Each `N` values of a row, their importance if there is any, and the block they are to be stored in.
pub(crate) fn weighted_pairs<'a, B: Stored + 'a, const N: usize>(
    src: &'a [f32],
    importance: Importance<'a>,
    out: &'a mut [u8],
) -> impl Iterator<Item = (&'a [f32; N], Option<&'a [f32; N]>, &'a mut B)> {
    let (groups, blocks) = pairs::<B, N>(src, out);
    let weights = match importance {
        Importance::None => &[],
        Importance::Column(weights) => self::weights::<N>(src, weights),
    };
    let pairs = groups.iter().zip(blocks).enumerate();
    pairs.map(|(i, (x, block))| (x, weights.get(i), block))
}

/// The first block for which `sound` is false.
#[inline]
pub(crate) fn check<B: Stored>(bytes: &[u8], sound: impl Fn(&B) -> bool) -> Option<usize> {
    blocks::<B>(bytes).iter().position(|b| !sound(b))
}

/// The first value for which `sound` is false. Values are small, so most are looked at many at a time.
#[inline]
pub(crate) fn check_values<B: Stored + Copy>(bytes: &[u8], sound: impl Fn(B) -> bool) -> Option<usize> {
    /// Values that are looked at without a way out.
    const CHUNK: usize = 256;
    let values = blocks::<B>(bytes);
    let mut chunks = values.chunks(CHUNK);
    let chunk = chunks.position(|chunk| !chunk.iter().fold(true, |all, &v| all & sound(v)))?;
    let start = chunk * CHUNK;
    values[start..].iter().position(|&v| !sound(v)).map(|i| start + i)
}

/// The value of a stored half.
#[inline(always)]
pub(crate) fn half(bytes: [u8; 2]) -> f32 {
    f16_to_f32(u16::from_le_bytes(bytes))
}

/// Whether a stored half is neither infinite nor NaN.
#[inline(always)]
pub(crate) fn is_finite(half: [u8; 2]) -> bool {
    half[1] & 0x7c != 0x7c
}

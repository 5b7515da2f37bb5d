//! Orders of codes in rows that `ik_llama.cpp` keeps interleaved. Every function gives the code of element `e`, out
//! of 32 elements, of row `k`; `qs` is what is stored for the 32 elements of all rows.

/// Four-bit codes of four rows: words of the rows follow each other; the two halves of a byte are 8 elements apart,
/// and elements from 4 and from 16 on are in later words.
#[inline]
pub(crate) fn nibble(qs: &[u8], k: usize, e: usize) -> u8 {
    let word = e / 4 % 2 * 2 + e / 16;
    qs[16 * word + 4 * k + e % 4] >> (e / 8 % 2 * 4) & 15
}

/// Four-bit codes of `rows` rows whose words hold elements that are 16 apart.
#[inline]
pub(crate) fn far_nibble(rows: usize, qs: &[u8], k: usize, e: usize) -> u8 {
    qs[4 * (rows * (e % 16 / 4) + k) + e % 4] >> (e / 16 * 4) & 15
}

/// Two-bit codes of four rows.
#[inline]
pub(crate) fn two_bits(qs: &[u8], k: usize, e: usize) -> u8 {
    qs[16 * (e / 16) + 4 * k + e % 4] >> (e % 16 / 4 * 2) & 3
}

/// High two bits of four rows in the order of [`nibble`]'s words.
#[inline]
pub(crate) fn high_two_bits(qh: &[u8], k: usize, e: usize) -> u8 {
    qh[16 * (e / 16) + 4 * k + e % 4] >> (e / 4 % 2 * 4 + e / 8 % 2 * 2) & 3
}

/// Single bits of four rows that go with [`two_bits`].
#[inline]
pub(crate) fn third_bit(qh: &[u8], k: usize, e: usize) -> u8 {
    qh[4 * k + e % 4] >> (e / 4) & 1
}

/// Fifth bits of four rows in the order of [`nibble`]'s words: those of `Q5_K_R4`.
#[inline]
pub(crate) fn fifth_bit(qh: &[u8], k: usize, e: usize) -> u8 {
    qh[4 * k + e % 4] >> (e / 16 * 4 + e / 4 % 2 * 2 + e / 8 % 2) & 1
}

/// Fifth bits of four rows in the order of `IQ5_K_R4` and `IQ5_KS_R4`.
#[inline]
pub(crate) fn fifth_bit_even(qh: &[u8], k: usize, e: usize) -> u8 {
    qh[4 * k + e % 4] >> (e / 4 % 2 * 4 + e / 8) & 1
}

/// The signs of 8 values each, from four bytes whose lowest bits are the scale: see `IQ2_XXS_R4`.
#[inline]
pub(crate) fn signs_and_scale(sas: [u8; 4]) -> ([u8; 4], u8) {
    let scale = (0..4).fold(0, |scale, b| scale | (sas[b] & 1) << b);
    (sas.map(|s| s & 0xfe).map(|s| s ^ s >> 1), scale)
}

/// All 256 codes of row `k` from pieces of `qs` for 32 elements each, in one of the orders above.
#[inline]
pub(crate) fn codes<const B: usize>(
    qs: &[[u8; B]; 8],
    k: usize,
    order: impl Fn(&[u8], usize, usize) -> u8,
) -> [u8; 256] {
    crate::ik::codes(|ib, e| order(&qs[ib], k, e))
}

/// Puts more bits above the `low` bits that codes have.
#[inline]
pub(crate) fn add_bits<const B: usize>(
    codes: &mut [u8; 256],
    low: u32,
    qh: &[[u8; B]; 8],
    k: usize,
    order: impl Fn(&[u8], usize, usize) -> u8,
) {
    for (code, high) in codes.iter_mut().zip(self::codes(qh, k, order)) {
        *code |= high << low;
    }
}

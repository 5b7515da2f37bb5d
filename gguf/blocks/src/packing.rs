//! How codes of a few bits share bytes.

/// The values of four-bit floats (1 sign, 2 exponent, 1 mantissa bit), doubled to be whole.
pub(crate) const DOUBLED_FP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The code of the value of a four-bit float nearest to `x`, the first of equally near ones; `values` are
/// [`DOUBLED_FP4`] by half a scale.
#[inline(always)]
pub(crate) fn nearest_fp4(values: &[f32; 16], x: f32) -> u8 {
    let mut code = 0;
    let mut best = (values[0] - x).abs();
    for (i, v) in values.iter().enumerate().skip(1) {
        let distance = (v - x).abs();
        code = if distance < best { i as u32 } else { code };
        best = if distance < best { distance } else { best };
    }
    code as u8
}

/// 32 four-bit codes: `j` in the low half of byte `j`, `j + 16` in the high half.
pub(crate) fn nibbles(codes: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| codes[j] & 15 | codes[j + 16] << 4)
}

/// What [`nibbles`] packed.
#[inline]
pub(crate) fn from_nibbles(qs: &[u8; 16]) -> [u8; 32] {
    let mut codes = [0; 32];
    for (j, q) in qs.iter().enumerate() {
        codes[j] = q & 15;
        codes[j + 16] = q >> 4;
    }
    codes
}

/// The fifth bits of 32 codes, little-endian.
pub(crate) fn fifth_bits(codes: &[u8; 32]) -> [u8; 4] {
    codes
        .iter()
        .enumerate()
        .fold(0, |bits, (i, c)| bits | u32::from(c >> 4 & 1) << i)
        .to_le_bytes()
}

/// Five-bit codes from [`nibbles`] and [`fifth_bits`].
#[inline]
pub(crate) fn with_fifth_bits(qs: &[u8; 16], qh: [u8; 4]) -> [u8; 32] {
    let mut codes = from_nibbles(qs);
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= (qh[i / 8] >> (i % 8) & 1) << 4;
    }
    codes
}

/// 256 two-bit codes: code `i` at bit `2 · (i % 128 / 32)` of byte `32 · (i / 128) + i % 32`.
pub(crate) fn two_bits(codes: &[u8; 256]) -> [u8; 64] {
    std::array::from_fn(|byte| {
        let first = byte / 32 * 128 + byte % 32;
        (0..4).fold(0, |bits, j| bits | (codes[first + 32 * j] & 3) << (2 * j))
    })
}

/// What [`two_bits`] packed.
#[inline]
pub(crate) fn from_two_bits(qs: &[u8; 64]) -> [u8; 256] {
    let mut codes = [0; 256];
    for (group, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let half = &qs.as_chunks::<32>().0[group / 4];
        for (code, q) in codes.iter_mut().zip(half) {
            *code = q >> (2 * (group % 4)) & 3;
        }
    }
    codes
}

/// 256 single bits: bit `i / 32` of byte `i % 32`.
pub(crate) fn striped_bits(bit: impl Fn(usize) -> bool) -> [u8; 32] {
    std::array::from_fn(|e| (0..8).fold(0, |byte, g| byte | u8::from(bit(32 * g + e)) << g))
}

/// Eight groups of 32 four-bit codes: groups `2 · g` in the low halves of bytes `32 · g ..`, `2 · g + 1` in the high.
pub(crate) fn nibble_halves(codes: &[[u8; 32]; 8]) -> [u8; 128] {
    std::array::from_fn(|byte| {
        let (g, e) = (byte / 32, byte % 32);
        codes[2 * g][e] & 15 | codes[2 * g + 1][e] << 4
    })
}

/// The codes of 16 sub-blocks in one array.
pub(crate) fn flatten(codes: &[[u8; 16]; 16]) -> [u8; 256] {
    std::array::from_fn(|i| codes[i / 16][i % 16])
}

/// Four-bit numbers in pairs, the first of each in the low half.
pub(crate) fn nibble_pairs<const N: usize, const H: usize>(numbers: &[u8; N]) -> [u8; H] {
    const { assert!(N == 2 * H) };
    std::array::from_fn(|i| numbers[2 * i] | numbers[2 * i + 1] << 4)
}

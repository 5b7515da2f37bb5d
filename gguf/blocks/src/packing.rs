//! How codes of a few bits share bytes.

/// The values of four-bit floats (1 sign, 2 exponent, 1 mantissa bit), doubled to be whole.
pub(crate) const DOUBLED_FP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// [`DOUBLED_FP4`] above [`FP4_OFFSET`], not negative.
pub(crate) const LIFTED_FP4: [i8; 16] = {
    let mut lifted = DOUBLED_FP4;
    let mut i = 0;
    while i < 16 {
        lifted[i] += FP4_OFFSET as i8;
        i += 1;
    }
    lifted
};

/// The largest magnitude of [`DOUBLED_FP4`].
pub(crate) const FP4_OFFSET: u8 = 12;

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
#[inline(always)]
pub(crate) fn nibbles(codes: &[u8; 32]) -> [u8; 16] {
    let mut qs = [0; 16];
    let (low, high) = codes.split_at(16);
    for (q, (low, high)) in qs.iter_mut().zip(low.iter().zip(high)) {
        *q = low & 15 | high << 4;
    }
    qs
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
#[inline(always)]
pub(crate) fn fifth_bits(codes: &[u8; 32]) -> [u8; 4] {
    let mut bits = [0; 4];
    for (bits, codes) in bits.iter_mut().zip(codes.as_chunks::<8>().0) {
        // The product brings bit `8 · i` to bit `56 + i`.
        let fifth = u64::from_le_bytes(*codes) >> 4 & 0x0101_0101_0101_0101;
        *bits = (fifth.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
    }
    bits
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
#[inline(always)]
pub(crate) fn two_bits(codes: &[u8; 256]) -> [u8; 64] {
    let mut qs = [0; 64];
    let groups = codes.as_chunks::<32>().0;
    for (half, qs) in qs.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for j in 0..4 {
            for (q, code) in qs.iter_mut().zip(&groups[4 * half + j]) {
                *q |= (code & 3) << (2 * j);
            }
        }
    }
    qs
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

/// One bit of 256 codes: that of code `i` becomes bit `i / 32` of byte `i % 32`.
#[inline(always)]
pub(crate) fn striped_bits(codes: &[u8; 256], bit: u32) -> [u8; 32] {
    let mut bits = [0; 32];
    for (g, codes) in codes.as_chunks::<32>().0.iter().enumerate() {
        for (bits, code) in bits.iter_mut().zip(codes) {
            *bits |= (code >> bit & 1) << g;
        }
    }
    bits
}

/// Eight groups of 32 four-bit codes: groups `2 · g` in the low halves of bytes `32 · g ..`, `2 · g + 1` in the high.
#[inline(always)]
pub(crate) fn nibble_halves(codes: &[u8; 256]) -> [u8; 128] {
    let mut qs = [0; 128];
    let groups = codes.as_chunks::<32>().0;
    for (g, qs) in qs.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (q, (low, high)) in qs.iter_mut().zip(groups[2 * g].iter().zip(&groups[2 * g + 1])) {
            *q = low & 15 | high << 4;
        }
    }
    qs
}

/// Four-bit numbers in pairs, the first of each in the low half.
pub(crate) fn nibble_pairs<const N: usize, const H: usize>(numbers: &[u8; N]) -> [u8; H] {
    const { assert!(N == 2 * H) };
    std::array::from_fn(|i| numbers[2 * i] | numbers[2 * i + 1] << 4)
}

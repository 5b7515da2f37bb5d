//! AVX2 pieces that the types' kernels share, and the activation quantizer.
//!
//! Unpacking works on eight rows at once: 16 bytes of each row become four registers that hold one double word
//! of every row, and codes are taken apart only then, so that a transposition serves all codes in the bytes.
//! Functions here are safe to call from code that has the same features; only the functions that the [`Cpu`]
//! dispatch reaches without them are entered through `unsafe`, and each of those says why it holds.
//!
//! [`Cpu`]: crate::Cpu

#![expect(
    unsafe_code,
    reason = "loads and stores through references, and entry into code compiled for AVX2"
)]

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _MM_HINT_T0, _mm_add_epi32, _mm_cvtsi64_si128, _mm_cvtsi128_si32,
    _mm_extract_epi32, _mm_hadd_epi32, _mm_loadu_si128, _mm_max_epi32, _mm_prefetch, _mm_setr_epi16,
    _mm_setr_epi32, _mm_shuffle_epi32, _mm256_add_epi32, _mm256_add_ps, _mm256_and_si256, _mm256_blend_epi16,
    _mm256_broadcastsi128_si256, _mm256_castpd_ps, _mm256_castps_pd, _mm256_castps_si256,
    _mm256_castsi256_si128, _mm256_cmpeq_epi8, _mm256_cvtepi32_ps, _mm256_cvtph_ps, _mm256_cvtps_epi32,
    _mm256_extracti128_si256, _mm256_fmadd_ps, _mm256_hadd_epi32, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_max_epi32, _mm256_mul_ps, _mm256_or_si256, _mm256_packs_epi16, _mm256_packs_epi32,
    _mm256_packus_epi32, _mm256_permute2f128_ps, _mm256_permute4x64_epi64, _mm256_permutevar8x32_epi32,
    _mm256_set_m128i, _mm256_set1_epi8, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32,
    _mm256_setzero_ps, _mm256_shuffle_epi8, _mm256_shuffle_ps, _mm256_sll_epi16, _mm256_srai_epi16,
    _mm256_srl_epi16, _mm256_srl_epi32, _mm256_srli_epi16, _mm256_srli_epi32, _mm256_storeu_ps,
    _mm256_storeu_si256, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpackhi_pd,
    _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_unpacklo_pd,
};

use crate::activation::{GROUP, GroupScale, quantize_with};
use crate::half_bulk::f16_to_f32;
use crate::kernel::x86::Target;
use crate::kernel::{IntBlock, LINE, SUMS, each};
use crate::tile::{MAX_COLS, Panel, ROWS};

/// Loads eight bytes.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn load8(bytes: [u8; 8]) -> __m128i {
    _mm_cvtsi64_si128(i64::from_le_bytes(bytes))
}

/// Loads 16 bytes.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn load16(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the reference is to 16 readable bytes, and the load needs no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// Loads 32 bytes.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn load32(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the reference is to 32 readable bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// Stores a pair of small numbers for each row.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn store_pairs(out: &mut [[i16; 2]; ROWS], v: __m256i) {
    // SAFETY: the reference is to 32 writable bytes, and the store needs no alignment.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) }
}

/// The AVX2 twin of the loop over halves. Reached only for a [`crate::Cpu`] of that level.
pub(crate) fn halves_to_f32(src: &[[u8; 2]], out: &mut [f32]) {
    // SAFETY: `half_bulk` calls this for a `Cpu` that has AVX2 and F16C, nothing else does.
    unsafe { halves_to_f32_avx2(src, out) }
}

#[target_feature(enable = "avx2,f16c")]
fn halves_to_f32_avx2(src: &[[u8; 2]], out: &mut [f32]) {
    let (pieces, rest) = src.as_flattened().as_chunks::<16>();
    let (out, rest_out) = out.as_chunks_mut::<8>();
    for (out, piece) in out.iter_mut().zip(pieces) {
        store_rows(out, _mm256_cvtph_ps(load16(piece)));
    }
    for (out, half) in rest_out.iter_mut().zip(rest.as_chunks().0) {
        *out = f16_to_f32(u16::from_le_bytes(*half));
    }
}

/// Stores 32 bytes.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn store(out: &mut [u8; 32], v: __m256i) {
    // SAFETY: the reference is to 32 writable bytes, and the store needs no alignment.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) }
}

/// Loads eight floats, such as one for each row.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn load_rows(rows: &[f32; ROWS]) -> __m256 {
    // SAFETY: the reference is to 32 readable bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_ps(rows.as_ptr()) }
}

/// Stores one number for each row.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn store_rows(out: &mut [f32; ROWS], v: __m256) {
    // SAFETY: the reference is to 32 writable bytes, and the store needs no alignment.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), v) }
}

/// 16 bytes of each row, transposed: register `i` holds bytes `4 * i .. 4 * i + 4` of every row.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn columns<B>(rows: [&B; ROWS], piece: impl Fn(&B) -> &[u8; 16]) -> [__m256i; 4] {
    let r0 = _mm256_set_m128i(load16(piece(rows[4])), load16(piece(rows[0])));
    let r1 = _mm256_set_m128i(load16(piece(rows[5])), load16(piece(rows[1])));
    let r2 = _mm256_set_m128i(load16(piece(rows[6])), load16(piece(rows[2])));
    let r3 = _mm256_set_m128i(load16(piece(rows[7])), load16(piece(rows[3])));
    let (low01, low23) = (_mm256_unpacklo_epi32(r0, r1), _mm256_unpacklo_epi32(r2, r3));
    let (high01, high23) = (_mm256_unpackhi_epi32(r0, r1), _mm256_unpackhi_epi32(r2, r3));
    [
        _mm256_unpacklo_epi64(low01, low23),
        _mm256_unpackhi_epi64(low01, low23),
        _mm256_unpacklo_epi64(high01, high23),
        _mm256_unpackhi_epi64(high01, high23),
    ]
}

/// Four bytes of each row.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn dwords<B>(rows: [&B; ROWS], piece: impl Fn(&B) -> [u8; 4]) -> __m256i {
    let mut v = [0; ROWS];
    for (v, row) in v.iter_mut().zip(rows) {
        *v = i32::from_le_bytes(piece(row));
    }
    let [a, b, c, d, e, f, g, h] = v;
    _mm256_setr_epi32(a, b, c, d, e, f, g, h)
}

/// The pieces that follow one another.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn eight(low: [__m256i; 4], high: [__m256i; 4]) -> [__m256i; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (low, high);
    [a, b, c, d, e, f, g, h]
}

/// The low nibbles of bytes and behind them the high ones.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn nibbles([a, b, c, d]: [__m256i; 4]) -> [__m256i; 8] {
    eight(
        [low_nibbles(a), low_nibbles(b), low_nibbles(c), low_nibbles(d)],
        [high_nibbles(a), high_nibbles(b), high_nibbles(c), high_nibbles(d)],
    )
}

/// A table for [`look_up`].
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn table16(table: &[i8; 16]) -> __m256i {
    // SAFETY: the reference is to 16 readable bytes, and the load needs no alignment.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
}

/// The number of the table at each byte of `v`, which are below 16.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn look_up(table: __m256i, v: __m256i) -> __m256i {
    _mm256_shuffle_epi8(table, v)
}

/// A stored half of each row.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn halves<B>(rows: [&B; ROWS], piece: impl Fn(&B) -> [u8; 2]) -> __m256 {
    let mut v = [0; ROWS];
    for (v, row) in v.iter_mut().zip(rows) {
        *v = i16::from_le_bytes(piece(row));
    }
    let [a, b, c, d, e, f, g, h] = v;
    _mm256_cvtph_ps(_mm_setr_epi16(a, b, c, d, e, f, g, h))
}

/// The half in the low 16 bits of each row's double word.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn low_halves(v: __m256i) -> __m256 {
    let low = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    let packed = _mm256_packus_epi32(low, low);
    _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b10_00>(
        packed,
    )))
}

/// The half in the high 16 bits of each row's double word.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn high_halves(v: __m256i) -> __m256 {
    low_halves(_mm256_srli_epi32::<16>(v))
}

/// Logical shift of the 16-bit lanes; with a count that is known when compiled, an immediate shift.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn shift_right(v: __m256i, count: usize) -> __m256i {
    _mm256_srl_epi16(v, _mm_cvtsi64_si128(count as i64))
}

/// Logical shift of the double words; with a count that is known when compiled, an immediate shift.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn shift_dwords(v: __m256i, count: usize) -> __m256i {
    _mm256_srl_epi32(v, _mm_cvtsi64_si128(count as i64))
}

/// Bit `from` of each byte, moved to bit `to`.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn move_bit(v: __m256i, from: usize, to: usize) -> __m256i {
    // Nothing crosses bytes: all other bits are gone before the shift.
    let bit = _mm256_and_si256(v, _mm256_set1_epi8((1u8 << from) as i8));
    if from >= to {
        shift_right(bit, from - to)
    } else {
        _mm256_sll_epi16(bit, _mm_cvtsi64_si128((to - from) as i64))
    }
}

/// The low four bits of each byte.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn low_nibbles(v: __m256i) -> __m256i {
    _mm256_and_si256(v, _mm256_set1_epi8(15))
}

/// The high four bits of each byte.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn high_nibbles(v: __m256i) -> __m256i {
    low_nibbles(_mm256_srli_epi16::<4>(v))
}

/// Unsigned byte `k` of each row's double word, as a number.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn byte(v: __m256i, k: usize) -> __m256 {
    let four = |row: i32| (4 * row + k as i32) | 0x8080_8000_u32 as i32;
    let index = _mm256_broadcastsi128_si256(_mm_setr_epi32(four(0), four(1), four(2), four(3)));
    _mm256_cvtepi32_ps(_mm256_shuffle_epi8(v, index))
}

/// The low byte pairs of each row's double word from `low`, the high ones from `high`.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn pair(low: __m256i, high: __m256i) -> __m256i {
    _mm256_blend_epi16::<0b1010_1010>(low, high)
}

/// Unsigned byte `k` of each row's double word, as both of its 16-bit numbers.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn byte_twice(v: __m256i, k: usize) -> __m256i {
    let four = |row: i32| ((4 * row + k as i32) * 0x0001_0001) | 0x8000_8000_u32 as i32;
    let index = _mm256_broadcastsi128_si256(_mm_setr_epi32(four(0), four(1), four(2), four(3)));
    _mm256_shuffle_epi8(v, index)
}

/// Signed byte `k` of each row's double word, as both of its 16-bit numbers.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn signed_byte_twice(v: __m256i, k: usize) -> __m256i {
    let four = |row: i32| ((4 * row + k as i32) * 0x0100_0100) | 0x0080_0080;
    let index = _mm256_broadcastsi128_si256(_mm_setr_epi32(four(0), four(1), four(2), four(3)));
    _mm256_srai_epi16::<8>(_mm256_shuffle_epi8(v, index))
}

/// The eight 6-bit scales and minima of the super-blocks of `Q4_K` and `Q5_K`, from their first 16 bytes:
/// `d`, `dmin` and the packed numbers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn set_six_bit<B: IntBlock, const DOT: bool>(
    out: &mut Target<'_, B, DOT>,
    first: usize,
    rows: [&B; ROWS],
    header: impl Fn(&B) -> &[u8; 16],
) {
    let [units, low, mid, high] = columns(rows, header);
    let dmin = high_halves(units);
    let six = _mm256_set1_epi8(0x3f);
    let top = _mm256_set1_epi8(0x30);
    let join = |four, two| _mm256_or_si256(four, _mm256_and_si256(_mm256_srli_epi16::<2>(two), top));
    let scales = [_mm256_and_si256(low, six), join(low_nibbles(high), low)];
    let mins = [_mm256_and_si256(mid, six), join(high_nibbles(high), mid)];
    for g in 0..8 {
        let scale = byte_twice(scales[g / 4], g % 4);
        out.set_int_scales(first + g, scale, scale);
        let min = _mm256_mul_ps(dmin, byte(mins[g / 4], g % 4));
        store_rows(&mut out.tile().min[first + g], min);
    }
    store_rows(&mut out.tile().unit, low_halves(units));
}

/// The bits `4 * chunk ..` of each row's double word as bit 4 of the four bytes.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn fifth_bits(qh: __m256i, chunk: usize) -> __m256i {
    let byte = (chunk / 2) as i8;
    let four = |row: i8| 0x0101_0101 * i32::from(4 * row + byte);
    let index = _mm256_broadcastsi128_si256(_mm_setr_epi32(four(0), four(1), four(2), four(3)));
    let bits = _mm256_set1_epi32(if chunk.is_multiple_of(2) {
        0x0804_0201
    } else {
        0x8040_2010_u32 as i32
    });
    let set = _mm256_and_si256(_mm256_shuffle_epi8(qh, index), bits);
    _mm256_and_si256(_mm256_cmpeq_epi8(set, bits), _mm256_set1_epi8(16))
}

/// Unpacks a float type of `N` bytes a value, eight at a time with `eight` and the rest one by one with `value`.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn unpack_eights<const N: usize, const BYTES: usize>(
    rows: [&[u8]; ROWS],
    first_col: usize,
    panel: &mut Panel,
    value: impl Fn([u8; N]) -> f32,
    eight: impl Fn(&[u8; BYTES]) -> __m256,
) {
    const { assert!(8 * N == BYTES) };
    let n_cols = panel.n_cols();
    for (row, out) in rows.into_iter().zip(&mut panel.v) {
        let bytes = &row[first_col * N..(first_col + n_cols) * N];
        let (eights, bytes) = bytes.as_chunks::<BYTES>();
        let (out, rest) = out[..n_cols].as_chunks_mut::<8>();
        for (out, bytes) in out.iter_mut().zip(eights) {
            store_rows(out, eight(bytes));
        }
        for (out, bytes) in rest.iter_mut().zip(bytes.as_chunks::<N>().0) {
            *out = value(*bytes);
        }
    }
}

/// The product of a float type of `N` bytes a value with one column, as [`crate::kernel::FloatDot`] says.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn dot_eights<const N: usize, const BYTES: usize>(
    rows: [&[u8]; ROWS],
    ahead: &[u8],
    x: &[f32],
    acc: &mut [f32; ROWS],
    value: impl Fn([u8; N]) -> f32,
    eight: impl Fn(&[u8; BYTES]) -> __m256,
) {
    const { assert!(SUMS * N == BYTES) };
    let rows = each(rows, |row| &row[..x.len() * N]);
    let mut ahead = if ahead.is_empty() { rows[0] } else { ahead }.as_ptr();
    let mut total = load_rows(acc);
    for (part, x) in x.chunks(MAX_COLS).enumerate() {
        let first = part * MAX_COLS;
        let (eights, rest) = x.as_chunks::<SUMS>();
        let mut sums = [_mm256_setzero_ps(); ROWS];
        for (i, x) in eights.iter().enumerate() {
            ahead = prefetch_next(ahead, BYTES);
            let x = load_rows(x);
            for r in 0..ROWS {
                // SAFETY: a row has as many values as the whole of `x`, which has these eight.
                let w = unsafe { &*rows[r].as_ptr().add((first + i * SUMS) * N).cast() };
                sums[r] = _mm256_fmadd_ps(eight(w), x, sums[r]);
            }
        }
        if !rest.is_empty() {
            let mut last = [0.0; SUMS];
            last[..rest.len()].copy_from_slice(rest);
            let x = load_rows(&last);
            for r in 0..ROWS {
                let bytes = rows[r][(first + eights.len() * SUMS) * N..].as_chunks::<N>().0;
                let mut last = [0.0; SUMS];
                for (last, bytes) in last.iter_mut().zip(&bytes[..rest.len()]) {
                    *last = value(*bytes);
                }
                sums[r] = _mm256_fmadd_ps(load_rows(&last), x, sums[r]);
            }
        }
        total = _mm256_add_ps(total, totals(sums));
    }
    store_rows(acc, total);
}

/// `((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))` of the sums of each row.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn totals(sums: [__m256; ROWS]) -> __m256 {
    // The four sums of row `i` in the low half, those of row `i + 4` in the high one.
    let four = |i: usize| {
        let low = _mm256_permute2f128_ps::<0x20>(sums[i], sums[i + 4]);
        _mm256_add_ps(low, _mm256_permute2f128_ps::<0x31>(sums[i], sums[i + 4]))
    };
    // The two of row `i`, then those of the next.
    let two = |i: usize| {
        let (a, b) = (_mm256_castps_pd(four(i)), _mm256_castps_pd(four(i + 1)));
        let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
        _mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high))
    };
    let (a, b) = (two(0), two(2));
    _mm256_add_ps(
        _mm256_shuffle_ps::<0b10_00_10_00>(a, b),
        _mm256_shuffle_ps::<0b11_01_11_01>(a, b),
    )
}

/// Asks the caches for what a part of `n_bytes` of each row will be followed by; where the next part begins.
///
/// What is read side by side is not foreseen by the machine, and asked for in larger parts it would not come in time.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn prefetch_next(ahead: *const u8, n_bytes: usize) -> *const u8 {
    let n_bytes = ROWS * n_bytes;
    for line in 0..n_bytes.div_ceil(LINE) {
        // What is asked for need not be there: this has no effect that can be seen.
        _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(line * LINE).cast());
    }
    ahead.wrapping_add(n_bytes)
}

/// The AVX2 twin of the portable quantizer. Reached only for a [`crate::Cpu`] of that level.
pub(crate) fn quantize(x: &[f32], q: &mut [i8], scales: &mut [GroupScale]) {
    // SAFETY: `activation::quantize` calls this for a `Cpu` that has AVX2, F16C and FMA, nothing else does.
    unsafe { quantize_avx2(x, q, scales) }
}

#[target_feature(enable = "avx2,f16c")]
fn quantize_avx2(x: &[f32], q: &mut [i8], scales: &mut [GroupScale]) {
    quantize_with(x, q, scales, |x| max_bits(x), |x, factor, q| fill(x, factor, q));
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load_group(x: &[f32; GROUP]) -> [__m256; 4] {
    let x = x.as_chunks::<8>().0;
    [
        load_rows(&x[0]),
        load_rows(&x[1]),
        load_rows(&x[2]),
        load_rows(&x[3]),
    ]
}

/// Bits of the largest magnitude of a group.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn max_bits(x: &[f32; GROUP]) -> u32 {
    let v = load_group(x);
    // Bits of magnitudes are not negative as integers, so the signed maximum orders them.
    let magnitude = |v| _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fff_ffff));
    let max8 = _mm256_max_epi32(
        _mm256_max_epi32(magnitude(v[0]), magnitude(v[1])),
        _mm256_max_epi32(magnitude(v[2]), magnitude(v[3])),
    );
    let max4 = _mm_max_epi32(_mm256_castsi256_si128(max8), _mm256_extracti128_si256::<1>(max8));
    let max2 = _mm_max_epi32(max4, _mm_shuffle_epi32::<0b11_10>(max4));
    let max1 = _mm_max_epi32(max2, _mm_shuffle_epi32::<0b01>(max2));
    _mm_cvtsi128_si32(max1) as u32
}

/// Rounds the products of a group with `factor`; the sums of both halves.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn fill(x: &[f32; GROUP], factor: f32, q: &mut [i8; GROUP]) -> [i32; 2] {
    let v = load_group(x);
    let factor = _mm256_set1_ps(factor);
    // The conversion rounds ties to even.
    let int = |i: usize| _mm256_cvtps_epi32(_mm256_mul_ps(v[i], factor));
    let (i0, i1, i2, i3) = (int(0), int(1), int(2), int(3));
    let sums = _mm256_hadd_epi32(_mm256_add_epi32(i0, i1), _mm256_add_epi32(i2, i3));
    let sums = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
    let sums = _mm_hadd_epi32(sums, sums);
    // Packing works within halves of registers; the permutation puts the double words in order.
    let bytes = _mm256_packs_epi16(_mm256_packs_epi32(i0, i1), _mm256_packs_epi32(i2, i3));
    let bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    // SAFETY: the reference is to 32 writable bytes, and the store needs no alignment.
    unsafe { _mm256_storeu_si256(q.as_mut_ptr().cast(), bytes) };
    [_mm_cvtsi128_si32(sums), _mm_extract_epi32::<1>(sums)]
}

//! What the unpacking of codebook types at level AVX2 shares.
//!
//! Points are looked up row by row, since that is what loads do, but put together so that a register holds four columns
//! of all rows at once; signs are only then taken from the bits, for all rows together. Values go on as magnitudes and
//! signs: a product gives the sign to the activations.

#![expect(
    unsafe_code,
    reason = "loads through references, room that is filled, and look-ups by numbers that are small enough"
)]

use std::arch::x86_64::{
    __m256i, _mm_load_sd, _mm_loadh_pd, _mm_setr_epi32, _mm256_add_epi8, _mm256_and_si256,
    _mm256_blend_epi16, _mm256_broadcastsi128_si256, _mm256_castpd_ps, _mm256_castps_si256, _mm256_mul_ps,
    _mm256_or_si256, _mm256_set_m128d, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32,
    _mm256_set1_ps, _mm256_setr_epi32, _mm256_shuffle_epi8, _mm256_shuffle_ps, _mm256_slli_epi16,
    _mm256_slli_epi32, _mm256_srli_epi16, _mm256_storeu_si256, _mm256_xor_si256,
};
use std::mem::MaybeUninit;

use super::Codebook;
use crate::kernel::x86::Target;
use crate::kernel::{each, each_of};
use crate::tile::ROWS;
use crate::x86::{byte_twice, halves, store_rows, table16};

/// Numbers of points: two of each row, `K` times for each of the eight groups of a block.
type OfGroups<const K: usize> = [[[[u16; 2]; ROWS]; K]; 8];

/// Room for [`Numbers`].
pub(crate) struct Room<const K: usize>(MaybeUninit<OfGroups<K>>);

/// Numbers of points below `N`.
pub(crate) struct Numbers<'a, const N: usize, const K: usize>(&'a OfGroups<K>);

impl<const K: usize> Room<K> {
    /// Room that is not filled.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// The low bits of the 16-bit numbers of each row that `of` gives for the groups, two at a time.
    // All of a block before the first point is looked up: what has just been stored cannot be loaded for a while.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn fill<const N: usize>(
        &mut self,
        mut of: impl FnMut(usize) -> [[__m256i; K]; 2],
    ) -> Numbers<'_, N, K> {
        const { assert!(N.is_power_of_two() && N <= 1 << 15) };
        let room: *mut [[u16; 2]; ROWS] = self.0.as_mut_ptr().cast();
        for two in 0..4 {
            let v = of(two);
            for (i, v) in v.as_flattened().iter().enumerate() {
                let below = _mm256_and_si256(*v, _mm256_set1_epi16(N as i16 - 1));
                // SAFETY: there is room for eight times `K` registers, and the store needs no alignment.
                unsafe { _mm256_storeu_si256(room.add(two * 2 * K + i).cast(), below) };
            }
        }
        // SAFETY: all of it has been written, and any bytes are numbers.
        Numbers(unsafe { self.0.assume_init_ref() })
    }
}

impl<const N: usize, const K: usize> Numbers<'_, N, K> {
    /// The point of each row that number `i` of those at `k` of group `g` gives.
    #[inline(always)]
    pub(crate) fn points<P>(
        &self,
        table: &'static [P; N],
        g: usize,
        k: usize,
        i: usize,
    ) -> [&'static P; ROWS] {
        // SAFETY: `Room::fill`, which alone makes these, leaves no number that is `N` or more.
        each_of(|row| unsafe { table.get_unchecked(usize::from(self.0[g][k][row][i])) })
    }
}

/// A point of eight values of each row: its first four values, then the others.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn eights(rows: [&[u8; 8]; ROWS]) -> [__m256i; 2] {
    // SAFETY: the references are to 8 readable bytes each, and the loads need no alignment.
    let two =
        |i: usize| unsafe { _mm_loadh_pd(_mm_load_sd(rows[i].as_ptr().cast()), rows[i + 1].as_ptr().cast()) };
    let a = _mm256_castpd_ps(_mm256_set_m128d(two(4), two(0)));
    let b = _mm256_castpd_ps(_mm256_set_m128d(two(6), two(2)));
    [
        _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(a, b)),
        _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(a, b)),
    ]
}

/// A point of four values of each row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn fours(rows: [&[u8; 4]; ROWS]) -> __m256i {
    let [a, b, c, d, e, f, g, h] = each(rows, |point| i32::from_le_bytes(*point));
    _mm256_setr_epi32(a, b, c, d, e, f, g, h)
}

/// The signs of eight values, from bits in byte `k` of each row's double word: bytes above zero and below it, the first
/// four and the others.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn signs(bits: __m256i, k: usize) -> [__m256i; 2] {
    let four = |row: i32| 0x0101_0101 * (4 * row + k as i32);
    let index = _mm_setr_epi32(four(0), four(1), four(2), four(3));
    let bits = _mm256_shuffle_epi8(bits, _mm256_broadcastsi128_si256(index));
    // A bit added to 127 makes it negative, whichever it is.
    let sign = |mask: u32| {
        let bit = _mm256_and_si256(bits, _mm256_set1_epi32(mask as i32));
        _mm256_add_epi8(bit, _mm256_set1_epi8(127))
    };
    [sign(0x0804_0201), sign(0x8040_2010)]
}

/// The low 28 bits of each row's double word, seven in each byte.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn sevens(v: __m256i) -> __m256i {
    let fourteens = _mm256_blend_epi16::<0b1010_1010>(v, _mm256_slli_epi32::<2>(v));
    let low = _mm256_and_si256(fourteens, _mm256_set1_epi16(0x7f));
    let high = _mm256_and_si256(_mm256_slli_epi16::<1>(fourteens), _mm256_set1_epi16(0x7f00));
    _mm256_or_si256(low, high)
}

/// Bytes of seven bits with the eighth that makes the number of ones even.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn even(sevens: __m256i) -> __m256i {
    let four = _mm256_and_si256(
        _mm256_xor_si256(sevens, _mm256_srli_epi16::<4>(sevens)),
        _mm256_set1_epi8(15),
    );
    let eighth = _mm256_shuffle_epi8(table16(&const { odd_fours() }), four);
    _mm256_or_si256(sevens, eighth)
}

/// The top bit for each four bits with an odd number of ones.
const fn odd_fours() -> [i8; 16] {
    let mut odd = [0; 16];
    let mut four = 0;
    while four < 16 {
        if (four as u8).count_ones() % 2 == 1 {
            odd[four] = i8::MIN;
        }
        four += 1;
    }
    odd
}

/// The unit of each row's scales.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn set_unit<B: Codebook, const DOT: bool>(out: &mut Target<'_, B, DOT>, rows: [&B; ROWS]) {
    let unit = _mm256_mul_ps(halves(rows, B::d), _mm256_set1_ps(B::UNIT));
    store_rows(&mut out.tile().unit, unit);
}

/// [`odd`](super::odd) of the low four bits of each byte, and of the high ones.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn odd_scales(v: __m256i) -> [__m256i; 2] {
    let odd = |v| {
        let doubled = _mm256_and_si256(v, _mm256_set1_epi8(0x1e));
        _mm256_or_si256(doubled, _mm256_set1_epi8(1))
    };
    [odd(_mm256_add_epi8(v, v)), odd(_mm256_srli_epi16::<3>(v))]
}

/// Scales of halves of four groups: those of the first halves in the low four bits of the bytes of each row, those of
/// the second in the high ones.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn set_half_scales<B: Codebook, const DOT: bool>(
    out: &mut Target<'_, B, DOT>,
    first: usize,
    scales: __m256i,
) {
    let [low, high] = odd_scales(scales);
    for g in 0..4 {
        out.set_signed_scales(first + g, byte_twice(low, g), byte_twice(high, g));
    }
}

/// The scale of a group, from the top four bits of each row's double word.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn set_top_scale<B: Codebook, const DOT: bool>(
    out: &mut Target<'_, B, DOT>,
    group: usize,
    v: __m256i,
) {
    let top = _mm256_srli_epi16::<3>(byte_twice(v, 3));
    let scale = _mm256_or_si256(top, _mm256_set1_epi16(1));
    out.set_signed_scales(group, scale, scale);
}

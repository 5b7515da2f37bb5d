//! The inner loops of searches for points of a lattice with AVX2.

#![expect(unsafe_code, reason = "loads and stores through references")]

use std::arch::x86_64::{
    __m256, __m256i, _CMP_GT_OQ, _CMP_LT_OQ, _mm_cvtsi32_si128, _mm_cvtsi128_si32, _mm_loadu_ps,
    _mm_loadu_si128, _mm_min_epu32, _mm_shuffle_epi32, _mm256_add_epi32, _mm256_add_ps, _mm256_and_si256,
    _mm256_blendv_epi8, _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_castsi256_si128,
    _mm256_cmp_ps, _mm256_cmpeq_epi32, _mm256_cvtepu16_epi32, _mm256_extracti128_si256, _mm256_loadu_ps,
    _mm256_loadu_si256, _mm256_max_epi32, _mm256_min_epi32, _mm256_min_ps, _mm256_movemask_ps, _mm256_mul_ps,
    _mm256_or_ps, _mm256_or_si256, _mm256_permute2f128_ps, _mm256_permutevar_ps, _mm256_permutevar8x32_ps,
    _mm256_set_m128, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32, _mm256_setr_ps, _mm256_setzero_ps,
    _mm256_setzero_si256, _mm256_shuffle_ps, _mm256_sll_epi32, _mm256_srli_epi32, _mm256_storeu_ps,
    _mm256_storeu_si256, _mm256_sub_epi32, _mm256_sub_ps, _mm256_testz_ps,
};

use crate::search::ROUNDER;
use crate::search::lattice::{Eight, Group, Lattice, Place, Terms, Tries};
use crate::search::ternary::{Cuts, DELTA};

/// Eight points side by side: a code is the index of a permutation of the terms.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn nearest<const N: usize, const C: usize>(terms: &Terms<N, C>, list: &[Eight]) -> u16 {
    const { assert!(C == 4 || C == 8) };
    let mut tables = [_mm256_setzero_ps(); N];
    for (table, terms) in tables.iter_mut().zip(terms) {
        let p = terms.as_ptr();
        // SAFETY: the reference is to 16 readable bytes, or 32, and the loads need no alignment.
        *table = unsafe {
            if C == 4 {
                let four = _mm_loadu_ps(p);
                _mm256_set_m128(four, four)
            } else {
                _mm256_loadu_ps(p)
            }
        };
    }
    let mut at = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let mut best = _mm256_set1_ps(f32::MAX);
    let mut best_at = at;
    for eight in list {
        // SAFETY: the reference is to 16 readable bytes, and the load needs no alignment.
        let mut codes = _mm256_cvtepu16_epi32(unsafe { _mm_loadu_si128(eight.as_ptr().cast()) });
        let mut sum = _mm256_setzero_ps();
        for table in tables {
            let term = if C == 4 {
                _mm256_permutevar_ps(table, codes)
            } else {
                _mm256_permutevar8x32_ps(table, codes)
            };
            sum = _mm256_add_ps(sum, term);
            codes = next_code::<C>(codes);
        }
        let better = _mm256_cmp_ps::<_CMP_LT_OQ>(sum, best);
        best = _mm256_blendv_ps(best, sum, better);
        let better = _mm256_castps_si256(better);
        best_at = _mm256_blendv_epi8(best_at, at, better);
        at = _mm256_add_epi32(at, _mm256_set1_epi32(8));
    }
    // The first place among the lanes with the smallest sum.
    let least = _mm256_min_ps(best, _mm256_permute2f128_ps::<0x01>(best, best));
    let least = _mm256_min_ps(least, _mm256_shuffle_ps::<0b01_00_11_10>(least, least));
    let least = _mm256_min_ps(least, _mm256_shuffle_ps::<0b10_11_00_01>(least, least));
    let others = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_GT_OQ>(best, least));
    let first = _mm256_or_si256(best_at, others);
    let first = _mm_min_epu32(
        _mm256_castsi256_si128(first),
        _mm256_extracti128_si256::<1>(first),
    );
    let first = _mm_min_epu32(first, _mm_shuffle_epi32::<0b01_00_11_10>(first));
    let first = _mm_min_epu32(first, _mm_shuffle_epi32::<0b10_11_00_01>(first));
    list.as_flattened()[_mm_cvtsi128_si32(first) as usize]
}

/// Loads eight numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn load(v: &[f32; 8]) -> __m256 {
    // SAFETY: the reference is to 32 readable bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_ps(v.as_ptr()) }
}

/// Stores eight numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn store(out: &mut [f32; 8], v: __m256) {
    // SAFETY: the reference is to 32 writable bytes, and the store needs no alignment.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), v) }
}

/// Loads eight whole numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn load_whole(v: &[u32; 8]) -> __m256i {
    // SAFETY: the reference is to 32 readable bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_si256(v.as_ptr().cast()) }
}

/// Stores eight whole numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn store_whole(out: &mut [u32; 8], v: __m256i) {
    // SAFETY: the reference is to 32 writable bytes, and the store needs no alignment.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) }
}

/// The number shifted up by the bits of `i` codes.
#[inline]
#[target_feature(enable = "avx2")]
fn shift_up<const C: usize>(v: __m256i, i: usize) -> __m256i {
    _mm256_sll_epi32(v, _mm_cvtsi32_si128((C.trailing_zeros() as usize * i) as i32))
}

/// The next code in the lowest bits.
#[inline]
#[target_feature(enable = "avx2")]
fn next_code<const C: usize>(codes: __m256i) -> __m256i {
    if C == 4 {
        _mm256_srli_epi32::<2>(codes)
    } else {
        _mm256_srli_epi32::<3>(codes)
    }
}

/// As [`Group::plain_points`].
#[target_feature(enable = "avx2")]
pub(super) fn points<const N: usize, const C: usize>(group: &Group<'_, N, C>, tries: &mut Tries<N, C>) {
    let codes = codes(group, load(&tries.factor));
    store_whole(&mut tries.points, codes);
    tries.off = 0;
    let mut have_terms = false;
    let mut left = tries.live;
    let mut points = codes;
    while left != 0 {
        let packed = tries.points[left.trailing_zeros() as usize % 8];
        let same = _mm256_cmpeq_epi32(codes, _mm256_set1_epi32(packed as i32));
        let lanes = _mm256_movemask_ps(_mm256_castsi256_ps(same)) as u32;
        left &= !lanes;
        let Place::Near(list) = group.lattice.place(packed) else {
            continue;
        };
        if !have_terms {
            fill_terms(group, load(&tries.scale), &mut tries.terms);
            have_terms = true;
        }
        let found = nearest_in_lanes(&tries.terms, list.points());
        points = _mm256_blendv_epi8(points, found, same);
        tries.off |= lanes & tries.live;
    }
    store_whole(&mut tries.points, points);
}

/// The codes for the factor of each lane, packed.
#[inline]
#[target_feature(enable = "avx2")]
fn codes<const N: usize, const C: usize>(group: &Group<'_, N, C>, factor: __m256) -> __m256i {
    let (one, half) = (_mm256_set1_ps(1.0), _mm256_set1_ps(0.5));
    let most = _mm256_set1_epi32(Lattice::<N, C>::LEVELS as i32 - 1);
    // Rounded and then limited as in the plain loop, but limited as integers.
    let (rounder, mantissa) = (_mm256_set1_ps(ROUNDER), _mm256_set1_epi32(0x007f_ffff));
    let zero_mantissa = _mm256_and_si256(_mm256_castps_si256(rounder), mantissa);
    let mut packed = _mm256_setzero_si256();
    for (i, x) in group.x.iter().enumerate() {
        let v = _mm256_sub_ps(_mm256_mul_ps(factor, _mm256_set1_ps(*x)), one);
        let v = _mm256_add_ps(_mm256_mul_ps(half, v), rounder);
        let code = _mm256_and_si256(_mm256_castps_si256(v), mantissa);
        let code = _mm256_sub_epi32(code, zero_mantissa);
        let code = _mm256_min_epi32(_mm256_max_epi32(code, _mm256_setzero_si256()), most);
        packed = _mm256_or_si256(packed, shift_up::<C>(code, i));
    }
    packed
}

/// What each code of each element adds to the distance at the scale of each lane.
#[inline]
#[target_feature(enable = "avx2")]
fn fill_terms<const N: usize, const C: usize>(
    group: &Group<'_, N, C>,
    scale: __m256,
    terms: &mut [[[f32; 8]; C]; N],
) {
    let mut coordinates = [scale; C];
    for (c, coordinate) in coordinates.iter_mut().enumerate() {
        *coordinate = _mm256_mul_ps(scale, _mm256_set1_ps((2 * c + 1) as f32));
    }
    for (terms, (x, root)) in terms.iter_mut().zip(group.x.iter().zip(group.root)) {
        let (x, root) = (_mm256_set1_ps(*x), _mm256_set1_ps(*root));
        for (term, coordinate) in terms.iter_mut().zip(coordinates).take(Lattice::<N, C>::LEVELS) {
            let diff = _mm256_sub_ps(coordinate, x);
            store(term, _mm256_mul_ps(_mm256_mul_ps(root, diff), diff));
        }
    }
}

/// The packed codes of the first of `points` with the smallest sum of terms in each lane.
#[inline]
#[target_feature(enable = "avx2")]
fn nearest_in_lanes<const N: usize, const C: usize>(terms: &[[[f32; 8]; C]; N], points: &[u16]) -> __m256i {
    let mut best = _mm256_set1_ps(f32::MAX);
    let mut found = _mm256_set1_epi32(i32::from(points[0]));
    for &point in points {
        let packed = u32::from(point);
        let mut sum = load(&terms[0][Lattice::<N, C>::code(packed, 0)]);
        for i in 1..N {
            sum = _mm256_add_ps(sum, load(&terms[i][Lattice::<N, C>::code(packed, i)]));
        }
        let better = _mm256_cmp_ps::<_CMP_LT_OQ>(sum, best);
        best = _mm256_blendv_ps(best, sum, better);
        let point = _mm256_set1_epi32(packed as i32);
        found = _mm256_blendv_epi8(found, point, _mm256_castps_si256(better));
    }
    found
}

/// As [`Group::plain_sums`].
#[target_feature(enable = "avx2")]
pub(super) fn point_sums<const N: usize, const C: usize>(
    group: &Group<'_, N, C>,
    points: &[u32; 8],
    sums: &mut [[f32; 8]; 2],
) {
    let coordinates = _mm256_setr_ps(1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0);
    let coordinates = if C == 4 {
        _mm256_permute2f128_ps::<0>(coordinates, coordinates)
    } else {
        coordinates
    };
    let mut codes = load_whole(points);
    let [mut qx, mut q2] = [load(&sums[0]), load(&sums[1])];
    for (x, w) in group.x.iter().zip(group.w) {
        let q = if C == 4 {
            _mm256_permutevar_ps(coordinates, codes)
        } else {
            _mm256_permutevar8x32_ps(coordinates, codes)
        };
        codes = next_code::<C>(codes);
        qx = _mm256_add_ps(qx, _mm256_mul_ps(_mm256_set1_ps(w * x), q));
        q2 = _mm256_add_ps(q2, _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(*w), q), q));
    }
    store(&mut sums[0], qx);
    store(&mut sums[1], q2);
}

/// As [`Cuts::plain_better`].
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn better_cuts(cuts: &Cuts<'_>, score: f32) -> u32 {
    let (delta, score) = (_mm256_set1_ps(DELTA), _mm256_set1_ps(score));
    let between_x = _mm256_sub_ps(load(cuts.next_x), _mm256_set1_ps(cuts.x));
    let between_x = _mm256_mul_ps(between_x, delta);
    let between_w = _mm256_sub_ps(load(cuts.next_w), _mm256_set1_ps(cuts.w));
    let between_w = _mm256_mul_ps(_mm256_mul_ps(between_w, delta), delta);
    let [up, down] = [_mm256_set1_ps(cuts.front_x[0]), _mm256_set1_ps(cuts.front_x[1])];
    let up = _mm256_add_ps(_mm256_add_ps(up, between_x), load(cuts.behind_x[0]));
    let down = _mm256_add_ps(_mm256_sub_ps(down, between_x), load(cuts.behind_x[1]));
    let [up_w, down_w] = [_mm256_set1_ps(cuts.front_w[0]), _mm256_set1_ps(cuts.front_w[1])];
    let up_w = _mm256_add_ps(_mm256_add_ps(up_w, between_w), load(cuts.behind_w[0]));
    let down_w = _mm256_add_ps(_mm256_add_ps(down_w, between_w), load(cuts.behind_w[1]));
    let up = _mm256_cmp_ps::<_CMP_GT_OQ>(_mm256_mul_ps(up, up), _mm256_mul_ps(score, up_w));
    let down = _mm256_cmp_ps::<_CMP_GT_OQ>(_mm256_mul_ps(down, down), _mm256_mul_ps(score, down_w));
    if _mm256_testz_ps(_mm256_or_ps(up, down), _mm256_or_ps(up, down)) == 1 {
        return 0;
    }
    let (up, down) = (_mm256_movemask_ps(up) as u32, _mm256_movemask_ps(down) as u32);
    (0..8).fold(0, |better, j| {
        better | (up >> j & 1) << (2 * j) | (down >> j & 1) << (2 * j + 1)
    })
}

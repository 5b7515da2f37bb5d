//! The lattices of the codebook types. A block stores numbers of points, and a point is the magnitudes of 8 or 4
//! values that stand next to each other.

pub(crate) mod points;

/// 8 values of 2-bit codes: the magnitudes 8, 25 and 43.
const MAGNITUDES_2: [u8; 4] = [8, 25, 43, 0];
/// 4 values of 3-bit codes of `IQ3_XXS`.
const MAGNITUDES_3: [u8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
/// 4 values of 3-bit codes of `IQ3_S`: the odd numbers.
const ODD: [u8; 8] = [1, 3, 5, 7, 9, 11, 13, 15];
/// 8 values of 2-bit codes: -1, 0 and 1.
const SIGNED: [i8; 4] = [-1, 0, 1, 0];

/// Magnitudes of `IQ2_XXS`.
pub(crate) static IQ2XXS: [[u8; 8]; 256] = magnitudes(&points::PAIRS_256, &MAGNITUDES_2);
/// Magnitudes of `IQ2_XS`.
pub(crate) static IQ2XS: [[u8; 8]; 512] = magnitudes(&points::PAIRS_512, &MAGNITUDES_2);
/// Magnitudes of `IQ2_S`.
pub(crate) static IQ2S: [[u8; 8]; 1024] = magnitudes(&points::PAIRS_1024, &MAGNITUDES_2);
/// Magnitudes of `IQ3_XXS`.
pub(crate) static IQ3XXS: [[u8; 4]; 256] = magnitudes(&points::TRIPLES_256, &MAGNITUDES_3);
/// Magnitudes of `IQ3_S`.
pub(crate) static IQ3S: [[u8; 4]; 512] = magnitudes(&points::TRIPLES_512, &ODD);
/// Values of `IQ1_S` and `IQ1_M`: -1, 0 and 1.
pub(crate) static IQ1: [[i8; 8]; 2048] = signed_values(&points::TERNARY_2048);

/// Points of `N` values from their packed codes, one of `C` magnitudes each.
const fn magnitudes<const N: usize, const P: usize, const C: usize>(
    packed: &[u16; P],
    values: &[u8; C],
) -> [[u8; N]; P] {
    let bits = C.trailing_zeros() as usize;
    let mut out = [[0; N]; P];
    let mut p = 0;
    while p < P {
        let mut j = 0;
        while j < N {
            out[p][j] = values[packed[p] as usize >> (bits * j) & (C - 1)];
            j += 1;
        }
        p += 1;
    }
    out
}

const fn signed_values<const P: usize>(packed: &[u16; P]) -> [[i8; 8]; P] {
    let mut out = [[0; 8]; P];
    let mut p = 0;
    while p < P {
        let mut j = 0;
        while j < 8 {
            out[p][j] = SIGNED[packed[p] as usize >> (2 * j) & 3];
            j += 1;
        }
        p += 1;
    }
    out
}

/// The signs of 8 values from the lower seven bits of `stored`: the eighth makes the number of minus signs even.
#[inline]
pub(crate) fn even_signs(stored: u32) -> u8 {
    EVEN[stored as usize & 127]
}

static EVEN: [u8; 128] = {
    let mut all = [0; 128];
    let mut i = 0;
    while i < 128 {
        all[i] = i as u8 | (i.count_ones() as u8 & 1) << 7;
        i += 1;
    }
    all
};

/// `scale · magnitude` for each element of a point, negative where the element's bit of `signs` is set.
#[inline]
pub(crate) fn signed<const N: usize>(point: &[u8; N], signs: u8, scale: f32, out: &mut [f32; N]) {
    for (j, (v, &magnitude)) in out.iter_mut().zip(point).enumerate() {
        let sign = if signs >> j & 1 == 0 { 1.0 } else { -1.0 };
        *v = scale * f32::from(magnitude) * sign;
    }
}

/// `scale · (value + delta)` for each element of a point; `delta` is an eighth, negative where the bit is set.
#[inline]
pub(crate) fn shifted(point: u16, negative: bool, scale: f32, out: &mut [f32; 8]) {
    let delta = if negative { -0.125 } else { 0.125 };
    for (v, &value) in out.iter_mut().zip(&IQ1[usize::from(point & 2047)]) {
        *v = scale * (f32::from(value) + delta);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FNV-1a of 64 bits.
    fn digest(bytes: impl IntoIterator<Item = u8>) -> u64 {
        bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    #[test]
    fn the_tables_have_their_digests() {
        assert_eq!(digest(IQ2XXS.into_iter().flatten()), DIGESTS[0]);
        assert_eq!(digest(IQ2XS.into_iter().flatten()), DIGESTS[1]);
        assert_eq!(digest(IQ2S.into_iter().flatten()), DIGESTS[2]);
        assert_eq!(digest(IQ3XXS.into_iter().flatten()), DIGESTS[3]);
        assert_eq!(digest(IQ3S.into_iter().flatten()), DIGESTS[4]);
        assert_eq!(digest(IQ1.into_iter().flatten().map(|v| v as u8)), DIGESTS[5]);
    }

    #[test]
    fn points_of_a_table_differ() {
        assert!(points::PAIRS_256.is_sorted_by(|a, b| a < b));
        assert!(points::PAIRS_512.is_sorted_by(|a, b| a < b));
        assert!(points::PAIRS_1024.is_sorted_by(|a, b| a < b));
        assert!(points::TRIPLES_256.is_sorted_by(|a, b| a < b));
        assert!(points::TRIPLES_512.is_sorted_by(|a, b| a < b));
        assert!(points::TERNARY_2048.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn the_number_of_minus_signs_is_even() {
        for stored in 0..256 {
            assert_eq!(even_signs(stored).count_ones() % 2, 0);
            assert_eq!(even_signs(stored) & 0x7f, stored as u8 & 0x7f);
        }
    }

    /// Digests of the tables as llama.cpp has them, in the order of the test.
    const DIGESTS: [u64; 6] = [
        0xbb4ee025b5ac6e8e,
        0xc9b1ee61e79909bd,
        0x123edd38a3b62b90,
        0xdfa5dc83d6a155d5,
        0xfa37020c25b44829,
        0x6703ed863501ae2e,
    ];
}

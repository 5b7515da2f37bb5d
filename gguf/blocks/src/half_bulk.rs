//! Conversion between f32 and the 16-bit float types. Whole numbers only, so any machine gives the same bits.

use crate::Cpu;

/// The value of a half. Exact; a NaN comes out quiet, with its payload.
#[inline]
pub fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff);
    let normal = (magnitude << 13) + (112 << 23);
    // Below the normal range a half is a whole multiple of 2^-24.
    let small = (magnitude as i32 as f32 * (1.0 / 16_777_216.0)).to_bits();
    let quiet = if magnitude > 0x7c00 { 0x0040_0000 } else { 0 };
    let special = magnitude << 13 | 0x7f80_0000 | quiet;
    let finite = if magnitude < 0x0400 { small } else { normal };
    f32::from_bits(sign | if magnitude < 0x7c00 { finite } else { special })
}

/// The half nearest to `value`, ties to even; infinite from 65520 on, and the quiet NaN without payload for NaN.
#[inline]
pub fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let normal = magnitude
        .wrapping_add(0x0fff + (magnitude >> 13 & 1))
        .wrapping_sub(112 << 23)
        >> 13;
    // Next to 0.5 neighbours of f32 lie 2^-24 apart, as the small halves do: the addition rounds to them.
    let small = (f32::from_bits(magnitude) + 0.5)
        .to_bits()
        .wrapping_sub(0x3f00_0000);
    let finite = if magnitude < 0x3880_0000 { small } else { normal };
    let special = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    (sign | if magnitude < 0x477f_f000 { finite } else { special }) as u16
}

/// The value of a bfloat16. Exact.
#[inline]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The bfloat16 nearest to `value`, ties to even; a NaN keeps its upper bits and becomes quiet.
#[inline]
pub fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let nan = bits >> 16 | 64;
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    (if bits & 0x7fff_ffff > 0x7f80_0000 {
        nan
    } else {
        rounded
    }) as u16
}

/// Little-endian halves to f32; `out` has as many elements as `src`.
pub fn f16_slice_to_f32(src: &[[u8; 2]], out: &mut [f32]) {
    assert_eq!(src.len(), out.len(), "both sides have as many elements");
    match Cpu::best().level().base() {
        #[cfg(target_arch = "x86_64")]
        crate::Level::Avx2 => crate::x86::halves_to_f32(src, out),
        _ => each(src, out, |&h, o| *o = f16_to_f32(u16::from_le_bytes(h))),
    }
}

/// f32 to little-endian halves; `out` has as many elements as `src`.
pub fn f32_slice_to_f16(src: &[f32], out: &mut [[u8; 2]]) {
    each(src, out, |&v, o| *o = f32_to_f16(v).to_le_bytes());
}

/// Little-endian bfloat16 to f32; `out` has as many elements as `src`.
pub fn bf16_slice_to_f32(src: &[[u8; 2]], out: &mut [f32]) {
    each(src, out, |&h, o| *o = bf16_to_f32(u16::from_le_bytes(h)));
}

/// f32 to little-endian bfloat16; `out` has as many elements as `src`.
pub fn f32_slice_to_bf16(src: &[f32], out: &mut [[u8; 2]]) {
    each(src, out, |&v, o| *o = f32_to_bf16(v).to_le_bytes());
}

#[inline]
fn each<S, O>(src: &[S], out: &mut [O], one: impl Fn(&S, &mut O)) {
    assert_eq!(src.len(), out.len(), "both sides have as many elements");
    for (s, o) in src.iter().zip(out) {
        one(s, o);
    }
}

/// The index of the first value that is infinite or NaN.
pub fn first_non_finite(values: &[f32]) -> Option<usize> {
    const CHUNK: usize = 64;
    let bad = |v: &f32| v.to_bits() & 0x7f80_0000 == 0x7f80_0000;
    let start = values
        .chunks(CHUNK)
        .position(|c| c.iter().fold(false, |any, v| any | bad(v)))?
        * CHUNK;
    values[start..].iter().position(bad).map(|i| start + i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_the_way_there_and_back() {
        for bits in 0..=u16::MAX {
            let value = f16_to_f32(bits);
            assert_eq!(
                value.to_bits(),
                half::f16::from_bits(bits).to_f32().to_bits(),
                "{bits:#06x}"
            );
            let nan = bits & 0x7fff > 0x7c00;
            let expected = if nan { bits & 0x8000 | 0x7e00 } else { bits };
            assert_eq!(f32_to_f16(value), expected, "{bits:#06x}");
        }
    }

    #[test]
    fn slices_are_converted_like_single_halves() {
        // As many that some are left over by any number that is converted at a time.
        let halves: Vec<[u8; 2]> = (0..=u16::MAX).chain(0..13).map(u16::to_le_bytes).collect();
        let mut values = vec![0.0; halves.len()];
        f16_slice_to_f32(&halves, &mut values);
        for (half, value) in halves.into_iter().zip(values) {
            assert_eq!(
                value.to_bits(),
                f16_to_f32(u16::from_le_bytes(half)).to_bits(),
                "{half:?}"
            );
        }
    }

    #[test]
    fn rounding_agrees_with_another_implementation() {
        // A stride without common factors with 2^32 visits every exponent, with both signs.
        let mut bits = 0u32;
        for _ in 0..2_000_000 {
            bits = bits.wrapping_add(2_654_435_761);
            let value = f32::from_bits(bits);
            if value.is_nan() {
                assert_eq!(f32_to_f16(value), (bits >> 16 & 0x8000) as u16 | 0x7e00);
                assert_eq!(f32_to_bf16(value), (bits >> 16) as u16 | 64);
            } else {
                assert_eq!(
                    f32_to_f16(value),
                    half::f16::from_f32(value).to_bits(),
                    "{bits:#010x}"
                );
                assert_eq!(
                    f32_to_bf16(value),
                    half::bf16::from_f32(value).to_bits(),
                    "{bits:#010x}"
                );
            }
        }
    }

    #[test]
    fn ties_go_to_even_and_the_edges_are_right() {
        for (value, expected) in [
            (65519.996, 0x7bff),
            (65520.0, 0x7c00),
            (f32::NEG_INFINITY, 0xfc00),
            (1.0 + 1.0 / 2048.0, 0x3c00),
            (1.0 + 3.0 / 2048.0, 0x3c02),
            (2.0f32.powi(-25), 0x0000),
            (2.0f32.powi(-25) * 1.0001, 0x0001),
            (-0.0, 0x8000),
        ] {
            assert_eq!(f32_to_f16(value), expected, "{value}");
        }
    }

    #[test]
    fn the_first_non_finite_value_is_found_wherever_it_stands() {
        let mut values = vec![1.0; 1000];
        assert_eq!(first_non_finite(&values), None);
        for at in [999, 640, 65, 63, 0] {
            values[at] = if at % 2 == 0 { f32::NAN } else { f32::NEG_INFINITY };
            assert_eq!(first_non_finite(&values), Some(at));
        }
    }
}

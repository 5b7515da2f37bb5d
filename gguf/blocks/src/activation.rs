//! Activations quantized to 8 bits for integer products: groups of 32 values with a scale each.
//!
//! `d = max|x| / 127` and `q = round_ties_even(x * (127 / max|x|))`. The reference rounds `d` to half precision, an
//! error of a whole group, which costs about as much as the rounding of all its values; and it gives types of
//! super-blocks one scale for 256 values, which costs `Q6_K` nearly as much divergence as its own rounding does. Here
//! every type has a scale for 32. A group whose largest value is below [`TINY`] has `d = 0` and `q = 0`; a
//! group with a value that is not finite has `d = NaN` and `q = 0`, so that it shows in every product. Sums over the
//! values are kept next to the scale because types with a minimum or an offset need them.

use crate::Cpu;

/// Values that share a scale.
pub const GROUP: usize = 32;

/// Groups whose largest magnitude is below this count as zeros: 127 divided by it must be finite.
pub const TINY: f32 = 1e-30;

/// The scale of one group and the sums that products with minima and offsets need.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupScale {
    /// The scale.
    pub d: f32,
    /// `d` times the sum of the 32 values of `q`.
    pub sum: f32,
    /// The sums of each 16 values of `q`.
    pub int: [i16; 2],
}

impl GroupScale {
    fn new(d: f32, sums: [i32; 2]) -> Self {
        let [low, high] = sums;
        Self {
            d,
            sum: d * (low + high) as f32,
            // 16 values of at most 127.
            int: [low as i16, high as i16],
        }
    }
}

/// Quantizes `x`, whole groups, into as many `q` and one entry of `scales` for each group.
pub fn quantize(cpu: Cpu, x: &[f32], q: &mut [i8], scales: &mut [GroupScale]) {
    assert!(
        x.len().is_multiple_of(GROUP) && x.len() == q.len() && x.len() == scales.len() * GROUP,
        "{} activations",
        x.len()
    );
    match cpu.level().base() {
        #[cfg(target_arch = "x86_64")]
        crate::Level::Avx2 => crate::x86::quantize(x, q, scales),
        _ => quantize_with(x, q, scales, max_bits, fill),
    }
}

/// Runs a level's `max_bits`, the bits of a group's largest magnitude, and `fill`, which rounds the products of a
/// group with a factor and returns the sums of both halves.
#[inline(always)]
pub(crate) fn quantize_with(
    x: &[f32],
    q: &mut [i8],
    scales: &mut [GroupScale],
    max_bits: impl Fn(&[f32; GROUP]) -> u32,
    fill: impl Fn(&[f32; GROUP], f32, &mut [i8; GROUP]) -> [i32; 2],
) {
    let (x, _) = x.as_chunks::<GROUP>();
    let (q, _) = q.as_chunks_mut::<GROUP>();
    for ((x, q), scale) in x.iter().zip(q).zip(scales) {
        match range(max_bits(x)) {
            Range::Flat(flat) => {
                *q = [0; GROUP];
                *scale = flat;
            }
            Range::Scaled { factor, d } => *scale = GroupScale::new(d, fill(x, factor, q)),
        }
    }
}

/// What the magnitudes of a group lead to.
enum Range {
    /// Nothing to quantize: this is its scale, all values are 0.
    Flat(GroupScale),
    /// `q = round(x * factor)`, and `x` is about `d * q`.
    Scaled { factor: f32, d: f32 },
}

/// Judges a group by the bits of its largest magnitude: as integers, magnitudes order as values do, and NaN
/// is above everything.
#[inline]
fn range(max_bits: u32) -> Range {
    let max = f32::from_bits(max_bits);
    if !max.is_finite() {
        return Range::Flat(GroupScale {
            d: f32::NAN,
            sum: f32::NAN,
            int: [0; 2],
        });
    }
    if max < TINY {
        return Range::Flat(GroupScale::default());
    }
    Range::Scaled {
        factor: 127.0 / max,
        d: max / 127.0,
    }
}

fn max_bits(x: &[f32; GROUP]) -> u32 {
    x.iter().fold(0, |m, v| m.max(v.abs().to_bits()))
}

fn fill(x: &[f32; GROUP], factor: f32, q: &mut [i8; GROUP]) -> [i32; 2] {
    for (q, x) in q.iter_mut().zip(x) {
        *q = (x * factor).round_ties_even() as i8;
    }
    let sum = |half: &[i8]| half.iter().map(|&q| i32::from(q)).sum();
    [sum(&q[..GROUP / 2]), sum(&q[GROUP / 2..])]
}

#[cfg(test)]
mod tests;

//! Activations quantized to 8 bits for integer products: groups of 32 values with a scale each.
//!
//! The largest magnitude is taken over a span of one or more groups: `d = max|x| / 127` and
//! `q = round_ties_even(x * (127 / max|x|))`. Products with types of super-blocks use spans of a super-block,
//! others spans of a group, whose `d` is rounded to half precision, as the reference does, whose perplexities and
//! divergences are then met. A span whose largest value is
//! below [`TINY`] has `d = 0` and `q = 0`; a span with a value that is not finite has `d = NaN` and `q = 0`, so
//! that it shows in every product. Sums over the values, times `d`, are kept next to the scale because types
//! with a minimum or an offset need them.

use crate::half_bulk::{f16_to_f32, f32_to_f16};
use crate::{Cpu, Level};

/// Values that share a scale.
pub const GROUP: usize = 32;

/// Groups whose largest magnitude is below this count as zeros: 127 divided by it must be finite.
pub const TINY: f32 = 1e-30;

/// The scale of one group and the sums that products with minima need.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupScale {
    /// The scale.
    pub d: f32,
    /// `d` times the sum of the 32 values of `q`.
    pub sum: f32,
    /// `d` times the sum of each 16 values.
    pub half: [f32; 2],
}

impl GroupScale {
    fn new(d: f32, sums: [i32; 2]) -> Self {
        let [low, high] = sums;
        Self {
            d,
            sum: d * (low + high) as f32,
            half: [d * low as f32, d * high as f32],
        }
    }
}

/// One quantized activation row, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Q8Row<'a> {
    /// The values, a multiple of 32 of them, each in -127..=127.
    pub q: &'a [i8],
    /// Scale and sums of each group of 32.
    pub scales: &'a [GroupScale],
}

/// Quantizes `x` into as many `q` and one entry of `scales` for each 32. `span` values share the largest
/// magnitude: a multiple of 32 that divides the length of `x`.
pub fn quantize(cpu: Cpu, span: usize, x: &[f32], q: &mut [i8], scales: &mut [GroupScale]) {
    assert!(
        span > 0 && span.is_multiple_of(GROUP) && x.len().is_multiple_of(span),
        "{} activations in spans of {span}",
        x.len()
    );
    assert!(
        x.len() == q.len() && x.len() == scales.len() * GROUP,
        "activation row of {} values",
        x.len()
    );
    match cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => crate::x86::quantize(span, x, q, scales),
        _ => quantize_with(span, x, q, scales, max_bits, fill),
    }
}

/// Runs a level's `max_bits`, the bits of a group's largest magnitude, and `fill`, which rounds the products of a
/// group with a factor and returns the sums of both halves.
#[inline(always)]
pub(crate) fn quantize_with(
    span: usize,
    x: &[f32],
    q: &mut [i8],
    scales: &mut [GroupScale],
    max_bits: impl Fn(&[f32; GROUP]) -> u32,
    fill: impl Fn(&[f32; GROUP], f32, &mut [i8; GROUP]) -> [i32; 2],
) {
    let n = span / GROUP;
    let (x, _) = x.as_chunks::<GROUP>();
    let (q, _) = q.as_chunks_mut::<GROUP>();
    for ((x, q), scales) in x.chunks(n).zip(q.chunks_mut(n)).zip(scales.chunks_mut(n)) {
        match range(x.iter().fold(0, |m, x| m.max(max_bits(x)))) {
            Range::Flat(scale) => {
                q.fill([0; GROUP]);
                scales.fill(scale);
            }
            Range::Scaled { factor, d } => {
                let d = if n == 1 { stored_scale(d) } else { d };
                for ((x, q), scale) in x.iter().zip(q).zip(scales) {
                    *scale = GroupScale::new(d, fill(x, factor, q));
                }
            }
        }
    }
}

/// The scale of a span of one group, which the reference keeps in half precision; where that has no normal number
/// for it, as it is.
fn stored_scale(d: f32) -> f32 {
    const MIN: f32 = 6.103_515_6e-5;
    const MAX: f32 = 65_504.0;
    if (MIN..=MAX).contains(&d) {
        f16_to_f32(f32_to_f16(d))
    } else {
        d
    }
}

/// What the magnitudes of a span lead to.
enum Range {
    /// Nothing to quantize: this is the scale of its groups, all values are 0.
    Flat(GroupScale),
    /// `q = round(x * factor)`, and `x` is about `d * q`.
    Scaled { factor: f32, d: f32 },
}

/// Judges a span by the bits of its largest magnitude: as integers, magnitudes order as values do, and NaN
/// is above everything.
#[inline]
fn range(max_bits: u32) -> Range {
    let max = f32::from_bits(max_bits);
    if !max.is_finite() {
        return Range::Flat(GroupScale {
            d: f32::NAN,
            sum: f32::NAN,
            half: [f32::NAN; 2],
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

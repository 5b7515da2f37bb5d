//! The trellis types of `ik_llama.cpp`: a group of values is the start of a sequence of pseudorandom numbers.

/// What is added to the number of a group to start its sequence.
pub(crate) const OFFSET: u32 = 4096;

/// The values of the sequence that starts at `start`: sums of four numbers of six bits, about zero.
#[inline]
pub(crate) fn sequence<const N: usize>(start: u32) -> [f32; N] {
    let mut x = start;
    std::array::from_fn(|_| {
        x = x.wrapping_mul(0xcbac_1fed);
        let sum: i16 = (x & 0x3f3f_3f3f).to_le_bytes().into_iter().map(i16::from).sum();
        f32::from(sum - 126)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_around_zero() {
        let values: Vec<f32> = (0..4096).flat_map(|n| sequence::<8>(n + OFFSET)).collect();
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let square = values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32;
        assert!(values.iter().all(|v| (-126.0..=126.0).contains(v)));
        // Four uniform numbers of 0..=63 have a variance of 4 · (64² - 1) / 12.
        assert!(
            mean.abs() < 0.5 && (square - 1365.0).abs() < 30.0,
            "{mean} {square}"
        );
    }

    #[test]
    fn a_sequence_is_what_its_rule_gives() {
        let x = 4097u64 * 0xcbac_1fed % (1 << 32);
        let bytes = [x & 63, x >> 8 & 63, x >> 16 & 63, x >> 24 & 63];
        let first = bytes.into_iter().sum::<u64>() as f32 - 126.0;
        assert_eq!(sequence::<4>(1 + OFFSET)[0], first);
    }
}

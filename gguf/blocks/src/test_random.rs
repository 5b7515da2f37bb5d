//! Random numbers for tests: the same on every run.

/// A generator after Vigna's splitmix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn u32(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 32) as u32
    }

    /// About normally distributed, by the sum of twelve uniform numbers.
    pub(crate) fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.u32() as f32 / u32::MAX as f32).sum::<f32>() - 6.0
    }
}

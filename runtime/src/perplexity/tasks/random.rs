//! A choice that is the same every time: the Mersenne Twister MT19937 (Matsumoto and Nishimura 1998), seed 1.

const N: usize = 624;
const M: usize = 397;

/// MT19937 with 32-bit outputs.
struct Twister {
    state: [u32; N],
    next: usize,
}

impl Twister {
    fn new(seed: u32) -> Self {
        let mut state = [seed; N];
        for i in 1..N {
            let previous = state[i - 1];
            state[i] = (previous ^ (previous >> 30))
                .wrapping_mul(1_812_433_253)
                .wrapping_add(i as u32);
        }
        Self { state, next: N }
    }

    fn draw(&mut self) -> u32 {
        if self.next == N {
            self.twist();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9D2C_5680;
        y ^= (y << 15) & 0xEFC6_0000;
        y ^ (y >> 18)
    }

    fn twist(&mut self) {
        for i in 0..N {
            let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7FFF_FFFF);
            let odd = if y & 1 == 1 { 0x9908_B0DF } else { 0 };
            self.state[i] = self.state[(i + M) % N] ^ (y >> 1) ^ odd;
        }
        self.next = 0;
    }

    /// Uniform below `n` (Lemire 2019: the high half of a product, draws in the uneven rest repeated).
    fn below(&mut self, n: u32) -> u32 {
        let uneven = n.wrapping_neg() % n;
        loop {
            let product = u64::from(self.draw()) * u64::from(n);
            if product as u32 >= uneven {
                return (product >> 32) as u32;
            }
        }
    }
}

/// `k` of `0..n` in the order in which they are drawn, or all in their own order where `k` does not leave any out.
pub(super) fn choose(n: usize, k: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..n).collect();
    if k >= n {
        return left;
    }
    let mut twister = Twister::new(1);
    let mut draw = |_| {
        let i = twister.below(left.len() as u32);
        left.remove(i as usize)
    };
    (0..k).map(&mut draw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_those_of_the_standard() {
        // ISO C++ [rand.predef]: the 10000th output with the default seed.
        let mut twister = Twister::new(5489);
        let last = (0..10_000).map(|_| twister.draw()).last();
        assert_eq!(last, Some(4_123_659_995));
    }

    #[test]
    fn choices_are_without_repetition_and_always_the_same() {
        let chosen = choose(50, 20);
        let mut sorted = chosen.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!((sorted.len(), &chosen), (20, &choose(50, 20)));
        assert!(sorted.iter().all(|&i| i < 50) && sorted != chosen);
        assert_eq!(choose(50, 10), chosen[..10]);
        assert_eq!(choose(4, 9), [0, 1, 2, 3]);
    }
}

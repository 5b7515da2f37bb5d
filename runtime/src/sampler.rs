//! The choice of the next token from a row of logits.

use std::collections::VecDeque;

use crate::kernels::exp;
use crate::{Error, Result};

/// How tokens are chosen. The steps run in this order: banned tokens, penalties, top-k, top-p, min-p,
/// temperature, draw.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerSettings {
    /// Divides the logits before the draw. At 0 and below the likeliest token is taken, the one with the lowest
    /// id among equals.
    pub temperature: f32,
    /// Only this many of the likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Only the likeliest tokens whose probabilities add up to this; 1 keeps all.
    pub top_p: f32,
    /// Only tokens with at least this share of the likeliest one's probability; 0 keeps all.
    pub min_p: f32,
    /// Tokens seen lately: positive logits are divided by this, others multiplied; 1 changes nothing.
    pub repeat_penalty: f32,
    /// Taken off the logit of a token for each time that it was seen lately.
    pub frequency_penalty: f32,
    /// Taken off the logit of every token that was seen lately.
    pub presence_penalty: f32,
    /// How many of the last tokens the penalties look at.
    pub repeat_last_n: usize,
    /// Start of the random numbers. The same seed gives the same tokens on every machine.
    pub seed: u64,
    /// Tokens that are never chosen.
    pub banned: Vec<u32>,
}

impl Default for SamplerSettings {
    /// The usual settings of llama.cpp, with seed 0.
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repeat_last_n: 64,
            seed: 0,
            banned: Vec::new(),
        }
    }
}

impl SamplerSettings {
    /// The likeliest token, always.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            ..Self::default()
        }
    }

    fn penalizes(&self) -> bool {
        self.repeat_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0
    }

    /// # Errors
    /// Settings out of range, by name.
    fn check(&self) -> Result<()> {
        let share = |v: f32| (0.0..=1.0).contains(&v);
        let any = f32::is_finite;
        let rules = [
            (
                "temperature",
                self.temperature,
                any(self.temperature),
                "a finite number",
            ),
            ("top-p", self.top_p, share(self.top_p), "0 to 1"),
            ("min-p", self.min_p, share(self.min_p), "0 to 1"),
            (
                "repeat penalty",
                self.repeat_penalty,
                any(self.repeat_penalty) && self.repeat_penalty > 0.0,
                "a finite number above 0",
            ),
            (
                "frequency penalty",
                self.frequency_penalty,
                any(self.frequency_penalty),
                "a finite number",
            ),
            (
                "presence penalty",
                self.presence_penalty,
                any(self.presence_penalty),
                "a finite number",
            ),
        ];
        for (name, found, fits, expected) in rules {
            if !fits {
                return Err(Error::Settings(
                    format!("{name}: expected {expected}, found {found}").into(),
                ));
            }
        }
        Ok(())
    }
}

/// Chooses tokens and remembers the last ones. Allocates nothing once it has seen a row.
#[derive(Clone, Debug)]
pub struct Sampler {
    settings: SamplerSettings,
    random: Random,
    /// The last `repeat_last_n` tokens, oldest first.
    last: VecDeque<u32>,
    candidates: Vec<Candidate>,
    /// Tokens seen lately with how often, while a row is worked on.
    counts: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u32,
    logit: f32,
}

impl Candidate {
    /// Likelier first, then the lower id.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "what sorts take")]
    fn order(a: &Self, b: &Self) -> std::cmp::Ordering {
        b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
    }
}

impl Sampler {
    /// # Errors
    /// Settings out of range: [`Error::Settings`].
    pub fn new(settings: SamplerSettings) -> Result<Self> {
        settings.check()?;
        Ok(Self {
            random: Random::new(settings.seed),
            settings,
            last: VecDeque::new(),
            candidates: Vec::new(),
            counts: Vec::new(),
        })
    }

    /// The settings.
    pub fn settings(&self) -> &SamplerSettings {
        &self.settings
    }

    /// Remembers a token that was not chosen here, for instance of the prompt.
    pub fn accept(&mut self, id: u32) {
        if self.settings.repeat_last_n == 0 || !self.settings.penalizes() {
            return;
        }
        if self.last.len() == self.settings.repeat_last_n {
            self.last.pop_front();
        }
        self.last.push_back(id);
    }

    /// Forgets the tokens that it remembers; the random numbers go on.
    pub fn forget(&mut self) {
        self.last.clear();
    }

    /// Chooses the token that follows, from the logits of all tokens in order of their ids, and remembers it.
    ///
    /// # Errors
    /// A logit that is not finite; no token that may be chosen.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32> {
        if let Some(token) = logits.iter().position(|l| !l.is_finite()) {
            let value = logits[token];
            return Err(Error::Logit { token, value });
        }
        self.candidates.clear();
        let all = logits.iter().zip(0..);
        self.candidates
            .extend(all.map(|(&logit, id)| Candidate { id, logit }));
        self.penalize();
        if !self.settings.banned.is_empty() {
            let banned = &self.settings.banned;
            self.candidates.retain(|c| !banned.contains(&c.id));
        }
        let likeliest = self.candidates.iter().min_by(|a, b| Candidate::order(a, b));
        let Some(&likeliest) = likeliest else {
            return Err(Error::Settings("no token is left to choose from".into()));
        };
        let chosen = if self.settings.temperature > 0.0 {
            self.cut(likeliest.logit);
            self.draw(likeliest.logit)
        } else {
            likeliest.id
        };
        self.accept(chosen);
        Ok(chosen)
    }

    /// Takes the penalties off. The candidates are all tokens in order.
    fn penalize(&mut self) {
        let s = &self.settings;
        self.counts.clear();
        for &id in &self.last {
            match self.counts.iter_mut().find(|(seen, _)| *seen == id) {
                Some((_, n)) => *n += 1,
                None => self.counts.push((id, 1)),
            }
        }
        for &(id, n) in &self.counts {
            let Some(Candidate { logit, .. }) = self.candidates.get_mut(id as usize) else {
                continue;
            };
            if *logit > 0.0 {
                *logit /= s.repeat_penalty;
            } else {
                *logit *= s.repeat_penalty;
            }
            *logit -= n as f32 * s.frequency_penalty + s.presence_penalty;
        }
    }

    /// Leaves the candidates that top-k, top-p and min-p allow, likeliest first. `max` is the largest logit.
    fn cut(&mut self, max: f32) {
        let SamplerSettings {
            top_k, top_p, min_p, ..
        } = self.settings;
        let all = &mut self.candidates;
        if top_k > 0 && top_k < all.len() {
            all.select_nth_unstable_by(top_k, Candidate::order);
            all.truncate(top_k);
        }
        all.sort_unstable_by(Candidate::order);
        if top_p < 1.0 {
            let total: f64 = all.iter().map(|c| f64::from(exp(c.logit - max))).sum();
            let mut sum = 0.0;
            let enough = all.iter().position(|c| {
                sum += f64::from(exp(c.logit - max));
                sum >= f64::from(top_p) * total
            });
            all.truncate(enough.map_or(all.len(), |i| i + 1));
        }
        if min_p > 0.0 {
            let fits = all.partition_point(|c| exp(c.logit - max) >= min_p);
            all.truncate(fits.max(1));
        }
    }

    /// Draws by probability. `max` is the largest logit.
    fn draw(&mut self, max: f32) -> u32 {
        let weight = |c: &Candidate| f64::from(exp((c.logit - max) / self.settings.temperature));
        let total: f64 = self.candidates.iter().map(weight).sum();
        let target = self.random.next() * total;
        let mut sum = 0.0;
        let drawn = self.candidates.iter().find(|c| {
            sum += weight(c);
            sum > target
        });
        drawn.unwrap_or(&self.candidates[0]).id
    }
}

/// xoshiro256++ (Blackman and Vigna, 2019), its state filled by `SplitMix64`.
#[derive(Clone, Debug)]
struct Random([u64; 4]);

impl Random {
    fn new(seed: u64) -> Self {
        let mut z = seed;
        Self(std::array::from_fn(|_| {
            z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut x = z;
            x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            x ^ (x >> 31)
        }))
    }

    /// Uniform in 0 .. 1, 1 left out.
    fn next(&mut self) -> f64 {
        let s = &mut self.0;
        let bits = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probabilities 0.5, 0.25, 0.15, 0.07, 0.03, out of order.
    const SHARES: [f32; 5] = [0.15, 0.5, 0.03, 0.25, 0.07];

    fn plain() -> SamplerSettings {
        SamplerSettings {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            ..SamplerSettings::default()
        }
    }

    fn logits() -> Vec<f32> {
        SHARES.iter().map(|p| p.ln() + 3.0).collect()
    }

    /// How often each token is drawn in 20,000 draws, as a share.
    fn shares(settings: SamplerSettings) -> Vec<f32> {
        let mut sampler = Sampler::new(settings).unwrap();
        let mut n = [0u32; 5];
        for _ in 0..20_000 {
            n[sampler.sample(&logits()).unwrap() as usize] += 1;
        }
        n.iter().map(|&n| n as f32 / 20_000.0).collect()
    }

    fn near(found: &[f32], expected: [f32; 5]) {
        let off = found.iter().zip(expected).any(|(f, e)| (f - e).abs() > 0.015);
        assert!(!off, "{found:?} is not {expected:?}");
    }

    #[test]
    fn draws_follow_the_probabilities() {
        near(&shares(plain()), SHARES);
        // At a temperature of 1/2 the probabilities are squared.
        let squares = SHARES.map(|p| p * p);
        let sum: f32 = squares.iter().sum();
        let cold = SamplerSettings {
            temperature: 0.5,
            ..plain()
        };
        near(&shares(cold), squares.map(|p| p / sum));
    }

    #[test]
    fn the_cuts_leave_the_likeliest() {
        let two = [0.0, 2.0 / 3.0, 0.0, 1.0 / 3.0, 0.0];
        let three = [0.15 / 0.9, 0.5 / 0.9, 0.0, 0.25 / 0.9, 0.0];
        near(&shares(SamplerSettings { top_k: 2, ..plain() }), two);
        near(
            &shares(SamplerSettings {
                top_p: 0.7,
                ..plain()
            }),
            two,
        );
        near(
            &shares(SamplerSettings {
                top_p: 0.8,
                ..plain()
            }),
            three,
        );
        near(
            &shares(SamplerSettings {
                min_p: 0.2,
                ..plain()
            }),
            three,
        );
        let one = shares(SamplerSettings {
            top_p: 0.0,
            ..plain()
        });
        assert_eq!(one, [0.0, 1.0, 0.0, 0.0, 0.0]);
        // top-p counts what top-k has left.
        let both = SamplerSettings {
            top_k: 3,
            top_p: 0.8,
            ..plain()
        };
        near(&shares(both), two);
    }

    #[test]
    fn a_seed_fixes_the_tokens() {
        let run = |seed| {
            let mut sampler = Sampler::new(SamplerSettings { seed, ..plain() }).unwrap();
            let ids: Vec<u32> = (0..12).map(|_| sampler.sample(&logits()).unwrap()).collect();
            ids
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        // The first numbers of the published generator from this state.
        let mut random = Random([1, 2, 3, 4]);
        let bits: Vec<u64> = (0..3)
            .map(|_| (random.next() * (1u64 << 53) as f64) as u64)
            .collect();
        assert_eq!(
            bits,
            [41_943_041 >> 11, 58_720_359 >> 11, 3_588_806_011_781_223 >> 11]
        );
    }

    #[test]
    fn penalties_reach_back_so_far() {
        let settings = SamplerSettings {
            repeat_penalty: 2.0,
            repeat_last_n: 2,
            ..SamplerSettings::greedy()
        };
        let mut sampler = Sampler::new(settings).unwrap();
        let logits = [4.0, 3.0, 2.5, -1.0];
        let ids: Vec<u32> = (0..6).map(|_| sampler.sample(&logits).unwrap()).collect();
        assert_eq!(ids, [0, 1, 2, 0, 1, 2]);
        let settings = SamplerSettings {
            frequency_penalty: 0.4,
            presence_penalty: 0.3,
            ..SamplerSettings::greedy()
        };
        let mut sampler = Sampler::new(settings).unwrap();
        let ids: Vec<u32> = (0..4).map(|_| sampler.sample(&[2.0, 1.0]).unwrap()).collect();
        // 2.0, 1.3, 0.9 against 1.0, 0.3.
        assert_eq!(ids, [0, 0, 1, 0]);
        sampler.accept(900);
        assert!(sampler.sample(&[2.0, 1.0]).is_ok());
    }

    #[test]
    fn banned_tokens_and_numbers_that_are_none() {
        let banned = SamplerSettings {
            banned: vec![1],
            ..SamplerSettings::greedy()
        };
        let mut sampler = Sampler::new(banned).unwrap();
        assert_eq!(sampler.sample(&[0.0, 9.0, 1.0, 1.0]).unwrap(), 2);
        let e = sampler.sample(&[0.0, 9.0, f32::NAN]).unwrap_err();
        assert!(e.to_string().starts_with("the logit of token 2 is NaN"), "{e}");
        assert!(sampler.sample(&[f32::NEG_INFINITY]).is_err());
        assert!(sampler.sample(&[]).is_err());
        for wrong in [
            SamplerSettings {
                top_p: 1.5,
                ..plain()
            },
            SamplerSettings {
                min_p: f32::NAN,
                ..plain()
            },
            SamplerSettings {
                repeat_penalty: 0.0,
                ..plain()
            },
        ] {
            assert!(Sampler::new(wrong).is_err());
        }
    }
}

//! The clock around tests.

use std::time::{Duration, Instant};

use super::plan::Test;
use crate::{Model, Result, Session, Token};

/// Successive times that differ by less, as a share of the smaller, are the same.
const AGREE: f64 = 0.05;
/// Rounds of a warm-up at most.
const MAX_ROUNDS: u32 = 10;
/// No round is begun after this time, once there are two.
const MAX_WARMUP: Duration = Duration::from_secs(20);

/// Seconds of a repetition at least, and runs in one at most.
const MIN_REPETITION: f64 = 0.025;
const MAX_RUNS: u32 = 1000;

/// What went ahead of the measured repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Warmup {
    pub(super) rounds: u32,
    /// By how much the last two times differ, as a share of the smaller.
    pub(super) apart: f64,
    /// The last time.
    pub(super) seconds: f64,
}

impl Warmup {
    /// Runs whose mean makes one repetition: more than one where a run is shorter than what disturbs it.
    pub(super) fn runs(&self) -> u32 {
        ((MIN_REPETITION / self.seconds).ceil() as u32).clamp(1, MAX_RUNS)
    }

    /// Whether the last two times agreed.
    pub(super) fn steady(&self) -> bool {
        self.apart <= AGREE
    }
}

/// Repeats until two successive times agree, within limits.
pub(super) fn warm_up(mut once: impl FnMut() -> Result<f64>) -> Result<Warmup> {
    let started = Instant::now();
    let mut before = once()?;
    let mut warmup = Warmup {
        rounds: 1,
        apart: f64::INFINITY,
        seconds: before,
    };
    while warmup.rounds < 2
        || !(warmup.steady() || warmup.rounds >= MAX_ROUNDS || started.elapsed() > MAX_WARMUP)
    {
        let now = once()?;
        warmup = Warmup {
            rounds: warmup.rounds + 1,
            apart: (now - before).abs() / now.min(before).max(1e-9),
            seconds: now,
        };
        before = now;
    }
    Ok(warmup)
}

/// A session whose context is filled as tests need it.
///
/// Tokens are random, but the same for each position and series, so that every run measures the same. The context
/// always begins with series 0: what of it is there already is not computed again.
#[derive(Debug)]
pub(super) struct Runner<'s, 'm> {
    session: &'s mut Session<'m>,
    /// Tokens that are given at once.
    n_batch: usize,
    /// Leading positions that hold series 0.
    valid: usize,
    tokens: Vec<Token>,
}

impl<'s, 'm> Runner<'s, 'm> {
    pub(super) fn new(session: &'s mut Session<'m>, n_batch: usize) -> Self {
        session.clear();
        Self {
            session,
            n_batch,
            valid: 0,
            tokens: Vec::new(),
        }
    }

    /// The model.
    pub(super) fn model(&self) -> &'m Model {
        self.session.model()
    }

    /// Seconds of one repetition with the tokens of a series.
    pub(super) fn once(&mut self, test: &Test, series: u64) -> Result<f64> {
        self.fill(test.n_depth)?;
        self.set_tokens(test.n_depth..test.n_ctx(), series);
        if let Some(last) = test.n_prompt.checked_sub(1) {
            self.tokens[last].logits = true;
        }
        for token in &mut self.tokens[test.n_prompt..] {
            token.logits = true;
        }
        let (prompt, generated) = self.tokens.split_at(test.n_prompt);
        let started = Instant::now();
        for batch in prompt.chunks(self.n_batch) {
            self.session.decode_with(batch, None, &mut |_| Ok(()))?;
        }
        for token in generated.chunks(1) {
            self.session.decode_with(token, None, &mut |_| Ok(()))?;
        }
        let seconds = started.elapsed().as_secs_f64();
        self.valid = if series == 0 { test.n_ctx() } else { test.n_depth };
        // A clock that stands still must not make rates without end.
        Ok(seconds.max(1e-9))
    }

    /// Makes the context `depth` tokens of series 0.
    fn fill(&mut self, depth: usize) -> Result<()> {
        let kept = self.session.truncate(0, self.valid.min(depth));
        self.set_tokens(kept..depth, 0);
        for batch in self.tokens.chunks(self.n_batch) {
            self.session.decode_with(batch, None, &mut |_| Ok(()))?;
        }
        self.valid = depth;
        Ok(())
    }

    fn set_tokens(&mut self, positions: std::ops::Range<usize>, series: u64) {
        let n_vocab = self.session.model().spec().n_vocab as u64;
        self.tokens.clear();
        self.tokens.extend(positions.map(|pos| Token {
            id: (mix(series << 32 | pos as u64) % n_vocab) as u32,
            seq: 0,
            pos: pos as u32,
            logits: false,
        }));
    }
}

/// The finalizer of `SplitMix64`.
fn mix(n: u64) -> u64 {
    let z = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warm(times: &[f64]) -> Warmup {
        let mut times = times.iter().copied();
        warm_up(|| Ok(times.next().expect("no more rounds than that"))).unwrap()
    }

    #[test]
    fn warm_ups_end_when_times_agree() {
        let w = warm(&[9.0, 2.0, 1.01, 1.0]);
        assert_eq!((w.rounds, w.steady()), (4, true));
        assert_eq!(warm(&[1.0, 1.0]).rounds, 2);
        assert_eq!(warm(&[0.002, 0.002]).runs(), 13);
        assert_eq!(
            [warm(&[1.0, 1.0]).runs(), warm(&[1e-9, 1e-9]).runs()],
            [1, MAX_RUNS]
        );
        let w = warm(&[1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
        assert_eq!((w.rounds, w.steady(), w.apart), (10, false, 1.0));
    }
}

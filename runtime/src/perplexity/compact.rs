//! Records of a tenth of the size: the likeliest tokens of a position, all others as one.
//!
//! Such a file begins with `_logitc_` and else as files of log probabilities do (see `base`). A record has the
//! same bytes for every position: a scale and the smallest log probability that is kept, the probability left
//! out, the negative log probability of the right token (all f32), then the ids of the tokens kept, ascending (2
//! or 3 bytes each, as the vocabulary needs), then a u16 code for each: `log p = scale * code + min`.
//!
//! A divergence from it takes the tokens left out as one, so it is at most the full one. What is missing is at
//! most the probability left out times the largest log ratio that can be among those tokens.

use super::score::LogSum;

/// Bytes in front of the ids.
const FIXED: usize = 16;

/// How the records of a vocabulary are laid out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes of an id.
    id_bytes: usize,
    /// Tokens kept.
    pub(super) n_kept: usize,
}

impl Layout {
    /// The layout that takes at most a tenth of `full` bytes, if that holds a few tokens.
    pub(super) fn new(n_vocab: usize, full: usize) -> Self {
        let id_bytes = if n_vocab <= 1 << 16 { 2 } else { 3 };
        let fit = (full / 10).saturating_sub(FIXED) / (id_bytes + 2);
        Self {
            id_bytes,
            n_kept: fit.clamp(n_vocab.min(8), n_vocab.max(1)),
        }
    }

    pub(super) fn row_bytes(self) -> usize {
        FIXED + self.n_kept * (self.id_bytes + 2)
    }

    /// Encodes a row into `out`, which has [`Self::row_bytes`] bytes.
    pub(super) fn encode(self, logits: &[f32], sum: &LogSum, target: usize, out: &mut [u8]) {
        let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
        let order = |&a: &u32, &b: &u32| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b));
        if self.n_kept < ids.len() {
            ids.select_nth_unstable_by(self.n_kept, order);
            ids.truncate(self.n_kept);
        }
        ids.sort_unstable();
        let log_prob = |id: u32| -sum.nll(logits[id as usize]);
        let min = ids.iter().map(|&id| log_prob(id)).fold(f64::INFINITY, f64::min);
        let max = ids
            .iter()
            .map(|&id| log_prob(id))
            .fold(f64::NEG_INFINITY, f64::max);
        let kept: f64 = ids.iter().map(|&id| log_prob(id).exp()).sum();
        let (scale, min) = (((max - min) / 65535.0) as f32, min as f32);
        let left_out = (1.0 - kept).max(0.0) as f32;
        let nll = sum.nll(logits[target]) as f32;
        for (bytes, v) in out.chunks_exact_mut(4).zip([scale, min, left_out, nll]) {
            bytes.copy_from_slice(&v.to_le_bytes());
        }
        let (places, codes) = out[FIXED..].split_at_mut(self.n_kept * self.id_bytes);
        let places = places.chunks_exact_mut(self.id_bytes);
        for ((place, code), &id) in places.zip(codes.chunks_exact_mut(2)).zip(&ids) {
            place.copy_from_slice(&id.to_le_bytes()[..self.id_bytes]);
            let steps = (log_prob(id) - f64::from(min)) / f64::from(scale);
            // A flat row has no scale; the cast takes NaN to 0.
            code.copy_from_slice(&(steps.round_ties_even() as u16).to_le_bytes());
        }
    }

    /// A record to compare with.
    pub(super) fn row(self, bytes: &[u8]) -> Row<'_> {
        let float = |at: usize| f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (ids, codes) = bytes[FIXED..].split_at(self.n_kept * self.id_bytes);
        Row {
            scale: float(0),
            min: float(4),
            left_out: float(8),
            nll: float(12),
            id_bytes: self.id_bytes,
            ids,
            codes,
        }
    }
}

/// One position of a file that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    scale: f32,
    pub(super) min: f32,
    /// Probability of all tokens that are not kept.
    pub(super) left_out: f32,
    /// Negative log probability of the right token.
    pub(super) nll: f32,
    id_bytes: usize,
    ids: &'a [u8],
    codes: &'a [u8],
}

impl<'a> Row<'a> {
    /// The tokens kept, by id, with their log probabilities.
    pub(super) fn kept(self) -> impl Iterator<Item = (usize, f32)> + 'a {
        let Self { scale, min, .. } = self;
        let id = |b: &[u8]| b.iter().rev().fold(0, |id, &b| id << 8 | usize::from(b));
        let ids = self.ids.chunks_exact(self.id_bytes).map(id);
        let codes = self.codes.chunks_exact(2);
        ids.zip(codes.map(move |c| scale * f32::from(u16::from_le_bytes([c[0], c[1]])) + min))
    }

    /// What no writer can have meant, if anything.
    pub(super) fn fault(self, n_vocab: usize) -> Option<String> {
        let head = [
            ("a scale", self.scale, 0.0..=1.0),
            ("a smallest log probability", self.min, f32::MIN..=1e-3),
            ("a probability left out", self.left_out, 0.0..=1.0),
            ("a negative log probability", self.nll, -1e-3..=f32::MAX),
        ];
        for (what, value, range) in head {
            if !range.contains(&value) {
                let (low, high) = range.into_inner();
                return Some(format!(
                    "expected {what} from {low:e} to {high:e}, found {value:e}"
                ));
            }
        }
        let (mut next, mut sum) = (0, f64::from(self.left_out));
        for (id, p) in self.kept() {
            if id < next || id >= n_vocab {
                return Some(format!(
                    "expected token ids in rising order below {n_vocab}, found {id} where {next} is the lowest"
                ));
            }
            next = id + 1;
            sum += f64::from(p).exp();
        }
        let sound = (0.999..=1.001).contains(&sum);
        (!sound).then(|| format!("expected probabilities that add up to 1, found {sum:.6}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::base::row_bytes;
    use super::*;

    #[test]
    fn records_take_a_tenth_and_keep_the_likeliest() {
        for n_vocab in [768usize, 49_152, 151_936] {
            let layout = Layout::new(n_vocab, row_bytes(n_vocab));
            assert!(layout.row_bytes() * 10 <= row_bytes(n_vocab) && layout.n_kept > n_vocab / 30);
        }
        let logits: Vec<f32> = (0..70_000u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 20) as f32 * 0.005)
            .collect();
        let sum = LogSum::of(&logits).unwrap();
        let layout = Layout::new(logits.len(), row_bytes(logits.len()));
        let mut bytes = vec![0; layout.row_bytes()];
        layout.encode(&logits, &sum, 5, &mut bytes);
        let row = layout.row(&bytes);
        assert_eq!(row.fault(logits.len()), None);
        let least = row.kept().map(|(id, _)| logits[id]).fold(f32::INFINITY, f32::min);
        let above = logits.iter().filter(|&&l| l > least).count();
        assert!(above < layout.n_kept && row.kept().count() == layout.n_kept);
        for (id, p) in row.kept() {
            assert!((f64::from(p) + sum.nll(logits[id])).abs() < 1e-3, "{id}");
        }
        assert!((f64::from(row.nll) - sum.nll(logits[5])).abs() < 1e-5);
        let damaged = |at: usize, new: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[at..at + new.len()].copy_from_slice(new);
            layout.row(&bytes).fault(logits.len()).unwrap()
        };
        assert!(damaged(0, &f32::NAN.to_le_bytes()).contains("a scale"));
        assert!(damaged(8, &2f32.to_le_bytes()).contains("left out"));
        assert!(damaged(FIXED, &[0xFF; 3]).contains("token id"));
        assert!(damaged(4, &(-1e9f32).to_le_bytes()).contains("add up to 1"));
    }

    #[test]
    fn small_and_flat_rows_are_kept_whole() {
        let logits = [1.0f32; 5];
        let layout = Layout::new(5, row_bytes(5));
        let mut bytes = vec![0; layout.row_bytes()];
        layout.encode(&logits, &LogSum::of(&logits).unwrap(), 2, &mut bytes);
        let row = layout.row(&bytes);
        assert_eq!((row.fault(5), row.kept().count()), (None, 5));
        assert!(row.left_out < 1e-6);
    }
}

//! Files of log probabilities: a base model's predictions for every scored position, in 16 bits a token.
//!
//! Little-endian: `_logits_`, `n_ctx` u32, `n_vocab` i32, `n_chunk` i32, the chunks' tokens as i32, then for
//! each scored position a scale and the smallest log probability (f32) and one u16 code a token, padded to an
//! even number. `log p = scale * code + min`.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use gguf::atomic::AtomicFile;
use gguf::source::{self, Source};
use gguf_cli::Failure;

use super::compact::Layout;
use super::score::LogSum;
use crate::chunks::Chunks;

const MAGIC: &[u8; 8] = b"_logits_";
/// The same of compact files.
const COMPACT: &[u8; 8] = b"_logitc_";
/// Bytes in front of the tokens.
const HEAD: u64 = 20;
/// Bytes of scale and minimum in front of a position's codes.
const PAIR: usize = 8;
/// Log probabilities further below the largest are cut off.
const RANGE: f32 = 16.0;

/// Bytes of one position.
pub(super) fn row_bytes(n_vocab: usize) -> usize {
    PAIR + n_vocab.next_multiple_of(2) * 2
}

/// The form of a file's records.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// All tokens: llama.cpp's.
    Full,
    /// The likeliest tokens.
    Compact(Layout),
}

impl Form {
    pub(super) fn compact(n_vocab: usize) -> Self {
        Self::Compact(Layout::new(n_vocab, row_bytes(n_vocab)))
    }

    /// Bytes of one position.
    pub(super) fn row_bytes(self, n_vocab: usize) -> usize {
        match self {
            Self::Full => row_bytes(n_vocab),
            Self::Compact(layout) => layout.row_bytes(),
        }
    }
}

fn head(form: Form, n_ctx: usize, n_vocab: usize, tokens: &[u32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD as usize + tokens.len() * 4);
    out.extend_from_slice(match form {
        Form::Full => MAGIC,
        Form::Compact(_) => COMPACT,
    });
    for n in [n_ctx as u32, n_vocab as u32, (tokens.len() / n_ctx) as u32] {
        out.extend_from_slice(&n.to_le_bytes());
    }
    out.extend(tokens.iter().flat_map(|t| t.to_le_bytes()));
    out
}

/// Starts a file for the chunks; rows follow in order of chunk and position.
pub(super) fn create(
    path: &Path,
    force: bool,
    inputs: &[&Path],
    chunks: &Chunks,
    n_vocab: usize,
    form: Form,
) -> gguf::Result<AtomicFile> {
    let head = head(form, chunks.n_ctx(), n_vocab, chunks.tokens());
    let n_rows = (chunks.n_chunks() * chunks.scored().len()) as u64;
    let n_bytes = head.len() as u64 + n_rows * form.row_bytes(n_vocab) as u64;
    let mut file = AtomicFile::create(path, force, inputs, Some(n_bytes))?;
    write(&mut file, path, &head)?;
    Ok(file)
}

pub(super) fn write(file: &mut AtomicFile, path: &Path, bytes: &[u8]) -> gguf::Result<()> {
    file.write_all(bytes).map_err(|source| gguf::Error::Io {
        action: "write",
        path: path.to_path_buf(),
        source,
    })
}

/// Encodes one row into `out`, which has [`row_bytes`] bytes.
pub(super) fn encode(logits: &[f32], sum: &LogSum, out: &mut [u8]) {
    let min = logits
        .iter()
        .copied()
        .fold(f32::INFINITY, f32::min)
        .max(sum.max - RANGE);
    let min_log_prob = min - sum.max - sum.ln_sum as f32;
    let scale = (sum.max - min) / 65535.0;
    out[..4].copy_from_slice(&scale.to_le_bytes());
    out[4..PAIR].copy_from_slice(&min_log_prob.to_le_bytes());
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let (codes, padding) = out[PAIR..].split_at_mut(logits.len() * 2);
    padding.fill(0);
    for (code, &l) in codes.chunks_exact_mut(2).zip(logits) {
        let q = if l > min {
            (inverse * (l - min)).round_ties_even() as u16
        } else {
            0
        };
        code.copy_from_slice(&q.to_le_bytes());
    }
}

/// Bytes of a whole file; `None` on overflow.
fn file_bytes(n_ctx: u32, n_chunk: u32, row_bytes: usize) -> Option<u64> {
    let n_tokens = u64::from(n_ctx) * u64::from(n_chunk);
    let n_scored = u64::from(n_ctx - 1 - n_ctx / 2) * u64::from(n_chunk);
    let rows = n_scored.checked_mul(row_bytes as u64)?;
    rows.checked_add(HEAD)?.checked_add(n_tokens.checked_mul(4)?)
}

/// One position of a file that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct BaseRow<'a> {
    scale: f32,
    min: f32,
    codes: &'a [u8],
}

impl<'a> BaseRow<'a> {
    pub(super) fn new(bytes: &'a [u8], n_vocab: usize) -> Self {
        let float = |at: usize| f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self {
            scale: float(0),
            min: float(4),
            codes: &bytes[PAIR..][..n_vocab * 2],
        }
    }

    /// Log probabilities of all tokens in order.
    pub(super) fn log_probs(self) -> impl Iterator<Item = f32> + 'a {
        self.codes
            .chunks_exact(2)
            .map(move |c| self.log_prob_of(u16::from_le_bytes([c[0], c[1]])))
    }

    pub(super) fn log_prob(&self, token: usize) -> f32 {
        self.log_prob_of(u16::from_le_bytes([
            self.codes[token * 2],
            self.codes[token * 2 + 1],
        ]))
    }

    fn log_prob_of(&self, code: u16) -> f32 {
        self.scale * f32::from(code) + self.min
    }

    /// What no writer can have meant with scale and minimum, if anything.
    pub(super) fn fault(&self) -> Option<String> {
        // The largest scale a writer makes, with room for rounding of large logits.
        const MAX_SCALE: f32 = 1.01 * RANGE / 65535.0;
        if !(0.0..=MAX_SCALE).contains(&self.scale) {
            return Some(format!(
                "expected a scale from 0 to {MAX_SCALE:e}, found {:e}",
                self.scale
            ));
        }
        (!self.min.is_finite())
            .then(|| format!("expected a finite smallest log probability, found {}", self.min))
    }

    /// What is wrong with the sum of the probabilities above `e^-16`, if anything. Those below, which the file
    /// cuts off, make up at most `e^-16` a token; codes round each of the others by a ten-thousandth.
    pub(super) fn fault_of_sum(n_vocab: usize, sum: f64) -> Option<String> {
        const ROUNDING: f64 = 1e-3;
        let cut_off = n_vocab as f64 * f64::from(-RANGE).exp();
        let lowest = 1.0 - ROUNDING - cut_off;
        (!(lowest..=1.0 + ROUNDING).contains(&sum))
            .then(|| format!("expected probabilities that add up to 1, found {sum:.6}"))
    }
}

/// A file to compare with.
#[derive(Debug)]
pub(super) struct BaseFile {
    source: Arc<dyn Source>,
    pub(super) form: Form,
    pub(super) n_ctx: usize,
    pub(super) n_vocab: usize,
    pub(super) tokens: Vec<u32>,
}

impl BaseFile {
    /// Opens and checks a file against the vocabulary of the model.
    pub(super) fn open(path: &Path, n_vocab: usize) -> gguf_cli::Result<Self> {
        Self::from_source(source::open(path)?, n_vocab)
    }

    /// The same from any source.
    pub(super) fn from_source(source: Arc<dyn Source>, n_vocab: usize) -> gguf_cli::Result<Self> {
        let bad = |what: String| Failure::Input(format!("`{}`: {what}", source.path().display()));
        let mut head = [0; HEAD as usize];
        if source.len() < HEAD {
            return Err(bad(format!(
                "expected a head of {HEAD} bytes, found {} bytes in all",
                source.len()
            )));
        }
        source.read_at(0, &mut head)?;
        let form = if head.starts_with(MAGIC) {
            Form::Full
        } else if head.starts_with(COMPACT) {
            Form::compact(n_vocab)
        } else {
            return Err(bad(
                "expected a file of log probabilities, which starts with `_logits_` or `_logitc_`".into(),
            ));
        };
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (n_ctx, found_vocab, n_chunk) = (number(8), number(12), number(16));
        if found_vocab as usize != n_vocab {
            return Err(bad(format!(
                "expected the model's vocabulary of {n_vocab} tokens, found {found_vocab}; the base must be \
                 made with the same tokenizer"
            )));
        }
        if n_ctx < 4 || n_chunk == 0 {
            return Err(bad(format!(
                "expected contexts of at least 4 tokens and a chunk, found {n_ctx} and {n_chunk}"
            )));
        }
        let expected = file_bytes(n_ctx, n_chunk, form.row_bytes(n_vocab));
        if expected != Some(source.len()) {
            let expected = expected.map_or("more".into(), |n| n.to_string());
            return Err(bad(format!(
                "expected {expected} bytes for {n_chunk} chunks of {n_ctx} tokens, found {}; the file is \
                 incomplete or damaged",
                source.len()
            )));
        }
        // The file was just seen to have these bytes.
        let n_tokens = u64::from(n_ctx) * u64::from(n_chunk);
        let mut bytes = vec![0; n_tokens as usize * 4];
        source.read_at(HEAD, &mut bytes)?;
        let tokens: Vec<u32> = bytes
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        if let Some(i) = tokens.iter().position(|&t| t as usize >= n_vocab) {
            return Err(bad(format!(
                "token {i}: expected an id below {n_vocab}, found {}",
                tokens[i]
            )));
        }
        Ok(Self {
            source,
            form,
            n_ctx: n_ctx as usize,
            n_vocab,
            tokens,
        })
    }

    /// Reads `n` positions from the `first` on, counted over all chunks.
    pub(super) fn read_rows(&self, first: usize, n: usize, buf: &mut Vec<u8>) -> gguf::Result<()> {
        let row = self.form.row_bytes(self.n_vocab);
        buf.resize(n * row, 0);
        self.source
            .read_at(HEAD + self.tokens.len() as u64 * 4 + (first * row) as u64, buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_and_minima_that_no_writer_makes_are_told() {
        for (scale, min, sound) in [
            (0.0, -3.0, true),
            (RANGE / 65535.0, -20.0, true),
            (-1e-5, -3.0, false),
            (1.0, -3.0, false),
            (f32::NAN, -3.0, false),
            (f32::INFINITY, -3.0, false),
            (1e-5, f32::NEG_INFINITY, false),
            (1e-5, f32::NAN, false),
        ] {
            let row = BaseRow {
                scale,
                min,
                codes: &[],
            };
            assert_eq!(row.fault().is_none(), sound, "{scale} {min}: {:?}", row.fault());
        }
        for (n_vocab, sum, sound) in [
            (300, 1.0, true),
            (300, 0.9, false),
            (300, 1.01, false),
            (150_000, 0.985, true),
            (150_000, 0.9, false),
            (300, f64::INFINITY, false),
            (300, f64::NAN, false),
        ] {
            assert_eq!(BaseRow::fault_of_sum(n_vocab, sum).is_none(), sound, "{sum}");
        }
    }

    #[test]
    fn codes_hold_log_probabilities() {
        let logits = [3.0f32, -1.5, 0.25, -40.0, 2.0];
        let sum = LogSum::of(&logits).unwrap();
        let mut bytes = vec![0xAA; row_bytes(5)];
        assert_eq!(bytes.len(), 8 + 12);
        encode(&logits, &sum, &mut bytes);
        let row = BaseRow::new(&bytes, 5);
        let step = RANGE / 65535.0;
        for (i, (&l, p)) in logits.iter().zip(row.log_probs()).enumerate() {
            let exact = (l - sum.total()).max(sum.max - RANGE - sum.total());
            assert!((p - exact).abs() <= step, "{i}: {p} is not {exact}");
            assert_eq!(p, row.log_prob(i));
        }
        let flat = [1.0f32; 3];
        let sum = LogSum::of(&flat).unwrap();
        let mut bytes = vec![0; row_bytes(3)];
        encode(&flat, &sum, &mut bytes);
        let p = BaseRow::new(&bytes, 3).log_prob(2);
        assert!((p + 3f32.ln()).abs() < 1e-6);
    }
}

//! A text in chunks of one context each, evaluated one independent of the other: what perplexity and
//! importance runs have in common.

use crate::session::{Logits, Session, Settings, Token};
use crate::{Error, Observe, Result};

/// How a text is cut.
#[derive(Clone, Copy, Debug)]
pub struct ChunkSettings {
    /// Tokens of a chunk.
    pub n_ctx: usize,
    /// Tokens evaluated together: several whole chunks, or a part of one.
    pub n_batch: usize,
    /// Chunks to use at most.
    pub limit: Option<usize>,
}

/// The chunks of a text. The tokens behind the last whole chunk are left out.
#[derive(Clone, Debug)]
pub struct Chunks {
    tokens: Vec<u32>,
    n_ctx: usize,
    n_batch: usize,
    count: usize,
    n_seq: usize,
    leading: Option<u32>,
}

/// Which positions' logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Those that score a token: see [`Chunks::scored`].
    Scored,
    /// All.
    All,
}

/// Rows of logits from one or several chunks, in order of chunk and position.
#[derive(Clone, Copy, Debug)]
pub struct ChunkRows<'a> {
    /// Chunk and position of each row, both counted from 0.
    pub places: &'a [(usize, usize)],
    /// One row of `n_vocab` logits a place.
    pub rows: &'a [f32],
    /// Elements of a row.
    pub n_vocab: usize,
}

/// Takes rows as they are computed. An error ends the evaluation.
pub type ChunkSink<'a> = dyn FnMut(ChunkRows<'_>) -> Result<()> + 'a;

/// The shortest context that scores anything in its second half.
const MIN_CTX: usize = 4;

impl Chunks {
    /// Cuts the tokens of a text. `leading` is the token that replaces the first of every chunk in evaluation
    /// (BOS, where the vocabulary adds it).
    ///
    /// # Errors
    /// Fewer than two chunks, or settings that cut nothing.
    pub fn of_text(tokens: Vec<u32>, settings: ChunkSettings, leading: Option<u32>) -> Result<Self> {
        let n_ctx = settings.n_ctx;
        let needed = n_ctx.saturating_mul(2);
        if n_ctx >= MIN_CTX && tokens.len() < needed {
            return Err(Error::TextTooShort {
                needed,
                n_ctx,
                found: tokens.len(),
            });
        }
        Self::of_whole(tokens, settings, leading)
    }

    /// The same for tokens that were cut before: one chunk is enough.
    pub fn of_whole(tokens: Vec<u32>, settings: ChunkSettings, leading: Option<u32>) -> Result<Self> {
        let ChunkSettings {
            n_ctx,
            n_batch,
            limit,
        } = settings;
        if n_ctx < MIN_CTX {
            return Err(Error::Settings(
                format!("context: expected at least {MIN_CTX} tokens, found {n_ctx}").into(),
            ));
        }
        if n_batch == 0 {
            return Err(Error::Settings(
                "batch: expected at least 1 token, found 0".into(),
            ));
        }
        let count = (tokens.len() / n_ctx).min(limit.unwrap_or(usize::MAX));
        if count == 0 {
            return Err(Error::Settings("chunks: expected at least 1, found 0".into()));
        }
        let n_seq = (n_batch / n_ctx).clamp(1, count);
        let n_batch = if n_batch >= n_ctx { n_seq * n_ctx } else { n_batch };
        Ok(Self {
            tokens,
            n_ctx,
            n_batch,
            count,
            n_seq,
            leading,
        })
    }

    /// Chunks.
    pub fn n_chunks(&self) -> usize {
        self.count
    }

    /// Tokens of a chunk.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Chunks that are evaluated together.
    pub fn n_seq(&self) -> usize {
        self.n_seq
    }

    /// Tokens that are evaluated together.
    pub fn n_batch(&self) -> usize {
        self.n_batch
    }

    /// Tokens of all chunks.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens[..self.count * self.n_ctx]
    }

    /// The positions of a chunk whose logits score the token behind them: the second half but for the last.
    pub fn scored(&self) -> std::ops::Range<usize> {
        self.n_ctx / 2..self.n_ctx - 1
    }

    /// The token that the logits of a position are scored on.
    pub fn target(&self, (chunk, pos): (usize, usize)) -> u32 {
        self.tokens[chunk * self.n_ctx + pos + 1]
    }

    /// The session settings that the evaluation needs.
    pub fn session_settings(&self, n_ubatch: usize) -> Settings {
        Settings {
            n_ctx: self.n_ctx,
            n_seq: self.n_seq,
            n_ubatch: n_ubatch.min(self.n_batch),
            ..Settings::default()
        }
    }

    /// Evaluates all chunks, each on an empty context.
    pub fn evaluate(
        &self,
        session: &mut Session<'_>,
        wanted: Wanted,
        mut observer: Option<&mut dyn Observe>,
        sink: &mut ChunkSink<'_>,
    ) -> Result<()> {
        let (mut batch, mut places) = (Vec::new(), Vec::new());
        for first in (0..self.count).step_by(self.n_seq) {
            session.clear();
            let chunks = first..self.count.min(first + self.n_seq);
            for start in (0..self.n_ctx).step_by(self.n_batch.min(self.n_ctx)) {
                let positions = start..self.n_ctx.min(start + self.n_batch);
                batch.clear();
                for (seq, chunk) in chunks.clone().enumerate() {
                    batch.extend(positions.clone().map(|pos| self.token(chunk, seq, pos, wanted)));
                }
                let place = |i: usize| (first + i / positions.len(), start + i % positions.len());
                let observer = observer.as_mut().map(|o| &mut **o as &mut dyn Observe);
                session.decode_with(&batch, observer, &mut |Logits { index, rows, n_vocab }| {
                    places.clear();
                    places.extend(index.iter().map(|&i| place(i)));
                    sink(ChunkRows {
                        places: &places,
                        rows,
                        n_vocab,
                    })
                })?;
            }
        }
        Ok(())
    }

    fn token(&self, chunk: usize, seq: usize, pos: usize, wanted: Wanted) -> Token {
        let id = self.tokens[chunk * self.n_ctx + pos];
        Token {
            id: self.leading.filter(|_| pos == 0).unwrap_or(id),
            seq: seq as u32,
            pos: pos as u32,
            logits: wanted == Wanted::All || self.scored().contains(&pos),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(n_ctx: usize, n_batch: usize) -> ChunkSettings {
        ChunkSettings {
            n_ctx,
            n_batch,
            limit: None,
        }
    }

    #[test]
    fn chunks_that_fit_in_a_batch_go_together() {
        let chunks = Chunks::of_text((0..35).collect(), settings(8, 20), Some(99)).unwrap();
        assert_eq!((chunks.n_chunks(), chunks.n_seq(), chunks.n_batch()), (4, 2, 16));
        assert_eq!(chunks.tokens().len(), 32);
        assert_eq!(chunks.scored(), 4..7);
        assert_eq!(chunks.target((1, 4)), 13);
        let first = chunks.token(1, 1, 0, Wanted::Scored);
        assert_eq!(
            first,
            Token {
                id: 99,
                seq: 1,
                pos: 0,
                logits: false
            }
        );
        assert_eq!(
            chunks.token(1, 1, 4, Wanted::Scored),
            Token {
                id: 12,
                seq: 1,
                pos: 4,
                logits: true
            }
        );
    }

    #[test]
    fn bad_settings_are_named() {
        let long = || (0..100).collect::<Vec<u32>>();
        let e = Chunks::of_text(long(), settings(51, 64), None).unwrap_err();
        assert!(
            matches!(
                e,
                Error::TextTooShort {
                    needed: 102,
                    n_ctx: 51,
                    found: 100
                }
            ),
            "{e}"
        );
        for s in [
            settings(3, 64),
            settings(8, 0),
            ChunkSettings {
                limit: Some(0),
                ..settings(8, 8)
            },
        ] {
            assert!(matches!(
                Chunks::of_text(long(), s, None),
                Err(Error::Settings(_))
            ));
        }
    }
}

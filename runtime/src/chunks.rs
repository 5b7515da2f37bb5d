//! A text in chunks of one context each, evaluated one independent of the other: what perplexity and
//! importance runs have in common.

use std::ops::Range;

use crate::session::{Logits, Session, Settings, Token};
use crate::{Error, Layered, Model, Observe, Result};

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
    /// Tokens from the start of a chunk to the start of the next.
    step: usize,
    /// Positions of a chunk that score.
    scored: Range<usize>,
    n_batch: usize,
    count: usize,
    n_seq: usize,
    leading: Option<u32>,
}

/// What is evaluated together: the same positions of some chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkBatch {
    /// The chunks, one a sequence of the session, from sequence 0 on.
    pub chunks: Range<usize>,
    /// Positions in each of them.
    pub positions: Range<usize>,
}

/// Which positions' logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Those that score a token: see [`Chunks::scored`].
    Scored,
    /// All.
    All,
    /// None, where the pass itself is what is wanted.
    None,
}

/// What evaluates chunks.
#[derive(Debug)]
pub enum Evaluator<'m> {
    /// Batch after batch through all layers.
    Session(Session<'m>),
    /// Layer after layer.
    Layered(Layered<'m>),
}

impl<'m> Evaluator<'m> {
    /// The model.
    pub fn model(&self) -> &'m Model {
        match self {
            Self::Session(s) => s.model(),
            Self::Layered(l) => l.model(),
        }
    }

    /// What there is room for.
    pub fn settings(&self) -> &Settings {
        match self {
            Self::Session(s) => s.settings(),
            Self::Layered(l) => l.settings(),
        }
    }
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

/// Contexts of strided runs are whole multiples of this, as the reference rounds them.
const WINDOW_UNIT: usize = 256;

impl ChunkBatch {
    /// Chunk and position of the token at place `i` of the batch.
    pub(crate) fn place(&self, i: usize) -> (usize, usize) {
        let n = self.positions.len();
        (self.chunks.start + i / n, self.positions.start + i % n)
    }
}

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
                why: format!("two contexts of {n_ctx}"),
                found: tokens.len(),
            });
        }
        Self::of_whole(tokens, settings, leading)
    }

    /// The same for tokens that were cut before: one chunk is enough.
    pub fn of_whole(tokens: Vec<u32>, settings: ChunkSettings, leading: Option<u32>) -> Result<Self> {
        check_settings(&settings)?;
        let n_ctx = settings.n_ctx;
        let count = tokens.len() / n_ctx;
        let scored = n_ctx / 2..n_ctx - 1;
        Self::cut(tokens, settings, scored, n_ctx, count, leading)
    }

    /// Overlapping chunks (windows) that start `stride` tokens apart; each scores its last `stride` predictions,
    /// so that every token is scored once with about `n_ctx - stride` tokens or more in front of it. Windows are
    /// longer than [`ChunkSettings::n_ctx`]: `n_ctx + stride / 2` rounded up to a multiple of 256, as the
    /// reference's are where it evaluates one sequence at a time. No token is replaced by a leading one.
    ///
    /// # Errors
    /// A text that is no longer than a window, a stride that no window holds, or settings that cut nothing.
    pub fn strided(tokens: Vec<u32>, settings: ChunkSettings, stride: usize) -> Result<Self> {
        check_settings(&settings)?;
        let window = (stride / 2)
            .checked_add(settings.n_ctx)
            .and_then(|n| n.checked_next_multiple_of(WINDOW_UNIT))
            .filter(|&n| stride > 0 && stride < n)
            .ok_or_else(|| {
                Error::Settings(
                    format!(
                        "stride: expected 1 to less than a window, which is the context of {} and half the \
                         stride, found {stride}; use a larger `-c`",
                        settings.n_ctx
                    )
                    .into(),
                )
            })?;
        if tokens.len() <= window {
            return Err(Error::TextTooShort {
                needed: window + 1,
                why: format!("a window of {window} and one more"),
                found: tokens.len(),
            });
        }
        let count = (tokens.len() - window).div_ceil(stride);
        let settings = ChunkSettings {
            n_ctx: window,
            ..settings
        };
        Self::cut(
            tokens,
            settings,
            window - stride - 1..window - 1,
            stride,
            count,
            None,
        )
    }

    fn cut(
        tokens: Vec<u32>,
        settings: ChunkSettings,
        scored: Range<usize>,
        step: usize,
        count: usize,
        leading: Option<u32>,
    ) -> Result<Self> {
        let ChunkSettings {
            n_ctx,
            n_batch,
            limit,
        } = settings;
        let count = count.min(limit.unwrap_or(usize::MAX));
        if count == 0 {
            return Err(Error::Settings("chunks: expected at least 1, found 0".into()));
        }
        let n_seq = (n_batch / n_ctx).clamp(1, count);
        let n_batch = if n_batch >= n_ctx { n_seq * n_ctx } else { n_batch };
        Ok(Self {
            tokens,
            n_ctx,
            step,
            scored,
            n_batch,
            count,
            n_seq,
            leading,
        })
    }

    /// Evaluates less together, so that a batch wants the logits of at most `n` positions (of one, if `n` is 0).
    #[must_use]
    pub fn with_rows_at_most(mut self, n: usize) -> Self {
        let per_chunk = self.scored.len();
        if self.n_batch < self.n_ctx || n < per_chunk {
            self.n_seq = 1;
            self.n_batch = self
                .n_batch
                .min(if n < per_chunk { n.max(1) } else { self.n_ctx });
        } else {
            self.n_seq = self.n_seq.min(n / per_chunk);
            self.n_batch = self.n_seq * self.n_ctx;
        }
        self
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

    /// Tokens from the start of a chunk to the start of the next: `n_ctx`, or the stride.
    pub fn step(&self) -> usize {
        self.step
    }

    /// Tokens of all chunks.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens[..(self.count - 1) * self.step + self.n_ctx]
    }

    /// Tokens of one chunk as they are evaluated.
    pub fn inputs(&self, chunk: usize) -> Vec<u32> {
        let mut ids = self.tokens[chunk * self.step..][..self.n_ctx].to_vec();
        ids[0] = self.leading.unwrap_or(ids[0]);
        ids
    }

    /// The positions of a chunk whose logits score the token behind them: the second half but for the last, or of
    /// a window the last `stride` but for one.
    pub fn scored(&self) -> Range<usize> {
        self.scored.clone()
    }

    /// The token that the logits of a position are scored on.
    pub fn target(&self, (chunk, pos): (usize, usize)) -> u32 {
        self.tokens[chunk * self.step + pos + 1]
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

    /// Evaluates all chunks, each on an empty context. An evaluation layer by layer must have passed its layers.
    pub fn evaluate(
        &self,
        evaluator: &mut Evaluator<'_>,
        wanted: Wanted,
        mut observer: Option<&mut dyn Observe>,
        sink: &mut ChunkSink<'_>,
    ) -> Result<()> {
        for batch in self.batches() {
            let observer = observer.as_mut().map(|o| &mut **o as &mut dyn Observe);
            self.evaluate_batch(&batch, evaluator, wanted, observer, sink)?;
        }
        Ok(())
    }

    /// What is evaluated together, in order: positions of the same chunks follow one another.
    pub fn batches(&self) -> impl Iterator<Item = ChunkBatch> + '_ {
        let groups = (0..self.count).step_by(self.n_seq);
        groups.flat_map(|first| self.batches_of(first..self.count.min(first + self.n_seq)))
    }

    /// The same for a group of chunks that go together, of which there are at most [`Self::n_seq`].
    pub fn batches_of(&self, group: Range<usize>) -> impl Iterator<Item = ChunkBatch> + use<> {
        let (n_ctx, n_batch) = (self.n_ctx, self.n_batch);
        let starts = (0..n_ctx).step_by(n_batch.min(n_ctx));
        starts.map(move |start| ChunkBatch {
            chunks: group.clone(),
            positions: start..n_ctx.min(start + n_batch),
        })
    }

    /// Evaluates one of [`Self::batches`], which an evaluator must see in order. The first of a group of chunks
    /// starts on empty contexts.
    pub fn evaluate_batch(
        &self,
        batch: &ChunkBatch,
        evaluator: &mut Evaluator<'_>,
        wanted: Wanted,
        observer: Option<&mut dyn Observe>,
        sink: &mut ChunkSink<'_>,
    ) -> Result<()> {
        let session = match evaluator {
            Evaluator::Session(session) => session,
            Evaluator::Layered(layered) => {
                return layered.evaluate_batch(self, batch, wanted, observer, sink);
            }
        };
        if batch.positions.start == 0 {
            session.clear();
        }
        let mut places = Vec::new();
        let tokens = self.batch_tokens(batch, wanted);
        session.decode_with(&tokens, observer, &mut |Logits { index, rows, n_vocab }| {
            places.clear();
            places.extend(index.iter().map(|&i| batch.place(i)));
            sink(ChunkRows {
                places: &places,
                rows,
                n_vocab,
            })
        })
    }

    /// The tokens of a batch, chunk after chunk.
    pub(crate) fn batch_tokens(
        &self,
        ChunkBatch { chunks, positions }: &ChunkBatch,
        wanted: Wanted,
    ) -> Vec<Token> {
        let mut tokens = Vec::with_capacity(chunks.len() * positions.len());
        for (seq, chunk) in chunks.clone().enumerate() {
            tokens.extend(positions.clone().map(|pos| self.token(chunk, seq, pos, wanted)));
        }
        tokens
    }

    fn token(&self, chunk: usize, seq: usize, pos: usize, wanted: Wanted) -> Token {
        let id = self.tokens[chunk * self.step + pos];
        Token {
            id: self.leading.filter(|_| pos == 0).unwrap_or(id),
            seq: seq as u32,
            pos: pos as u32,
            logits: match wanted {
                Wanted::Scored => self.scored().contains(&pos),
                Wanted::All => true,
                Wanted::None => false,
            },
        }
    }
}

fn check_settings(settings: &ChunkSettings) -> Result<()> {
    if settings.n_ctx < MIN_CTX {
        let n_ctx = settings.n_ctx;
        return Err(Error::Settings(
            format!("context: expected at least {MIN_CTX} tokens, found {n_ctx}").into(),
        ));
    }
    if settings.n_batch == 0 {
        return Err(Error::Settings(
            "batch: expected at least 1 token, found 0".into(),
        ));
    }
    Ok(())
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
    fn windows_score_every_token_once() {
        let n = 2 * 256 + 123;
        let chunks = Chunks::strided((0..n).collect(), settings(100, 600), 60).unwrap();
        assert_eq!((chunks.n_ctx(), chunks.n_chunks(), chunks.n_seq()), (256, 7, 2));
        let targets: Vec<u32> = (0..chunks.n_chunks())
            .flat_map(|c| chunks.scored().map(move |p| (c, p)))
            .map(|place| chunks.target(place))
            .collect();
        let expected: Vec<u32> = (256 - 60..256 - 60 + 7 * 60).collect();
        assert_eq!(targets, expected);
        assert_eq!(chunks.inputs(3)[..2], [180, 181]);
        for (n, stride) in [(256, 60), (1000, 0), (1000, 700), (1000, usize::MAX)] {
            assert!(Chunks::strided((0..n).collect(), settings(100, 600), stride).is_err());
        }
    }

    #[test]
    fn batches_can_be_cut_by_the_rows_they_want() {
        let chunks = Chunks::of_text((0..80).collect(), settings(8, 64), None).unwrap();
        let cut = |n: usize| {
            let c = chunks.clone().with_rows_at_most(n);
            let first = c.batches().next().unwrap();
            (c.n_seq(), first.positions, c.batches().count())
        };
        assert_eq!(cut(100), (8, 0..8, 2));
        assert_eq!(cut(7), (2, 0..8, 5));
        assert_eq!(cut(2), (1, 0..2, 40));
        assert_eq!(cut(0), (1, 0..1, 80));
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
                    found: 100,
                    ..
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

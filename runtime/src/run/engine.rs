//! One sequence: what the session holds of it, and the logits behind its last token.

use std::time::Instant;

use gguf_cli::{Failure, Progress, Result, Unit};

use crate::{Model, Session, Settings, Token};

/// The sequence.
pub(super) const SEQ: usize = 0;

/// A session with one sequence and the tokens that it holds.
#[derive(Debug)]
pub(super) struct Engine<'m> {
    pub(super) session: Session<'m>,
    /// Tokens that were evaluated, in order.
    pub(super) ids: Vec<u32>,
    /// Logits behind the last of them; empty where they are not known.
    pub(super) logits: Vec<f32>,
    batch: Vec<Token>,
    n_batch: usize,
    quiet: bool,
}

/// How a prompt came into the session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fed {
    /// Tokens that were there.
    pub(super) n_kept: usize,
    /// Tokens that were evaluated.
    pub(super) n_evaluated: usize,
    /// Time that took.
    pub(super) seconds: f64,
}

impl<'m> Engine<'m> {
    /// `n_batch` is the number of tokens between two reports of progress.
    pub(super) fn new(model: &'m Model, settings: Settings, n_batch: usize, quiet: bool) -> Result<Self> {
        if n_batch == 0 {
            return Err(Failure::Usage("batch: expected at least 1 token, found 0".into()));
        }
        Ok(Self {
            session: Session::new(model, settings)?,
            ids: Vec::new(),
            logits: Vec::new(),
            batch: Vec::new(),
            n_batch,
            quiet,
        })
    }

    /// Positions that there is room for.
    pub(super) fn n_ctx(&self) -> usize {
        self.session.settings().n_ctx
    }

    /// Makes the session hold exactly these tokens, with the logits behind them. Those that it holds already at
    /// the front are kept.
    ///
    /// # Errors
    /// No tokens, or more than there is room for.
    pub(super) fn prompt(&mut self, ids: &[u32]) -> Result<Fed> {
        let n_ctx = self.n_ctx();
        if ids.is_empty() {
            return Err(Failure::Input("the prompt has no tokens; give a text".into()));
        }
        if ids.len() > n_ctx {
            return Err(Failure::Input(format!(
                "the prompt has {} tokens, the context only {n_ctx} positions; ask for a longer one with `-c`",
                ids.len()
            )));
        }
        let started = Instant::now();
        let same = self.ids.iter().zip(ids).take_while(|(a, b)| a == b).count();
        let complete = same == ids.len() && self.ids.len() == same && !self.logits.is_empty();
        // The last token is evaluated again where its logits are not known.
        let wanted = if complete { same } else { same.min(ids.len() - 1) };
        let n_kept = self.keep(wanted);
        let progress = Progress::new("prompt", (ids.len() - n_kept) as u64, Unit::Tokens, self.quiet);
        for piece in ids[n_kept..].chunks(self.n_batch) {
            let is_last = self.ids.len() + piece.len() == ids.len();
            self.evaluate(piece, is_last)?;
            progress.add(piece.len() as u64);
        }
        progress.finish();
        Ok(Fed {
            n_kept,
            n_evaluated: ids.len() - n_kept,
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// Adds a token and computes the logits behind it.
    pub(super) fn push(&mut self, id: u32) -> Result<()> {
        self.evaluate(&[id], true)
    }

    /// Drops what is behind `n` tokens and returns how many are left: fewer, where the model's state cannot go
    /// back that far.
    fn keep(&mut self, n: usize) -> usize {
        let mut n = n;
        if n < self.ids.len() {
            self.logits.clear();
            n = self.session.truncate(SEQ, n);
        }
        self.ids.truncate(n);
        n
    }

    fn evaluate(&mut self, ids: &[u32], logits: bool) -> Result<()> {
        let start = self.ids.len();
        let last = ids.len() - 1;
        let token = |(i, &id): (usize, &u32)| Token {
            id,
            seq: SEQ as u32,
            pos: (start + i) as u32,
            logits: logits && i == last,
        };
        let rows = &mut self.logits;
        let mut sink = |l: crate::Logits<'_>| {
            rows.clear();
            rows.extend_from_slice(l.rows);
            Ok(())
        };
        self.batch.clear();
        self.batch.extend(ids.iter().enumerate().map(token));
        self.session.decode_with(&self.batch, None, &mut sink)?;
        self.ids.extend_from_slice(ids);
        Ok(())
    }
}

//! The interpreter of a model's description: one micro-batch through the layers.

use gguf_blocks::Cpu;
use gguf_models::spec::{Ffn, Mixer};
use rayon::prelude::*;

use crate::kernels::elementwise::{self, RopeTable};
use crate::kernels::{self, Acts};
use crate::kv::KvCache;
use crate::mixers;
use crate::model::{MixerWeights, Model, NormWeights, Tensor};
use crate::moe::Routing;
use crate::observe::{Input, Observe};
use crate::session::{Logits, LogitsSink, Settings, Token};
use crate::{Result, ffn, moe};

/// Rows of logits that are computed and handed out together, so that their memory does not grow with the
/// batch.
const LOGIT_ROWS: usize = 128;

/// Rows that a thread takes at least in element-wise work, which is short.
pub(crate) const MIN_ROWS: usize = 8;

/// Activations of one micro-batch. Grown once, then reused.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Sequence and position of each row.
    pub(crate) place: Vec<(u32, u32)>,
    /// Hidden states.
    pub(crate) h: Vec<f32>,
    /// Normed input of the part at work.
    pub(crate) x: Acts,
    pub(crate) q: Vec<f32>,
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
    /// Attention's result in front of its output matrix.
    pub(crate) mixed: Acts,
    /// Result of the part at work, to be added to `h`.
    pub(crate) y: Vec<f32>,
    pub(crate) gate: Vec<f32>,
    pub(crate) up: Vec<f32>,
    /// Gated activations in front of down.
    pub(crate) act: Acts,
    pub(crate) routing: Routing,
    /// One table for each rotary embedding that differs.
    pub(crate) ropes: Vec<RopeTable>,
    /// Places in the batch of the rows whose logits are wanted.
    wanted: Vec<usize>,
    logits: Vec<f32>,
}

/// Elements for each token, by buffer.
struct Widths {
    /// Plain f32 buffers.
    plain: usize,
    /// Buffers that may be quantized too.
    acts: usize,
}

impl Scratch {
    pub(crate) fn new(model: &Model, settings: &Settings) -> Self {
        let mut ropes: Vec<RopeTable> = Vec::new();
        for layer in &model.spec().layers {
            if let Mixer::Gqa(gqa) = layer.mixer
                && let Some(rope) = gqa.rope
                && !ropes.iter().any(|t| *t.rope() == rope)
            {
                ropes.push(RopeTable::new(rope, settings.n_ctx));
            }
        }
        Self {
            ropes,
            ..Self::default()
        }
    }

    /// Bytes that buffers grow to for micro-batches of full size; `None` on overflow.
    pub(crate) fn n_bytes(model: &Model, settings: &Settings) -> Option<u64> {
        let spec = model.spec();
        let w = widths(model);
        // An element of quantized activations takes its f32, its byte and its share of scale and sums.
        let per_token = (w.plain as u64 * 4).checked_add(w.acts as u64 * 6)?;
        let rows = LOGIT_ROWS.min(settings.n_ubatch) as u64;
        let logits = rows.checked_mul(spec.n_vocab as u64 * 4)?;
        let mut ropes: Vec<_> = Vec::new();
        for layer in &spec.layers {
            if let Mixer::Gqa(gqa) = layer.mixer
                && let Some(rope) = gqa.rope
                && !ropes.contains(&rope)
            {
                ropes.push(rope);
            }
        }
        let tables: u64 = ropes.iter().map(|r| RopeTable::row_len(r) as u64 * 4).sum();
        per_token
            .checked_mul(settings.n_ubatch as u64)?
            .checked_add(logits)?
            .checked_add(tables.checked_mul(settings.n_ctx as u64)?)
    }
}

fn widths(model: &Model) -> Widths {
    let spec = model.spec();
    let (mut qkv, mut mixed, mut gate_up, mut act, mut routed) = (0, 0, 0, 0, 0);
    for layer in &spec.layers {
        if let Mixer::Gqa(g) = layer.mixer {
            qkv = qkv.max(g.n_head * g.head_dim_k + g.n_head_kv * (g.head_dim_k + g.head_dim_v));
            mixed = mixed.max(g.n_head * g.head_dim_v);
        }
        let (n_ff, pairs) = match layer.ffn {
            Ffn::Dense(d) => (d.n_ff, 0),
            Ffn::Moe(m) => (m.n_ff * m.n_used, m.n_used * spec.n_embd + m.n_expert),
        };
        gate_up = gate_up.max(2 * n_ff);
        act = act.max(n_ff);
        routed = routed.max(pairs);
    }
    Widths {
        plain: 2 * spec.n_embd + qkv + gate_up + routed,
        acts: spec.n_embd + mixed + act,
    }
}

/// What products need beside their operands.
pub(crate) struct Env<'a> {
    pub(crate) model: &'a Model,
    pub(crate) cpu: Cpu,
    pub(crate) observer: Option<&'a mut dyn Observe>,
}

impl Env<'_> {
    /// `y = w x`, one row of `y` for each row of `x`.
    pub(crate) fn matmul(&mut self, w: &Tensor, x: &mut Acts, y: &mut Vec<f32>) {
        let weights = self.model.weights(w);
        if let Some(o) = &mut self.observer {
            o.input(
                &w.name,
                Input::Dense {
                    rows: x.rows(),
                    n_cols: weights.n_cols,
                },
            );
        }
        y.resize(x.rows().len() / weights.n_cols * w.n_rows(), 0.0);
        kernels::matmul(self.cpu, weights, x, y);
    }

    /// Products of the pairs of a routing with their experts, one row of `y` a pair.
    pub(crate) fn matmul_grouped(
        &mut self,
        w: &Tensor,
        x: &mut Acts,
        source: &[u32],
        group_starts: &[usize],
        y: &mut Vec<f32>,
    ) {
        let weights = self.model.weights(w);
        if let Some(o) = &mut self.observer {
            let n_cols = weights.n_cols;
            o.input(
                &w.name,
                Input::Experts {
                    rows: x.rows(),
                    n_cols,
                    source,
                    group_starts,
                },
            );
        }
        y.resize(source.len() * w.n_rows(), 0.0);
        kernels::matmul_grouped(self.cpu, weights, x, source, group_starts, y);
    }
}

/// One micro-batch on its way.
pub(crate) struct Pass<'a> {
    pub(crate) env: Env<'a>,
    pub(crate) kv: &'a mut KvCache,
    pub(crate) scratch: &'a mut Scratch,
}

impl Pass<'_> {
    /// Evaluates `ubatch`, whose first token is token `first` of the batch, and hands out its logits.
    pub(crate) fn run(mut self, ubatch: &[Token], first: usize, sink: &mut LogitsSink<'_>) -> Result<()> {
        let model = self.env.model;
        self.embed(ubatch, first);
        let mut trimmed = false;
        for (i, layer) in model.layers.iter().enumerate() {
            norm_rows(&layer.norm_in, &self.scratch.h, &mut self.scratch.x);
            match &layer.mixer {
                MixerWeights::Gqa(w) => mixers::gqa::run(w, &mut self.env, self.kv, self.scratch),
            }
            add_rows(&mut self.scratch.h, &self.scratch.y, model.spec().n_embd);
            // Behind the last mixer no other row depends on a row without wanted logits.
            if i + 1 == model.layers.len() && self.env.observer.is_none() {
                self.trim(ubatch);
                trimmed = true;
                if self.scratch.wanted.is_empty() {
                    return Ok(());
                }
            }
            norm_rows(&layer.norm_mid, &self.scratch.h, &mut self.scratch.x);
            match &layer.ffn.router {
                Some((spec, router)) => moe::run(spec, router, &layer.ffn, &mut self.env, self.scratch),
                None => ffn::run(&layer.ffn, &mut self.env, self.scratch),
            }
            add_rows(&mut self.scratch.h, &self.scratch.y, model.spec().n_embd);
        }
        if !trimmed {
            self.trim(ubatch);
        }
        self.output(sink)
    }

    fn embed(&mut self, ubatch: &[Token], first: usize) {
        let s = &mut *self.scratch;
        let model = self.env.model;
        let n_embd = model.spec().n_embd;
        s.place.clear();
        s.place.extend(ubatch.iter().map(|t| (t.seq, t.pos)));
        s.wanted.clear();
        s.wanted.extend(
            ubatch
                .iter()
                .enumerate()
                .filter(|(_, t)| t.logits)
                .map(|(i, _)| first + i),
        );
        s.h.resize(ubatch.len() * n_embd, 0.0);
        let rows = s.h.par_chunks_mut(n_embd).zip(ubatch).with_min_len(MIN_ROWS);
        rows.for_each(|(row, t)| model.embed(t.id, row));
        let n_pos = ubatch.iter().map(|t| t.pos as usize + 1).max().unwrap_or(0);
        for table in &mut s.ropes {
            table.extend(n_pos);
        }
    }

    /// Keeps only the hidden states whose logits are wanted.
    fn trim(&mut self, ubatch: &[Token]) {
        let n_embd = self.env.model.spec().n_embd;
        let mut kept = 0;
        for (i, t) in ubatch.iter().enumerate() {
            if t.logits {
                self.scratch
                    .h
                    .copy_within(i * n_embd..(i + 1) * n_embd, kept * n_embd);
                kept += 1;
            }
        }
        self.scratch.h.truncate(kept * n_embd);
    }

    fn output(&mut self, sink: &mut LogitsSink<'_>) -> Result<()> {
        let Scratch {
            h,
            x,
            y,
            wanted,
            logits,
            ..
        } = &mut *self.scratch;
        let model = self.env.model;
        let n_embd = model.spec().n_embd;
        if wanted.is_empty() {
            return Ok(());
        }
        let norm = &model.output_norm;
        y.resize(h.len(), 0.0);
        let rows = y
            .par_chunks_mut(n_embd)
            .zip(h.par_chunks(n_embd))
            .with_min_len(MIN_ROWS);
        rows.for_each(|(o, v)| elementwise::rms_norm(v, &norm.weight, norm.spec.eps, o));
        if let Some(o) = &mut self.env.observer {
            o.input(
                &model.output.name,
                Input::Dense {
                    rows: y,
                    n_cols: n_embd,
                },
            );
        }
        let weights = model.weights(&model.output);
        for (index, rows) in wanted.chunks(LOGIT_ROWS).zip(y.chunks(LOGIT_ROWS * n_embd)) {
            x.reset(index.len(), n_embd);
            x.rows_mut().copy_from_slice(rows);
            logits.resize(index.len() * weights.n_rows, 0.0);
            kernels::matmul(self.env.cpu, weights, x, logits);
            sink(Logits {
                index,
                rows: logits,
                n_vocab: weights.n_rows,
            })?;
        }
        Ok(())
    }
}

fn norm_rows(norm: &NormWeights, h: &[f32], x: &mut Acts) {
    let n_cols = norm.weight.len();
    x.reset(h.len() / n_cols, n_cols);
    let rows = x
        .rows_mut()
        .par_chunks_mut(n_cols)
        .zip(h.par_chunks(n_cols))
        .with_min_len(MIN_ROWS);
    rows.for_each(|(o, v)| elementwise::rms_norm(v, &norm.weight, norm.spec.eps, o));
}

fn add_rows(h: &mut [f32], y: &[f32], n_cols: usize) {
    let rows = h
        .par_chunks_mut(n_cols)
        .zip(y.par_chunks(n_cols))
        .with_min_len(MIN_ROWS);
    rows.for_each(|(a, v)| elementwise::add(a, v));
}

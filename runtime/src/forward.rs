//! The interpreter of a model's description: one micro-batch through the layers.

use gguf_blocks::Cpu;
use gguf_models::spec::{Ffn, Mixer, ModelSpec, Rope};

use crate::kernels::elementwise::{self, RopeTable};
use crate::kernels::{self, Acts, Weights};
use crate::kv::KvCache;
use crate::layered::Held;
use crate::mixers::delta_net::DeltaNetScratch;
use crate::mixers::mla::MlaScratch;
use crate::mixers::{delta_net, gqa, mla};
use crate::model::{FfnWeights, MixerWeights, Model, NormWeights, Tensor};
use crate::moe::MoeScratch;
use crate::observe::{Input, Observe};
use crate::pool;
use crate::recurrent::Recurrent;
use crate::session::{Compute, Logits, LogitsSink, Settings, Token};
use crate::{Result, ffn, moe};

/// Rows of logits that are computed and handed out together, so that their memory does not grow with the
/// batch.
const LOGIT_ROWS: usize = 128;

/// Activations of one micro-batch. Grown once, then reused.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Sequence and position of each row.
    pub(crate) place: Vec<(u32, u32)>,
    /// Hidden states.
    pub(crate) h: Vec<f32>,
    /// Normed input of the part at work.
    pub(crate) x: Acts,
    /// A product that is cut or normed before it is used.
    pub(crate) projected: Vec<f32>,
    pub(crate) q: Vec<f32>,
    /// Gates of query heads.
    pub(crate) head_gates: Vec<f32>,
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
    pub(crate) mla: MlaScratch,
    pub(crate) delta_net: DeltaNetScratch,
    pub(crate) moe: MoeScratch,
    /// One table for each rotary embedding that differs.
    pub(crate) ropes: Vec<RopeTable>,
    /// Places in the batch of the rows whose logits are wanted.
    pub(crate) wanted: Vec<usize>,
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
        let ropes = ropes(model.spec()).into_iter().map(|rope| {
            let factors = model.rope_factors(rope.factors, settings.n_ctx);
            RopeTable::new(rope, factors.to_vec(), settings.n_ctx)
        });
        let ropes = ropes.collect();
        Self {
            ropes,
            ..Self::default()
        }
    }

    /// Bytes that buffers grow to for micro-batches of full size; `None` on overflow.
    pub(crate) fn n_bytes(spec: &ModelSpec, settings: &Settings) -> Option<ScratchBytes> {
        let w = widths(spec, settings);
        // An element of quantized activations takes its f32, its byte and its share of scale and sums.
        let per_token = (w.plain as u64 * 4).checked_add(w.acts as u64 * 6)?;
        let rows = LOGIT_ROWS.min(settings.n_ubatch) as u64;
        let tables: u64 = ropes(spec).iter().map(|r| RopeTable::row_len(r) as u64 * 4).sum();
        Some(ScratchBytes {
            layers: per_token.checked_mul(settings.n_ubatch as u64)?,
            logits: rows.checked_mul(spec.n_vocab as u64 * 4)?,
            tables: tables.checked_mul(settings.n_ctx as u64)?,
        })
    }
}

/// Bytes of scratch memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScratchBytes {
    /// Activations in the layers.
    pub(crate) layers: u64,
    pub(crate) logits: u64,
    /// Of rotations.
    pub(crate) tables: u64,
}

/// The rotations of the layers, each once.
pub(crate) fn ropes(spec: &ModelSpec) -> Vec<Rope> {
    let mut all = Vec::new();
    for layer in &spec.layers {
        let rope = match layer.mixer {
            Mixer::Gqa(gqa) => gqa.rope,
            Mixer::Mla(mla) => Some(mla.rope),
            Mixer::DeltaNet(_) => None,
        };
        all.extend(rope.filter(|r| !all.contains(r)));
    }
    all
}

/// Plain elements for each token and elements that may be quantized too, of the largest mixer and feed-forward part.
fn widths(spec: &ModelSpec, settings: &Settings) -> Widths {
    let n_embd = spec.n_embd;
    let (mut mixer, mut ffn) = ((0, 0), (0, 0));
    let largest = |a: &mut (usize, usize), b: (usize, usize)| *a = (a.0.max(b.0), a.1.max(b.1));
    for layer in &spec.layers {
        let mut widths = mixer_widths(&layer.mixer);
        if let (Mixer::Mla(m), true) = (&layer.mixer, settings.latent_inputs) {
            widths.0 += m.n_head * (2 * m.kv_lora_rank + m.rope.n_rot);
            widths.1 += m.n_head * m.kv_lora_rank.max(m.n_nope);
        }
        largest(&mut mixer, widths);
        largest(&mut ffn, ffn_widths(&layer.ffn, n_embd));
    }
    Widths {
        plain: 2 * n_embd + mixer.0 + ffn.0,
        acts: n_embd + mixer.1 + ffn.1,
    }
}

fn mixer_widths(mixer: &Mixer) -> (usize, usize) {
    match mixer {
        Mixer::Gqa(g) => {
            let (q, kv) = (
                g.n_head * g.head_dim_k,
                g.n_head_kv * (g.head_dim_k + g.head_dim_v),
            );
            let apart = match (g.fused, g.gated) {
                (true, _) => q + kv,
                (false, true) => 3 * q,
                (false, false) => 0,
            };
            (q + kv + apart, g.n_head * g.head_dim_v)
        }
        Mixer::Mla(m) => {
            let (n_rot, rank) = (m.rope.n_rot, m.kv_lora_rank);
            let projected = m.q_lora_rank.unwrap_or(0).max(rank + n_rot);
            let q = m.n_head * (m.n_nope + n_rot);
            let (kv, heads) = if m.absorbed {
                let by_head = rank.max(m.head_dim_v);
                (m.n_head * (rank + n_rot + by_head), m.n_head * rank.max(m.n_nope))
            } else {
                (m.n_head * 2 * (m.n_nope + n_rot + m.head_dim_v), 0)
            };
            let latent = m.q_lora_rank.unwrap_or(0).max(rank);
            (projected + q + kv, latent + heads + m.n_head * m.head_dim_v)
        }
        Mixer::DeltaNet(d) => (2 * d.n_qkv() + 2 * d.n_inner() + 2 * d.n_head_v, d.n_inner()),
    }
}

fn ffn_widths(ffn: &Ffn, n_embd: usize) -> (usize, usize) {
    match ffn {
        Ffn::Dense(d) => (2 * d.n_ff, d.n_ff),
        Ffn::Moe(m) => {
            let shared = m.shared.map_or(0, |s| s.n_ff);
            let pairs = m.n_used * n_embd + 2 * m.n_expert + 6 * m.n_used;
            let weighted = if m.weighted_input { m.n_used * n_embd } else { 0 };
            let of_shared = if shared > 0 { n_embd + 1 } else { 0 };
            let n_ff = (m.n_ff * m.n_used).max(shared);
            (2 * n_ff + pairs + of_shared, n_ff + weighted)
        }
    }
}

/// What products need beside their operands.
pub(crate) struct Env<'a> {
    pub(crate) model: &'a Model,
    /// The weights at work, of a model that is not resident.
    pub(crate) held: Option<&'a Held>,
    pub(crate) cpu: Cpu,
    pub(crate) compute: Compute,
    pub(crate) observer: Option<&'a mut dyn Observe>,
    /// First layer of the cache that holds latent vectors for the observer.
    pub(crate) latents: Option<usize>,
}

impl<'a> Env<'a> {
    pub(crate) fn weights<'w>(&self, w: &'w Tensor) -> Weights<'w>
    where
        'a: 'w,
    {
        let (model, held): (&'w Model, Option<&'w Held>) = (self.model, self.held);
        let weights = held.map_or_else(|| model.weights(w), |held| w.with_bytes(held.bytes(w)));
        Weights {
            compute: self.compute,
            ..weights
        }
    }

    /// `y = w x`, one row of `y` for each row of `x`.
    pub(crate) fn matmul(&mut self, w: &Tensor, x: &mut Acts, y: &mut Vec<f32>) {
        self.matmul_each([(w, y)], x);
    }

    /// [`Self::matmul`] with several weights, as one piece of work for the threads.
    pub(crate) fn matmul_each<const N: usize>(
        &mut self,
        mut outputs: [(&Tensor, &mut Vec<f32>); N],
        x: &mut Acts,
    ) {
        for (w, y) in &mut outputs {
            self.observe(&w.name, x, |rows, n_cols| Input::Dense { rows, n_cols });
            pool::resize(y, x.n() * w.n_rows(), 0.0);
        }
        kernels::matmul(
            self.cpu,
            outputs.each_mut().map(|(w, y)| (self.weights(w), &mut y[..])),
            x,
        );
        for (w, y) in outputs {
            finish(w, &[0, x.n()], y);
        }
    }

    /// Shows the observer, if there is one, rows as the input of a weight.
    pub(crate) fn observe<'x>(
        &mut self,
        name: &str,
        x: &'x mut Acts,
        input: impl FnOnce(&'x [f32], usize) -> Input<'x>,
    ) {
        if let Some(o) = &mut self.observer {
            let n_cols = x.n_cols();
            let (rows, reported) = x.rows_to_report();
            reported.show(&mut **o, name, input(rows, n_cols));
        }
    }

    /// Products of the pairs of rows with matrices of each stack, one row of its `y` a pair, as one piece of work for
    /// the threads. The observer is not told.
    pub(crate) fn matmul_grouped<const N: usize>(
        &self,
        mut outputs: [(&Tensor, &mut Vec<f32>); N],
        x: &mut Acts,
        source: &[u32],
        group_starts: &[usize],
    ) {
        for (w, y) in &mut outputs {
            pool::resize(y, source.len() * w.n_rows(), 0.0);
        }
        let stacks = outputs.each_mut().map(|(w, y)| (self.weights(w), &mut y[..]));
        kernels::matmul_grouped(self.cpu, stacks, x, source, group_starts);
        for (w, y) in outputs {
            finish(w, group_starts, y);
        }
    }
}

/// What goes with a matrix: the factor of its products, and what is added.
fn finish(w: &Tensor, group_starts: &[usize], y: &mut [f32]) {
    if w.factors.is_empty() && w.bias.is_empty() {
        return;
    }
    let n_rows = w.n_rows();
    for (mat, pairs) in group_starts.windows(2).enumerate() {
        let rows = y[pairs[0] * n_rows..pairs[1] * n_rows].chunks_mut(n_rows);
        let factor = w.factors.get(mat).copied();
        let bias = w.bias.get(mat * n_rows..(mat + 1) * n_rows);
        pool::rows(rows, |row| {
            if let Some(factor) = factor {
                elementwise::scale_in_place(row, factor);
            }
            if let Some(bias) = bias {
                elementwise::add(row, bias);
            }
        });
    }
}

/// One micro-batch on its way.
pub(crate) struct Pass<'a> {
    pub(crate) env: Env<'a>,
    pub(crate) kv: &'a mut KvCache,
    pub(crate) recurrent: &'a mut Recurrent,
    pub(crate) scratch: &'a mut Scratch,
}

impl Pass<'_> {
    /// Evaluates `ubatch`, whose first token is token `first` of the batch, and hands out its logits.
    pub(crate) fn run(mut self, ubatch: &[Token], first: usize, sink: &mut LogitsSink<'_>) -> Result<()> {
        let n_layer = self.env.model.parts.layers.len();
        let mut trimmed = false;
        self.place(ubatch, first);
        self.embed(ubatch)?;
        for layer in 0..n_layer {
            self.mix(layer);
            // Behind the last mixer no other row depends on a row without wanted logits.
            if layer + 1 == n_layer && self.env.observer.is_none() {
                self.trim(ubatch);
                trimmed = true;
                if self.scratch.wanted.is_empty() {
                    return Ok(());
                }
            }
            self.feed_forward(layer);
        }
        if !trimmed {
            self.trim(ubatch);
        }
        self.output(sink)
    }

    /// Attention of a layer, or what stands for it.
    pub(crate) fn mix(&mut self, layer: usize) {
        let (model, s) = (self.env.model, &mut *self.scratch);
        let spec = model.spec();
        let layer = &model.parts.layers[layer];
        norm_rows(&layer.norm_in, &s.h, &mut s.x);
        match &layer.mixer {
            MixerWeights::Gqa(w) => gqa::run(w, &mut self.env, self.kv, s),
            MixerWeights::Mla(w) => mla::run(w, &mut self.env, self.kv, s),
            MixerWeights::DeltaNet(w) => delta_net::run(w, &mut self.env, self.recurrent, s),
        }
        norm_in_place(layer.norm_mixed.as_ref(), &mut s.y);
        add_rows(&mut s.h, &s.y, spec.n_embd, spec.residual_scale);
    }

    /// The feed-forward part of a layer.
    pub(crate) fn feed_forward(&mut self, layer: usize) {
        let (model, s) = (self.env.model, &mut *self.scratch);
        let spec = model.spec();
        let layer = &model.parts.layers[layer];
        norm_rows(&layer.norm_mid, &s.h, &mut s.x);
        match &layer.ffn {
            FfnWeights::Dense(w) => ffn::run(w, &mut self.env, s),
            FfnWeights::Moe(w) => moe::run(w, &mut self.env, s),
        }
        norm_in_place(layer.norm_out.as_ref(), &mut s.y);
        add_rows(&mut s.h, &s.y, spec.n_embd, spec.residual_scale);
    }

    /// Says which tokens are at work: those of `ubatch`, of which the first is token `first` of the batch.
    pub(crate) fn place(&mut self, ubatch: &[Token], first: usize) {
        let s = &mut *self.scratch;
        s.place.clear();
        s.place.extend(ubatch.iter().map(|t| (t.seq, t.pos)));
        s.wanted.clear();
        let wanted = ubatch.iter().enumerate().filter(|(_, t)| t.logits);
        s.wanted.extend(wanted.map(|(i, _)| first + i));
        let n_pos = ubatch.iter().map(|t| t.pos as usize + 1).max().unwrap_or(0);
        for table in &mut s.ropes {
            table.extend(n_pos);
        }
    }

    /// From ids to hidden states.
    pub(crate) fn embed(&mut self, ubatch: &[Token]) -> Result<()> {
        let s = &mut *self.scratch;
        let model = self.env.model;
        let n_embd = model.spec().n_embd;
        pool::resize(&mut s.h, ubatch.len() * n_embd, 0.0);
        let rows = s.h.chunks_mut(n_embd).zip(ubatch);
        if self.env.held.is_none() {
            pool::rows(rows, |(row, t)| model.embed(t.id, row));
        } else {
            let read = |(row, t): (&mut [f32], &Token)| model.read_embedding(t.id, &mut Vec::new(), row);
            pool::try_for_each(rows, read)?;
        }
        let scale = model.spec().embedding_scale;
        if scale != 1.0 {
            let rows = s.h.chunks_mut(n_embd);
            pool::rows(rows, |row| elementwise::scale_in_place(row, scale));
        }
        Ok(())
    }

    /// Keeps only the hidden states whose logits are wanted.
    pub(crate) fn trim(&mut self, ubatch: &[Token]) {
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

    /// From hidden states to logits.
    pub(crate) fn output(&mut self, sink: &mut LogitsSink<'_>) -> Result<()> {
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
        let norm = &model.parts.output_norm;
        pool::resize(y, h.len(), 0.0);
        let rows = y.chunks_mut(n_embd).zip(h.chunks(n_embd));
        pool::rows(rows, |(o, v)| elementwise::rms_norm(v, &norm.weight, norm.eps, o));
        if let Some(o) = &mut self.env.observer {
            o.input(
                &model.parts.output.name,
                Input::Dense {
                    rows: y,
                    n_cols: n_embd,
                },
            );
        }
        let weights = self.env.weights(&model.parts.output);
        for (index, rows) in wanted.chunks(LOGIT_ROWS).zip(y.chunks(LOGIT_ROWS * n_embd)) {
            x.reset(index.len(), n_embd);
            x.rows_mut().copy_from_slice(rows);
            pool::resize(logits, index.len() * weights.n_rows, 0.0);
            kernels::matmul(self.env.cpu, [(weights, logits)], x);
            finish(&model.parts.output, &[0, index.len()], logits);
            finish_logits(model.spec(), logits);
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
    let rows = x.rows_mut().chunks_mut(n_cols).zip(h.chunks(n_cols));
    pool::rows(rows, |(o, v)| elementwise::rms_norm(v, &norm.weight, norm.eps, o));
}

/// Norm of rows onto themselves, if there is one.
fn norm_in_place(norm: Option<&NormWeights>, rows: &mut [f32]) {
    if let Some(norm) = norm {
        let rows = rows.chunks_mut(norm.weight.len());
        pool::rows(rows, |row| {
            elementwise::rms_norm_in_place(row, &norm.weight, norm.eps);
        });
    }
}

fn add_rows(h: &mut [f32], y: &[f32], n_cols: usize, factor: f32) {
    let rows = h.chunks_mut(n_cols).zip(y.chunks(n_cols));
    if factor == 1.0 {
        pool::rows(rows, |(a, v)| elementwise::add(a, v));
    } else {
        pool::rows(rows, |(a, v)| elementwise::add_scaled(a, v, factor));
    }
}

fn finish_logits(spec: &ModelSpec, logits: &mut [f32]) {
    let rows = logits.chunks_mut(spec.n_vocab);
    if spec.logit_scale != 1.0 || spec.logit_softcap != 0.0 {
        pool::rows(rows, |row| {
            elementwise::scale_in_place(row, spec.logit_scale);
            if spec.logit_softcap != 0.0 {
                elementwise::softcap(row, spec.logit_softcap);
            }
        });
    }
}

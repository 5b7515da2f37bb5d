//! Grouped-query attention.

use super::{apply_temperature, table};
use crate::forward::{Env, Scratch};
use crate::kernels::Acts;
use crate::kernels::elementwise::{RopeTable, mul_sigmoid, rms_norm_in_place};
use crate::kv::KvCache;
use crate::model::{GqaWeights, NormWeights, QkvWeights};
use crate::pool;

/// From the normed rows in `s.x` to the result in `s.y`; the rows' keys and values are stored on the way.
pub(crate) fn run(w: &GqaWeights, env: &mut Env<'_>, kv: &mut KvCache, s: &mut Scratch) {
    let spec = &w.spec;
    project(w, env, s);

    let rope = table(&s.ropes, spec.rope);
    let norm = w.qk_norm.as_ref();
    let heads = |norm| Heads {
        head_dim: spec.head_dim_k,
        norm,
        after_rope: w.qk_norm.as_ref().is_some_and(|n| n.after_rope),
        rope,
    };
    heads(norm.map(|n| &n.q)).prepare(&mut s.q, spec.n_head, &s.place);
    heads(norm.map(|n| &n.k)).prepare(&mut s.k, spec.n_head_kv, &s.place);
    if let Some(t) = spec.temperature {
        apply_temperature(t, &mut s.q, spec.n_head * spec.head_dim_k, &s.place);
    }
    kv.store_rows(w.kv_layer, &s.place, &s.k, &s.v);
    s.mixed.reset(s.place.len(), spec.n_head * spec.head_dim_v);
    kv.attend(
        env.cpu,
        w.kv_layer,
        &s.q,
        w.sinks.as_deref(),
        &s.place,
        s.mixed.rows_mut(),
    );
    if spec.gated {
        apply_gates(&s.head_gates, &mut s.mixed);
    }
    env.matmul(&w.output, &mut s.mixed, &mut s.y);
}

/// Queries, keys and values of the rows; gates of heads, where there are some, apart.
fn project(w: &GqaWeights, env: &mut Env<'_>, s: &mut Scratch) {
    let spec = &w.spec;
    let (n_q, n_k) = (spec.n_head * spec.head_dim_k, spec.n_head_kv * spec.head_dim_k);
    let n_v = spec.n_head_kv * spec.head_dim_v;
    match &w.qkv {
        QkvWeights::Fused(qkv) => {
            env.matmul(qkv, &mut s.x, &mut s.projected);
            cut(&s.projected, n_q + n_k + n_v, 0, n_q, &mut s.q);
            cut(&s.projected, n_q + n_k + n_v, n_q, n_k, &mut s.k);
            cut(&s.projected, n_q + n_k + n_v, n_q + n_k, n_v, &mut s.v);
        }
        QkvWeights::Apart { q, k, v } => {
            let queries = if spec.gated { &mut s.projected } else { &mut s.q };
            env.matmul_each([(q, queries), (k, &mut s.k), (v, &mut s.v)], &mut s.x);
            if spec.gated {
                let dim = spec.head_dim_k;
                cut(&s.projected, 2 * dim, 0, dim, &mut s.q);
                cut(&s.projected, 2 * dim, dim, dim, &mut s.head_gates);
            }
        }
    }
}

/// Copies columns `first .. first + n` of rows of `n_cols` elements.
fn cut(rows: &[f32], n_cols: usize, first: usize, n: usize, out: &mut Vec<f32>) {
    pool::resize(out, rows.len() / n_cols * n, 0.0);
    let rows = rows.chunks(n_cols).zip(out.chunks_mut(n));
    pool::rows(rows, |(row, out)| out.copy_from_slice(&row[first..first + n]));
}

fn apply_gates(gates: &[f32], mixed: &mut Acts) {
    let n = mixed.n_cols();
    let rows = mixed.rows_mut().chunks_mut(n).zip(gates.chunks(n));
    pool::rows(rows, |(row, gates)| mul_sigmoid(row, gates));
}

/// What happens to queries or keys in front of attention.
struct Heads<'a> {
    head_dim: usize,
    /// Over as many elements as it has weights.
    norm: Option<&'a NormWeights>,
    after_rope: bool,
    rope: Option<&'a RopeTable>,
}

impl Heads<'_> {
    fn prepare(&self, rows: &mut [f32], n_head: usize, place: &[(u32, u32)]) {
        let rows = rows.chunks_mut(n_head * self.head_dim).zip(place);
        pool::rows(rows, |(row, &(_, pos))| {
            if !self.after_rope {
                self.normalize(row);
            }
            if let Some(rope) = self.rope {
                for head in row.chunks_exact_mut(self.head_dim) {
                    rope.rotate(pos as usize, head);
                }
            }
            if self.after_rope {
                self.normalize(row);
            }
        });
    }

    fn normalize(&self, row: &mut [f32]) {
        if let Some(norm) = self.norm {
            for part in row.chunks_exact_mut(norm.weight.len()) {
                rms_norm_in_place(part, &norm.weight, norm.eps);
            }
        }
    }
}

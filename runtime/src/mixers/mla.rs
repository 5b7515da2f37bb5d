//! Latent attention, with queries that meet the latent vectors themselves or keys and values made of these.

use super::{apply_temperature, table};
use crate::forward::{Env, Scratch};
use crate::kernels::Acts;
use crate::kernels::elementwise::{RopeTable, add_scaled, rms_norm, rms_norm_in_place};
use crate::kernels::rows::decode_row;
use crate::kv::KvCache;
use crate::model::{MlaKvWeights, MlaQueryWeights, MlaWeights, NormWeights, Tensor};
use crate::observe::Input;
use crate::pool;

/// What latent attention needs beside what all attention does.
#[derive(Debug, Default)]
pub(crate) struct MlaScratch {
    /// Latent vectors in front of a matrix.
    latent: Acts,
    /// Single heads in front of their matrix: a row for each row and head.
    heads: Acts,
    /// Products of heads, all rows of the first head, then those of the next.
    by_head: Vec<f32>,
    /// Row of `heads` of each product.
    source: Vec<u32>,
    /// Where the products of each head start.
    starts: Vec<usize>,
}

/// From the normed rows in `s.x` to the result in `s.y`; what the cache holds of the rows is stored on the way.
pub(crate) fn run(w: &MlaWeights, env: &mut Env<'_>, kv: &mut KvCache, s: &mut Scratch) {
    let spec = &w.spec;
    let n_q = spec.n_nope + spec.rope.n_rot;
    queries(w, env, s);
    env.matmul(&w.kv_a, &mut s.x, &mut s.projected);
    let rope = table(&s.ropes, Some(spec.rope));
    rotate_tails(rope, &mut s.q, spec.n_head * n_q, n_q, spec.n_nope, &s.place);
    let n_latent = spec.kv_lora_rank + spec.rope.n_rot;
    norm_heads(&w.kv_norm, &mut s.projected, n_latent);
    rotate_tails(
        rope,
        &mut s.projected,
        n_latent,
        n_latent,
        spec.kv_lora_rank,
        &s.place,
    );
    if let Some(t) = spec.temperature {
        apply_temperature(t, &mut s.q, spec.n_head * n_q, &s.place);
    }
    match &w.kv {
        MlaKvWeights::Absorbed { k_b, v_b, kv_b } => {
            if env.observer.is_some() {
                take_latents(&s.projected, n_latent, spec.kv_lora_rank, &mut s.mla.latent);
                let dense = |rows, n_cols| Input::Dense { rows, n_cols };
                env.observe(kv_b, &mut s.mla.latent, dense);
            }
            absorbed(w, k_b, v_b, env, kv, s);
        }
        MlaKvWeights::Expanded { kv_b, k_b, v_b } => {
            expanded(w, kv_b, env, kv, s);
            if env.observer.is_some() {
                show_latent_way(w, [k_b, v_b], kv_b, env, kv, s);
            }
        }
    }
    env.matmul(&w.output, &mut s.mixed, &mut s.y);
}

fn queries(w: &MlaWeights, env: &mut Env<'_>, s: &mut Scratch) {
    match &w.q {
        MlaQueryWeights::Direct(q) => env.matmul(q, &mut s.x, &mut s.q),
        MlaQueryWeights::Latent { a, norm, b } => {
            env.matmul(a, &mut s.x, &mut s.projected);
            let n = a.n_rows();
            let latent = &mut s.mla.latent;
            latent.reset(s.place.len(), n);
            let rows = latent.rows_mut().chunks_mut(n).zip(s.projected.chunks(n));
            pool::rows(rows, |(out, row)| rms_norm(row, &norm.weight, norm.eps, out));
            env.matmul(b, latent, &mut s.q);
        }
    }
}

/// Norm of the first elements of each row, as many as there are weights.
fn norm_heads(norm: &NormWeights, rows: &mut [f32], n_cols: usize) {
    let rows = rows.chunks_mut(n_cols);
    pool::rows(rows, |row| {
        rms_norm_in_place(&mut row[..norm.weight.len()], &norm.weight, norm.eps);
    });
}

/// Rotates the elements from `first` on of each head of `head_dim` elements.
fn rotate_tails(
    rope: Option<&RopeTable>,
    rows: &mut [f32],
    n_cols: usize,
    head_dim: usize,
    first: usize,
    place: &[(u32, u32)],
) {
    let Some(rope) = rope else { return };
    let rows = rows.chunks_mut(n_cols).zip(place);
    pool::rows(rows, |(row, &(_, pos))| {
        for head in row.chunks_exact_mut(head_dim) {
            rope.rotate(pos as usize, &mut head[first..]);
        }
    });
}

/// Queries become latent, attention's results become values.
fn absorbed(
    w: &MlaWeights,
    k_b: &Tensor,
    v_b: &Tensor,
    env: &mut Env<'_>,
    kv: &mut KvCache,
    s: &mut Scratch,
) {
    let spec = &w.spec;
    let (n, n_head, rank) = (s.place.len(), spec.n_head, spec.kv_lora_rank);
    let (n_nope, n_q, n_v) = (spec.n_nope, spec.n_nope + spec.rope.n_rot, spec.head_dim_v);
    kv.store_rows(w.kv_layer, &s.place, &s.projected, &[]);

    let m = &mut s.mla;
    m.number(n, n_head);
    take_plain_queries(&s.q, n_q, n_nope, &mut m.heads);
    show_heads(&k_b.name, n_head, env, &mut m.heads);
    env.matmul_grouped([(k_b, &mut m.by_head)], &mut m.heads, &m.source, &m.starts);
    latent_queries(w, &m.by_head, &s.q, &mut s.k);
    m.heads.reset(n * n_head, rank);
    kv.attend(env.cpu, w.kv_layer, &s.k, None, &s.place, m.heads.rows_mut());
    show_heads(&v_b.name, n_head, env, &mut m.heads);
    env.matmul_grouped([(v_b, &mut m.by_head)], &mut m.heads, &m.source, &m.starts);
    s.mixed.reset(n, n_head * n_v);
    let rows = s.mixed.rows_mut().chunks_mut(n_v).enumerate();
    pool::rows(rows, |(i, out)| {
        let at = (i % n_head * n + i / n_head) * n_v;
        out.copy_from_slice(&m.by_head[at..at + n_v]);
    });
}

/// The latent vectors alone, of rows that have rotated elements behind.
fn take_latents(rows: &[f32], n_latent: usize, rank: usize, out: &mut Acts) {
    out.reset(rows.len() / n_latent, rank);
    let pairs = out.rows_mut().chunks_mut(rank).zip(rows.chunks(n_latent));
    pool::rows(pairs, |(out, row)| out.copy_from_slice(&row[..rank]));
}

/// The elements of each query head that are not rotated.
fn take_plain_queries(q: &[f32], n_q: usize, n_nope: usize, out: &mut Acts) {
    out.reset(q.len() / n_q, n_nope);
    let heads = out.rows_mut().chunks_mut(n_nope).zip(q.chunks(n_q));
    pool::rows(heads, |(out, q)| out.copy_from_slice(&q[..n_nope]));
}

/// Shows an observer rows of single heads.
fn show_heads(name: &str, n_head: usize, env: &mut Env<'_>, rows: &mut Acts) {
    env.observe(name, rows, |rows, n_cols| Input::Heads { rows, n_cols, n_head });
}

/// Queries that meet what the cache has of the latent way: the products of heads in `by_head` with the rotated
/// elements behind.
fn latent_queries(w: &MlaWeights, by_head: &[f32], q: &[f32], out: &mut Vec<f32>) {
    let spec = &w.spec;
    let (n_head, rank) = (spec.n_head, spec.kv_lora_rank);
    let (n_q, n_k) = (spec.n_nope + spec.rope.n_rot, rank + spec.rope.n_rot);
    let n = q.len() / (n_head * n_q);
    pool::resize(out, n * n_head * n_k, 0.0);
    let latent = out.chunks_mut(n_k).zip(q.chunks(n_q)).enumerate();
    pool::rows(latent, |(i, (out, q))| {
        let at = (i % n_head * n + i / n_head) * rank;
        out[..rank].copy_from_slice(&by_head[at..at + rank]);
        out[rank..].copy_from_slice(&q[spec.n_nope..]);
    });
}

/// Shows the inputs that the matrices `k_b` and `v_b` of the other layout would have. Those of `v_b` need attention over
/// the latent vectors, with queries that met the key rows of `kv_b`.
fn show_latent_way(
    w: &MlaWeights,
    [k_b, v_b]: [&str; 2],
    kv_b: &Tensor,
    env: &mut Env<'_>,
    kv: &mut KvCache,
    s: &mut Scratch,
) {
    let spec = &w.spec;
    let (n, n_head, rank, n_nope) = (s.place.len(), spec.n_head, spec.kv_lora_rank, spec.n_nope);
    let n_q = n_nope + spec.rope.n_rot;
    let m = &mut s.mla;
    take_plain_queries(&s.q, n_q, n_nope, &mut m.heads);
    show_heads(k_b, n_head, env, &mut m.heads);
    let Some(first) = env.latents else { return };
    let layer = first + w.latent_layer;
    kv.store_rows(layer, &s.place, &s.projected, &[]);

    let weights = env.weights(kv_b);
    let factor = kv_b.factors.first().copied().unwrap_or(1.0);
    pool::resize(&mut m.by_head, n * n_head * rank, 0.0);
    let heads = m.by_head.chunks_mut(n * rank).enumerate();
    pool::for_each(heads, |(head, out)| {
        out.fill(0.0);
        let mut keys = vec![0.0; rank];
        for i in 0..n_nope {
            decode_row(&weights, head * (n_nope + spec.head_dim_v) + i, &mut keys);
            for (row, out) in out.chunks_exact_mut(rank).enumerate() {
                add_scaled(out, &keys, s.q[(row * n_head + head) * n_q + i] * factor);
            }
        }
    });
    latent_queries(w, &m.by_head, &s.q, &mut s.k);
    m.heads.reset(n * n_head, rank);
    kv.attend(env.cpu, layer, &s.k, None, &s.place, m.heads.rows_mut());
    show_heads(v_b, n_head, env, &mut m.heads);
}

impl MlaScratch {
    /// Numbers the products of `n` rows of heads with the matrices of the heads.
    fn number(&mut self, n: usize, n_head: usize) {
        self.source.clear();
        self.starts.clear();
        for head in 0..n_head {
            self.starts.push(head * n);
            self.source.extend((0..n).map(|row| (row * n_head + head) as u32));
        }
        self.starts.push(n_head * n);
    }
}

/// Keys and values are made of the latent vectors.
fn expanded(w: &MlaWeights, kv_b: &Tensor, env: &mut Env<'_>, kv: &mut KvCache, s: &mut Scratch) {
    let spec = &w.spec;
    let (n, n_head, rank, n_rot) = (s.place.len(), spec.n_head, spec.kv_lora_rank, spec.rope.n_rot);
    let (n_nope, n_v) = (spec.n_nope, spec.head_dim_v);
    let (n_latent, n_k, n_kv) = (rank + n_rot, n_nope + n_rot, n_nope + n_v);
    let m = &mut s.mla;
    take_latents(&s.projected, n_latent, rank, &mut m.latent);
    env.matmul(kv_b, &mut m.latent, &mut m.by_head);
    pool::resize(&mut s.k, n * n_head * n_k, 0.0);
    pool::resize(&mut s.v, n * n_head * n_v, 0.0);
    let out = s.k.chunks_mut(n_head * n_k).zip(s.v.chunks_mut(n_head * n_v));
    let rows = m.by_head.chunks(n_head * n_kv).zip(s.projected.chunks(n_latent));
    pool::rows(out.zip(rows), |((k, v), (made, latent))| {
        let heads = k.chunks_exact_mut(n_k).zip(v.chunks_exact_mut(n_v));
        for ((k, v), made) in heads.zip(made.chunks_exact(n_kv)) {
            k[..n_nope].copy_from_slice(&made[..n_nope]);
            k[n_nope..].copy_from_slice(&latent[rank..]);
            v.copy_from_slice(&made[n_nope..]);
        }
    });
    kv.store_rows(w.kv_layer, &s.place, &s.k, &s.v);
    s.mixed.reset(n, n_head * n_v);
    kv.attend(env.cpu, w.kv_layer, &s.q, None, &s.place, s.mixed.rows_mut());
}

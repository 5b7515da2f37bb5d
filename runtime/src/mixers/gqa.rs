//! Grouped-query attention.

use rayon::prelude::*;

use crate::forward::{Env, MIN_ROWS, Scratch};
use crate::kernels::elementwise::{RopeTable, rms_norm_in_place};
use crate::kv::KvCache;
use crate::model::{GqaWeights, NormWeights};

/// From the normed rows in `s.x` to the result in `s.y`; the rows' keys and values are stored on the way.
pub(crate) fn run(w: &GqaWeights, env: &mut Env<'_>, kv: &mut KvCache, s: &mut Scratch) {
    let spec = &w.spec;
    env.matmul(&w.q, &mut s.x, &mut s.q);
    env.matmul(&w.k, &mut s.x, &mut s.k);
    env.matmul(&w.v, &mut s.x, &mut s.v);

    let table = spec
        .rope
        .and_then(|rope| s.ropes.iter().find(|t| *t.rope() == rope));
    prepare_heads(
        &mut s.q,
        spec.n_head,
        spec.head_dim_k,
        w.q_norm.as_ref(),
        table,
        &s.place,
    );
    prepare_heads(
        &mut s.k,
        spec.n_head_kv,
        spec.head_dim_k,
        w.k_norm.as_ref(),
        table,
        &s.place,
    );

    let keys = s.k.chunks_exact(spec.n_head_kv * spec.head_dim_k);
    let values = s.v.chunks_exact(spec.n_head_kv * spec.head_dim_v);
    for ((&(seq, pos), k), v) in s.place.iter().zip(keys).zip(values) {
        kv.store(w.kv_layer, seq as usize, pos as usize, k, v);
    }
    s.mixed.reset(s.place.len(), spec.n_head * spec.head_dim_v);
    kv.attend(env.cpu, w.kv_layer, &s.q, None, &s.place, s.mixed.rows_mut());
    env.matmul(&w.output, &mut s.mixed, &mut s.y);
}

/// Norm and rotation of every head.
fn prepare_heads(
    rows: &mut [f32],
    n_head: usize,
    head_dim: usize,
    norm: Option<&NormWeights>,
    table: Option<&RopeTable>,
    place: &[(u32, u32)],
) {
    let rows = rows
        .par_chunks_mut(n_head * head_dim)
        .zip(place)
        .with_min_len(MIN_ROWS);
    rows.for_each(|(row, &(_, pos))| {
        for head in row.chunks_exact_mut(head_dim) {
            if let Some(norm) = norm {
                rms_norm_in_place(head, &norm.weight, norm.spec.eps);
            }
            if let Some(table) = table {
                table.rotate(pos as usize, head);
            }
        }
    });
}

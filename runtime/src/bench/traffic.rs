//! What a generated token has to be read from memory.

use gguf_blocks::registry;
use gguf_models::Component;
use gguf_models::component::split_layer;
use gguf_models::spec::{Ffn, Mixer};

use crate::kv::Heads;
use crate::recurrent;
use crate::{KvType, Model, Settings};

/// Bytes that one token reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Traffic {
    /// Weights: all but the experts that are not used and the rows of the embedding that are not looked up.
    pub(super) weights: u64,
    /// Keys and values of the past, and states; a mean over the tokens.
    pub(super) cache: f64,
}

impl Traffic {
    /// Of `n` tokens that follow `depth` others, on the average.
    pub(super) fn of(model: &Model, settings: &Settings, depth: usize, n: usize) -> Self {
        let cache = |pos| cache_bytes(model, settings, pos) as f64;
        Self {
            weights: weight_bytes(model),
            cache: (depth..depth + n).map(cache).sum::<f64>() / n.max(1) as f64,
        }
    }

    pub(super) fn total(&self) -> f64 {
        self.weights as f64 + self.cache
    }
}

/// Bytes of the weights that a token needs.
pub(super) fn weight_bytes(model: &Model) -> u64 {
    let file = model.file();
    let layers = &model.spec().layers;
    let tied = file.tensor("output.weight").is_none();
    let needed = |t: &gguf::TensorInfo| {
        let layer = split_layer(&t.name).map(|(layer, _)| layers.get(layer as usize));
        match (Component::of(&t.name), layer) {
            // Layers that predict further tokens are no part of the pass.
            (_, Some(None)) => 0,
            (Component::Embedding, _) if !tied => t.n_bytes / t.shape.n_rows().max(1),
            (Component::Experts, Some(Some(layer))) => match layer.ffn {
                Ffn::Moe(moe) => share(t.n_bytes, moe.n_used, moe.n_expert),
                Ffn::Dense(_) => t.n_bytes,
            },
            _ => t.n_bytes,
        }
    };
    file.tensors.iter().map(needed).sum()
}

fn share(bytes: u64, used: usize, of: usize) -> u64 {
    (u128::from(bytes) * used as u128 / (of as u128).max(1)) as u64
}

/// Bytes of the cache that a token at position `pos` reads.
fn cache_bytes(model: &Model, settings: &Settings, pos: usize) -> u64 {
    let layers = model.spec().layers.iter();
    let bytes = |kind: KvType, elems: usize| {
        let format = registry::by_name(kind.name());
        format
            .and_then(|f| f.geometry.row_bytes(elems as u64))
            .unwrap_or(0)
    };
    let of = |mixer: &Mixer| match mixer {
        Mixer::DeltaNet(d) => recurrent::n_bytes(d).expect("the session's plan of memory has counted it"),
        attention => Heads::of(attention).map_or(0, |h| {
            let seen = pos + 1 - h.window.first(pos).min(pos);
            let values = if h.v_in_k {
                0
            } else {
                bytes(settings.type_v, h.head_dim_v)
            };
            let a_position = (bytes(settings.type_k, h.head_dim_k) + values) * h.n_head_kv as u64;
            a_position * seen as u64
        }),
    };
    layers.map(|l| of(&l.mixer)).sum()
}

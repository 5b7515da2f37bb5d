//! Sums over the tensors of a file, and what each layer holds.

use gguf::{GgufFile, TensorInfo};
use gguf_cli::Result;
use gguf_models::Component;
use gguf_models::component::split_layer;
use serde::Serialize;

use super::sum;

/// Tensors of one part of the model.
#[derive(Debug, Serialize)]
pub(super) struct Part {
    pub(super) component: &'static str,
    pub(super) tensors: u64,
    pub(super) parameters: u64,
    pub(super) bytes: u64,
}

/// All weights, in bytes.
#[derive(Debug, Serialize)]
pub(super) struct Weights {
    pub(super) total: u64,
    /// Tensors with `exps` in their names: what `-ot exps=CPU` leaves in main memory.
    pub(super) experts: u64,
    /// Token embeddings, which are looked up in main memory, wherever the layers are.
    pub(super) embedding: u64,
    /// Whether the embeddings are the output matrix, too: then a device has a copy of them.
    pub(super) tied: bool,
    pub(super) by_component: Vec<Part>,
}

impl Weights {
    pub(super) fn of(file: &GgufFile) -> Result<Self> {
        let mut parts: Vec<Part> = Component::ALL
            .iter()
            .map(|component| Part {
                component: component.name(),
                tensors: 0,
                parameters: 0,
                bytes: 0,
            })
            .collect();
        let (mut total, mut experts) = (0, 0);
        for tensor in &file.tensors {
            let component = Component::of(&tensor.name).name();
            if let Some(part) = parts.iter_mut().find(|p| p.component == component) {
                part.tensors += 1;
                part.parameters = sum("parameters", [part.parameters, tensor.shape.n_elems()])?;
                part.bytes = sum("weights", [part.bytes, tensor.n_bytes])?;
            }
            total = sum("weights", [total, tensor.n_bytes])?;
            if tensor.name.contains("exps") {
                experts += tensor.n_bytes;
            }
        }
        parts.retain(|p| p.tensors > 0);
        let of = |part: Component| parts.iter().find(|p| p.component == part.name());
        Ok(Self {
            total,
            experts,
            embedding: of(Component::Embedding).map_or(0, |p| p.bytes),
            tied: of(Component::Output).is_none() && of(Component::Embedding).is_some(),
            by_component: parts,
        })
    }
}

/// What the tensors of a layer say of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layer {
    /// Whether the file has any tensor of it.
    pub(super) seen: bool,
    /// Whether one is of a recurrent mixer.
    pub(super) recurrent: bool,
    /// Whether it computes keys by themselves, which a recurrent mixer does not.
    pub(super) keys: bool,
    pub(super) weights: u64,
    pub(super) experts: u64,
}

/// The layers, in order; tensors of layers from `n_layers` on are left out.
pub(super) fn layers(file: &GgufFile, n_layers: usize) -> Vec<Layer> {
    let mut layers = vec![Layer::default(); n_layers];
    for tensor in &file.tensors {
        let Some((layer, stem)) = split_layer(&tensor.name) else {
            continue;
        };
        let Some(layer) = layers.get_mut(layer as usize) else {
            continue;
        };
        layer.seen = true;
        layer.recurrent |= Component::of(&tensor.name) == Component::Recurrent;
        layer.keys |= ["attn_k.", "attn_k_b.", "attn_kv_a_mqa.", "attn_kv_b."]
            .iter()
            .any(|keys| stem.starts_with(keys));
        // The sum over all tensors is known to fit.
        layer.weights += tensor.n_bytes;
        if tensor.name.contains("exps") {
            layer.experts += tensor.n_bytes;
        }
    }
    layers
}

/// One more than the highest layer that a tensor belongs to.
pub(super) fn count_layers(file: &GgufFile) -> Option<u64> {
    let numbers = file.tensors.iter().filter_map(|t| split_layer(&t.name));
    numbers.map(|(layer, _)| u64::from(layer) + 1).max()
}

/// Rows of the output matrix, of the embeddings where these are the same.
pub(super) fn vocabulary(file: &GgufFile) -> Option<u64> {
    let matrix = |name| file.tensor(name).map(|t: &TensorInfo| t.shape.dim(1));
    matrix("output.weight").or_else(|| matrix("token_embd.weight"))
}

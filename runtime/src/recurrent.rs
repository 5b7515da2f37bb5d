//! State of layers that carry what went before in a fixed size: it cannot be cut back to an earlier position.

use gguf_models::spec::DeltaNet;

use crate::pool;

/// The state of all such layers for all sequences. A sequence's is zero at its first position.
#[derive(Debug, Default)]
pub(crate) struct Recurrent {
    /// Number of the first layer that is held.
    first: usize,
    layers: Vec<LayerState>,
    n_seq: usize,
}

/// One layer's part, sequence after sequence.
#[derive(Debug)]
struct LayerState {
    /// Inputs of the convolution at the last positions, the oldest first: `(n_conv - 1) * n_qkv` elements.
    conv: Vec<f32>,
    /// Values by keys: of each value head `head_dim_v` rows of `head_dim_k` elements.
    heads: Vec<f32>,
}

/// The state of a sequence in one layer.
pub(crate) struct SequenceState<'a> {
    pub(crate) conv: &'a mut [f32],
    pub(crate) heads: &'a mut [f32],
}

/// Elements of the convolution's inputs and of the heads' state for one sequence.
fn lens(net: &DeltaNet) -> (usize, usize) {
    (
        net.n_conv.saturating_sub(1) * net.n_qkv(),
        net.n_inner() * net.head_dim_k,
    )
}

/// Bytes for one sequence of a layer.
pub(crate) fn n_bytes(net: &DeltaNet) -> u64 {
    let (conv, heads) = lens(net);
    (conv as u64).saturating_add(heads as u64).saturating_mul(4)
}

impl Recurrent {
    pub(crate) fn new(layers: &[DeltaNet], n_seq: usize) -> Self {
        let layers = layers.iter().map(|net| {
            let (conv, heads) = lens(net);
            let placed = |n: usize| {
                let mut state = vec![0.0; n];
                pool::place(&mut state);
                state
            };
            LayerState {
                conv: placed(conv * n_seq),
                heads: placed(heads * n_seq),
            }
        });
        Self {
            first: 0,
            layers: layers.collect(),
            n_seq,
        }
    }

    /// The same for the one layer of number `layer`.
    pub(crate) fn of_layer(layer: usize, net: DeltaNet, n_seq: usize) -> Self {
        Self {
            first: layer,
            ..Self::new(&[net], n_seq)
        }
    }

    /// Whether the model has no such layers.
    pub(crate) fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    pub(crate) fn state(&mut self, layer: usize, seq: usize) -> SequenceState<'_> {
        let n_seq = self.n_seq;
        let LayerState { conv, heads } = &mut self.layers[layer - self.first];
        let (n_conv, n_heads) = (conv.len() / n_seq, heads.len() / n_seq);
        SequenceState {
            conv: &mut conv[seq * n_conv..][..n_conv],
            heads: &mut heads[seq * n_heads..][..n_heads],
        }
    }

    /// The parts of a sequence's state in all layers, in order.
    pub(crate) fn parts(&self, seq: usize) -> impl Iterator<Item = &[f32]> {
        let n_seq = self.n_seq;
        self.layers.iter().flat_map(move |l| {
            [&l.conv, &l.heads].map(|all| &all[seq * (all.len() / n_seq)..][..all.len() / n_seq])
        })
    }

    /// The same to be filled.
    pub(crate) fn parts_mut(&mut self, seq: usize) -> impl Iterator<Item = &mut [f32]> {
        let n_seq = self.n_seq;
        self.layers.iter_mut().flat_map(move |l| {
            [&mut l.conv, &mut l.heads].map(|all| {
                let n = all.len() / n_seq;
                &mut all[seq * n..][..n]
            })
        })
    }

    /// Gives sequence `to` the state of sequence `from`.
    pub(crate) fn copy(&mut self, from: usize, to: usize) {
        for layer in &mut self.layers {
            for all in [&mut layer.conv, &mut layer.heads] {
                let n = all.len() / self.n_seq;
                all.copy_within(from * n..(from + 1) * n, to * n);
            }
        }
    }
}

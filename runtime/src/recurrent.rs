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

/// Elements of the convolution's inputs and of the heads' state for one sequence; `None` on overflow.
fn lens(net: &DeltaNet) -> Option<(usize, usize)> {
    Some((
        net.n_conv.saturating_sub(1).checked_mul(net.n_qkv())?,
        net.n_inner().checked_mul(net.head_dim_k)?,
    ))
}

/// Bytes for one sequence of a layer; `None` on overflow.
pub(crate) fn n_bytes(net: &DeltaNet) -> Option<u64> {
    let (conv, heads) = lens(net)?;
    let n = conv.checked_add(heads)?.checked_mul(size_of::<f32>())?;
    u64::try_from(n).ok()
}

impl Recurrent {
    /// The states of `layers`, whose bytes for `n_seq` sequences a [`crate::MemoryPlan`] has counted.
    pub(crate) fn new(layers: &[DeltaNet], n_seq: usize) -> Self {
        let layers = layers.iter().map(|net| {
            let (conv, heads) = lens(net).expect("the plan of memory has counted them");
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

#[cfg(test)]
mod tests {
    use gguf_models::spec::Norm;
    use gguf_models::{HParams, arch};

    use super::*;
    use crate::{MemoryPlan, Settings};

    fn net(n_conv: usize, head_dim_k: usize) -> DeltaNet {
        DeltaNet {
            n_head_k: 2,
            n_head_v: 4,
            head_dim_k,
            head_dim_v: 8,
            n_conv,
            norm: Norm { eps: 1e-6 },
        }
    }

    #[test]
    fn bytes_are_those_of_the_convolution_and_of_the_heads() {
        assert_eq!(n_bytes(&net(4, 16)), Some(4 * (3 * (2 * 2 * 16 + 32) + 32 * 16)));
        assert_eq!(n_bytes(&net(1, 16)), Some(4 * 32 * 16));
    }

    #[test]
    fn sizes_that_no_number_holds_are_none() {
        // All within the ranges of their metadata keys.
        let wide = DeltaNet {
            n_head_k: 1 << 16,
            ..net(1 << 24, 1 << 24)
        };
        assert_eq!(n_bytes(&wide), None);
        assert_eq!(n_bytes(&net(usize::MAX, 1)), None);
        assert_eq!(n_bytes(&net(1, usize::MAX >> 6)), None);
    }

    #[test]
    fn a_plan_with_such_sizes_is_refused() {
        let plan = |ssm_conv_kernel, ssm_state_size| {
            let h = HParams {
                n_vocab: 1,
                n_embd: 1,
                n_layer: 2,
                n_head: 1,
                n_head_kv: 1,
                head_dim_k: 1,
                head_dim_v: 1,
                n_expert: 1,
                n_expert_used: 1,
                n_ff_exp: 1,
                ssm_conv_kernel,
                ssm_state_size,
                ssm_group_count: 1 << 16,
                ssm_time_step_rank: 1 << 16,
                ssm_inner_size: 1 << 24,
                ..HParams::default()
            };
            let spec = arch::by_name("qwen3next").and_then(|arch| arch.model(&h));
            MemoryPlan::of(&spec.expect("sound sizes"), &Settings::default())
        };
        let message = plan(1 << 24, 1 << 24).expect_err("refused").to_string();
        assert!(message.contains("more memory than can be addressed"), "{message}");
        let state = 3 * (2 * (1 << 16) * 128 + (1 << 24)) + (1 << 24) * 128;
        let planned = plan(4, 128).expect("large, but a number");
        assert_eq!(planned.kv, 2 * 4 * state);
    }
}

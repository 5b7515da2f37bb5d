//! A view of the activations that meet each weight, for collectors of importance data.

use gguf_models::spec::Mixer;

use crate::Model;
use crate::model::{MixerWeights, MlaKvWeights, MlaWeights, Tensor};

/// The f32 activation rows in front of one matrix product.
///
/// Rows are in the order of the batch's tokens. A batch that is evaluated in several micro-batches is seen
/// once for each of them.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A plain weight: every row is multiplied with the one matrix.
    Dense {
        /// `n` rows of `n_cols` elements, row after row.
        rows: &'a [f32],
        /// Elements of a row: the weight's row length.
        n_cols: usize,
    },
    /// A weight with a matrix for each head: every token meets each matrix with the part of its row that belongs to
    /// the head.
    Heads {
        /// A row of `n_head * n_cols` elements a token, head after head.
        rows: &'a [f32],
        /// Elements of a head's part: the weight's row length.
        n_cols: usize,
        /// Matrices.
        n_head: usize,
    },
    /// A stack of experts, of which each row meets a few.
    Experts {
        /// Rows of `n_cols` elements, row after row: one a token in front of gate and up, one a (token,
        /// expert) pair in front of down.
        rows: &'a [f32],
        /// Elements of a row: the weight's row length.
        n_cols: usize,
        /// Row of each pair, pairs sorted by expert and, for one expert, by token.
        source: &'a [u32],
        /// Pairs `group_starts[e] .. group_starts[e + 1]` belong to expert `e`; one entry more than there
        /// are experts.
        group_starts: &'a [usize],
        /// Token of each pair, counted in the micro-batch.
        tokens: &'a [u32],
    },
}

impl<'a> Input<'a> {
    /// Rows that meet a matrix, counted once for each product: tokens, or (token, expert) pairs.
    pub fn n_products(&self) -> usize {
        match self {
            Self::Dense { rows, n_cols } | Self::Heads { rows, n_cols, .. } => rows.len() / n_cols,
            Self::Experts { source, .. } => source.len(),
        }
    }

    /// All rows and their length, those of heads taken apart.
    pub fn rows(&self) -> (&'a [f32], usize) {
        match *self {
            Self::Dense { rows, n_cols }
            | Self::Heads { rows, n_cols, .. }
            | Self::Experts { rows, n_cols, .. } => (rows, n_cols),
        }
    }
}

/// Sees the input of every matrix product of a forward pass, before the product, in the order of evaluation.
///
/// The router, the output matrix and the experts' weights are included; the embedding look-up and attention
/// over the cache are no products with a weight. Where several weights share an input (`attn_q`, `attn_k`,
/// `attn_v`), each is reported.
///
/// Latent attention goes by one of two layouts of the same numbers, `attn_kv_b` or `attn_k_b` and `attn_v_b`; the
/// inputs of all three are reported whichever the file has, but for `attn_v_b` of a file with `attn_kv_b`, which needs
/// [`crate::Settings::latent_inputs`].
pub trait Observe {
    /// `tensor` is the weight's name in the file, for instance `blk.0.ffn_down_exps.weight`. With tied
    /// embeddings the output matrix goes by the name of the tensor that is used, `token_embd.weight`.
    fn input(&mut self, tensor: &str, input: Input<'_>);

    /// The same for a weight that meets just the input that `first` was reported with before.
    fn same_input(&mut self, tensor: &str, first: &str, input: Input<'_>) {
        let _ = first;
        self.input(tensor, input);
    }

    /// The share of the tokens, 0 to 1, that every expert is to be shown, beside those that are routed to it. What is
    /// routed stays as it is. Tokens are chosen by their positions.
    fn share_for_all_experts(&self) -> f64 {
        0.0
    }
}

/// Names under which inputs were reported since they last changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reported {
    /// As [`Input::Dense`].
    dense: Option<String>,
    /// As [`Input::Experts`].
    experts: Option<String>,
}

impl Reported {
    pub(crate) fn clear(&mut self) {
        (self.dense, self.experts) = (None, None);
    }

    /// Shows an input, and says with which weight it was shown before.
    pub(crate) fn show(&mut self, to: &mut dyn Observe, tensor: &str, input: Input<'_>) {
        let before = match input {
            Input::Experts { .. } => &mut self.experts,
            Input::Dense { .. } | Input::Heads { .. } => &mut self.dense,
        };
        match before {
            Some(first) if first != tensor => to.same_input(tensor, first, input),
            _ => {
                to.input(tensor, input);
                *before = Some(tensor.to_owned());
            }
        }
    }
}

/// A weight whose input an [`Observe`] sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed<'a> {
    /// Its name, also if the file has the same numbers in another layout.
    pub name: &'a str,
    /// Elements of its row; for a matrix a head, of the rows of all heads.
    pub n_cols: usize,
    /// Experts, or 1.
    pub n_experts: usize,
}

impl Model {
    /// The weights whose inputs an [`Observe`] sees, layer after layer, the output matrix last.
    pub fn observed(&self) -> Vec<Observed<'_>> {
        let mut out = Vec::new();
        for layer in &self.parts.layers {
            let latent = match &layer.mixer {
                MixerWeights::Mla(w) => Some(w),
                _ => None,
            };
            let in_file = latent.map_or_else(Vec::new, |w| w.kv.matrices());
            let others = layer.matrices().into_iter();
            let others = others.filter(|t| !in_file.iter().any(|l| std::ptr::eq(*l, *t)));
            out.extend(others.map(plain));
            out.extend(latent.into_iter().flat_map(of_both_layouts));
        }
        out.push(plain(&self.parts.output));
        out
    }

    /// Whether a pass with [`crate::Settings::latent_inputs`] reports more than one without.
    pub fn has_latent_inputs(&self) -> bool {
        let mixers = self.spec().layers.iter().map(|l| l.mixer);
        mixers
            .into_iter()
            .any(|m| matches!(m, Mixer::Mla(m) if !m.absorbed))
    }
}

fn plain(t: &Tensor) -> Observed<'_> {
    Observed {
        name: &t.name,
        n_cols: t.n_cols,
        n_experts: t.n_mats,
    }
}

/// The weights of keys and values of latent attention, in both layouts.
fn of_both_layouts(w: &MlaWeights) -> [Observed<'_>; 3] {
    let (rank, n_head) = (w.spec.kv_lora_rank, w.spec.n_head);
    let (kv_b, k_b, v_b) = match &w.kv {
        MlaKvWeights::Absorbed { k_b, v_b, kv_b } => (kv_b, &k_b.name, &v_b.name),
        MlaKvWeights::Expanded { kv_b, k_b, v_b } => (&kv_b.name, k_b, v_b),
    };
    let n_cols = [(kv_b, rank), (k_b, n_head * w.spec.n_nope), (v_b, n_head * rank)];
    n_cols.map(|(name, n_cols)| Observed {
        name,
        n_cols,
        n_experts: 1,
    })
}

//! A view of the activations that meet each weight, for collectors of importance data.

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
    },
}

impl Input<'_> {
    /// Rows that meet a matrix, counted once for each product: tokens, or (token, expert) pairs.
    pub fn n_products(&self) -> usize {
        match self {
            Self::Dense { rows, n_cols } => rows.len() / n_cols,
            Self::Experts { source, .. } => source.len(),
        }
    }
}

/// Sees the input of every matrix product of a forward pass, before the product, in the order of evaluation.
///
/// The router, the output matrix and the experts' weights are included; the embedding look-up and attention
/// over the cache are no products with a weight. Where several weights share an input (`attn_q`, `attn_k`,
/// `attn_v`), each is reported.
pub trait Observe {
    /// `tensor` is the weight's name in the file, for instance `blk.0.ffn_down_exps.weight`. With tied
    /// embeddings the output matrix goes by the name of the tensor that is used, `token_embd.weight`.
    fn input(&mut self, tensor: &str, input: Input<'_>);
}

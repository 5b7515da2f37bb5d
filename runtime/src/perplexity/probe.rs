//! A base file without a model.

use std::sync::Arc;

use gguf::source::Source;
use gguf_cli::Result;

use super::base::BaseFile;
use super::rows::{self, Beside};
use super::run::require_finite;
use super::tally::Tally;
use crate::chunks::{ChunkRows, ChunkSettings, Chunks};

/// Reads a whole base file beside a model of `n_vocab` tokens whose logits are small whole numbers: for the tests of
/// what a damaged file leads to.
///
/// # Errors
/// What `gguf-perplexity` refuses.
#[doc(hidden)]
pub fn read_base(source: Arc<dyn Source>, n_vocab: usize) -> Result<()> {
    let path = source.path().to_owned();
    let file = BaseFile::from_source(source, n_vocab)?;
    let settings = ChunkSettings {
        n_ctx: file.n_ctx,
        n_batch: file.n_ctx,
        limit: None,
    };
    let chunks = Chunks::of_whole(file.tokens.clone(), settings, None)?;
    let logits: Vec<f32> = (0..n_vocab).map(|i| (i % 5) as f32).collect();
    let (mut tally, mut records, mut next) = (Tally::compared(), Vec::new(), 0);
    for place in (0..chunks.n_chunks()).flat_map(|chunk| chunks.scored().map(move |pos| (chunk, pos))) {
        file.read_rows(next, 1, &mut records)?;
        next += 1;
        let block = ChunkRows {
            places: &[place],
            rows: &logits,
            n_vocab,
        };
        for score in rows::score(&block, &chunks, Beside::Coded(&records, &path, file.form))? {
            tally.add(score, 1);
        }
    }
    require_finite(&tally)
}

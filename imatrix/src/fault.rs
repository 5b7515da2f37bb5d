//! What is said of numbers that are not finite.

use gguf::GgufFile;
use gguf_cli::Failure;
use gguf_models::component::layer_of;
use gguf_runtime::{BadWeight, Error};

use crate::collect::Fault;

impl Fault {
    /// Where it was met, for a text in chunks of `n_ctx` tokens, and the weight that is to blame, if one is.
    pub(crate) fn describe(&self, n_ctx: usize, file: &GgufFile) -> String {
        let chunk = self.token / n_ctx as u64 + 1;
        let place = layer_of(&self.tensor).map_or_else(String::new, |l| format!(", layer {l}"));
        let expert = self.expert.map_or_else(String::new, |e| format!(", expert {e}"));
        let origin = blame(file, layer_of(&self.tensor));
        format!(
            "chunk {chunk}{place}: input of tensor `{}`{expert}, column {}: expected a finite number, found {}; \
             {origin}",
            self.tensor, self.column, self.value
        )
    }
}

/// What becomes of an evaluation's error: the weight that is to blame goes with numbers that are not finite.
pub(crate) fn explain(e: Error, file: &GgufFile) -> Failure {
    let last = match e {
        Error::NonFinite { .. } => None,
        Error::NonFiniteState { layer, .. } => Some(layer),
        e => return e.into(),
    };
    Failure::Input(format!("{e}; {}", blame(file, last)))
}

/// The weight to blame for a number behind some of the layers up to `last`, or of all, in a phrase.
fn blame(file: &GgufFile, last: Option<usize>) -> String {
    BadWeight::first(file, last).map_or_else(
        || "all weights up to there are finite".to_owned(),
        |weight| format!("the model's {weight}"),
    )
}

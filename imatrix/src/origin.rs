//! What a matrix says of its model, text and program.

use gguf::GgufFile;
use gguf::digest::Digest;
use gguf_cli::{Failure, Result};
use gguf_imatrix_format::{Origin, OriginModel};
use gguf_models::Identity;

/// The origin of a matrix made with a model on a text.
pub(crate) fn of(model: &GgufFile, text: &str) -> Result<Origin> {
    let identity =
        Identity::of(model).map_err(|e| Failure::Input(format!("`{}`: {e}", model.path().display())))?;
    Ok(Origin {
        model: Some(OriginModel {
            architecture: identity.architecture,
            fingerprint: identity.fingerprint,
            settings: identity.settings,
        }),
        texts: vec![Digest::of(text.as_bytes()).to_string()],
        tool: concat!("gguf-imatrix ", env!("CARGO_PKG_VERSION")).to_owned(),
    })
}

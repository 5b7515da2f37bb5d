//! What a matrix says of its model, text and program.

use gguf::digest::Digest;
use gguf::{GgufFile, listed, short};
use gguf_cli::{Failure, Result, printable};
use gguf_imatrix_format::{Imatrix, Origin, OriginModel};
use gguf_models::{Identity, identity};

/// Settings in which two models differ that a message names.
const N_SHOWN: usize = 8;

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

/// How the models of two matrices differ, in a phrase; `None` if both come out as the same forward pass.
pub(crate) fn difference(a: &OriginModel, b: &OriginModel) -> Option<String> {
    if (&a.architecture, &a.fingerprint) != (&b.architecture, &b.fingerprint) {
        return Some("different models".to_owned());
    }
    let shown =
        |v: Option<String>| v.map_or_else(|| "nothing".to_owned(), |v| printable(&short(&v)).into_owned());
    let told: Vec<String> = identity::differences_between(&a.architecture, &a.settings, &b.settings)
        .into_iter()
        .map(|d| {
            format!(
                "key `{}`: {} and {}",
                printable(&short(&d.key)),
                shown(d.given),
                shown(d.found)
            )
        })
        .collect();
    let phrase = || {
        format!(
            "different settings of one model, {}",
            listed(&told, N_SHOWN, ", ")
        )
    };
    (!told.is_empty()).then(phrase)
}

/// Says the settings of `other`'s model in the words of `first`, if both come out as the same forward pass: the format
/// compares texts.
pub(crate) fn align(first: Option<&OriginModel>, other: &mut Imatrix) {
    let model = other.origin.as_mut().and_then(|o| o.model.as_mut());
    if let (Some(first), Some(model)) = (first, model)
        && difference(first, model).is_none()
    {
        model.settings.clone_from(&first.settings);
    }
}

//! Where a matrix comes from: keys that other tools' files lack and that their readers pass over.

use gguf::{Array, Metadata, Value};

use crate::Result;

const ARCHITECTURE: &str = "imatrix.model.architecture";
const FINGERPRINT: &str = "imatrix.model.fingerprint";
const SETTINGS: &str = "imatrix.model.settings";
const TEXTS: &str = "imatrix.text.sha256";
const TOOL: &str = "imatrix.tool";

/// What a matrix was made of. It holds no path and no name of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The model; `None` if files of several were merged, or of some that is not known.
    pub model: Option<OriginModel>,
    /// SHA-256 of each calibration text in hexadecimal digits.
    pub texts: Vec<String>,
    /// Name and version of the program.
    pub tool: String,
}

/// The model that a matrix was made with, so that its quantized files can be known again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginModel {
    /// Value of `general.architecture`.
    pub architecture: String,
    /// What tells its weights apart, whatever their types.
    pub fingerprint: String,
    /// `key=value` of what decides how its forward pass uses the weights, sorted.
    pub settings: Vec<String>,
}

impl Origin {
    /// Reads the keys; `None` if there is none of them.
    pub(crate) fn read(metadata: &Metadata) -> Result<Option<Self>> {
        let text = |key: &str| metadata.string(key).map(|s| s.map(str::to_owned));
        let texts = |key: &str| metadata.strings(key).map(|s| s.map(gguf::Strings::to_vec));
        let model = match (text(ARCHITECTURE)?, text(FINGERPRINT)?, texts(SETTINGS)?) {
            (Some(architecture), Some(fingerprint), settings) => Some(OriginModel {
                architecture,
                fingerprint,
                settings: settings.unwrap_or_default(),
            }),
            _ => None,
        };
        let (found, tool) = (texts(TEXTS)?, text(TOOL)?);
        if model.is_none() && found.is_none() && tool.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            model,
            texts: found.unwrap_or_default(),
            tool: tool.unwrap_or_default(),
        }))
    }

    /// Adds the keys.
    pub(crate) fn write(&self, metadata: &mut Metadata) {
        let strings = |list: &[String]| Value::Array(Array::String(list.iter().collect()));
        if let Some(model) = &self.model {
            metadata.set(ARCHITECTURE, Value::String(model.architecture.clone()));
            metadata.set(FINGERPRINT, Value::String(model.fingerprint.clone()));
            metadata.set(SETTINGS, strings(&model.settings));
        }
        metadata.set(TEXTS, strings(&self.texts));
        metadata.set(TOOL, Value::String(self.tool.clone()));
    }
}

//! Whether a model has what its architecture needs.
//!
//! An architecture that this build describes is compared tensor by tensor. Of all others the checks are those that
//! hold for every model of language: see [`Generic`].

use gguf::validate::{Finding, Findings};
use gguf::{GgufFile, Value, key, short};
use gguf_models::{Attributes, arch, file_type};

use super::generic::Generic;

pub(super) const CONVERT: &str = "convert the model again";

pub(super) fn check(file: &GgufFile, findings: &mut Findings) {
    let metadata = &file.metadata;
    let Some(attributes) = Attributes::of(metadata) else {
        return;
    };
    let is_model = metadata.get(key::TYPE).is_none_or(|t| *t == Value::from("model"));
    if !(is_model && is_whole(file)) {
        return;
    }
    if file.tensors.is_empty() {
        if !metadata.contains(key::TOKENS) {
            let what = "expected tensors, found none, nor a vocabulary";
            findings.one(Finding::severe("file", None, what, CONVERT));
        }
        return;
    }
    let mut is_sound = true;
    if arch::by_name(attributes.architecture()).is_ok() {
        match arch::describe(metadata) {
            Ok((arch, hparams)) => {
                for f in gguf_models::check(file, arch, &hparams) {
                    is_sound &= !f.severe;
                    let kind = if f.severe {
                        "tensors that are missing or of another shape"
                    } else {
                        "tensors that the architecture does not have"
                    };
                    findings.push(kind, || Finding {
                        object: format!("tensor `{}`", short(&f.object)),
                        ..f
                    });
                }
            }
            Err(e) => {
                is_sound = false;
                findings.one(Finding::severe("metadata", None, e.to_string(), CONVERT));
            }
        }
    }
    if is_sound {
        Generic::new(file, attributes).check(findings);
    }
    check_file_type(file, findings);
    check_quantization_version(file, findings);
}

/// Whether nothing of the model is missing; a shard that was opened alone is not all of it.
fn is_whole(file: &GgufFile) -> bool {
    file.is_complete() && (file.parts().len() > 1 || !file.first().split.is_shard())
}

/// Whether the tensors are what `general.file_type` says, as far as a mixture can be told.
fn check_file_type(file: &GgufFile, findings: &mut Findings) {
    let Some(id) = file.metadata.get(key::FILE_TYPE).and_then(Value::to_uint) else {
        return;
    };
    let object = Finding::key(key::FILE_TYPE);
    let id = u32::try_from(id).unwrap_or(u32::MAX);
    if file_type::name_of(id).is_none() {
        let what = format!("file type {id} is not known to this build");
        let remedy = "nothing, unless the number is wrong";
        findings.one(Finding::unusual(object, None, what, remedy));
        return;
    }
    let totals = crate::show::Totals::of(file);
    let types = totals.bytes_by_type();
    if let Some(known) = file_type::by_id(id)
        && !known.fits(&types)
    {
        let mostly = types.first().map_or("nothing", |(name, _)| name);
        let what = format!(
            "the key says `{}`, but most bytes of the tensors are {mostly}",
            known.name
        );
        let remedy = "set the key to what the tensors are, unless their rows do not fit the type";
        findings.one(Finding::unusual(object, None, what, remedy));
    }
}

/// The layout of quantized blocks has a version, which writers note.
fn check_quantization_version(file: &GgufFile, findings: &mut Findings) {
    let quantized = |t: &gguf::TensorInfo| t.format().is_some_and(|f| f.geometry.block_elems > 1);
    let version = file.metadata.get(key::QUANTIZATION_VERSION);
    let found = match version {
        None if file.tensors.iter().any(quantized) => {
            "expected 2, found nothing, beside quantized tensors".to_owned()
        }
        None => return,
        Some(version) => match version.to_uint() {
            Some(other) if other != 2 => format!("expected 2, found {other}"),
            // Another type is a finding already.
            _ => return,
        },
    };
    let object = Finding::key(key::QUANTIZATION_VERSION);
    let remedy = "quantize the model again, if it comes from before 2023";
    findings.one(Finding::unusual(object, None, found, remedy));
}

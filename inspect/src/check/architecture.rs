//! Whether a model has what its architecture needs.
//!
//! An architecture that this build describes is compared tensor by tensor. Of all others the checks are those that
//! hold for every decoder: the keys that loaders read first, the embedding's shape, no layer missing or left over,
//! experts as many as the keys say.

use std::collections::BTreeSet;

use gguf::validate::Finding;
use gguf::{Array, GgufFile, TensorInfo, Value, key};
use gguf_models::component::{Component, split_layer};
use gguf_models::{arch, file_type};

const CONVERT: &str = "convert the model again";

/// Keys that every loader of a decoder needs, without the architecture in front.
const REQUIRED: &[&str] = &["context_length", "embedding_length", "block_count"];

pub(super) fn check(file: &GgufFile, findings: &mut Vec<Finding>) {
    let metadata = &file.metadata;
    let Some(Value::String(name)) = metadata.get(key::ARCHITECTURE) else {
        return;
    };
    let is_model = metadata.get(key::TYPE).is_none_or(|t| *t == Value::from("model"));
    let is_whole = file.missing().is_empty() && (file.parts().len() > 1 || !file.first().split.is_shard());
    if !(is_model && is_whole) {
        return;
    }
    if file.tensors.is_empty() {
        if !metadata.contains(key::TOKENS) {
            let what = "expected tensors, found none, nor a vocabulary";
            findings.push(Finding::severe("file", None, what, CONVERT));
        }
        return;
    }
    let n = findings.len();
    let described = arch::all().iter().any(|a| a.name == name);
    if described {
        match arch::describe(metadata) {
            Ok((arch, hparams)) => findings.extend(gguf_models::check(file, arch, &hparams)),
            Err(e) => findings.push(Finding::severe("metadata", None, e.to_string(), CONVERT)),
        }
    }
    if findings[n..].iter().all(|f| !f.severe) {
        Generic { file, name }.check(findings);
    }
    check_file_type(file, findings);
}

/// The checks of an architecture that is known by name only.
struct Generic<'a> {
    file: &'a GgufFile,
    name: &'a str,
}

impl Generic<'_> {
    fn check(&self, findings: &mut Vec<Finding>) {
        // An encoder or a diffusion model under an architecture's name has no token embedding.
        let Some(embedding) = self.file.tensor("token_embd.weight") else {
            if self.file.tensors.iter().any(|t| split_layer(&t.name).is_some()) {
                let what = "expected a token embedding, found none";
                let remedy = "convert the model again, unless it is no language model";
                findings.push(Finding::severe("tensor `token_embd.weight`", None, what, remedy));
            }
            return;
        };
        for key in REQUIRED {
            if self.uint(key).is_none() {
                let what = "expected an unsigned integer, found nothing: no program can load the model";
                findings.push(Finding::severe(self.key(key), None, what, CONVERT));
            }
        }
        self.check_embedding(embedding, findings);
        self.check_layers(findings);
        self.check_experts(findings);
        if self.file.tensor("output_norm.weight").is_none() && self.file.tensor("output_norm.bias").is_none()
        {
            let what = "expected the norm in front of the output, found none";
            findings.push(Finding::unusual(
                "tensor `output_norm.weight`",
                None,
                what,
                CONVERT,
            ));
        }
    }

    fn key(&self, rest: &str) -> String {
        format!("key `{}.{rest}`", self.name)
    }

    /// The number of a key; of one number a layer the largest.
    fn uint(&self, rest: &str) -> Option<u64> {
        match self.file.metadata.get(&format!("{}.{rest}", self.name))? {
            Value::Array(array) => array.to_uints()?.into_iter().max(),
            value => value.to_uint(),
        }
    }

    fn check_embedding(&self, embedding: &TensorInfo, findings: &mut Vec<Finding>) {
        let n_embd = self.uint("embedding_length");
        if n_embd.is_some_and(|n| n != embedding.shape.n_cols()) {
            let what = format!(
                "expected rows of {} (`{}.embedding_length`), found {}",
                n_embd.unwrap_or(0),
                self.name,
                embedding.shape.n_cols()
            );
            findings.push(Finding::severe("tensor `token_embd.weight`", None, what, CONVERT));
        }
        let Some(Value::Array(Array::String(tokens))) = self.file.metadata.get(key::TOKENS) else {
            return;
        };
        let matrices = ["token_embd.weight", "output.weight"];
        for tensor in matrices.iter().filter_map(|name| self.file.tensor(name)) {
            let n_rows = tensor.shape.dim(1);
            if n_rows != tokens.len() as u64 {
                let what = format!(
                    "expected a row for each of {} tokens, found {n_rows}",
                    tokens.len()
                );
                let finding = Finding::severe(format!("tensor `{}`", tensor.name), None, what, CONVERT);
                findings.push(finding);
            }
        }
    }

    fn check_layers(&self, findings: &mut Vec<Finding>) {
        let Some(n) = self.uint("block_count") else {
            return;
        };
        let found: BTreeSet<u64> = self
            .file
            .tensors
            .iter()
            .filter_map(|t| Some(u64::from(split_layer(&t.name)?.0)))
            .collect();
        let missing = n - (found.range(..n).count() as u64).min(n);
        if n == 0 || missing > 0 {
            let first = (0..n).find(|layer| !found.contains(layer)).unwrap_or(0);
            let what = if n == 0 {
                "expected layers, found 0".to_owned()
            } else {
                format!("{missing} of {n} layers have no tensors, the first is layer {first}")
            };
            findings.push(Finding::severe(self.key("block_count"), None, what, CONVERT));
        }
        if let Some(beyond) = found.range(n..).next() {
            let what = format!("expected layers below {n}, found tensors of layer {beyond}");
            findings.push(Finding::severe(self.key("block_count"), None, what, CONVERT));
        }
    }

    fn check_experts(&self, findings: &mut Vec<Finding>) {
        let (n, used) = (
            self.uint("expert_count").unwrap_or(0),
            self.uint("expert_used_count"),
        );
        if used.is_some_and(|used| used > n) {
            let what = format!("expected at most {n} experts, found {}", used.unwrap_or(0));
            findings.push(Finding::severe(
                self.key("expert_used_count"),
                None,
                what,
                CONVERT,
            ));
        }
        for tensor in &self.file.tensors {
            let stacked = Component::of(&tensor.name) == Component::Experts && tensor.shape.dims().len() == 3;
            if stacked && tensor.shape.dim(2) != n {
                let what = format!(
                    "expected {n} experts (`{}.expert_count`), found {}",
                    self.name,
                    tensor.shape.dim(2)
                );
                findings.push(Finding::severe(
                    format!("tensor `{}`", tensor.name),
                    None,
                    what,
                    CONVERT,
                ));
                return;
            }
        }
    }
}

/// Whether the tensors are what `general.file_type` says, as far as a mixture can be told by its main type.
fn check_file_type(file: &GgufFile, findings: &mut Vec<Finding>) {
    let Some(id) = file.metadata.get(key::FILE_TYPE).and_then(Value::to_uint) else {
        return;
    };
    let Some(known) = u32::try_from(id).ok().and_then(file_type::by_id) else {
        let what = format!("file type {id} is not known to this build");
        let remedy = "nothing, unless the number is wrong";
        findings.push(Finding::unusual(
            format!("key `{}`", key::FILE_TYPE),
            None,
            what,
            remedy,
        ));
        return;
    };
    if !file.tensors.iter().any(|t| t.type_name() == known.base) {
        let what = format!(
            "the key says `{}`, but no tensor is {}: rows that do not fit the type, or a wrong key",
            known.name, known.base
        );
        let remedy = "set the key to the type that most tensors have";
        findings.push(Finding::unusual(
            format!("key `{}`", key::FILE_TYPE),
            None,
            what,
            remedy,
        ));
    }
}

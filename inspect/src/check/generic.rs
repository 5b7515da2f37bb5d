//! Checks that hold for every model of language, whatever its architecture: the keys that loaders read first and
//! their ranges, the embedding's shape, no layer missing or left over, experts as many as the keys say.

use std::collections::BTreeSet;

use gguf::validate::{Finding, Findings};
use gguf::{Array, GgufFile, TensorInfo, Value, key, short};
use gguf_models::attributes::PerLayer;
use gguf_models::component::{Component, split_layer};
use gguf_models::{Attributes, keys};

use super::architecture::CONVERT;

/// Keys that every loader needs, without the architecture in front.
const REQUIRED: &[&str] = &["context_length", "embedding_length", "block_count"];

/// One of them stands for every norm of the model.
const EPSILONS: &[&str] = &[
    "attention.layer_norm_rms_epsilon",
    "attention.layer_norm_epsilon",
    "attention.group_norm_epsilon",
];

/// Models that encode before they decode number the layers of each half from 0.
const HALVES: &[&str] = &["enc.", "dec."];

/// A model and its architecture's keys.
pub(super) struct Generic<'a> {
    file: &'a GgufFile,
    attributes: Attributes<'a>,
}

impl<'a> Generic<'a> {
    pub(super) fn new(file: &'a GgufFile, attributes: Attributes<'a>) -> Self {
        Self { file, attributes }
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        self.check_floats(findings);
        // A projector or a diffusion model under an architecture's name has no token embedding.
        let Some(embedding) = self.file.tensor("token_embd.weight") else {
            if self.file.tensors.iter().any(|t| split_layer(&t.name).is_some()) {
                let what = "expected a token embedding, found none";
                let remedy = "convert the model again, unless it is no language model";
                findings.one(Finding::severe("tensor `token_embd.weight`", None, what, remedy));
            }
            return;
        };
        self.check_numbers(findings);
        self.check_heads(findings);
        self.check_epsilon(findings);
        self.check_embedding(embedding, findings);
        self.check_layers(findings);
        self.check_experts(findings);
        self.check_norm(findings);
    }

    fn object(&self, own: &str) -> String {
        Finding::key(&self.attributes.key(own))
    }

    fn severe(&self, own: &str, what: impl Into<String>) -> Finding {
        Finding::severe(self.object(own), None, what, CONVERT)
    }

    /// A finding about a tensor, at its place.
    fn tensor(&self, tensor: &TensorInfo, what: String) -> Finding {
        let at = Some(self.file.tensor_range(tensor).start);
        Finding {
            part: tensor.part,
            ..Finding::severe(format!("tensor `{}`", short(&tensor.name)), at, what, CONVERT)
        }
    }

    /// The largest number of a key that is given once or for each layer.
    fn uint(&self, own: &str) -> Option<u64> {
        self.attributes.largest(own)
    }

    fn check_numbers(&self, findings: &mut Findings) {
        for own in REQUIRED {
            match self.uint(own) {
                Some(1..) => {}
                Some(0) => findings.one(self.severe(own, "expected at least 1, found 0")),
                // Another type is a finding of the table of keys.
                None if self.attributes.get(own).is_some() => {}
                None => {
                    let what = "expected an unsigned integer, found nothing: no program can load the model";
                    findings.one(self.severe(own, what));
                }
            }
        }
    }

    /// Every number of the architecture is finite, and norms add a number above 0.
    fn check_floats(&self, findings: &mut Findings) {
        let prefix = self.attributes.key("");
        for (key, value) in self.file.metadata.iter() {
            let Some(own) = key.strip_prefix(&prefix) else {
                continue;
            };
            let x = match *value {
                Value::F32(x) => f64::from(x),
                Value::F64(x) => x,
                _ => continue,
            };
            if !x.is_finite() {
                findings.push("keys with a number that is not finite", || {
                    self.severe(own, format!("expected a finite number, found {x}"))
                });
            } else if EPSILONS.contains(&own) && x <= 0.0 {
                findings.one(self.severe(own, format!("expected a number above 0, found {x}")));
            }
        }
    }

    fn check_heads(&self, findings: &mut Findings) {
        let attends = self.file.tensors.iter().any(|t| {
            let stem = split_layer(&t.name).map_or("", |(_, stem)| stem);
            ["attn_q.", "attn_qkv.", "attn_q_a."]
                .iter()
                .any(|s| stem.starts_with(s))
        });
        let heads = "attention.head_count";
        if attends && self.attributes.get(heads).is_none() {
            findings.one(self.severe(heads, "expected the number of attention heads, found nothing"));
        } else if attends && self.uint(heads) == Some(0) {
            findings.one(self.severe(heads, "expected at least 1, found 0"));
        }
        let Some(n_layer) = self.uint("block_count").filter(|&n| n > 0) else {
            return;
        };
        for own in [heads, "attention.head_count_kv", "feed_forward_length"] {
            if let Some(PerLayer::Each(all)) = self.attributes.per_layer(own)
                && all.len() as u64 != n_layer
            {
                let what = format!(
                    "expected one number for each of {n_layer} layers, found {}",
                    all.len()
                );
                findings.one(self.severe(own, what));
            }
        }
        if let (Some(PerLayer::All(q)), Some(PerLayer::All(kv))) =
            (self.attributes.per_layer(heads), self.attributes.head_count_kv())
            && kv > 0
            && !q.is_multiple_of(kv)
        {
            let what = format!("expected a divisor of the {q} heads of queries, found {kv}");
            findings.one(self.severe("attention.head_count_kv", what));
        }
    }

    fn check_epsilon(&self, findings: &mut Findings) {
        let has_norms = self
            .file
            .tensors
            .iter()
            .any(|t| Component::of(&t.name) == Component::Norm);
        if has_norms && EPSILONS.iter().all(|own| self.attributes.get(own).is_none()) {
            let what = "expected the number that norms add, here or in `layer_norm_epsilon`, found nothing";
            findings.one(self.severe(EPSILONS[0], what));
        }
    }

    fn check_embedding(&self, embedding: &TensorInfo, findings: &mut Findings) {
        if let Some(n_embd) = self.uint("embedding_length")
            && n_embd != embedding.shape.n_cols()
        {
            let what = format!(
                "expected rows of {n_embd} (`{}`), found {}",
                self.attributes.key("embedding_length"),
                embedding.shape.n_cols()
            );
            findings.one(self.tensor(embedding, what));
        }
        // Without tokens there is only a number, which no loader compares.
        let (n_vocab, severe) = match self.file.metadata.get(key::TOKENS) {
            Some(Value::Array(Array::String(tokens))) => (tokens.len() as u64, true),
            _ => match self.uint("vocab_size") {
                Some(n) => (n, false),
                None => return,
            },
        };
        let matrices = ["token_embd.weight", "output.weight"];
        for tensor in matrices.iter().filter_map(|name| self.file.tensor(name)) {
            let n_rows = tensor.shape.dim(1);
            if n_rows != n_vocab {
                let what = format!("expected a row for each of {n_vocab} tokens, found {n_rows}");
                let finding = self.tensor(tensor, what);
                findings.one(Finding { severe, ..finding });
            }
        }
    }

    fn check_layers(&self, findings: &mut Findings) {
        let in_halves = |t: &TensorInfo| HALVES.iter().any(|h| t.name.starts_with(h));
        if self.file.tensors.iter().any(in_halves) {
            return;
        }
        let Some(n) = self.uint("block_count").filter(|&n| n > 0) else {
            return;
        };
        let layer_of = |t: &TensorInfo| split_layer(&t.name).map(|(layer, _)| u64::from(layer));
        let found: BTreeSet<u64> = self.file.tensors.iter().filter_map(layer_of).collect();
        if let Some(&beyond) = found.range(n..).next()
            && let Some(tensor) = self.file.tensors.iter().find(|t| layer_of(t) == Some(beyond))
        {
            let what = format!(
                "expected layers below {n} (`{}`), found {} beyond, the first is layer {beyond}",
                self.attributes.key("block_count"),
                found.range(n..).count()
            );
            findings.one(self.tensor(tensor, what));
        }
        // Layers that predict further tokens may be announced by their key alone; loaders pass over them.
        let n_main = n - self.uint("nextn_predict_layers").unwrap_or(0).min(n);
        let missing = n_main - found.range(..n_main).count() as u64;
        if missing > 0 {
            // One of the first `found.len() + 1` layers is missing.
            let first = (0..n_main).find(|layer| !found.contains(layer)).unwrap_or(0);
            let what = format!("{missing} of {n_main} layers have no tensors, the first is layer {first}");
            findings.one(self.severe("block_count", what));
        }
    }

    fn check_experts(&self, findings: &mut Findings) {
        let (n, used) = (
            self.uint("expert_count").unwrap_or(0),
            self.uint("expert_used_count").unwrap_or(0),
        );
        if used > n || (n > 0 && used == 0) {
            let what = format!(
                "expected 1 to {n} (`{}`), found {used}",
                self.attributes.key("expert_count")
            );
            findings.one(self.severe("expert_used_count", what));
        }
        let mut wrong = self.file.tensors.iter().filter_map(|t| {
            let stem = split_layer(&t.name)?.1;
            let found = match Component::of(&t.name) {
                Component::Experts if stem.ends_with("_exps.weight") => t.shape.dim(2),
                Component::Router if stem == "ffn_gate_inp.weight" => t.shape.dim(1),
                _ => return None,
            };
            (found != n).then_some((t, found))
        });
        if let Some((tensor, found)) = wrong.next() {
            let more = wrong.count();
            let more = if more > 0 {
                format!("; {more} more tensors differ too")
            } else {
                String::new()
            };
            let key = self.attributes.key("expert_count");
            let what = format!("expected {n} experts (`{key}`), found {found}{more}");
            findings.one(self.tensor(tensor, what));
        }
    }

    /// Decoders have a norm in front of the output; encoders of text have none, but one behind the embedding.
    fn check_norm(&self, findings: &mut Findings) {
        let architecture = keys::architecture(&self.file.metadata);
        let encodes = self.attributes.get("attention.causal") == Some(&Value::Bool(false))
            || self.file.tensor("token_embd_norm.weight").is_some();
        let known = ["output_norm.weight", "output_norm.bias", "dec.output_norm.weight"];
        if !encodes && known.iter().all(|name| self.file.tensor(name).is_none()) {
            let what = format!(
                "expected the norm in front of the output, found none: usual in an encoder, not in `{architecture}`"
            );
            let object = "tensor `output_norm.weight`";
            findings.one(Finding::unusual(object, None, what, CONVERT));
        }
    }
}

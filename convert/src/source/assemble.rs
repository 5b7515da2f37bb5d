//! From the tensors that are stored to the weights that they stand for.
//!
//! Names and formats of the tensors decide which weights are quantized; the checkpoint's settings tell what
//! tensors do not show. A tensor of codes is claimed together with its companions, and what is left must be plain.

use std::collections::HashMap;
use std::sync::Arc;

use super::index::Found;
use super::method::{Form, Method};
use super::safetensors::Entry;
use super::stored::Quantized;
use super::{Dtype, Place, SourceTensor};
use crate::Result;
use crate::error::Error;
use crate::view::Files;

/// Endings of scales of activations and of the KV cache, which no weight needs.
const OF_ACTIVATIONS: &[&str] = &[
    "activation_scale",
    ".input_scale",
    ".input_global_scale",
    ".input_zero_point",
    ".output_scale",
    ".qscale_act",
    ".q_scale",
    ".k_scale",
    ".v_scale",
    ".prob_scale",
    ".k_zero_point",
    ".v_zero_point",
];

/// Endings that belong to codes.
const COMPANIONS: &[&str] = &[
    ".weight_scale",
    ".weight_scale_2",
    ".weight_scale_inv",
    "_proj_scale",
    "_proj_scale_inv",
    ".weight_global_scale",
    ".weight_zero_point",
    ".weight_shape",
    ".weight_g_idx",
    ".qscale_weight",
    ".qzeros",
    ".g_idx",
];

/// The stored tensors on the way to weights.
pub(super) struct Parts<'a> {
    entries: &'a [Entry],
    by_name: HashMap<&'a str, usize>,
    /// Which belong to a weight that was put together.
    claimed: Vec<bool>,
    pub(super) method: Option<&'a Method>,
    pub(super) files: &'a Files,
    /// Stated shapes by a digest of what is equal in tensors that are alike.
    pub(super) stated: HashMap<u64, [u64; 2]>,
    /// Room for a name.
    name: String,
}

/// A weight: its name, shape and numbers.
pub(super) struct Weight {
    pub(super) name: String,
    pub(super) shape: Vec<u64>,
    pub(super) stack: Arc<dyn Quantized>,
}

/// The weights that stored tensors stand for, in the order of files and then of names, with notes for the user.
///
/// # Errors
/// Codes without their companions, companions without codes, and shapes that do not belong together.
pub(super) fn assemble(
    entries: &[Entry],
    found: Found<'_>,
    method: Option<&Method>,
    files: &Files,
) -> Result<(Vec<SourceTensor>, Vec<String>)> {
    let mut parts = Parts {
        by_name: found.by_name,
        claimed: found.copies,
        entries,
        method,
        files,
        stated: HashMap::new(),
        name: String::new(),
    };
    let mut tensors = Vec::with_capacity(entries.len());
    for (i, entry) in entries.iter().enumerate() {
        if parts.claimed[i] {
            continue;
        }
        if let Some(Weight { name, shape, stack }) = parts.weight(entry)? {
            parts.claimed[i] = true;
            let tensor = SourceTensor {
                name,
                dtype: dtype("BF16"),
                shape,
                place: Place::Quantized(stack),
            };
            tensors.push((entry.data.file, tensor));
        }
    }
    let notes = parts.rest(tensors.len())?;
    for (entry, _) in entries
        .iter()
        .zip(&parts.claimed)
        .filter(|(_, claimed)| !**claimed)
    {
        let tensor = SourceTensor {
            name: entry.name.clone(),
            dtype: entry.data.dtype,
            shape: entry.shape.clone(),
            place: Place::Plain(entry.data),
        };
        tensors.push((entry.data.file, tensor));
    }
    tensors.sort_by(|(a_file, a), (b_file, b)| (a_file, &a.name).cmp(&(b_file, &b.name)));
    let tensors: Vec<_> = tensors.into_iter().map(|(_, t)| t).collect();
    if let Some(pair) = tensors.windows(2).find(|pair| pair[0].name == pair[1].name) {
        let object = format!("tensor `{}`", pair[0].name);
        let found = "a plain and a quantized one";
        return Err(Error::mismatch(object, "one form of it", found));
    }
    Ok((tensors, notes))
}

pub(super) fn dtype(name: &str) -> Dtype {
    Dtype::by_name(name).expect("a name of the container's formats")
}

impl<'a> Parts<'a> {
    /// The weight whose codes a tensor is, if it is one's.
    fn weight(&mut self, entry: &'a Entry) -> Result<Option<Weight>> {
        let name = entry.name.as_str();
        let of = entry.data.dtype.name;
        let form = self.method.map(|m| &m.form);
        if COMPANIONS
            .iter()
            .chain(OF_ACTIVATIONS)
            .any(|end| name.ends_with(end))
        {
            return Ok(None);
        }
        if let Some(base) = name.strip_suffix(".qweight") {
            return self.columns(entry, base).map(Some);
        }
        if let Some(weight) = name.strip_suffix("_packed") {
            return match of {
                "U8" => self.nvfp4(entry, weight).map(Some),
                _ => self.packed(entry, weight).map(Some),
            };
        }
        if let (Some(weight), "U8") = (name.strip_suffix("_blocks"), of) {
            return self.mxfp4(entry, weight).map(Some);
        }
        match (of, form) {
            ("F8_E4M3" | "F8_E5M2" | "I8", _) => self.scaled(entry).map(Some),
            ("U8", Some(Form::BitNet)) => self.ternary(entry).map(Some),
            ("U8", Some(Form::ModelOpt)) => self.nvfp4(entry, name).map(Some),
            ("U8", _) if self.by_name.contains_key(format!("{name}_scale_2").as_str()) => {
                self.nvfp4(entry, name).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Takes a companion by the two parts of its name, if it is there.
    pub(super) fn claim(&mut self, base: &str, ending: &str) -> Option<&'a Entry> {
        self.name.clear();
        self.name.push_str(base);
        self.name.push_str(ending);
        let i = *self.by_name.get(self.name.as_str())?;
        self.claimed[i] = true;
        Some(&self.entries[i])
    }

    /// Takes the companion that has one of these names, each in two parts.
    pub(super) fn require(&mut self, of: &Entry, names: &[(&str, &str)]) -> Result<&'a Entry> {
        let found = names.iter().find_map(|(base, ending)| self.claim(base, ending));
        found.ok_or_else(|| {
            let names: Vec<_> = names
                .iter()
                .map(|(base, ending)| format!("`{base}{ending}`"))
                .collect();
            let object = format!("tensor `{}` of {}", of.name, of.data.dtype.name);
            let expected = format!("its companion {}", names.join(" or "));
            Error::mismatch(object, expected, "none; the checkpoint is incomplete")
        })
    }

    /// Looks at what no weight has claimed: companions without codes are an error, scales of activations are left
    /// out.
    fn rest(&mut self, n_weights: usize) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        let is_quantized = n_weights > 0;
        if let (false, Some(method)) = (is_quantized, self.method) {
            notes.push(format!(
                "{} names the method `{}`, but all weights are plain numbers: they are taken as they are",
                method.place, method.name
            ));
        }
        let mut unused = 0;
        for (entry, claimed) in self.entries.iter().zip(&mut self.claimed) {
            let ends = |endings: &[&str]| endings.iter().any(|end| entry.name.ends_with(end));
            if *claimed || !is_quantized && self.method.is_none() {
                continue;
            }
            if ends(OF_ACTIVATIONS) {
                *claimed = true;
                unused += 1;
            } else if ends(COMPANIONS) {
                let object = format!("tensor `{}`", entry.name);
                let found = "none that it fits; the checkpoint is incomplete, or half converted";
                return Err(Error::mismatch(
                    object,
                    "quantized weights that it belongs to",
                    found,
                ));
            }
        }
        if unused > 0 {
            let what = gguf_cli::count(unused, "scale");
            notes.push(format!(
                "left out, as weights do not need them: {what} of activations or of the KV cache"
            ));
        }
        Ok(notes)
    }
}

//! What a file holds, in the form that reports need. The JSON reports are these, serialised.

use std::collections::HashMap;

use gguf::{Endian, GgufFile, Metadata, TensorInfo, Value};
use gguf_blocks::TypeId;
use gguf_models::component::Component;
use serde::Serialize;

use crate::json;

/// Header and place of the data.
#[derive(Debug, Serialize)]
pub(crate) struct Header {
    pub(crate) file: String,
    pub(crate) bytes: u64,
    pub(crate) version: u32,
    pub(crate) endian: &'static str,
    pub(crate) alignment: u64,
    pub(crate) data_offset: u64,
}

impl Header {
    pub(crate) fn of(file: &GgufFile) -> Self {
        Self {
            file: file.path().display().to_string(),
            bytes: file.n_bytes(),
            version: file.first().header.version,
            endian: match file.first().header.endian {
                Endian::Little => "little",
                Endian::Big => "big",
            },
            alignment: file.first().alignment,
            data_offset: file.first().data_offset,
        }
    }
}

/// A metadata pair.
#[derive(Debug, Serialize)]
pub(crate) struct Pair<'a> {
    pub(crate) key: &'a str,
    #[serde(rename = "type")]
    pub(crate) type_name: String,
    #[serde(serialize_with = "json::value")]
    pub(crate) value: &'a Value,
}

pub(crate) fn pairs(metadata: &Metadata) -> Vec<Pair<'_>> {
    metadata
        .iter()
        .map(|(key, value)| Pair {
            key,
            type_name: value.type_name(),
            value,
        })
        .collect()
}

/// A tensor; the offset counts from the start of the file.
#[derive(Debug, Serialize)]
pub(crate) struct Tensor<'a> {
    pub(crate) name: &'a str,
    #[serde(rename = "type")]
    pub(crate) type_name: String,
    pub(crate) type_id: u32,
    /// The part of the model it belongs to.
    pub(crate) component: &'static str,
    /// The file of a split set it stands in, from 0.
    pub(crate) shard: usize,
    /// Row length first.
    pub(crate) shape: &'a [u64],
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) bits_per_weight: Option<f64>,
    pub(crate) aligned: bool,
}

impl<'a> Tensor<'a> {
    fn of(file: &GgufFile, tensor: &'a TensorInfo) -> Self {
        Self {
            name: &tensor.name,
            type_name: tensor.type_name(),
            type_id: tensor.type_id.0,
            component: Component::of(&tensor.name).name(),
            shard: tensor.part,
            shape: tensor.shape.dims(),
            offset: file.tensor_range(tensor).start,
            bytes: tensor.n_bytes,
            bits_per_weight: tensor.bits_per_weight(),
            aligned: tensor.offset.is_multiple_of(file.part(tensor).alignment),
        }
    }
}

pub(crate) fn tensors(file: &GgufFile) -> Vec<Tensor<'_>> {
    file.tensors.iter().map(|t| Tensor::of(file, t)).collect()
}

/// Sums over tensors: of the whole file or of one type. Sums stop at the largest number, which only a hostile
/// file reaches.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Sums {
    pub(crate) tensors: usize,
    pub(crate) parameters: u64,
    pub(crate) bytes: u64,
}

impl Sums {
    pub(crate) fn add(&mut self, tensor: &TensorInfo) {
        self.tensors += 1;
        self.parameters = self.parameters.saturating_add(tensor.shape.n_elems());
        self.bytes = self.bytes.saturating_add(tensor.n_bytes);
    }

    pub(crate) fn bits_per_weight(&self) -> Option<f64> {
        (self.parameters > 0).then(|| self.bytes as f64 * 8.0 / self.parameters as f64)
    }
}

/// Sums over all tensors and by type.
#[derive(Debug, Serialize)]
pub(crate) struct Totals {
    #[serde(flatten)]
    pub(crate) all: Sums,
    pub(crate) bits_per_weight: Option<f64>,
    pub(crate) by_type: Vec<TypeTotals>,
}

#[derive(Debug, Serialize)]
pub(crate) struct TypeTotals {
    #[serde(rename = "type")]
    pub(crate) type_name: String,
    #[serde(skip)]
    id: TypeId,
    #[serde(flatten)]
    pub(crate) sums: Sums,
    pub(crate) bits_per_weight: Option<f64>,
}

impl Totals {
    /// Names of the types and their bytes, the largest first.
    pub(crate) fn bytes_by_type(&self) -> Vec<(&str, u64)> {
        let types = self.by_type.iter();
        types.map(|t| (t.type_name.as_str(), t.sums.bytes)).collect()
    }

    /// Types in order of their bytes, the largest first.
    pub(crate) fn of(file: &GgufFile) -> Self {
        let mut all = Sums::default();
        let mut by_type: Vec<TypeTotals> = Vec::new();
        // A file may name as many types as it has tensors.
        let mut places: HashMap<u32, usize> = HashMap::new();
        for tensor in &file.tensors {
            all.add(tensor);
            let i = *places.entry(tensor.type_id.0).or_insert_with(|| {
                by_type.push(TypeTotals {
                    type_name: tensor.type_name(),
                    id: tensor.type_id,
                    sums: Sums::default(),
                    bits_per_weight: None,
                });
                by_type.len() - 1
            });
            by_type[i].sums.add(tensor);
        }
        for totals in &mut by_type {
            totals.bits_per_weight = totals.sums.bits_per_weight();
        }
        by_type.sort_by_key(|t| (std::cmp::Reverse(t.sums.bytes), t.id));
        Self {
            all,
            bits_per_weight: all.bits_per_weight(),
            by_type,
        }
    }
}

//! What a file holds, in the form that reports need. The JSON reports are these, serialised.

use gguf::validate::{self, Finding};
use gguf::{Array, Endian, GgufFile, Metadata, TensorInfo, Value, key};
use gguf_blocks::TypeId;
use gguf_models::{arch, file_type};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

/// Header and place of the data.
#[derive(Debug, Serialize)]
pub(crate) struct Header {
    pub(crate) file: String,
    pub(crate) bytes: u64,
    pub(crate) version: u32,
    pub(crate) endian: &'static str,
    pub(crate) alignment: u64,
    pub(crate) data_offset: u64,
    pub(crate) architecture: Option<String>,
    /// Name of `general.file_type`.
    pub(crate) file_type: Option<&'static str>,
}

impl Header {
    pub(crate) fn of(file: &GgufFile) -> Self {
        let name = |id: &Value| {
            id.to_uint()
                .and_then(|id| file_type::by_id(u32::try_from(id).ok()?))
        };
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
            architecture: match file.metadata.get(key::ARCHITECTURE) {
                Some(Value::String(name)) => Some(name.clone()),
                _ => None,
            },
            file_type: file.metadata.get(key::FILE_TYPE).and_then(name).map(|t| t.name),
        }
    }
}

/// A metadata pair.
#[derive(Debug, Serialize)]
pub(crate) struct Pair<'a> {
    pub(crate) key: &'a str,
    #[serde(rename = "type")]
    pub(crate) type_name: String,
    #[serde(serialize_with = "value")]
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
    fn add(&mut self, tensor: &TensorInfo) {
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
    /// Types in order of their bytes, the largest first.
    pub(crate) fn of(file: &GgufFile) -> Self {
        let mut all = Sums::default();
        let mut by_type: Vec<TypeTotals> = Vec::new();
        for tensor in &file.tensors {
            all.add(tensor);
            let i = by_type
                .iter()
                .position(|t| t.id == tensor.type_id)
                .unwrap_or_else(|| {
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

/// What a check found.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) file: String,
    /// Whether no finding is an error.
    pub(crate) sound: bool,
    pub(crate) tensors: usize,
    /// Tensors proved to lie inside the file, aligned and without overlap.
    pub(crate) proved: usize,
    pub(crate) findings: Vec<Item>,
}

/// A finding.
#[derive(Debug, Serialize)]
pub(crate) struct Item {
    pub(crate) severity: &'static str,
    pub(crate) object: String,
    pub(crate) at: Option<u64>,
    pub(crate) what: String,
    pub(crate) remedy: Option<&'static str>,
}

impl From<Finding> for Item {
    fn from(f: Finding) -> Self {
        let severity = if f.severe { "error" } else { "warning" };
        Self {
            severity,
            object: f.object,
            at: f.at,
            what: f.what,
            remedy: Some(f.remedy),
        }
    }
}

impl Check {
    /// Errors stand in front of warnings.
    pub(crate) fn of(file: &GgufFile) -> Self {
        let report = validate::tensors(file);
        let mut findings = report.findings;
        findings.extend(validate::metadata(file));
        findings.extend(architecture(file));
        findings.sort_by_key(|f| !f.severe);
        Self {
            file: file.path().display().to_string(),
            sound: findings.iter().all(|f| !f.severe),
            tensors: file.tensors.len(),
            proved: report.n_proved,
            findings: findings.into_iter().map(Item::from).collect(),
        }
    }

    /// The check of a file that cannot be opened.
    pub(crate) fn unreadable(e: &gguf::Malformed) -> Self {
        let item = Item {
            severity: "error",
            object: "file".to_owned(),
            at: Some(e.at),
            what: e.what.clone(),
            remedy: None,
        };
        Self {
            file: e.file.display().to_string(),
            sound: false,
            tensors: 0,
            proved: 0,
            findings: vec![item],
        }
    }

    pub(crate) fn n_errors(&self) -> usize {
        self.findings.iter().filter(|f| f.severity == "error").count()
    }
}

/// Compares the tensors with what the file's architecture needs, where this build describes it and the file is a
/// whole model: no shard, no adapter, no bare vocabulary.
fn architecture(file: &GgufFile) -> Vec<Finding> {
    let metadata = &file.metadata;
    let whole = !file.tensors.is_empty()
        && !metadata.contains(key::SPLIT_COUNT)
        && metadata.get(key::TYPE).is_none_or(|t| *t == Value::from("model"));
    match arch::describe(metadata) {
        Ok((arch, hparams)) if whole => gguf_models::check(file, arch, &hparams),
        _ => Vec::new(),
    }
}

/// A metadata value as JSON. Floats that JSON cannot express become strings.
pub(crate) fn value<S: Serializer>(value: &Value, s: S) -> Result<S::Ok, S::Error> {
    match value {
        Value::U8(x) => x.serialize(s),
        Value::I8(x) => x.serialize(s),
        Value::U16(x) => x.serialize(s),
        Value::I16(x) => x.serialize(s),
        Value::U32(x) => x.serialize(s),
        Value::I32(x) => x.serialize(s),
        Value::F32(x) => Float32(*x).serialize(s),
        Value::Bool(x) => x.serialize(s),
        Value::String(x) => x.serialize(s),
        Value::Array(x) => JsonArray(x).serialize(s),
        Value::U64(x) => x.serialize(s),
        Value::I64(x) => x.serialize(s),
        Value::F64(x) => Float64(*x).serialize(s),
    }
}

/// A value that stands alone.
pub(crate) struct JsonValue<'a>(pub(crate) &'a Value);

impl Serialize for JsonValue<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        value(self.0, s)
    }
}

struct JsonArray<'a>(&'a Array);

impl Serialize for JsonArray<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Array::U8(v) => s.collect_seq(v),
            Array::I8(v) => s.collect_seq(v),
            Array::U16(v) => s.collect_seq(v),
            Array::I16(v) => s.collect_seq(v),
            Array::U32(v) => s.collect_seq(v),
            Array::I32(v) => s.collect_seq(v),
            Array::F32(v) => s.collect_seq(v.iter().map(|&x| Float32(x))),
            Array::Bool(v) => s.collect_seq(v),
            Array::String(v) => s.collect_seq(v.iter()),
            Array::Array(v) => {
                let mut seq = s.serialize_seq(Some(v.len()))?;
                v.iter().try_for_each(|a| seq.serialize_element(&JsonArray(a)))?;
                seq.end()
            }
            Array::U64(v) => s.collect_seq(v),
            Array::I64(v) => s.collect_seq(v),
            Array::F64(v) => s.collect_seq(v.iter().map(|&x| Float64(x))),
        }
    }
}

struct Float32(f32);

impl Serialize for Float32 {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() {
            s.serialize_f32(self.0)
        } else {
            s.collect_str(&self.0)
        }
    }
}

struct Float64(f64);

impl Serialize for Float64 {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() {
            s.serialize_f64(self.0)
        } else {
            s.collect_str(&self.0)
        }
    }
}

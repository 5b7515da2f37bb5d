//! Metadata values as JSON.

use gguf::{Array, Value};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

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

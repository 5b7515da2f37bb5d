//! What the program says of a conversion.

use std::path::Path;

use gguf::{Array, TensorInfo, Value};
use gguf_cli::{count, human_bytes, preview, table};
use serde_json::{Value as Json, json};

use crate::plan::Plan;

/// Elements of an array that are shown.
const N_SHOWN: usize = 8;

/// Characters of a text that are shown.
const N_CHARS: usize = 72;

/// The plan for people: metadata, tensors, size.
pub(crate) fn text(plan: &Plan, output: &Path) -> String {
    let metadata: Vec<_> = plan
        .metadata
        .iter()
        .map(|(key, value)| vec![key.to_owned(), preview(value, N_SHOWN, N_CHARS)])
        .collect();
    let tensors: Vec<_> = plan
        .layout
        .tensors
        .iter()
        .map(|t| vec![t.name.clone(), dims(t), t.type_name(), human_bytes(t.n_bytes)])
        .collect();
    format!(
        "{}\n\n{}\n\n{}",
        table(&["key", "value"], &metadata, &[]),
        table(&["tensor", "shape", "type", "size"], &tensors, &[1, 3]),
        summary(plan, output)
    )
}

/// One line: file, tensors, type, size.
pub(crate) fn summary(plan: &Plan, output: &Path) -> String {
    format!(
        "`{}`: {}, {}, {} bytes ({})",
        output.display(),
        count(plan.layout.tensors.len() as u64, "tensor"),
        plan.file_type.name,
        plan.layout.total_bytes,
        human_bytes(plan.layout.total_bytes)
    )
}

/// The plan for programs. Offsets are counted from the start of the data section; arrays longer than a few
/// elements are given by their length.
pub(crate) fn json(plan: &Plan, output: &Path, written: bool) -> Json {
    let metadata: serde_json::Map<String, Json> = plan
        .metadata
        .iter()
        .map(|(key, value)| (key.to_owned(), json_value(value)))
        .collect();
    let tensor = |t: &TensorInfo| {
        json!({
            "name": t.name,
            "shape": t.shape.dims(),
            "type": t.type_name(),
            "offset": t.offset,
            "bytes": t.n_bytes,
        })
    };
    json!({
        "output": output.display().to_string(),
        "written": written,
        "file_type": plan.file_type.name,
        "bytes": plan.layout.total_bytes,
        "notes": plan.notes,
        "metadata": metadata,
        "tensors": plan.layout.tensors.iter().map(tensor).collect::<Vec<_>>(),
    })
}

fn dims(tensor: &TensorInfo) -> String {
    tensor
        .shape
        .dims()
        .iter()
        .map(u64::to_string)
        .collect::<Vec<_>>()
        .join(" x ")
}

fn json_value(value: &Value) -> Json {
    match value {
        Value::U8(v) => json!(v),
        Value::I8(v) => json!(v),
        Value::U16(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::U32(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::F32(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::String(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::F64(v) => json!(v),
        Value::Array(Array::String(v)) if v.len() <= N_SHOWN => json!(v.to_vec()),
        Value::Array(array) => json!({ "length": array.len() }),
    }
}

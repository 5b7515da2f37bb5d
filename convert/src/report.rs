//! What the program says of a conversion.

use std::path::{Path, PathBuf};

use gguf::{Array, TensorInfo, Value};
use gguf_cli::{count, human_bytes, preview, table};
use gguf_quantize::{Job, Kind, Results, Run};
use serde_json::{Value as Json, json};

use crate::plan::Plan;

/// Elements of an array that are shown.
const N_SHOWN: usize = 8;

/// Characters of a text that are shown.
const N_CHARS: usize = 72;

/// The plan for people: metadata, tokenizer, tensors, size, disk; of a file type the quantizer's plan.
pub(crate) fn text(plan: &Plan, job: &Job<'_>, run: &Run<'_>, results: &Results<'_>) -> String {
    let metadata: Vec<_> = run
        .metadata(0)
        .iter()
        .map(|(key, value)| vec![key.to_owned(), preview(value, N_SHOWN, N_CHARS)])
        .collect();
    let metadata = table(&["key", "value"], &metadata, &[]);
    let metadata = format!("{metadata}\n\ntokenizer: {}", plan.tokenizer);
    if !is_plain(job) {
        return format!("{metadata}\n\n{}", results.texts().join("\n\n"));
    }
    let tensors: Vec<_> = run
        .tensors(0)
        .map(|t| vec![t.name.clone(), dims(t), t.type_name(), human_bytes(t.n_bytes)])
        .collect();
    format!(
        "{metadata}\n\n{}\n\n{}{}",
        table(&["tensor", "shape", "type", "size"], &tensors, &[1, 3]),
        disk(job, run),
        summary(job, run, results)
    )
}

/// A line for the bytes that are needed and those that are there, where the system tells.
fn disk(job: &Job<'_>, run: &Run<'_>) -> String {
    let files = run.files(0);
    let needed: u64 = files.iter().map(|(_, n)| n).sum();
    let folder = gguf::atomic::folder_of(first(job, &files));
    let line = |free| {
        format!(
            "disk: {needed} bytes ({}) for all outputs, {} free\n",
            human_bytes(needed),
            human_bytes(free)
        )
    };
    gguf::atomic::free_bytes(folder).map_or_else(String::new, line)
}

/// One line: what was written, or would be.
pub(crate) fn summary(job: &Job<'_>, run: &Run<'_>, results: &Results<'_>) -> String {
    if !is_plain(job) {
        return results.texts().join("; ");
    }
    let files = run.files(0);
    let bytes = files.iter().map(|(_, n)| n).sum();
    let more = match files.len() {
        0 | 1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    format!(
        "{} `{}`{more}: {}, {}, {bytes} bytes ({})",
        if results.is_done() { "wrote" } else { "would write" },
        first(job, &files).display(),
        count(run.tensors(0).count() as u64, "tensor"),
        job.targets[0].type_name,
        human_bytes(bytes)
    )
}

/// The plan or the result for programs. Offsets are counted from the start of a file's data section; arrays longer than
/// a few elements are given by their length. Of a file type `quantize` has the quantizer's report.
pub(crate) fn json(plan: &Plan, job: &Job<'_>, run: &Run<'_>, results: &Results<'_>) -> Json {
    let metadata: serde_json::Map<String, Json> = run
        .metadata(0)
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
    let files = run.files(0);
    let mut report = json!({
        "output": first(job, &files).display().to_string(),
        "outputs": files.iter().map(|(path, _)| path.display().to_string()).collect::<Vec<_>>(),
        "written": results.is_done(),
        "file_type": job.targets[0].type_name,
        "bytes": files.iter().map(|(_, n)| n).sum::<u64>(),
        "notes": plan.notes,
        "tokenizer": plan.tokenizer,
        "metadata": metadata,
        "tensors": run.tensors(0).map(tensor).collect::<Vec<_>>(),
    });
    if !is_plain(job) {
        report["quantize"] = json!(results.json(job).first());
    }
    report
}

fn is_plain(job: &Job<'_>) -> bool {
    matches!(job.targets[0].kind, Kind::Plain)
}

fn first<'a>(job: &'a Job<'_>, files: &'a [(PathBuf, u64)]) -> &'a Path {
    files.first().map_or(&job.targets[0].output, |(path, _)| path)
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

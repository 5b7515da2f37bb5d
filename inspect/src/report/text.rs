//! Reports for people.

use std::io::{self, Write};

use gguf::{Array, Outline, Shape, Value};
use gguf_cli::{human_bytes, preview, preview_cut, table};

use crate::facts::{self, Check, Header, Tensor, Totals};
use crate::plan::Sections;

/// Elements of an array that are shown.
pub(crate) const N_ITEMS: usize = 6;
/// Characters of a string that are shown.
const N_CHARS: usize = 64;

/// The sections of a file, with a blank line between them.
pub(crate) fn show(out: &mut dyn Write, outline: &Outline, sections: Sections) -> io::Result<()> {
    let file = outline.file();
    if sections.summary {
        writeln!(out, "{}\n", header(&Header::of(file)))?;
    }
    if sections.metadata {
        if sections.summary || sections.tensors {
            writeln!(out, "metadata: {} keys", file.metadata.len())?;
        }
        for pair in facts::pairs(&file.metadata) {
            let value = preview_cut(pair.value, N_ITEMS, N_CHARS, outline.cut_len(pair.key));
            writeln!(out, "{}: {} = {value}", pair.key, pair.type_name)?;
        }
    }
    if sections.tensors {
        if sections.metadata {
            writeln!(out)?;
        }
        if sections.summary || sections.metadata {
            writeln!(out, "tensors: {}", file.tensors.len())?;
        }
        if !file.tensors.is_empty() {
            writeln!(out, "{}", tensors(&facts::tensors(file)))?;
        }
    }
    if sections.summary {
        write!(out, "\n{}", totals(&Totals::of(file)))?;
    }
    Ok(())
}

fn header(h: &Header) -> String {
    let mut lines = vec![
        format!("file: {}", h.file),
        format!("size: {} ({} bytes)", human_bytes(h.bytes), h.bytes),
        format!("format: GGUF version {}, {}-endian", h.version, h.endian),
        format!("alignment: {} bytes", h.alignment),
        format!("tensor data: from byte {}", h.data_offset),
    ];
    lines.extend(
        h.architecture
            .as_ref()
            .map(|name| format!("architecture: {name}")),
    );
    lines.extend(h.file_type.map(|name| format!("file type: {name}")));
    lines.join("\n")
}

fn tensors(tensors: &[Tensor<'_>]) -> String {
    let rows: Vec<Vec<String>> = tensors
        .iter()
        .map(|t| {
            vec![
                t.name.to_owned(),
                t.type_name.clone(),
                Shape::new(t.shape).map_or_else(String::new, |s| s.to_string()),
                t.offset.to_string(),
                t.bytes.to_string(),
                ratio(t.bits_per_weight),
                if t.aligned { "yes" } else { "no" }.to_owned(),
            ]
        })
        .collect();
    table(
        &[
            "name",
            "type",
            "shape",
            "offset",
            "bytes",
            "bits/weight",
            "aligned",
        ],
        &rows,
        &[3, 4, 5],
    )
}

fn totals(t: &Totals) -> String {
    let mut text = format!(
        "total: {} tensors, {} parameters, {} ({} bytes), {} bits/weight\n",
        t.all.tensors,
        t.all.parameters,
        human_bytes(t.all.bytes),
        t.all.bytes,
        ratio(t.bits_per_weight)
    );
    let rows: Vec<Vec<String>> = t
        .by_type
        .iter()
        .map(|one| {
            let share = one.sums.bytes as f64 * 100.0 / t.all.bytes.max(1) as f64;
            vec![
                one.type_name.clone(),
                one.sums.tensors.to_string(),
                one.sums.parameters.to_string(),
                one.sums.bytes.to_string(),
                format!("{share:.1} %"),
                ratio(one.bits_per_weight),
            ]
        })
        .collect();
    if !rows.is_empty() {
        let headers = ["type", "tensors", "parameters", "bytes", "share", "bits/weight"];
        text.push_str(&table(&headers, &rows, &[1, 2, 3, 4, 5]));
        text.push('\n');
    }
    text
}

fn ratio(x: Option<f64>) -> String {
    x.map_or("-".to_owned(), |x| format!("{x:.3}"))
}

/// A value in full: an array as one line for each element.
pub(crate) fn value(out: &mut dyn Write, value: &Value) -> io::Result<()> {
    match value {
        Value::String(s) => writeln!(out, "{s}"),
        Value::Array(a) => array(out, a),
        _ => writeln!(out, "{}", preview(value, 0, 0)),
    }
}

fn array(out: &mut dyn Write, array: &Array) -> io::Result<()> {
    fn lines<T: std::fmt::Display>(out: &mut dyn Write, v: &[T]) -> io::Result<()> {
        v.iter().try_for_each(|x| writeln!(out, "{x}"))
    }
    match array {
        Array::U8(v) => lines(out, v),
        Array::I8(v) => lines(out, v),
        Array::U16(v) => lines(out, v),
        Array::I16(v) => lines(out, v),
        Array::U32(v) => lines(out, v),
        Array::I32(v) => lines(out, v),
        Array::F32(v) => lines(out, v),
        Array::Bool(v) => lines(out, v),
        Array::String(v) => v.iter().try_for_each(|x| writeln!(out, "{x}")),
        Array::Array(v) => v.iter().try_for_each(|a| {
            writeln!(
                out,
                "{}",
                preview(&Value::Array(a.clone()), usize::MAX, usize::MAX)
            )
        }),
        Array::U64(v) => lines(out, v),
        Array::I64(v) => lines(out, v),
        Array::F64(v) => lines(out, v),
    }
}

/// The findings, then what was proved.
pub(crate) fn check(out: &mut dyn Write, check: &Check) -> io::Result<()> {
    for f in &check.findings {
        let at = f.at.map_or(String::new(), |at| format!(" at byte {at}"));
        let remedy = f.remedy.map_or(String::new(), |r| format!("; {r}"));
        writeln!(out, "{}: {}{at}: {}{remedy}", f.severity, f.object, f.what)?;
    }
    writeln!(
        out,
        "proved: {} of {} tensors lie inside the file, aligned and without overlap",
        check.proved, check.tensors
    )
}

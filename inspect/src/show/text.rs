//! The report for people.

use std::fmt::Write as _;
use std::io::{self, Write};

use gguf::{Array, Outline, Shape, Value};
use gguf_cli::{count, human_bytes, preview, preview_cut, printable, table};

use super::Sections;
use super::facts::{self, Header, Sums, Tensor, Totals};
use super::summary::{Summary, Vocabulary, human_count};

/// Elements of an array that are shown.
pub(super) const N_ITEMS: usize = 6;
/// Characters of a string that are shown.
const N_CHARS: usize = 64;
/// Shards that are listed.
const N_SHARDS: usize = 8;

/// The sections of a file, with a blank line between them.
pub(super) fn show(out: &mut dyn Write, outline: &Outline, sections: Sections) -> io::Result<()> {
    let file = outline.file();
    if sections.summary {
        let totals = Totals::of(file);
        let s = Summary::of(file);
        writeln!(out, "{}\n", summary(&s, &Header::of(file)))?;
        if !file.tensors.is_empty() {
            writeln!(out, "{}\n\n{}\n", components(&s, &totals), types(&totals))?;
        }
        writeln!(out, "metadata: {}", count(file.metadata.len() as u64, "key"))?;
    }
    if sections.metadata {
        for pair in facts::pairs(&file.metadata) {
            let value = preview_cut(pair.value, N_ITEMS, N_CHARS, outline.cut_len(pair.key));
            writeln!(out, "{}: {} = {value}", printable(pair.key), pair.type_name)?;
        }
    }
    if sections.tensors {
        if sections.metadata {
            writeln!(out)?;
        }
        if !file.tensors.is_empty() {
            writeln!(out, "{}", tensors(&facts::tensors(file)))?;
        }
    }
    Ok(())
}

/// Lines `name: value`; what is not known has none.
fn summary(s: &Summary, h: &Header) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: Option<String>| {
        lines.extend(value.map(|v| format!("{name}: {}", printable(&v))));
    };
    line(
        "model",
        s.name
            .as_ref()
            .map(|n| format!("{n:?}").trim_matches('"').to_owned()),
    );
    line("kind", s.kind.clone());
    line(
        "architecture",
        s.architecture.as_ref().map(|a| a.escape_debug().to_string()),
    );
    line("parameters", (s.parameters > 0).then(|| parameters(s)));
    line("file type", file_type(s));
    let bits = s
        .bits_per_weight
        .map_or(String::new(), |b| format!(", {b:.3} bits/weight"));
    line(
        "size",
        Some(format!("{} ({} bytes){bits}", human_bytes(h.bytes), h.bytes)),
    );
    line("layers", layers(s));
    line("context", s.context_length.map(|n| count(n, "token")));
    line("vocabulary", s.vocabulary.as_ref().map(vocabulary));
    line(
        "chat template",
        s.chat_template.as_ref().map(|t| {
            let first = preview(&Value::from(t.first_line.as_str()), 0, N_CHARS);
            format!("{}, begins {first}", count(t.chars as u64, "character"))
        }),
    );
    line("file", Some(h.file.clone()));
    line(
        "format",
        Some(format!(
            "GGUF version {}, {}-endian, alignment {} bytes, tensor data from byte {}",
            h.version, h.endian, h.alignment, h.data_offset
        )),
    );
    let shards = s.shards.iter().take(N_SHARDS).map(|shard| {
        let what = if shard.missing {
            "MISSING".to_owned()
        } else if shard.unreadable {
            format!("{}, UNREADABLE", human_bytes(shard.bytes))
        } else {
            format!(
                "{}, {}",
                human_bytes(shard.bytes),
                count(shard.tensors as u64, "tensor")
            )
        };
        format!("shard {}: {what}", printable(&shard.name))
    });
    lines.extend(shards);
    if s.shards.len() > N_SHARDS {
        lines.push(format!("and {} more shards", s.shards.len() - N_SHARDS));
    }
    lines.join("\n")
}

fn parameters(s: &Summary) -> String {
    let mut text = human_count(s.parameters);
    if let (Some(active), Some(n), Some(used)) = (s.active_parameters, s.experts, s.experts_used) {
        let _ = write!(text, ", {} active ({used} of {n} experts)", human_count(active));
    }
    text
}

/// What the key says; without it, or where it does not fit, what the tensors say.
fn file_type(s: &Summary) -> Option<String> {
    let mostly = s.mostly.as_deref().unwrap_or("nothing");
    match (&s.file_type, s.file_type_guess) {
        (Some(name), _) if s.file_type_fits => Some(name.clone()),
        (Some(name), _) => Some(format!("{name}, but the tensors are mostly {mostly}")),
        (None, Some(guess)) => Some(format!("{guess} (not stated; guessed from the tensors)")),
        (None, None) => s.mostly.as_ref().map(|t| format!("not stated, mostly {t}")),
    }
}

fn layers(s: &Summary) -> Option<String> {
    let mut text = s.layers?.to_string();
    if let Some(n) = s.embedding_length {
        let _ = write!(text, ", embedding {n}");
    }
    if let Some(n) = s.heads {
        let _ = write!(text, ", heads {n}");
        if let Some(kv) = s.kv_heads {
            let _ = write!(text, " ({kv} KV)");
        }
    }
    Some(text)
}

fn vocabulary(v: &Vocabulary) -> String {
    let mut text = count(v.tokens, "token");
    if let Some(model) = &v.model {
        let _ = write!(text, ", {}", model.escape_debug());
        if let Some(pre) = &v.pre {
            let _ = write!(text, " ({})", pre.escape_debug());
        }
    }
    for special in &v.special {
        let _ = write!(text, "; {} {}", special.role.escape_debug(), special.id);
        match &special.text {
            Some(token) => drop(write!(text, " {}", preview(&Value::from(token.as_str()), 0, 24))),
            None => text.push_str(" (not in the vocabulary)"),
        }
    }
    text
}

fn components(s: &Summary, totals: &Totals) -> String {
    let rows = s
        .by_component
        .iter()
        .map(|c| sums_row(c.component, &c.sums, c.bits_per_weight, totals));
    let headers = ["part", "tensors", "parameters", "bytes", "share", "bits/weight"];
    table(&headers, &rows.collect::<Vec<_>>(), &[1, 2, 3, 4, 5])
}

fn types(totals: &Totals) -> String {
    let types = totals.by_type.iter();
    let mut rows: Vec<_> = types
        .map(|t| sums_row(&t.type_name, &t.sums, t.bits_per_weight, totals))
        .collect();
    rows.push(sums_row("all", &totals.all, totals.bits_per_weight, totals));
    let headers = ["type", "tensors", "parameters", "bytes", "share", "bits/weight"];
    table(&headers, &rows, &[1, 2, 3, 4, 5])
}

fn sums_row(name: &str, sums: &Sums, bits: Option<f64>, totals: &Totals) -> Vec<String> {
    let share = sums.bytes as f64 * 100.0 / totals.all.bytes.max(1) as f64;
    vec![
        name.to_owned(),
        sums.tensors.to_string(),
        sums.parameters.to_string(),
        sums.bytes.to_string(),
        format!("{share:.1} %"),
        ratio(bits),
    ]
}

/// Every row is as wide as the widest, so names are cut.
fn tensors(tensors: &[Tensor<'_>]) -> String {
    let rows: Vec<Vec<String>> = tensors
        .iter()
        .map(|t| {
            vec![
                gguf::short(t.name).into_owned(),
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

fn ratio(x: Option<f64>) -> String {
    x.map_or("-".to_owned(), |x| format!("{x:.3}"))
}

/// A value in full: an array as one line for each element.
pub(super) fn value(out: &mut dyn Write, value: &Value) -> io::Result<()> {
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
        Array::String(v) => v.iter_bytes().try_for_each(|x| {
            out.write_all(x)?;
            out.write_all(b"\n")
        }),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_does_not_make_every_row_long() {
        let long = "x".repeat(60_000);
        let row = |name| Tensor {
            name,
            type_name: "F32".to_owned(),
            type_id: 0,
            component: "other",
            shard: 0,
            shape: &[32],
            offset: 0,
            bytes: 128,
            bits_per_weight: Some(32.0),
            aligned: true,
        };
        let mut rows: Vec<Tensor<'_>> = (0..50).map(|_| row("a")).collect();
        rows.push(row(&long));
        let text = tensors(&rows);
        assert!(text.len() < 300 * rows.len(), "{} bytes", text.len());
        assert!(text.contains(".. (60000 bytes)"), "{text}");
    }
}

//! What sets the metadata of two models apart.

use std::collections::HashMap;

use gguf::{Array, Metadata, Value, key};
use gguf_cli::{preview, printable};
use serde::{Serialize, Serializer};

use crate::json::JsonValue;

/// Characters of a string that are shown.
const N_CHARS: usize = 64;
/// Elements of an array that are shown where it is not compared element by element.
const N_ITEMS: usize = 6;

/// A key that only one model has.
#[derive(Debug, Serialize)]
pub(super) struct Lone<'a> {
    pub(super) key: &'a str,
    #[serde(rename = "type")]
    type_name: String,
    #[serde(serialize_with = "json")]
    value: &'a Value,
}

/// A key with another value.
#[derive(Debug, Serialize)]
pub(super) struct Changed<'a> {
    pub(super) key: &'a str,
    type_a: String,
    type_b: String,
    #[serde(serialize_with = "json")]
    a: &'a Value,
    #[serde(serialize_with = "json")]
    b: &'a Value,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn json<S: Serializer>(value: &&Value, s: S) -> std::result::Result<S::Ok, S::Error> {
    JsonValue(value).serialize(s)
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Differences<'a> {
    /// Only B has them.
    pub(super) added: Vec<Lone<'a>>,
    /// Only A has them.
    pub(super) removed: Vec<Lone<'a>>,
    pub(super) changed: Vec<Changed<'a>>,
    /// Keys about the files and not the model (alignment, split) that are not the same.
    #[serde(skip)]
    pub(super) layout: Vec<&'a str>,
    /// Whether the keys that both have stand in another order.
    #[serde(skip)]
    pub(super) reordered: bool,
}

/// Compares key by key, in the order of A, then of B.
pub(super) fn compare<'a>(a: &'a Metadata, b: &'a Metadata) -> Differences<'a> {
    let index = |m: &'a Metadata| -> HashMap<&'a str, &'a Value> { m.iter().collect() };
    let (in_a, in_b) = (index(a), index(b));
    let mut found = Differences::default();
    let is_layout = |key: &str| key == key::ALIGNMENT || key::SPLIT.contains(&key);
    for (key, value) in a.iter() {
        match in_b.get(key) {
            Some(&other) if value.to_bytes() == other.to_bytes() => {}
            _ if is_layout(key) => found.layout.push(key),
            Some(&other) => found.changed.push(Changed::new(key, value, other)),
            None => found.removed.push(Lone::new(key, value)),
        }
    }
    for (key, value) in b.iter().filter(|(k, _)| !in_a.contains_key(k)) {
        if is_layout(key) {
            found.layout.push(key);
        } else {
            found.added.push(Lone::new(key, value));
        }
    }
    let common = |m: &'a Metadata, other: &HashMap<&str, &Value>| -> Vec<&'a str> {
        m.iter()
            .map(|(k, _)| k)
            .filter(|k| other.contains_key(k))
            .collect()
    };
    found.reordered = common(a, &in_b) != common(b, &in_a);
    found
}

impl Differences<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

impl<'a> Lone<'a> {
    fn new(key: &'a str, value: &'a Value) -> Self {
        Self {
            key,
            type_name: value.type_name(),
            value,
        }
    }

    pub(super) fn text(&self) -> String {
        let value = preview(self.value, N_ITEMS, N_CHARS);
        format!("{}: {} = {value}", printable(self.key), self.type_name)
    }
}

impl<'a> Changed<'a> {
    fn new(key: &'a str, a: &'a Value, b: &'a Value) -> Self {
        Self {
            key,
            type_a: a.type_name(),
            type_b: b.type_name(),
            a,
            b,
        }
    }

    /// One line; of arrays the first `n` elements that differ.
    pub(super) fn text(&self, n: usize) -> String {
        let types = if self.type_a == self.type_b {
            self.type_a.clone()
        } else {
            format!("{} -> {}", self.type_a, self.type_b)
        };
        let what = match (self.a, self.b) {
            (Value::Array(a), Value::Array(b)) if a.element_type() == b.element_type() => elements(a, b, n),
            (Value::String(a), Value::String(b)) => strings(a, b),
            (a, b) => format!(
                "{} -> {}",
                preview(a, N_ITEMS, N_CHARS),
                preview(b, N_ITEMS, N_CHARS)
            ),
        };
        format!("{}: {types}: {what}", printable(self.key))
    }
}

/// Two strings; long ones from a little before the place where they part.
fn strings(a: &str, b: &str) -> String {
    const BEFORE: usize = 16;
    let same = a.chars().zip(b.chars()).take_while(|(x, y)| x == y).count();
    if same + BEFORE <= N_CHARS && a.len().max(b.len()) <= 2 * N_CHARS {
        return format!("{a:?} -> {b:?}");
    }
    let start = same.saturating_sub(BEFORE);
    let cut = |s: &str| {
        let front = if start > 0 { ".." } else { "" };
        let text: String = s.chars().skip(start).take(N_CHARS).collect();
        let back = if s.chars().count() > start + N_CHARS {
            ".."
        } else {
            ""
        };
        format!("{front}{text:?}{back} ({} bytes)", s.len())
    };
    format!("from character {same}: {} -> {}", cut(a), cut(b))
}

/// Lengths, how many elements differ, and the first of them.
fn elements(a: &Array, b: &Array, n: usize) -> String {
    let (n_differ, shown) = match (a, b) {
        (Array::U8(a), Array::U8(b)) => differing(a, b, n),
        (Array::I8(a), Array::I8(b)) => differing(a, b, n),
        (Array::U16(a), Array::U16(b)) => differing(a, b, n),
        (Array::I16(a), Array::I16(b)) => differing(a, b, n),
        (Array::U32(a), Array::U32(b)) => differing(a, b, n),
        (Array::I32(a), Array::I32(b)) => differing(a, b, n),
        (Array::F32(a), Array::F32(b)) => differing(a, b, n),
        (Array::Bool(a), Array::Bool(b)) => differing(a, b, n),
        (Array::U64(a), Array::U64(b)) => differing(a, b, n),
        (Array::I64(a), Array::I64(b)) => differing(a, b, n),
        (Array::F64(a), Array::F64(b)) => differing(a, b, n),
        (Array::Array(a), Array::Array(b)) => differing(a, b, n),
        (Array::String(a), Array::String(b)) => {
            let bytes = a.iter_bytes().zip(b.iter_bytes());
            let at: Vec<usize> = bytes
                .enumerate()
                .filter(|(_, (x, y))| x != y)
                .map(|(i, _)| i)
                .collect();
            let text = |i: usize| {
                let s = |v: &gguf::Strings| {
                    preview(&Value::String(v.get(i).unwrap_or_default().into()), 0, N_CHARS)
                };
                format!("[{i}] {} -> {}", s(a), s(b))
            };
            (at.len(), at.into_iter().take(n).map(text).collect())
        }
        _ => (0, Vec::new()),
    };
    let mut text = if a.len() == b.len() {
        format!("{n_differ} of {} elements differ", a.len())
    } else {
        format!(
            "{} -> {} elements, {n_differ} of those that both have differ",
            a.len(),
            b.len()
        )
    };
    if !shown.is_empty() {
        let more = if n_differ > shown.len() { ", .." } else { "" };
        text = format!("{text}: {}{more}", shown.join(", "));
    }
    text
}

/// How many elements differ, and the first `n` of them.
fn differing<T: PartialEq + std::fmt::Debug>(a: &[T], b: &[T], n: usize) -> (usize, Vec<String>) {
    let differ = || a.iter().zip(b).enumerate().filter(|(_, (x, y))| x != y);
    let shown = differ()
        .take(n)
        .map(|(i, (x, y))| format!("[{i}] {x:?} -> {y:?}"));
    (differ().count(), shown.collect())
}

#[cfg(test)]
mod tests {
    use gguf::{Metadata, Value};

    use super::compare;

    fn metadata(pairs: &[(&str, Value)]) -> Metadata {
        let mut m = Metadata::new();
        for (k, v) in pairs {
            m.set(*k, v.clone());
        }
        m
    }

    #[test]
    fn differences_are_told_apart() {
        let tokens = |x: &str| Value::from(vec!["a".to_owned(), x.to_owned(), "c".to_owned()]);
        let a = metadata(&[
            ("same", f32::NAN.into()),
            ("gone", 1_u32.into()),
            ("tokens", tokens("b")),
            ("number", 1_u32.into()),
            ("split.count", 3_u16.into()),
        ]);
        let b = metadata(&[
            ("number", 2_u64.into()),
            ("same", f32::NAN.into()),
            ("tokens", tokens("B")),
            ("new", "x".into()),
        ]);
        let d = compare(&a, &b);
        assert_eq!(
            d.added.iter().map(super::Lone::text).collect::<Vec<_>>(),
            ["new: string = \"x\""]
        );
        assert_eq!(d.removed[0].key, "gone");
        let changed: Vec<_> = d.changed.iter().map(|c| c.text(3)).collect();
        assert_eq!(
            changed,
            [
                "tokens: array of string: 1 of 3 elements differ: [1] \"b\" -> \"B\"",
                "number: u32 -> u64: 1 -> 2"
            ]
        );
        assert!(d.reordered);
        assert_eq!(d.layout, ["split.count"]);
        let same = compare(&a, &a);
        assert!(same.is_empty() && !same.reordered && same.layout.is_empty());
    }

    #[test]
    fn long_strings_are_shown_where_they_part() {
        let text = |x: &str| Value::from(format!("{}{x}{}", "a".repeat(500), "b".repeat(500)).as_str());
        let a = metadata(&[("chat", text("1"))]);
        let b = metadata(&[("chat", text("2"))]);
        let line = compare(&a, &b).changed[0].text(3);
        assert!(
            line.contains("from character 500: ..\"aaaaaaaaaaaaaaaa1bbb"),
            "{line}"
        );
        assert!(line.len() < 300);
    }
}

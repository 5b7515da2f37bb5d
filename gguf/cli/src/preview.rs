//! Metadata values on one line.

use gguf::{Array, Value};

/// A value on one line: of arrays the first `n_items` elements, of strings the first `n_chars` characters, with
/// the whole length behind what was cut. Strings are quoted, line breaks and other controls escaped.
pub fn preview(value: &Value, n_items: usize, n_chars: usize) -> String {
    preview_cut(value, n_items, n_chars, None)
}

/// As [`preview`]; `len` is the true length of an array of which only the front is there.
pub fn preview_cut(value: &Value, n_items: usize, n_chars: usize, len: Option<u64>) -> String {
    match value {
        Value::U8(x) => x.to_string(),
        Value::I8(x) => x.to_string(),
        Value::U16(x) => x.to_string(),
        Value::I16(x) => x.to_string(),
        Value::U32(x) => x.to_string(),
        Value::I32(x) => x.to_string(),
        Value::F32(x) => x.to_string(),
        Value::Bool(x) => x.to_string(),
        Value::String(s) => text(s, n_chars),
        Value::Array(a) => array(a, n_items, n_chars, len.unwrap_or(a.len() as u64)),
        Value::U64(x) => x.to_string(),
        Value::I64(x) => x.to_string(),
        Value::F64(x) => x.to_string(),
    }
}

fn text(s: &str, n_chars: usize) -> String {
    match s.char_indices().nth(n_chars) {
        Some((end, _)) => format!("{:?}.. ({} bytes)", &s[..end], s.len()),
        None => format!("{s:?}"),
    }
}

fn array(array: &Array, n_items: usize, n_chars: usize, len: u64) -> String {
    match array {
        Array::U8(v) => items(v, n_items, len, ToString::to_string),
        Array::I8(v) => items(v, n_items, len, ToString::to_string),
        Array::U16(v) => items(v, n_items, len, ToString::to_string),
        Array::I16(v) => items(v, n_items, len, ToString::to_string),
        Array::U32(v) => items(v, n_items, len, ToString::to_string),
        Array::I32(v) => items(v, n_items, len, ToString::to_string),
        Array::F32(v) => items(v, n_items, len, ToString::to_string),
        Array::Bool(v) => items(v, n_items, len, ToString::to_string),
        Array::String(v) => {
            let front: Vec<_> = v.iter().take(n_items).collect();
            items(&front, n_items, len, |s| text(s, n_chars))
        }
        Array::Array(v) => items(v, n_items, len, |a| {
            self::array(a, n_items, n_chars, a.len() as u64)
        }),
        Array::U64(v) => items(v, n_items, len, ToString::to_string),
        Array::I64(v) => items(v, n_items, len, ToString::to_string),
        Array::F64(v) => items(v, n_items, len, ToString::to_string),
    }
}

fn items<T>(front: &[T], n_items: usize, len: u64, show: impl Fn(&T) -> String) -> String {
    let mut shown: Vec<String> = front.iter().take(n_items).map(show).collect();
    if len > shown.len() as u64 {
        shown.push(format!(".. {len} in all"));
    }
    format!("[{}]", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use gguf::Value;

    use super::{preview, preview_cut};

    #[test]
    fn long_values_are_cut_and_counted() {
        assert_eq!(
            preview(&Value::from(vec![1_u32, 2, 3, 4]), 3, 5),
            "[1, 2, 3, .. 4 in all]"
        );
        let front = Value::from(vec![1_u32, 2]);
        assert_eq!(
            preview_cut(&front, 2, 5, Some(128_256)),
            "[1, 2, .. 128256 in all]"
        );
        assert_eq!(preview(&Value::from("größer\n"), 3, 5), "\"größe\".. (9 bytes)");
        assert_eq!(preview(&Value::from("a\nb"), 3, 5), "\"a\\nb\"");
        assert_eq!(
            preview(&Value::from(vec!["abcdef".to_owned()]), 3, 2),
            "[\"ab\".. (6 bytes)]"
        );
    }
}

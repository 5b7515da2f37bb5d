//! `tojson` of templates: JSON as Python writes it.

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use serde::Serialize as _;
use serde_json::ser::{Formatter, Serializer};

/// Separators and indentation of Python's `json.dumps`.
struct Python {
    item: String,
    key: String,
    indent: Option<String>,
    depth: usize,
    /// Whether the list or object that is open has an item.
    filled: bool,
}

type Io = std::io::Result<()>;

impl Python {
    fn line<W: std::io::Write + ?Sized>(&self, out: &mut W) -> Io {
        let Some(indent) = &self.indent else { return Ok(()) };
        out.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| out.write_all(indent.as_bytes()))
    }

    fn open<W: std::io::Write + ?Sized>(&mut self, out: &mut W, sign: &[u8]) -> Io {
        self.depth += 1;
        self.filled = false;
        out.write_all(sign)
    }

    fn close<W: std::io::Write + ?Sized>(&mut self, out: &mut W, sign: &[u8]) -> Io {
        self.depth -= 1;
        if self.filled {
            self.line(out)?;
        }
        self.filled = true;
        out.write_all(sign)
    }

    fn item<W: std::io::Write + ?Sized>(&mut self, out: &mut W, first: bool) -> Io {
        if !first {
            out.write_all(self.item.as_bytes())?;
        }
        self.filled = true;
        self.line(out)
    }
}

impl Formatter for Python {
    fn begin_array<W: std::io::Write + ?Sized>(&mut self, out: &mut W) -> Io {
        self.open(out, b"[")
    }
    fn end_array<W: std::io::Write + ?Sized>(&mut self, out: &mut W) -> Io {
        self.close(out, b"]")
    }
    fn begin_array_value<W: std::io::Write + ?Sized>(&mut self, out: &mut W, first: bool) -> Io {
        self.item(out, first)
    }
    fn begin_object<W: std::io::Write + ?Sized>(&mut self, out: &mut W) -> Io {
        self.open(out, b"{")
    }
    fn end_object<W: std::io::Write + ?Sized>(&mut self, out: &mut W) -> Io {
        self.close(out, b"}")
    }
    fn begin_object_key<W: std::io::Write + ?Sized>(&mut self, out: &mut W, first: bool) -> Io {
        self.item(out, first)
    }
    fn begin_object_value<W: std::io::Write + ?Sized>(&mut self, out: &mut W) -> Io {
        out.write_all(self.key.as_bytes())
    }
}

/// A text that stops growing at a number of bytes.
struct Bounded {
    text: Vec<u8>,
    left: u64,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.left = self
            .left
            .checked_sub(bytes.len() as u64)
            .ok_or(std::io::ErrorKind::StorageFull)?;
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Io {
        Ok(())
    }
}

/// What `write_json` writes into at most `n_bytes` bytes.
fn bounded(
    n_bytes: u64,
    write_json: impl FnOnce(&mut Bounded) -> serde_json::Result<()>,
) -> Result<Vec<u8>, Error> {
    let mut out = Bounded {
        text: Vec::new(),
        left: n_bytes,
    };
    match write_json(&mut out) {
        Ok(()) => Ok(out.text),
        Err(e) if e.io_error_kind() == Some(std::io::ErrorKind::StorageFull) => {
            Err(Error::from(ErrorKind::OutOfFuel))
        }
        Err(e) => Err(wrong(&e)),
    }
}

fn wrong(e: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::BadSerialization, format!("`tojson`: {e}"))
}

/// `json.dumps(value, ensure_ascii=False)` with the options `indent`, `separators`, `sort_keys` and
/// `ensure_ascii`, of which the last must be false. A text of more than `n_bytes` costs too much.
pub(super) fn write(value: &Value, options: &Kwargs, n_bytes: u64) -> Result<String, Error> {
    let indent: Option<Value> = options.get("indent")?;
    let indent = match indent.filter(|v| !v.is_none()) {
        None => None,
        Some(v) => match (v.as_str(), v.as_usize()) {
            (Some(text), _) => Some(text.to_owned()),
            (None, Some(n @ 0..=64)) => Some(" ".repeat(n)),
            _ => return Err(wrong(&"expected an indentation of 0 to 64")),
        },
    };
    if options.get::<Option<bool>>("ensure_ascii")? == Some(true) {
        return Err(wrong(&"`ensure_ascii` is not supported"));
    }
    let separators: Option<Vec<String>> = options.get("separators")?;
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(wrong(&"expected two separators")),
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let sorted: Option<serde_json::Value> = if options.get::<Option<bool>>("sort_keys")? == Some(true) {
        // Its text first, which is bounded: a value has no size that could be asked for.
        let text = bounded(n_bytes, |out| serde_json::to_writer(out, value))?;
        let mut json: serde_json::Value = serde_json::from_slice(&text).map_err(|e| wrong(&e))?;
        json.sort_all_objects();
        Some(json)
    } else {
        None
    };
    let style = Python {
        item,
        key,
        indent,
        depth: 0,
        filled: false,
    };
    let text = bounded(n_bytes, |out| {
        let mut out = Serializer::with_formatter(out, style);
        match &sorted {
            Some(json) => json.serialize(&mut out),
            None => value.serialize(&mut out),
        }
    })?;
    String::from_utf8(text).map_err(|e| wrong(&e))
}

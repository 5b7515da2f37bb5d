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

/// `json.dumps(value, ensure_ascii=False)` with the options `indent`, `separators`, `sort_keys` and
/// `ensure_ascii`, of which the last must be false.
pub(super) fn write(value: &Value, options: &Kwargs) -> Result<String, Error> {
    let wrong = |e: &dyn std::fmt::Display| Error::new(ErrorKind::BadSerialization, format!("`tojson`: {e}"));
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
    let mut json = serde_json::to_value(value).map_err(|e| wrong(&e))?;
    if options.get::<Option<bool>>("sort_keys")? == Some(true) {
        json.sort_all_objects();
    }
    let style = Python {
        item,
        key,
        indent,
        depth: 0,
        filled: false,
    };
    let mut out = Vec::new();
    json.serialize(&mut Serializer::with_formatter(&mut out, style))
        .map_err(|e| wrong(&e))?;
    String::from_utf8(out).map_err(|e| wrong(&e))
}

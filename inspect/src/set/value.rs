//! Values as people type them.

use gguf::{Array, Value, ValueType};
use serde_json::Value as Json;

/// The type of a value: one, or an array of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Type {
    kind: ValueType,
    array: bool,
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.array {
            write!(f, "arr[{}]", self.kind)
        } else {
            write!(f, "{}", self.kind)
        }
    }
}

impl Type {
    pub(super) const fn one(kind: ValueType) -> Self {
        Self { kind, array: false }
    }

    pub(super) const fn array(kind: ValueType) -> Self {
        Self { kind, array: true }
    }

    /// The type of a value that is there.
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Array(array) => Self::array(array.element_type()),
            _ => Self::one(value.value_type()),
        }
    }

    /// A type by its name: `u32`, `str`, `arr[str]`.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let inner = name
            .strip_prefix("arr[")
            .or_else(|| name.strip_prefix("array["))
            .and_then(|n| n.strip_suffix(']'));
        let element = inner.unwrap_or(name);
        let scalars = || ValueType::ALL.into_iter().filter(|&t| t != ValueType::Array);
        let kind = match element {
            "str" => Some(ValueType::String),
            _ => scalars().find(|t| t.name() == element),
        };
        let kind = kind.ok_or_else(|| {
            let names: Vec<_> = scalars().map(ValueType::name).collect();
            format!(
                "expected a type ({} or arr[TYPE]), found `{name}`",
                names.join(", ")
            )
        })?;
        Ok(Self {
            kind,
            array: inner.is_some(),
        })
    }

    /// The type for a value of which only the text is known.
    pub(super) fn that_fits(text: &str, json: bool) -> Self {
        let json_value = serde_json::from_str::<Json>(text).ok();
        match json_value {
            Some(Json::Array(items)) => Self::array(items.first().map_or(ValueType::String, kind_of)),
            Some(Json::String(_)) if !json => Self::one(ValueType::String),
            Some(value) => Self::one(kind_of(&value)),
            None => Self::one(ValueType::String),
        }
    }

    /// The value that a text stands for.
    ///
    /// # Errors
    /// A text that is no value of this type, in words that follow the key's name.
    pub(super) fn value(self, text: &str, json: bool) -> Result<Value, String> {
        if !self.array {
            if self.kind == ValueType::String && !json {
                return Ok(Value::String(text.to_owned()));
            }
            let item = if json {
                from_json(text)?
            } else {
                Json::String(text.trim().to_owned())
            };
            return one(self.kind, &item);
        }
        let trimmed = text.trim();
        let items = if json || trimmed.starts_with('[') {
            match from_json(trimmed)? {
                Json::Array(items) => items,
                other => return Err(format!("expected a JSON array for type {self}, found {other}")),
            }
        } else if self.kind == ValueType::String {
            return Err(format!(
                "expected a JSON array such as [\"a\", \"b\"] for type {self}"
            ));
        } else {
            trimmed
                .split(',')
                .map(|item| Json::String(item.trim().to_owned()))
                .collect()
        };
        let items: Result<Vec<Value>, String> = items.iter().map(|item| one(self.kind, item)).collect();
        Ok(Value::Array(collect(self.kind, items?)))
    }
}

fn from_json(text: &str) -> Result<Json, String> {
    serde_json::from_str(text).map_err(|e| format!("expected JSON, found something else: {e}"))
}

fn kind_of(value: &Json) -> ValueType {
    match value {
        Json::Bool(_) => ValueType::Bool,
        Json::Number(n) => match (n.as_u64(), n.as_i64()) {
            (Some(n), _) if u32::try_from(n).is_ok() => ValueType::U32,
            (Some(_), _) => ValueType::U64,
            (None, Some(n)) if i32::try_from(n).is_ok() => ValueType::I32,
            (None, Some(_)) => ValueType::I64,
            (None, None) => ValueType::F32,
        },
        _ => ValueType::String,
    }
}

/// One element.
fn one(kind: ValueType, item: &Json) -> Result<Value, String> {
    let text = match item {
        Json::String(text) => text.clone(),
        Json::Number(_) | Json::Bool(_) if kind != ValueType::String => item.to_string(),
        _ => return Err(format!("expected {kind}, found {item}")),
    };
    macro_rules! integer {
        ($t:ty, $variant:ident) => {
            text.parse::<$t>().map(Value::$variant).map_err(|_| {
                let (min, max) = (<$t>::MIN, <$t>::MAX);
                format!("expected {kind} ({min} to {max}), found `{text}`")
            })
        };
    }
    match kind {
        ValueType::U8 => integer!(u8, U8),
        ValueType::I8 => integer!(i8, I8),
        ValueType::U16 => integer!(u16, U16),
        ValueType::I16 => integer!(i16, I16),
        ValueType::U32 => integer!(u32, U32),
        ValueType::I32 => integer!(i32, I32),
        ValueType::U64 => integer!(u64, U64),
        ValueType::I64 => integer!(i64, I64),
        ValueType::F32 => {
            let x: f32 = float(kind, &text)?;
            // What overflows is not meant to be infinite.
            if x.is_infinite() && !text.contains("inf") {
                return Err(format!("expected f32 (up to {:e}), found `{text}`", f32::MAX));
            }
            Ok(Value::F32(x))
        }
        ValueType::F64 => float(kind, &text).map(Value::F64),
        ValueType::Bool => match text.as_str() {
            "true" | "1" => Ok(Value::Bool(true)),
            "false" | "0" => Ok(Value::Bool(false)),
            _ => Err(format!("expected bool (true or false), found `{text}`")),
        },
        ValueType::String => Ok(Value::String(text)),
        ValueType::Array => Err("arrays of arrays are read by no program: flatten the array".to_owned()),
    }
}

fn float<T: std::str::FromStr>(kind: ValueType, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("expected {kind}, found `{text}`"))
}

/// An array of elements that are all of one type.
fn collect(kind: ValueType, items: Vec<Value>) -> Array {
    macro_rules! pick {
        ($variant:ident) => {
            Array::from(
                items
                    .into_iter()
                    .filter_map(|v| match v {
                        Value::$variant(x) => Some(x),
                        _ => None,
                    })
                    .collect::<Vec<_>>(),
            )
        };
    }
    match kind {
        ValueType::U8 => pick!(U8),
        ValueType::I8 => pick!(I8),
        ValueType::U16 => pick!(U16),
        ValueType::I16 => pick!(I16),
        ValueType::U32 => pick!(U32),
        ValueType::I32 => pick!(I32),
        ValueType::F32 => pick!(F32),
        ValueType::Bool => pick!(Bool),
        ValueType::String => pick!(String),
        ValueType::Array => pick!(Array),
        ValueType::U64 => pick!(U64),
        ValueType::I64 => pick!(I64),
        ValueType::F64 => pick!(F64),
    }
}

#[cfg(test)]
mod tests {
    use gguf::Value;

    use super::Type;

    fn value(name: &str, text: &str, json: bool) -> Result<Value, String> {
        Type::parse(name).expect(name).value(text, json)
    }

    #[test]
    fn texts_become_values_of_their_type() {
        assert_eq!(value("u32", "4096", false), Ok(Value::U32(4096)));
        assert_eq!(value("i8", " -3 ", false), Ok(Value::I8(-3)));
        assert_eq!(value("f32", "1e6", false), Ok(Value::F32(1e6)));
        assert_eq!(value("bool", "true", false), Ok(Value::Bool(true)));
        assert_eq!(value("str", " {{ x }}\n", false), Ok(" {{ x }}\n".into()));
        assert_eq!(value("str", "\"a\\n\"", true), Ok("a\n".into()));
        assert_eq!(value("arr[i32]", "1, -2", false), Ok(vec![1_i32, -2].into()));
        assert_eq!(value("arr[f32]", "[1, 2.5]", false), Ok(vec![1_f32, 2.5].into()));
        let texts = vec!["a".to_owned(), "b, c".to_owned()];
        assert_eq!(value("arr[str]", r#"["a", "b, c"]"#, false), Ok(texts.into()));
        assert_eq!(
            value("u64", "18446744073709551615", true),
            Ok(Value::U64(u64::MAX))
        );
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        for (name, text, words) in [
            ("u8", "256", "expected u8 (0 to 255), found `256`"),
            ("u32", "-1", "(0 to 4294967295), found `-1`"),
            ("i16", "1.5", "(-32768 to 32767), found `1.5`"),
            ("f32", "1e39", "expected f32 (up to 3.4028235e38)"),
            ("bool", "yes", "true or false"),
            ("arr[str]", "a, b", "JSON array such as"),
            ("arr[str]", "[1]", "expected string, found 1"),
            ("arr[u8]", "[1, 300]", "found `300`"),
            ("arr[u8]", "[1", "expected JSON"),
        ] {
            let error = value(name, text, false).expect_err(text);
            assert!(error.contains(words), "`{words}` not in {error}");
        }
        assert!(Type::parse("int").is_err_and(|e| e.contains("u8, i8") && !e.contains("array,")));
    }

    #[test]
    fn a_type_is_found_where_none_is_known() {
        for (text, expected) in [
            ("text", "string"),
            ("12", "u32"),
            ("-12", "i32"),
            ("5000000000", "u64"),
            ("1.5", "f32"),
            ("true", "bool"),
            ("[1, 2]", "arr[u32]"),
            ("[\"a\"]", "arr[string]"),
            ("{x}", "string"),
        ] {
            assert_eq!(Type::that_fits(text, false).to_string(), expected, "{text}");
        }
    }
}

//! Reading the small files of a checkpoint.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::Result;
use crate::error::Error;

/// The largest JSON or template file that is read; tokenizers of real models take a tenth of it.
const MAX_BYTES: u64 = 1 << 28;

/// Types as the JSON library calls them, and as people do.
const WORDS: &[(&str, &str)] = &[
    ("expected u64", "expected a whole number that is not negative"),
    ("expected a sequence", "expected a list"),
    ("expected a boolean", "expected true or false"),
    ("invalid type: sequence", "invalid type: list"),
    ("invalid type: map", "invalid type: object"),
];

/// Reads a JSON file that must be there.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    parse(path, &read_bytes(path)?)
}

/// Reads a JSON file; `None` if there is none.
pub(crate) fn read_json_if_there<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    if path.exists() {
        read_json(path).map(Some)
    } else {
        Ok(None)
    }
}

/// Reads a text file; `None` if there is none.
pub(crate) fn read_text_if_there(path: &Path) -> Result<Option<String>> {
    if path.exists() {
        read_text(path).map(Some)
    } else {
        Ok(None)
    }
}

/// Reads a text file that must be there.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    String::from_utf8(read_bytes(path)?)
        .map_err(|e| Error::mismatch(format!("`{}`", path.display()), "UTF-8 text", e.utf8_error()))
}

/// Reads a small file of any kind, which must be there.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    let meta = std::fs::metadata(path).map_err(|e| Error::io("open", path, e))?;
    if !meta.is_file() {
        return Err(Error::io("read", path, "it is not a regular file"));
    }
    if meta.len() > MAX_BYTES {
        let object = format!("size of `{}`", path.display());
        return Err(Error::mismatch(
            object,
            format!("at most {MAX_BYTES} bytes"),
            meta.len(),
        ));
    }
    std::fs::read(path).map_err(|e| Error::io("read", path, e))
}

fn parse<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|e| {
        let text = e.to_string();
        // The position goes in front, as compilers have it.
        let what = text
            .rsplit_once(" at line ")
            .map_or(text.as_str(), |(what, _)| what);
        // The library's names of types say nothing to people.
        let what = WORDS
            .iter()
            .fold(what.to_owned(), |text, (from, to)| text.replace(from, to));
        Error::Json {
            path: path.to_owned(),
            line: e.line(),
            column: e.column(),
            what: what.into(),
        }
    })
}

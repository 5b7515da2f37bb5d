//! Normalization by a table that the file brings along: `tokenizer.ggml.precompiled_charsmap`.
//!
//! The blob is the number of bytes of a double array (u32, little endian), the array (u32s), and replacement
//! strings, each ended by a zero byte. The array maps byte strings to offsets of replacements. Its unit of a
//! node: bits 0..8 the byte that leads to it, bit 8 whether a string ends here, bits 10..31 the offset to its
//! children, in steps of 256 if bit 9 is set. The unit of a value has bit 31 set and the value below.

use gguf::{Array, Metadata};

use super::vocabulary::key_error;
use crate::{Error, Result};

pub(super) const KEY: &str = "tokenizer.ggml.precompiled_charsmap";

/// Longest string that is replaced. Those of real tables have a few characters.
const MAX_REPLACED: usize = 256;

/// Longest replacement, in bytes. The longest of Unicode's compatibility mappings has 33.
pub(super) const MAX_REPLACEMENT: usize = 128;

/// The table.
#[derive(Debug)]
pub(super) struct Charsmap {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

impl Charsmap {
    /// The table of the file; `None` if it has none or an empty one.
    pub(super) fn from_metadata(metadata: &Metadata) -> Result<Option<Self>> {
        let blob: Vec<u8> = match metadata.array(KEY)? {
            None => return Ok(None),
            Some(Array::U8(v)) => v.clone(),
            Some(Array::I8(v)) => v.iter().map(|&b| b as u8).collect(),
            Some(_) => {
                let found = "an array of another type".into();
                return Err(key_error(KEY, "an array of u8", found));
            }
        };
        if blob.is_empty() {
            return Ok(None);
        }
        Self::parse(&blob).map(Some)
    }

    fn parse(blob: &[u8]) -> Result<Self> {
        let (n_bytes, rest) = blob
            .split_first_chunk()
            .ok_or_else(|| key_error(KEY, "at least 4 bytes", blob.len().to_string()))?;
        let n_bytes = u32::from_le_bytes(*n_bytes) as usize;
        if n_bytes == 0 || !n_bytes.is_multiple_of(4) || n_bytes > rest.len() {
            let expected = format!("a table of 4 to {} bytes, a multiple of 4", rest.len());
            return Err(key_error(KEY, &expected, n_bytes.to_string()));
        }
        let (units, replacements) = rest.split_at(n_bytes);
        let (units, _) = units.as_chunks();
        if replacements.last().is_some_and(|&b| b != 0) {
            return Err(key_error(
                KEY,
                "replacements that end in a zero byte",
                "another byte".into(),
            ));
        }
        Ok(Self {
            units: units.iter().map(|u| u32::from_le_bytes(*u)).collect(),
            replacements: replacements.to_vec(),
        })
    }

    /// The longest string that `text` starts with and the table replaces: its length and the replacement.
    pub(super) fn replace(&self, text: &str) -> Result<Option<(usize, &str)>> {
        let mut node = children(0, self.unit(0)?);
        let mut found = None;
        for (byte, len) in text.bytes().zip(1..=MAX_REPLACED) {
            node ^= usize::from(byte);
            // A byte that leads nowhere may point past the end.
            let Some(&unit) = self.units.get(node) else {
                break;
            };
            if unit & 0x8000_00FF != u32::from(byte) {
                break;
            }
            node = children(node, unit);
            if unit >> 8 & 1 == 1 {
                found = Some((len, self.unit(node)? & 0x7FFF_FFFF));
            }
        }
        match found {
            Some((len, at)) if text.is_char_boundary(len) => Ok(Some((len, self.replacement(at as usize)?))),
            _ => Ok(None),
        }
    }

    fn unit(&self, at: usize) -> Result<u32> {
        let n = self.units.len();
        let outside = || key_error(KEY, &format!("references below its {n} units"), at.to_string());
        self.units.get(at).copied().ok_or_else(outside)
    }

    fn replacement(&self, at: usize) -> Result<&str> {
        let bytes = self.replacements.get(at..).unwrap_or_default();
        let n = bytes.iter().take(MAX_REPLACEMENT + 1).position(|&b| b == 0);
        let text = n.and_then(|n| std::str::from_utf8(&bytes[..n]).ok());
        text.ok_or_else(|| broken(at))
    }
}

fn broken(at: usize) -> Error {
    let expected = format!("UTF-8 of at most {MAX_REPLACEMENT} bytes and a zero byte as each replacement");
    key_error(KEY, &expected, format!("none at byte {at}"))
}

/// Where the children of a node lie, before the byte that leads to one is added.
fn children(node: usize, unit: u32) -> usize {
    let offset = (unit >> 10) << ((unit & 1 << 9) >> 6);
    node ^ offset as usize
}

#[cfg(test)]
#[path = "charsmap_tests.rs"]
pub(super) mod tests;

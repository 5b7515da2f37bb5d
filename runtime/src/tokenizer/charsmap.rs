//! Normalization by a table that the file brings along: `tokenizer.ggml.precompiled_charsmap`.
//!
//! The blob is the number of bytes of a double array (u32, little endian), the array (u32s), and replacement
//! strings, each ended by a zero byte. The array maps byte strings to offsets of replacements. Its unit of a
//! node: bits 0..8 the byte that leads to it, bit 8 whether a string ends here, bits 10..31 the offset to its
//! children, in steps of 256 if bit 9 is set. The unit of a value has bit 31 set and the value below.

use gguf::{Array, Metadata};

use super::vocabulary::key_error;
use crate::{Error, Result};

const KEY: &str = "tokenizer.ggml.precompiled_charsmap";

/// Longest string that is replaced. Those of real tables have a few characters.
const MAX_REPLACED: usize = 256;

/// Longest replacement, in bytes. The longest of Unicode's compatibility mappings has 33.
const MAX_REPLACEMENT: usize = 128;

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
        if !replacements.last().is_none_or(|&b| b == 0) {
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
mod tests {
    use super::*;

    /// A blob for a few replacements. Children of each node get a stretch of 256 units of their own.
    fn blob(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut strings = Vec::new();
        let mut units = vec![0u32; 512];
        // Node by node: its unit, the prefix that leads there, and where its children lie.
        let mut nodes = vec![(0usize, Vec::new(), 256usize)];
        let mut n = 0;
        while n < nodes.len() {
            let (unit, prefix, below) = nodes[n].clone();
            units[unit] |= ((unit ^ below) as u32) << 10;
            for (key, value) in pairs {
                let Some(rest) = key.as_bytes().strip_prefix(&prefix[..]) else {
                    continue;
                };
                let Some(&byte) = rest.first() else {
                    units[unit] |= 1 << 8;
                    units[below] = strings.len() as u32 | 1 << 31;
                    strings.extend(value.bytes().chain([0]));
                    continue;
                };
                let child = below ^ usize::from(byte);
                if units[child] == 0 {
                    units[child] = byte.into();
                    let longer = [&prefix[..], &[byte]].concat();
                    nodes.push((child, longer, units.len()));
                    units.resize(units.len() + 256, 0);
                }
            }
            n += 1;
        }
        let n_bytes = units.len() as u32 * 4;
        let units = units.iter().flat_map(|u| u.to_le_bytes());
        n_bytes
            .to_le_bytes()
            .into_iter()
            .chain(units)
            .chain(strings)
            .collect()
    }

    #[test]
    fn the_longest_string_is_replaced() {
        let pairs = [
            ("ﬁ", "fi"),
            ("\t", " "),
            ("e\u{301}", "é"),
            ("e", "E"),
            ("\u{200b}", ""),
        ];
        let map = Charsmap::parse(&blob(&pairs)).unwrap();
        assert_eq!(map.replace("ﬁx").unwrap(), Some((3, "fi")));
        assert_eq!(map.replace("e\u{301}").unwrap(), Some((3, "é")));
        assert_eq!(map.replace("ex").unwrap(), Some((1, "E")));
        assert_eq!(map.replace("\u{200b}a").unwrap(), Some((3, "")));
        for other in ["a", "", "ﬀ", "\u{301}", "日"] {
            assert_eq!(map.replace(other).unwrap(), None, "{other}");
        }
    }

    #[test]
    fn damaged_tables_are_errors() {
        let good = blob(&[("ab", "c"), ("é", "e")]);
        for n in [0, 3, 4, 7] {
            assert!(Charsmap::parse(&good[..n]).is_err(), "{n} bytes");
        }
        for size in [0u32, 6, u32::MAX] {
            let bad = [&size.to_le_bytes(), &good[4..]].concat();
            let e = Charsmap::parse(&bad).unwrap_err().to_string();
            assert!(e.contains(KEY) && e.ends_with(&size.to_string()), "{e}");
        }
        let mut unended = good.clone();
        *unended.last_mut().unwrap() = b'x';
        assert!(Charsmap::parse(&unended).is_err());
        // A key whose value lies past the end of the replacements.
        let cut = [&good[..good.len() - 4], &[0]].concat();
        let e = Charsmap::parse(&cut)
            .unwrap()
            .replace("é")
            .unwrap_err()
            .to_string();
        assert!(e.contains(KEY) && e.contains("none at byte"), "{e}");
    }

    #[test]
    fn no_table_makes_a_panic() {
        let good = blob(&[("ab", "c"), ("é", "e"), ("e", "f"), ("日本", "x")]);
        let mut state = 1u32;
        let mut n_errors = 0;
        for round in 0..4000 {
            let mut bad = good.clone();
            for _ in 0..1 + round % 40 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = 4 + (state >> 8) as usize % (bad.len() - 5);
                bad[at] = (state >> 3) as u8;
            }
            let map = Charsmap::parse(&bad).unwrap();
            for text in ["ab", "é", "e", "日本", "\u{10FFFF}", "\0\0\0"] {
                n_errors += usize::from(map.replace(text).is_err());
            }
        }
        assert!(n_errors > 0);
    }
}

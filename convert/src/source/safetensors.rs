//! The header of a safetensors file.
//!
//! Eight bytes with the header's length, the header as JSON, then the data. Every number of the header is
//! checked against the file's real length before it is used, so a later read can fail only if the file changes.

use std::borrow::Cow;
use std::fmt;

use gguf::source::Source;
use gguf_blocks::Format;
use serde::de::{Deserializer as _, MapAccess, Visitor};

use super::numbers::Data;
use crate::Result;
use crate::error::Error;

/// The largest header that is read; the format's own limit.
const MAX_HEADER: u64 = 100_000_000;

/// Bytes of the header's length.
const LENGTH_BYTES: u64 = 8;

/// A number format of the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dtype {
    /// The name in headers.
    pub(crate) name: &'static str,
    bits: u64,
    /// The same format as a GGUF tensor type, for those that hold weights.
    format: Option<&'static str>,
}

const fn weights(name: &'static str, bits: u64) -> Dtype {
    Dtype {
        name,
        bits,
        format: Some(name),
    }
}

const fn other(name: &'static str, bits: u64) -> Dtype {
    Dtype {
        name,
        bits,
        format: None,
    }
}

static DTYPES: &[Dtype] = &[
    weights("F32", 32),
    weights("F16", 16),
    weights("BF16", 16),
    other("F64", 64),
    other("I64", 64),
    other("U64", 64),
    other("I32", 32),
    other("U32", 32),
    other("I16", 16),
    other("U16", 16),
    other("I8", 8),
    other("U8", 8),
    other("BOOL", 8),
    other("F8_E4M3", 8),
    other("F8_E5M2", 8),
    other("F8_E8M0", 8),
    other("F4", 4),
];

impl Dtype {
    /// The format of a name in headers.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        DTYPES.iter().copied().find(|d| d.name == name)
    }

    /// The GGUF tensor type of the same format; `None` if this program cannot read weights of it.
    pub(crate) fn format(self) -> Option<&'static Format> {
        gguf_blocks::registry::by_name(self.format?)
    }

    /// Names of the formats that hold weights.
    pub(crate) fn supported() -> String {
        DTYPES
            .iter()
            .filter_map(|d| d.format)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Bytes of one element, for formats that hold weights.
    pub(crate) fn bytes(self) -> u64 {
        self.bits / 8
    }

    /// Bytes of a tensor; `None` if that is no whole number or does not fit.
    fn tensor_bytes(self, shape: &[u64]) -> Option<u64> {
        let elems = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
        let bits = elems.checked_mul(self.bits)?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

/// One tensor of the header.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    /// Row length last.
    pub(super) shape: Vec<u64>,
    pub(super) data: Data,
}

impl Entry {
    /// How many elements; the header's check has proved that the number fits.
    pub(super) fn n_elems(&self) -> u64 {
        self.shape.iter().product()
    }

    /// How many bytes, by the same check.
    pub(super) fn n_bytes(&self) -> u64 {
        self.n_elems() * self.data.dtype.bits / 8
    }
}

/// An entry as the JSON has it.
#[derive(serde::Deserialize)]
#[serde(expecting = "a tensor: an object with `dtype`, `shape` and `data_offsets`")]
struct RawEntry<'a> {
    #[serde(borrow)]
    dtype: Cow<'a, str>,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// Reads and checks the header of a file, the one with number `index`; the tensors come in its order.
pub(super) fn read_header(source: &dyn Source, index: usize) -> Result<Vec<Entry>> {
    let file = format!("`{}`", source.path().display());
    let room = source.len().checked_sub(LENGTH_BYTES).ok_or_else(|| {
        Error::mismatch(
            &file,
            "a safetensors header of 8 bytes or more",
            format!("{} bytes", source.len()),
        )
    })?;
    let mut length = [0; LENGTH_BYTES as usize];
    source.read_at(0, &mut length)?;
    let length = u64::from_le_bytes(length);
    if length > room.min(MAX_HEADER) {
        let expected = format!("at most {}", room.min(MAX_HEADER));
        return Err(Error::mismatch(
            format!("header length of {file}"),
            expected,
            length,
        ));
    }
    let mut header = vec![0; length as usize];
    source.read_at(LENGTH_BYTES, &mut header)?;
    let entries = parse(&file, &header)?;
    check(&file, index, entries, LENGTH_BYTES + length, room - length)
}

/// Gathers the entries in order, so that one that is there twice is seen.
struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<(String, RawEntry<'de>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<serde::de::IgnoredAny>()?;
            } else {
                entries.push((name, map.next_value()?));
            }
        }
        Ok(entries)
    }
}

fn parse<'a>(file: &str, header: &'a [u8]) -> Result<Vec<(String, RawEntry<'a>)>> {
    let mut json = serde_json::Deserializer::from_slice(header);
    json.deserialize_map(Entries)
        .and_then(|entries| json.end().map(|()| entries))
        .map_err(|e| Error::mismatch(format!("header of {file}"), "the JSON of a safetensors header", e))
}

/// Proves that every tensor lies in the data and has the bytes that its shape needs, and that they fill the
/// data without overlap or gap.
fn check(
    file: &str,
    index: usize,
    raw: Vec<(String, RawEntry<'_>)>,
    data_at: u64,
    data_len: u64,
) -> Result<Vec<Entry>> {
    let mut spans = Vec::with_capacity(raw.len());
    let mut entries = Vec::with_capacity(raw.len());
    for (
        name,
        RawEntry {
            dtype,
            shape,
            data_offsets: [begin, end],
        },
    ) in raw
    {
        let object = |of: &str| format!("{of} of tensor `{name}` in {file}");
        let dtype = Dtype::by_name(&dtype).ok_or_else(|| {
            let names = DTYPES.iter().map(|d| d.name).collect::<Vec<_>>().join(", ");
            Error::mismatch(object("dtype"), format!("one of {names}"), format!("`{dtype}`"))
        })?;
        if begin > end {
            return Err(Error::mismatch(
                object("offsets"),
                "a begin up to the end",
                format!("{begin} to {end}"),
            ));
        }
        if dtype.tensor_bytes(&shape) != Some(end - begin) {
            let expected = dtype
                .tensor_bytes(&shape)
                .map_or("a shape whose bytes can be counted".to_owned(), |n| {
                    format!("{n} bytes")
                });
            let found = format!("{} bytes for shape {shape:?} of {}", end - begin, dtype.name);
            return Err(Error::mismatch(object("size"), expected, found));
        }
        spans.push((begin, end, entries.len()));
        let data = Data {
            file: index,
            dtype,
            at: data_at.saturating_add(begin),
        };
        entries.push(Entry { name, shape, data });
    }
    spans.sort_unstable();
    let mut filled = 0;
    for (begin, end, i) in spans {
        if begin != filled {
            let object = format!("offset of tensor `{}` in {file}", entries[i].name);
            return Err(Error::mismatch(
                object,
                format!("{filled}, behind the tensor before"),
                begin,
            ));
        }
        filled = end;
    }
    if filled != data_len {
        let what = if filled > data_len {
            "it is cut"
        } else {
            "more than the header describes"
        };
        let found = format!("{data_len}: {what}");
        return Err(Error::mismatch(format!("bytes of data in {file}"), filled, found));
    }
    Ok(entries)
}

//! The parser: one forward pass over header, metadata and tensor list.
//!
//! It refuses what makes the rest unreadable and passes the merely wrong on: duplicates, holes, overlaps and
//! tensors beyond the end are for [`crate::validate`] to list, so that a damaged file can still be shown.

use std::borrow::Cow;
use std::ops::Range;

use gguf_blocks::TypeId;

use crate::cursor::Cursor;
use crate::limits;
use crate::read::{Endian, Header};
use crate::source::Source;
use crate::validate::{Finding, Findings};
use crate::{Array, Error, Metadata, Result, Shape, Strings, TensorInfo, Value, ValueType, key, sniff};

/// What the parser found.
pub(crate) struct Parsed {
    pub(crate) header: Header,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorInfo>,
    pub(crate) alignment: u64,
    pub(crate) data_offset: u64,
    /// Oddities that did not stop the parser.
    pub(crate) findings: Vec<Finding>,
    /// Keys whose arrays were cut, with the true number of elements.
    pub(crate) cut: Vec<(String, u64)>,
    pub(crate) spans: Spans,
}

/// Where the parts of a head stand in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spans {
    /// Each metadata pair, key, type and value, in the file's order. Repeated keys are not left out.
    pub(crate) pairs: Vec<Range<u64>>,
    /// The whole tensor list.
    pub(crate) tensors: Range<u64>,
}

/// How much of the arrays to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    /// Elements of an array. Those that are arrays are kept whole.
    pub(crate) n: usize,
    /// A key whose array is kept whole.
    pub(crate) whole: Option<&'static str>,
}

impl Keep {
    /// Everything.
    pub(crate) const ALL: Self = Self {
        n: usize::MAX,
        whole: None,
    };

    /// No elements.
    pub(crate) const NONE: Self = Self { n: 0, whole: None };
}

/// Parses the front of a source.
pub(crate) fn parse(source: &dyn Source, keep: Keep) -> Result<Parsed> {
    let mut cursor = Cursor::new(source);
    let header = parse_header(&mut cursor, source)?;
    let n_tensors = parse_count(&mut cursor, "tensor", limits::MAX_TENSORS)?;
    let n_pairs = parse_count(&mut cursor, "metadata", limits::MAX_KEYS)?;
    cursor.require(
        n_pairs,
        limits::MIN_PAIR_BYTES,
        &format!("a list of {n_pairs} metadata pairs"),
    )?;
    cursor.require(
        n_tensors,
        limits::MIN_TENSOR_BYTES,
        &format!("a list of {n_tensors} tensors"),
    )?;

    let mut notes = Notes::default();
    let (metadata, cut) = parse_metadata(&mut cursor, n_pairs, keep, &mut notes)?;
    let Notes {
        mut findings, pairs, ..
    } = notes;
    let alignment = alignment(source, &metadata, &mut findings)?;
    let start = cursor.pos();
    let mut tensors = Vec::new();
    for i in 0..n_tensors {
        cursor.object = format!("tensor {} of {n_tensors}", i + 1);
        tensors.push(parse_tensor(&mut cursor)?);
    }

    let end = cursor.pos();
    let padded = end.next_multiple_of(alignment);
    // A file without tensors has no data section; writers differ in whether they pad.
    let data_offset = if tensors.is_empty() {
        padded.min(source.len())
    } else {
        padded
    };
    size_tensors(source, &mut tensors, data_offset)?;
    Ok(Parsed {
        header,
        metadata,
        tensors,
        alignment,
        data_offset,
        findings: findings.into_vec(),
        cut,
        spans: Spans {
            pairs,
            tensors: start..end,
        },
    })
}

/// What is gathered beside the values.
#[derive(Default)]
struct Notes {
    /// Arrays inside arrays so far.
    n_inner: u64,
    /// Whether the pair that is read has strings that are not UTF-8, which is said once.
    is_not_utf8: bool,
    findings: Findings,
    /// Where each pair stands.
    pairs: Vec<Range<u64>>,
}

/// Magic, version and the byte order that the version shows: read the wrong way round, its low half is 0.
fn parse_header(cursor: &mut Cursor<'_>, source: &dyn Source) -> Result<Header> {
    let n = source.len().min(sniff::SNIFF_BYTES as u64);
    let head = source.slice(0, usize::try_from(n).expect("at most SNIFF_BYTES"))?;
    if !head.starts_with(b"GGUF") {
        return Err(Error::malformed(
            source.path(),
            0,
            sniff::describe(&head, source.len()),
        ));
    }
    cursor.take(4, "magic")?;
    let raw: u32 = cursor.number("version")?;
    let (version, endian) = if raw != 0 && raw.trailing_zeros() >= 16 {
        (raw.swap_bytes(), Endian::Big)
    } else {
        (raw, Endian::Little)
    };
    cursor.set_endian(endian);
    match version {
        2 | 3 => Ok(Header { version, endian }),
        0 | 1 => {
            let what = format!(
                "GGUF version {version} is no longer read: expected 2 or 3; convert the original model again"
            );
            Err(cursor.error(4, &what))
        }
        _ => {
            let what = format!(
                "GGUF version {version} is newer than this program: expected 2 or 3; get a newer release"
            );
            Err(cursor.error(4, &what))
        }
    }
}

fn parse_count(cursor: &mut Cursor<'_>, what: &str, max: u64) -> Result<u64> {
    let at = cursor.pos();
    let n: u64 = cursor.number("counts")?;
    if n > max {
        let what = format!("{what} count {n} is unreasonable: expected at most {max}");
        return Err(cursor.error(at, &what));
    }
    Ok(n)
}

/// A key and its value as they stand in the file.
struct Pair {
    at: u64,
    key: String,
    value: Value,
    /// Elements of an array that was cut.
    cut: Option<u64>,
}

/// The pairs, and the keys whose arrays were cut.
fn parse_metadata(
    cursor: &mut Cursor<'_>,
    n: u64,
    keep: Keep,
    notes: &mut Notes,
) -> Result<(Metadata, Vec<(String, u64)>)> {
    let mut pairs = Vec::new();
    for i in 0..n {
        let at = cursor.pos();
        cursor.object = format!("metadata pair {} of {n}", i + 1);
        let key = cursor.string(limits::MAX_KEY_BYTES, "key")?;
        cursor.object = format!("key `{key}`");
        let type_at = cursor.pos();
        let id: u32 = cursor.number("value type")?;
        let Some(kind) = ValueType::from_id(id) else {
            return Err(cursor.error(type_at, &format!("value type {id} is unknown: expected 0 to 12")));
        };
        notes.is_not_utf8 = false;
        let keep = if keep.whole == Some(&key) {
            usize::MAX
        } else {
            keep.n
        };
        let (value, cut) = parse_value(cursor, kind, &key, keep, notes)?;
        pairs.push(Pair { at, key, value, cut });
        notes.pairs.push(at..cursor.pos());
    }
    Ok(unique(pairs, &mut notes.findings))
}

/// Keeps the first of pairs with the same key, and the order; the others are findings.
fn unique(pairs: Vec<Pair>, findings: &mut Findings) -> (Metadata, Vec<(String, u64)>) {
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    order.sort_by_key(|&i| pairs[i].key.as_str());
    let mut repeated = vec![false; pairs.len()];
    for two in order.windows(2) {
        // The sort is stable: of equal keys the first in the file comes first.
        repeated[two[1]] = pairs[two[0]].key == pairs[two[1]].key;
    }
    let (mut metadata, mut all_cut) = (Metadata::new(), Vec::new());
    for (Pair { at, key, value, cut }, repeated) in pairs.into_iter().zip(repeated) {
        if key.is_empty() || repeated {
            let what = if repeated {
                "the key appears a second time"
            } else {
                "the key is empty"
            };
            findings.push("keys that are empty or there already", || {
                let remedy = "write the file again with one value for each key";
                Finding::severe(Finding::key(&key), Some(at), what, remedy)
            });
        }
        if !repeated {
            all_cut.extend(cut.map(|n| (key.clone(), n)));
            metadata.push_new(key, value);
        }
    }
    (metadata, all_cut)
}

/// A value, of an array `keep` elements; how many it has, where that is more.
fn parse_value(
    cursor: &mut Cursor<'_>,
    kind: ValueType,
    key: &str,
    keep: usize,
    notes: &mut Notes,
) -> Result<(Value, Option<u64>)> {
    let part = "value";
    let value = match kind {
        ValueType::U8 => Value::U8(cursor.number(part)?),
        ValueType::I8 => Value::I8(cursor.number(part)?),
        ValueType::U16 => Value::U16(cursor.number(part)?),
        ValueType::I16 => Value::I16(cursor.number(part)?),
        ValueType::U32 => Value::U32(cursor.number(part)?),
        ValueType::I32 => Value::I32(cursor.number(part)?),
        ValueType::F32 => Value::F32(cursor.number(part)?),
        ValueType::U64 => Value::U64(cursor.number(part)?),
        ValueType::I64 => Value::I64(cursor.number(part)?),
        ValueType::F64 => Value::F64(cursor.number(part)?),
        ValueType::Bool => Value::Bool(cursor.number::<u8>(part)? != 0),
        ValueType::String => Value::String(parse_text(cursor, key, &mut notes.findings)?),
        ValueType::Array => {
            let (array, n) = parse_array(cursor, 1, key, keep, notes)?;
            let cut = (n > array.len() as u64).then_some(n);
            return Ok((Value::Array(array), cut));
        }
    };
    Ok((value, None))
}

/// A string value. Some writers cut strings at a number of bytes, inside a character: that is repaired, since
/// nothing depends on such a text. Elements of arrays (tokens) are not.
fn parse_text(cursor: &mut Cursor<'_>, key: &str, findings: &mut Findings) -> Result<String> {
    let at = cursor.pos();
    let bytes = cursor.string_bytes(limits::MAX_STRING_BYTES, "string")?;
    let text = String::from_utf8_lossy(bytes);
    if matches!(text, Cow::Owned(_)) {
        findings.push("strings that are not UTF-8", || {
            let what = "the string is not UTF-8: bytes that are not are read as U+FFFD";
            Finding::unusual(Finding::key(key), Some(at), what, "set the key again")
        });
    }
    Ok(text.into_owned())
}

/// The first `keep` elements of an array; how many it has.
fn parse_array(
    cursor: &mut Cursor<'_>,
    depth: usize,
    key: &str,
    keep: usize,
    notes: &mut Notes,
) -> Result<(Array, u64)> {
    let at = cursor.pos();
    let id: u32 = cursor.number("element type")?;
    let Some(kind) = ValueType::from_id(id) else {
        return Err(cursor.error(at, &format!("element type {id} is unknown: expected 0 to 12")));
    };
    let at = cursor.pos();
    let claimed: u64 = cursor.number("array length")?;
    if claimed > limits::MAX_ARRAY_LEN {
        let what = format!(
            "array of {claimed} elements is unreasonable: expected at most {}",
            limits::MAX_ARRAY_LEN
        );
        return Err(cursor.error(at, &what));
    }
    cursor.require(
        claimed,
        kind.min_bytes(),
        &format!("an array of {claimed} elements"),
    )?;
    let n = usize::try_from(claimed).expect("at most MAX_ARRAY_LEN");
    let kept = n.min(keep);
    let array = if kind == ValueType::Array {
        check_inner(cursor, at, depth, n, notes)?;
        let mut arrays = Vec::new();
        for i in 0..n {
            // All are parsed; what is kept is kept whole.
            let keep = if i < kept { usize::MAX } else { 0 };
            let (array, _) = parse_array(cursor, depth + 1, key, keep, notes)?;
            if i < kept {
                arrays.push(array);
            }
        }
        Array::Array(arrays)
    } else {
        let array = parse_elements(cursor, kind, kept, key, notes)?;
        skip_elements(cursor, kind, n - kept)?;
        array
    };
    Ok((array, claimed))
}

/// Whether an array, whose length stands at `at`, may have `n` arrays in it.
fn check_inner(cursor: &Cursor<'_>, at: u64, depth: usize, n: usize, notes: &mut Notes) -> Result<()> {
    notes.n_inner += n as u64;
    if depth >= limits::MAX_NESTING {
        let what = format!("arrays are nested deeper than {} levels", limits::MAX_NESTING);
        return Err(cursor.error(at, &what));
    }
    if notes.n_inner > limits::MAX_INNER_ARRAYS {
        let what = format!(
            "{} arrays inside arrays are unreasonable: expected at most {}",
            notes.n_inner,
            limits::MAX_INNER_ARRAYS
        );
        return Err(cursor.error(at, &what));
    }
    Ok(())
}

/// The next `n` elements, which are no arrays.
fn parse_elements(
    cursor: &mut Cursor<'_>,
    kind: ValueType,
    n: usize,
    key: &str,
    notes: &mut Notes,
) -> Result<Array> {
    Ok(match kind {
        ValueType::U8 => Array::U8(cursor.numbers(n)?),
        ValueType::I8 => Array::I8(cursor.numbers(n)?),
        ValueType::U16 => Array::U16(cursor.numbers(n)?),
        ValueType::I16 => Array::I16(cursor.numbers(n)?),
        ValueType::U32 => Array::U32(cursor.numbers(n)?),
        ValueType::I32 => Array::I32(cursor.numbers(n)?),
        ValueType::F32 => Array::F32(cursor.numbers(n)?),
        ValueType::U64 => Array::U64(cursor.numbers(n)?),
        ValueType::I64 => Array::I64(cursor.numbers(n)?),
        ValueType::F64 => Array::F64(cursor.numbers(n)?),
        ValueType::Bool => {
            // In the file any byte but 0 is true; a vector of bytes turns into one of bools in place.
            let bytes: Vec<u8> = cursor.numbers(n)?;
            Array::Bool(bytes.into_iter().map(|b| b != 0).collect())
        }
        ValueType::String => Array::String(parse_strings(cursor, n, key, notes)?),
        ValueType::Array => unreachable!("arrays of arrays are parsed one by one"),
    })
}

/// The next `n` strings of an array. They are kept as they stand; the first that is not UTF-8 is a finding, once for
/// each key.
fn parse_strings(cursor: &mut Cursor<'_>, n: usize, key: &str, notes: &mut Notes) -> Result<Strings> {
    let at = cursor.pos();
    let mut strings = Strings::with_room(n).ok_or_else(|| cursor.out_of_memory(n))?;
    for _ in 0..n {
        strings.push(cursor.string_bytes(limits::MAX_STRING_BYTES, "array element")?);
    }
    if !notes.is_not_utf8
        && let Some(i) = strings.first_not_utf8()
    {
        notes.is_not_utf8 = true;
        notes.findings.push("arrays of strings that are not UTF-8", || {
            let what = format!("element {i} is not UTF-8");
            let remedy = "make the file again from the original tokenizer";
            Finding::unusual(Finding::key(key), Some(at), what, remedy)
        });
    }
    Ok(strings)
}

/// Passes over `n` elements, which are no arrays; they must be there all the same.
fn skip_elements(cursor: &mut Cursor<'_>, kind: ValueType, n: usize) -> Result<()> {
    if kind != ValueType::String {
        return cursor.skip(n as u64 * kind.min_bytes(), "array");
    }
    for _ in 0..n {
        let bytes = cursor.number("array element")?;
        cursor.skip(bytes, "array element")?;
    }
    Ok(())
}

/// The alignment that the metadata names. Without a sound one the data section cannot be found.
fn alignment(source: &dyn Source, metadata: &Metadata, findings: &mut Findings) -> Result<u64> {
    let Some(value) = metadata.get(key::ALIGNMENT) else {
        return Ok(limits::DEFAULT_ALIGNMENT);
    };
    let refuse = |found: String| {
        let what = format!(
            "key `{}`: expected a power of two up to {} as u32, found {found}",
            key::ALIGNMENT,
            limits::MAX_ALIGNMENT
        );
        Error::malformed(source.path(), 0, what)
    };
    let Some(alignment) = value.to_uint() else {
        return Err(refuse(value.type_name()));
    };
    if !alignment.is_power_of_two() {
        return Err(refuse(alignment.to_string()));
    }
    if alignment > limits::MAX_ALIGNMENT {
        return Err(refuse(format!("{alignment}, which is unreasonable")));
    }
    if value.value_type() != ValueType::U32 {
        findings.one(Finding::severe(
            Finding::key(key::ALIGNMENT),
            None,
            format!(
                "expected type u32, found {}: llama.cpp refuses the file",
                value.type_name()
            ),
            "set the key again as u32",
        ));
    }
    Ok(alignment)
}

/// One entry of the tensor list; its size is filled in by [`size_tensors`].
fn parse_tensor(cursor: &mut Cursor<'_>) -> Result<TensorInfo> {
    let name = cursor.string(limits::MAX_NAME_BYTES, "name")?;
    cursor.object = format!("tensor `{name}`");
    let at = cursor.pos();
    let n_dims: u32 = cursor.number("number of dimensions")?;
    if n_dims > limits::MAX_DIMS {
        let what = format!("{n_dims} dimensions: expected at most {}", limits::MAX_DIMS);
        return Err(cursor.error(at, &what));
    }
    let mut dims = [1_u64; limits::MAX_DIMS as usize];
    let dims = &mut dims[..n_dims as usize];
    for dim in dims.iter_mut() {
        *dim = cursor.number("dimensions")?;
    }
    let Some(shape) = Shape::new(dims) else {
        let what = format!("the number of elements of shape {dims:?} overflows: expected below 2^63");
        return Err(cursor.error(at, &what));
    };
    let type_id = TypeId(cursor.number("type")?);
    let offset = cursor.number("offset")?;
    Ok(TensorInfo {
        name,
        shape,
        type_id,
        offset,
        n_bytes: 0,
        part: 0,
    })
}

/// Fills in each tensor's bytes: from its type and shape, or else from the room it has.
fn size_tensors(source: &dyn Source, tensors: &mut [TensorInfo], data_offset: u64) -> Result<()> {
    let data_bytes = source.len().saturating_sub(data_offset);
    let mut starts = None;
    for i in 0..tensors.len() {
        let tensor = &tensors[i];
        let known = tensor.format().and_then(|format| tensor.shape.n_bytes(format));
        tensors[i].n_bytes = if let Some(n_bytes) = known {
            n_bytes
        } else {
            refuse_overflow(source, tensor, data_offset)?;
            let starts: &Vec<u64> = starts.get_or_insert_with(|| {
                let mut starts: Vec<u64> = tensors.iter().map(|t| t.offset).collect();
                starts.sort_unstable();
                starts
            });
            let next = starts.partition_point(|&o| o <= tensor.offset);
            let end = starts.get(next).map_or(data_bytes, |&o| o.min(data_bytes));
            end.saturating_sub(tensor.offset)
        };
    }
    Ok(())
}

/// Refuses a tensor whose bytes cannot be counted in 64 bits.
fn refuse_overflow(source: &dyn Source, tensor: &TensorInfo, data_offset: u64) -> Result<()> {
    let Some(format) = tensor.format() else {
        return Ok(());
    };
    let geometry = &format.geometry;
    let blocks = tensor.shape.n_elems() / geometry.block_elems as u64;
    let headers = tensor
        .shape
        .n_rows()
        .checked_mul(geometry.row_header_bytes as u64);
    let bytes = blocks.checked_mul(geometry.block_bytes as u64);
    let trailer = geometry.tensor_trailer_bytes as u64;
    let rows = bytes.zip(headers).and_then(|(b, h)| b.checked_add(h));
    if rows.and_then(|rows| rows.checked_add(trailer)).is_some() {
        return Ok(());
    }
    let what = format!(
        "tensor `{}`: the bytes of shape {} as {} overflow: expected below 2^64",
        tensor.name, tensor.shape, format.name
    );
    Err(Error::malformed(source.path(), data_offset, what))
}

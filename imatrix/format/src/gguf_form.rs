//! The GGUF form.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use gguf::atomic::AtomicFile;
use gguf::source::Source;
use gguf::{Array, GgufFile, Layout, Metadata, Shape, Strings, TensorInfo, TensorSpec, Value, Writer};

use crate::stats::{SCHEMA, Statistics};
use crate::{
    Entry, Error, Imatrix, Index, Origin, Place, Result, Weight, base_name, check_entry, check_lengths,
};

const GENERAL_TYPE: &str = "general.type";
const KIND: &str = "imatrix";
const DATASETS: &str = "imatrix.datasets";
const CHUNK_COUNT: &str = "imatrix.chunk_count";
const CHUNK_SIZE: &str = "imatrix.chunk_size";
const STATS_SCHEMA: &str = "imatrix.stats_schema";

const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";
const MEANS: &str = ".in_sum";
const STATS: &str = ".stats";

/// Counts are stored as f32; above this they would no longer be whole numbers of a file's own making.
const MAX_COUNT: f32 = 1e18;

/// The tensors of one weight while the list is scanned.
#[derive(Default)]
struct Parts<'a> {
    sums: Option<&'a TensorInfo>,
    counts: Option<&'a TensorInfo>,
    means: Option<&'a TensorInfo>,
}

/// Reads the GGUF form.
pub(crate) fn read(source: Arc<dyn Source>) -> Result<Imatrix> {
    let file = open(source)?;
    let mut entries = BTreeMap::new();
    for (name, part) in parts(&file)? {
        entries.insert(name.to_owned(), read_entry(&file, name, &part)?);
    }
    let keys = |e| in_file(&file, e);
    Ok(Imatrix {
        entries,
        datasets: datasets(&file.metadata).map_err(keys)?,
        chunk_count: required_u32(&file.metadata, CHUNK_COUNT).map_err(keys)?,
        chunk_size: chunk_size(&file.metadata).map_err(keys)?,
        origin: Origin::read(&file.metadata).map_err(keys)?,
    })
}

/// Finds the sums of the GGUF form without reading them.
pub(crate) fn index(source: Arc<dyn Source>) -> Result<Index> {
    let file = open(Arc::clone(&source))?;
    let mut entries = BTreeMap::new();
    for (name, part) in parts(&file)? {
        let (sums, counts) = part.required(&file, name)?;
        check_type(file.path(), sums)?;
        let counts = read_counts(&file, name, counts)?;
        let n_values = sums.shape.n_elems();
        check_lengths(file.path(), name, n_values, counts.len() as u64)?;
        let place = Place {
            at: file.tensor_range(sums).start,
            n_values,
            counts,
            zero_groups: 0,
        };
        entries.insert(name.to_owned(), place);
    }
    let keys = |e| in_file(&file, e);
    // A reader of files by the reference needs it; the number itself does not matter here.
    chunk_size(&file.metadata).map_err(keys)?;
    Ok(Index {
        source,
        little_endian: is_little(&file),
        entries,
        datasets: datasets(&file.metadata).map_err(keys)?,
        chunk_count: required_u32(&file.metadata, CHUNK_COUNT).map_err(keys)?,
        origin: Origin::read(&file.metadata).map_err(keys)?,
    })
}

/// The container does not name the file for keys.
fn in_file(file: &GgufFile, error: Error) -> Error {
    match error {
        Error::Container(e @ gguf::Error::Key { .. }) => Error::malformed(file.path(), e.to_string()),
        other => other,
    }
}

/// Opens a container that says it is an importance matrix.
fn open(source: Arc<dyn Source>) -> Result<GgufFile> {
    let file = GgufFile::from_source(source)?;
    file.require_sound()?;
    let kind = file.metadata.string(GENERAL_TYPE);
    let kind = kind.map_err(|e| in_file(&file, e.into()))?;
    if kind != Some(KIND) {
        let found = kind.map_or("nothing, as models have".to_owned(), |k| format!("`{k}`"));
        let what = format!("metadata key `{GENERAL_TYPE}`: expected `{KIND}`, found {found}");
        return Err(Error::malformed(file.path(), what));
    }
    Ok(file)
}

/// The tensors of each weight.
fn parts(file: &GgufFile) -> Result<BTreeMap<&str, Parts<'_>>> {
    let mut parts: BTreeMap<&str, Parts<'_>> = BTreeMap::new();
    for t in &file.tensors {
        if let Some(name) = t.name.strip_suffix(SUMS) {
            parts.entry(name).or_default().sums = Some(t);
        } else if let Some(name) = t.name.strip_suffix(COUNTS) {
            parts.entry(name).or_default().counts = Some(t);
        } else if let Some(name) = t.name.strip_suffix(MEANS) {
            parts.entry(name).or_default().means = Some(t);
        }
    }
    if parts.is_empty() {
        return Err(Error::malformed(
            file.path(),
            format!("no tensor named `*{SUMS}`: the matrix is empty"),
        ));
    }
    Ok(parts)
}

impl<'a> Parts<'a> {
    /// Sums and counts.
    fn required(&self, file: &GgufFile, name: &str) -> Result<(&'a TensorInfo, &'a TensorInfo)> {
        let missing = |suffix| {
            Error::malformed(
                file.path(),
                format!("weight `{name}`: tensor `{name}{suffix}` is missing"),
            )
        };
        let sums = self.sums.ok_or_else(|| missing(SUMS))?;
        let counts = self.counts.ok_or_else(|| missing(COUNTS))?;
        Ok((sums, counts))
    }
}

fn read_entry(file: &GgufFile, name: &str, part: &Parts<'_>) -> Result<Entry> {
    let (sums, counts) = part.required(file, name)?;
    let counts = read_counts(file, name, counts)?;
    let means = part
        .means
        .map(|t| read_f32(file, t))
        .transpose()?
        .unwrap_or_default();
    let sums = read_f32(file, sums)?;
    if !means.is_empty() && means.len() != sums.len() {
        let what = format!(
            "tensor `{name}{MEANS}`: expected {} values, found {}",
            sums.len(),
            means.len()
        );
        return Err(Error::malformed(file.path(), what));
    }
    let entry = Entry { sums, means, counts };
    check_entry(file.path(), name, &entry)?;
    Ok(entry)
}

fn read_counts(file: &GgufFile, name: &str, tensor: &TensorInfo) -> Result<Vec<u64>> {
    let raw = read_f32(file, tensor)?;
    let one = |(i, c): (usize, &f32)| {
        if !(0.0..=MAX_COUNT).contains(c) || c.fract() != 0.0 {
            let what = format!(
                "tensor `{name}{COUNTS}`, matrix {i}: expected a whole number of tokens, found {c:e}"
            );
            return Err(Error::malformed(file.path(), what));
        }
        Ok(*c as u64)
    };
    raw.iter().enumerate().map(one).collect()
}

fn check_type(path: &Path, tensor: &TensorInfo) -> Result<()> {
    if tensor.type_id == gguf_blocks::TypeId(0) {
        return Ok(());
    }
    let what = format!(
        "tensor `{}`: expected type `F32`, found `{}`",
        tensor.name,
        tensor.type_name()
    );
    Err(Error::malformed(path, what))
}

fn is_little(file: &GgufFile) -> bool {
    file.first().header.endian == gguf::Endian::Little
}

/// All values of an F32 tensor, in the file's byte order.
fn read_f32(file: &GgufFile, tensor: &TensorInfo) -> Result<Vec<f32>> {
    check_type(file.path(), tensor)?;
    let bytes = file.tensor_bytes(tensor)?;
    let little = is_little(file);
    let (words, _) = bytes.as_chunks::<4>();
    Ok(words
        .iter()
        .map(|w| {
            if little {
                f32::from_le_bytes(*w)
            } else {
                f32::from_be_bytes(*w)
            }
        })
        .collect())
}

/// The dataset names: an array of strings, or a single string as merged files of some tools have it.
fn datasets(metadata: &Metadata) -> Result<Vec<String>> {
    let names = match metadata.get(DATASETS) {
        Some(Value::String(s)) => vec![s.clone()],
        Some(_) => metadata.strings(DATASETS)?.map_or_else(Vec::new, Strings::to_vec),
        None => return Err(missing_key(DATASETS, "an array of strings")),
    };
    Ok(names.iter().map(|n| base_name(n).to_owned()).collect())
}

/// Tokens of a chunk.
fn chunk_size(metadata: &Metadata) -> Result<u32> {
    match required_u32(metadata, CHUNK_SIZE)? {
        0 => Err(Error::Container(gguf::Error::Key {
            key: CHUNK_SIZE.into(),
            expected: "at least 1".into(),
            found: "0".into(),
        })),
        n => Ok(n),
    }
}

fn required_u32(metadata: &Metadata, key: &str) -> Result<u32> {
    let value = metadata
        .uint(key)?
        .ok_or_else(|| missing_key(key, "an unsigned integer"))?;
    u32::try_from(value).map_err(|_| {
        Error::Container(gguf::Error::Key {
            key: key.into(),
            expected: "a number of 32 bits".into(),
            found: value.to_string().into(),
        })
    })
}

fn missing_key(key: &str, expected: &str) -> Error {
    Error::Container(gguf::Error::Key {
        key: key.into(),
        expected: expected.into(),
        found: "nothing".into(),
    })
}

/// Writes the GGUF form: for each weight in byte order `in_sum2`, `counts`, `in_sum` where recorded, and `stats`.
pub(crate) fn write(imatrix: &Imatrix, mut out: AtomicFile) -> Result<()> {
    let mut weights = Vec::with_capacity(imatrix.entries.len());
    for (name, e) in &imatrix.entries {
        check_entry(out.path(), name, e)?;
        let n_mat = e.counts.len() as u64;
        weights.push(Weight {
            name,
            n_cols: e.sums.len() as u64 / n_mat,
            n_mat,
            has_means: !e.means.is_empty(),
        });
    }
    let head = Head {
        datasets: &imatrix.datasets,
        chunk_count: imatrix.chunk_count,
        chunk_size: imatrix.chunk_size,
        origin: imatrix.origin.as_ref(),
    };
    let layout = layout(&weights, &head)?;
    let statistics = Statistics::of(imatrix);
    let stats: BTreeMap<&str, _> = statistics
        .tensors
        .iter()
        .map(|t| (t.name.as_str(), &t.values))
        .collect();
    out.expect(layout.total_bytes)?;
    let mut writer = Writer::new(out, &layout)?;
    for (name, e) in &imatrix.entries {
        writer.write(&bytes_of(e.sums.iter().copied()))?;
        writer.write(&bytes_of(e.counts.iter().map(|&c| c as f32)))?;
        if !e.means.is_empty() {
            writer.write(&bytes_of(e.means.iter().copied()))?;
        }
        writer.write(&bytes_of(stats[name.as_str()].iter().map(|&v| stored(v))))?;
    }
    writer.finish()?.commit()?;
    Ok(())
}

/// A statistic as it is stored. What there is none of has one bit pattern, whatever computed it.
fn stored(value: f64) -> f32 {
    if value.is_nan() { f32::NAN } else { value as f32 }
}

/// What a file says beside its weights.
pub(crate) struct Head<'a> {
    pub(crate) datasets: &'a [String],
    pub(crate) chunk_count: u32,
    pub(crate) chunk_size: u32,
    pub(crate) origin: Option<&'a Origin>,
}

/// Keys, tensors and size of a file.
pub(crate) fn layout(weights: &[Weight<'_>], head: &Head<'_>) -> Result<Layout> {
    let mut metadata = Metadata::new();
    let names = head.datasets.iter().map(|n| base_name(n)).collect();
    metadata.set(GENERAL_TYPE, Value::String(KIND.to_owned()));
    metadata.set(DATASETS, Value::Array(Array::String(names)));
    metadata.set(CHUNK_COUNT, Value::U32(head.chunk_count));
    metadata.set(CHUNK_SIZE, Value::U32(head.chunk_size));
    metadata.set(STATS_SCHEMA, Value::Array(Array::String(SCHEMA.iter().collect())));
    if let Some(origin) = head.origin {
        origin.write(&mut metadata);
    }

    let mut specs = Vec::with_capacity(weights.len() * 4);
    for w in weights {
        let mut push = |suffix: &str, n_cols: u64, n_mat: u64| {
            // Trailing dimensions of 1 are not stored: a dense weight's tensors have one dimension.
            let dims: &[u64] = if n_mat == 1 { &[n_cols] } else { &[n_cols, n_mat] };
            let shape = Shape::new(dims).ok_or_else(|| too_large(w))?;
            specs.push(TensorSpec::new(
                format!("{}{suffix}", w.name),
                shape,
                gguf_blocks::TypeId(0),
            ));
            Ok::<_, Error>(())
        };
        push(SUMS, w.n_cols, w.n_mat)?;
        push(COUNTS, 1, w.n_mat)?;
        if w.has_means {
            push(MEANS, w.n_cols, w.n_mat)?;
        }
        push(STATS, SCHEMA.len() as u64, 1)?;
    }
    Ok(Layout::plan(&metadata, specs)?)
}

fn too_large(w: &Weight<'_>) -> Error {
    let what = format!(
        "weight `{}`: {} x {} sums are no tensor",
        w.name, w.n_cols, w.n_mat
    );
    Error::Container(gguf::Error::Output(what.into()))
}

fn bytes_of(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_le_bytes).collect()
}

//! Which tensor goes to which shard, and what the shards' heads say.

use crate::pairs::{Pair, Pairs};
use crate::{Error, GgufFile, Layout, Metadata, Result, TensorSpec, Value, key};

use super::MAX_SHARDS;

/// When a new shard begins. The rules are those of `llama-gguf-split`, so that the same limits give the same files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limits {
    /// This many tensors to a shard.
    Tensors(u64),
    /// At most this many bytes of padded tensor data to a shard. A tensor that is larger gets a shard of its own.
    Bytes(u64),
}

/// One shard to be written.
#[derive(Clone, Debug)]
pub struct Shard {
    /// Its head and the places of its tensors.
    pub layout: Layout,
    /// Its first tensor, as an index of [`GgufFile::tensors`]; the others follow in order.
    pub first_tensor: usize,
}

/// Plans a split of a model into shards. With `no_tensor_first` the first shard has the metadata only.
///
/// # Errors
/// A limit of 0, more than 65,535 shards, more than 2^31 tensors.
pub fn plan(file: &GgufFile, limits: Limits, no_tensor_first: bool) -> Result<Vec<Shard>> {
    if matches!(limits, Limits::Tensors(0) | Limits::Bytes(0)) {
        return Err(refuse("a shard of 0 bytes or tensors: expected a limit above 0"));
    }
    let alignment = file.first().alignment;
    let sizes = file.tensors.iter().map(|t| t.n_bytes);
    let mut starts = starts(sizes, alignment, limits);
    if no_tensor_first {
        starts.insert(0, 0);
    }
    let specs = file.tensors.iter().map(TensorSpec::from).collect();
    let layouts = shards(&merged_pairs(file)?, alignment, specs, &starts)?;
    let shards = layouts.into_iter().zip(starts);
    Ok(shards
        .map(|(layout, first_tensor)| Shard { layout, first_tensor })
        .collect())
}

/// Lays out shards: the first one has all of `metadata`, and shard `i` has the tensors from `starts[i]` up to the next
/// start. `starts` begins with 0 and does not fall.
///
/// # Errors
/// More than 65,535 shards, more than 2^31 tensors, what [`Layout::plan`] refuses.
pub fn layouts(metadata: &Metadata, tensors: Vec<TensorSpec>, starts: &[usize]) -> Result<Vec<Layout>> {
    let alignment = crate::layout::alignment(metadata)?;
    shards(&Pairs::encode(metadata), alignment, tensors, starts)
}

fn shards(whole: &Pairs, alignment: u64, tensors: Vec<TensorSpec>, starts: &[usize]) -> Result<Vec<Layout>> {
    let count = u16::try_from(starts.len()).map_err(|_| {
        let n = starts.len();
        refuse(&format!(
            "{n} shards are too many: expected at most {MAX_SHARDS}; raise the limit"
        ))
    })?;
    let n_tensors =
        i32::try_from(tensors.len()).map_err(|_| refuse("too many tensors to split: expected below 2^31"))?;
    let kept = |p: &&Pair| p.key == key::ALIGNMENT;
    let alignment_pair: Vec<Pair> = whole.0.iter().filter(kept).cloned().collect();
    let ends = starts.iter().skip(1).copied().chain([tensors.len()]);
    let mut tensors = tensors.into_iter();
    let lay_out = |(no, (&start, end)): (u16, (&usize, usize))| {
        let mut pairs = match no {
            0 => whole.clone(),
            _ => Pairs(alignment_pair.clone()),
        };
        pairs.set(key::SPLIT_NO, &Value::U16(no));
        pairs.set(key::SPLIT_TENSORS, &Value::I32(n_tensors));
        pairs.set(key::SPLIT_COUNT, &Value::U16(count));
        let specs = tensors.by_ref().take(end - start).collect();
        Layout::with_pairs(&pairs, alignment, specs)
    };
    (0..count).zip(starts.iter().zip(ends)).map(lay_out).collect()
}

/// Lays the whole model of a split set out: the first shard's pairs as they stand but for the keys of the split, and
/// all tensors in their order.
///
/// # Errors
/// A model that cannot be written as it stands: big-endian, repeated keys or names, names that are too long.
pub fn merged(file: &GgufFile) -> Result<Layout> {
    let specs = file.tensors.iter().map(TensorSpec::from).collect();
    Layout::with_pairs(&merged_pairs(file)?, file.first().alignment, specs)
}

/// The pairs of the whole model.
pub(super) fn merged_pairs(file: &GgufFile) -> Result<Pairs> {
    let mut pairs = Pairs::of(file)?;
    for key in key::SPLIT {
        pairs.remove(key);
    }
    Ok(pairs)
}

fn refuse(what: &str) -> Error {
    Error::Output(format!("cannot split: {what}").into())
}

/// The first tensor of each shard, from the tensors' bytes.
pub fn starts(n_bytes: impl Iterator<Item = u64>, alignment: u64, limits: Limits) -> Vec<usize> {
    let mut starts = vec![0];
    let mut bytes = 0_u64;
    let mut n = 0;
    for (i, n_bytes) in n_bytes.enumerate() {
        let size = n_bytes.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        let full = match limits {
            Limits::Tensors(max) => n == max,
            Limits::Bytes(max) => n > 0 && bytes.saturating_add(size) > max,
        };
        if full {
            starts.push(i);
            (bytes, n) = (0, 0);
        }
        bytes = bytes.saturating_add(size);
        n += 1;
    }
    starts
}

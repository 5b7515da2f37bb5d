//! Which tensor goes to which shard, and what the shards' heads say.

use crate::pairs::{Pair, Pairs};
use crate::{Error, GgufFile, Layout, Result, TensorSpec, Value, key};

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
    let starts = starts(file, limits, no_tensor_first);
    let count = u16::try_from(starts.len()).map_err(|_| {
        let n = starts.len();
        refuse(&format!(
            "{n} shards are too many: expected at most {MAX_SHARDS}; raise the limit"
        ))
    })?;
    let n_tensors = i32::try_from(file.tensors.len())
        .map_err(|_| refuse("too many tensors to split: expected below 2^31"))?;
    let ends = starts.iter().skip(1).copied().chain([file.tensors.len()]);
    let whole = merged_pairs(file)?;
    let alignment: Vec<Pair> = whole
        .0
        .iter()
        .filter(|p| p.key == key::ALIGNMENT)
        .cloned()
        .collect();
    (0..count)
        .zip(starts.iter().zip(ends))
        .map(|(no, (&start, end))| {
            let mut pairs = match no {
                0 => whole.clone(),
                _ => Pairs(alignment.clone()),
            };
            pairs.set(key::SPLIT_NO, &Value::U16(no));
            pairs.set(key::SPLIT_TENSORS, &Value::I32(n_tensors));
            pairs.set(key::SPLIT_COUNT, &Value::U16(count));
            let specs = file.tensors[start..end].iter().map(TensorSpec::from).collect();
            Ok(Shard {
                layout: Layout::with_pairs(&pairs, file.first().alignment, specs)?,
                first_tensor: start,
            })
        })
        .collect()
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

/// The first tensor of each shard.
fn starts(file: &GgufFile, limits: Limits, no_tensor_first: bool) -> Vec<usize> {
    let mut starts = vec![0];
    if no_tensor_first {
        starts.push(0);
    }
    let mut bytes = 0_u64;
    let mut n = 0;
    for (i, tensor) in file.tensors.iter().enumerate() {
        let size = tensor
            .n_bytes
            .checked_next_multiple_of(file.first().alignment)
            .unwrap_or(u64::MAX);
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

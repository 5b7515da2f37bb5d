//! Checkpoints: what a run that is stopped needs to go on.
//!
//! A checkpoint is a GGUF file of its own kind: metadata say which run it belongs to and how far that was, tensors hold
//! the sums as they are in memory, so that a resumed run ends with the bytes of one that was not stopped. It is written
//! beside the output, under the output's name with [`SUFFIX`], and goes when the output is written.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use gguf::atomic::AtomicFile;
use gguf::{Array, GgufFile, Layout, Metadata, Shape, TensorInfo, TensorSpec, Value, Writer, listed, short};
use gguf_blocks::registry;
use gguf_cli::{Failure, Result};
use gguf_models::component::layer_of;
use gguf_runtime::perplexity::score::{self, Perplexity};
use gguf_runtime::{HiddenStates, Observed};

use sha2::{Digest as _, Sha256};

use crate::sums::{SumSet, Sums};

/// What follows the output's name.
pub(crate) const SUFFIX: &str = ".checkpoint";

const GENERAL_TYPE: &str = "general.type";
const KIND: &str = "imatrix-checkpoint";
const RUN_NAMES: &str = "imatrix.checkpoint.run.names";
const RUN_VALUES: &str = "imatrix.checkpoint.run.values";
const CHUNKS: &str = "imatrix.checkpoint.chunks";
const LAYERS: &str = "imatrix.checkpoint.layers";
const PPL_SUM: &str = "imatrix.checkpoint.perplexity.sum";
const PPL_SQUARES: &str = "imatrix.checkpoint.perplexity.squares";
const PPL_TOKENS: &str = "imatrix.checkpoint.perplexity.tokens";
const SAME_NAMES: &str = "imatrix.checkpoint.same.names";
const SAME_FIRST: &str = "imatrix.checkpoint.same.first";

const SQUARES: &str = ".in_sum2";
const VALUES: &str = ".in_sum";
const COUNTS: &str = ".counts";
/// SHA-256 of the head and of all other tensors.
const DIGEST: &str = "digest";
/// Its words of 8 bytes.
const DIGEST_WORDS: usize = 4;
/// Hidden states of all tokens behind the last layer that is complete.
const STATES: &str = "hidden_states";

/// Where the checkpoint of an output is.
pub(crate) fn path_of(output: &Path) -> PathBuf {
    let mut path = output.as_os_str().to_owned();
    path.push(SUFFIX);
    path.into()
}

/// Things in which two runs differ that a message names.
const N_SHOWN: usize = 8;

/// What a run is, by names for people: all that its sums depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunIdentity(pub(crate) Vec<(String, String)>);

impl RunIdentity {
    pub(crate) fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.push((name.to_owned(), value.to_string()));
    }

    /// In what this run differs from another, in words: the first few things.
    fn differences(&self, found: &Self) -> String {
        // Of several values under a name the first one counts.
        let by_name = |of: &'_ Self| -> HashMap<String, String> { of.0.iter().rev().cloned().collect() };
        let (own, other) = (by_name(self), by_name(found));
        let shown =
            |value: Option<&String>| value.map_or_else(|| "nothing".to_owned(), |v| short(v).into_owned());
        let mut seen = HashSet::new();
        let mut list = Vec::new();
        for (name, _) in self.0.iter().chain(&found.0) {
            let (a, b) = (own.get(name), other.get(name));
            if a == b || !seen.insert(name) {
                continue;
            }
            let name = short(name);
            list.push(format!("{name}: expected {}, found {}", shown(a), shown(b)));
        }
        listed(&list, N_SHOWN, ", ")
    }
}

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Reached {
    /// Chunks that went into the sums, from the first on.
    pub(crate) chunks: usize,
    /// Layers that all chunks have passed, where these come one after the other.
    pub(crate) layers: usize,
    /// The perplexity of these, if it is computed.
    pub(crate) nll: score::Sums,
    /// Tokens that it is of.
    pub(crate) n_scored: usize,
}

impl Reached {
    /// After `chunks` chunks.
    pub(crate) fn new(chunks: usize, perplexity: Option<&Perplexity>) -> Self {
        Self {
            chunks,
            layers: 0,
            nll: perplexity.map(|p| p.nll).unwrap_or_default(),
            n_scored: perplexity.map_or(0, |p| p.n),
        }
    }

    /// The perplexity to go on from.
    pub(crate) fn perplexity(&self) -> Perplexity {
        Perplexity {
            nll: self.nll,
            n: self.n_scored,
            by_chunk: Vec::new(),
        }
    }
}

/// All that a stopped run goes on from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Checkpoint {
    pub(crate) run: RunIdentity,
    pub(crate) reached: Reached,
    pub(crate) sums: SumSet,
}

/// Where a checkpoint goes.
pub(crate) struct Target<'a> {
    pub(crate) path: PathBuf,
    /// Files that it must not replace.
    pub(crate) inputs: &'a [&'a Path],
}

impl Target<'_> {
    /// Refuses now what could not be written later.
    pub(crate) fn check(&self) -> Result<()> {
        drop(AtomicFile::create_derived(&self.path, true, self.inputs, None)?);
        Ok(())
    }
}

/// Writes a checkpoint in place of an older one. A run layer by layer has hidden states too.
pub(crate) fn write(
    target: &Target<'_>,
    run: &RunIdentity,
    reached: &Reached,
    set: &SumSet,
    states: Option<&HiddenStates>,
) -> Result<()> {
    let mut specs = specs(set)?;
    specs.extend(states.map(states_spec).transpose()?);
    let digest = Shape::new(&[DIGEST_WORDS as u64]).expect("a few words are a tensor");
    let words = registry::by_name("I64").expect("a type of GGUF files").id;
    specs.push(TensorSpec::new(DIGEST.to_owned(), digest, words));
    let layout = Layout::plan(&metadata(run, reached, set), specs)?;
    let out = AtomicFile::create_derived(&target.path, true, target.inputs, Some(layout.total_bytes))?;
    let mut writer = Writer::new(out, &layout)?;
    let mut hash = Sha256::new();
    hash.update(&layout.head);
    let mut put = |bytes: &[u8]| {
        hash.update(bytes);
        writer.write(bytes)
    };
    let mut buffer = Vec::new();
    for s in set.sums.values() {
        for sums in [&s.squares, &s.values] {
            for piece in sums.chunks(1 << 16) {
                buffer.clear();
                buffer.extend(piece.iter().flat_map(|v| v.to_le_bytes()));
                put(&buffer)?;
            }
        }
        let counts: Vec<u8> = s.counts.iter().flat_map(|c| c.to_le_bytes()).collect();
        put(&counts)?;
    }
    if let Some(states) = states {
        let mut rows = vec![0.0f32; STATES_ROWS * states.n_embd()];
        for first in (0..states.n_rows()).step_by(STATES_ROWS) {
            let n = STATES_ROWS.min(states.n_rows() - first) * states.n_embd();
            states.read(first, &mut rows[..n])?;
            buffer.clear();
            buffer.extend(rows[..n].iter().flat_map(|v| v.to_le_bytes()));
            put(&buffer)?;
        }
    }
    let digest = hash.finalize();
    writer.write(&digest)?;
    writer.finish()?.commit()?;
    Ok(())
}

/// Rows of hidden states that are written at once.
const STATES_ROWS: usize = 256;

fn states_spec(states: &HiddenStates) -> Result<TensorSpec> {
    let (n_embd, n_rows) = (states.n_embd() as u64, states.n_rows() as u64);
    let shape = Shape::new(&[n_embd, n_rows])
        .ok_or_else(|| Failure::Input(format!("{n_embd} x {n_rows} hidden states are no tensor")))?;
    let kind = registry::by_name("F32").expect("a type of GGUF files").id;
    Ok(TensorSpec::new(STATES.to_owned(), shape, kind))
}

/// The hidden states of a checkpoint.
pub(crate) struct States {
    file: GgufFile,
    tensor: TensorInfo,
}

impl States {
    /// Finds those of a checkpoint that [`read`] has taken: `n_rows` rows of `n_embd` elements.
    pub(crate) fn open(path: &Path, n_embd: usize, n_rows: usize) -> Result<Self> {
        let file = GgufFile::open(path)?;
        let tensor = file.tensor(STATES).cloned();
        let wanted = [n_embd as u64, n_rows as u64];
        let tensor = tensor.filter(|t| {
            [t.shape.dim(0), t.shape.dim(1)] == wanted && t.shape.n_elems() == wanted[0] * wanted[1]
        });
        let tensor = tensor.filter(|t| t.format().is_some_and(|f| f.name == "F32"));
        match tensor {
            Some(tensor) => Ok(Self { file, tensor }),
            None => Err(malformed(
                path,
                &format!(
                    "tensor `{STATES}`: expected {n_embd} x {n_rows} values of type F32, found no such tensor"
                ),
            )),
        }
    }

    /// Fills `out` with rows from row `first` on.
    pub(crate) fn read(&self, first: usize, out: &mut [f32]) -> gguf::Result<()> {
        let mut bytes = vec![0; size_of_val(out)];
        let at = first as u64 * self.tensor.shape.dim(0) * size_of::<f32>() as u64;
        self.file.read_tensor(&self.tensor, at, &mut bytes)?;
        for (v, b) in out.iter_mut().zip(bytes.as_chunks().0) {
            *v = f32::from_le_bytes(*b);
        }
        Ok(())
    }
}

fn metadata(run: &RunIdentity, reached: &Reached, set: &SumSet) -> Metadata {
    let strings =
        |list: Vec<&String>| Value::Array(Array::String(list.into_iter().map(String::as_str).collect()));
    let mut m = Metadata::new();
    m.set(GENERAL_TYPE, Value::String(KIND.to_owned()));
    m.set(RUN_NAMES, strings(run.0.iter().map(|(n, _)| n).collect()));
    m.set(RUN_VALUES, strings(run.0.iter().map(|(_, v)| v).collect()));
    m.set(CHUNKS, Value::U64(reached.chunks as u64));
    m.set(LAYERS, Value::U64(reached.layers as u64));
    m.set(PPL_SUM, Value::F64(reached.nll.sum));
    m.set(PPL_SQUARES, Value::F64(reached.nll.squares));
    m.set(PPL_TOKENS, Value::U64(reached.n_scored as u64));
    m.set(SAME_NAMES, strings(set.same.keys().collect()));
    m.set(SAME_FIRST, strings(set.same.values().collect()));
    m
}

fn specs(set: &SumSet) -> Result<Vec<TensorSpec>> {
    let id = |name| registry::by_name(name).expect("a type of GGUF files").id;
    let (sums, counts) = (id("F64"), id("I64"));
    let mut specs = Vec::with_capacity(3 * set.sums.len());
    for (name, s) in &set.sums {
        let n_mat = s.counts.len() as u64;
        for (suffix, n_cols, kind) in [
            (SQUARES, s.n_cols as u64, sums),
            (VALUES, s.n_cols as u64, sums),
            (COUNTS, 1, counts),
        ] {
            let shape = Shape::new(&[n_cols, n_mat])
                .ok_or_else(|| Failure::Input(format!("`{name}`: {n_cols} x {n_mat} sums are no tensor")))?;
            specs.push(TensorSpec::new(format!("{name}{suffix}"), shape, kind));
        }
    }
    Ok(specs)
}

/// Removes a checkpoint, if there is one.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::Usage(format!("cannot remove `{}`: {e}", path.display())))
        }
        _ => Ok(()),
    }
}

/// Reads the checkpoint of just this run.
///
/// # Errors
/// A file that is none, that is of another run, which is named by what differs, or that is damaged.
pub(crate) fn read(
    path: &Path,
    run: &RunIdentity,
    weights: &[Observed<'_>],
    by_layer: bool,
) -> Result<Checkpoint> {
    let file = GgufFile::open(path)?;
    let found = parse(&file).map_err(|what| malformed(path, &what))?;
    let differences = run.differences(&found.run);
    if !differences.is_empty() {
        return Err(Failure::Input(format!(
            "checkpoint `{}` is of another run: {differences}; give the settings of that run, or `--force` without \
             `--resume` to start anew",
            path.display()
        )));
    }
    let Reached { chunks, layers, .. } = found.reached;
    if (by_layer && chunks > 0) || (!by_layer && layers > 0) {
        let what = format!("{chunks} chunks and {layers} layers do not go together");
        return Err(malformed(path, &what));
    }
    let passed = |name: &str| layer_of(name).is_some_and(|l| l < layers);
    let weights: Vec<_> = weights
        .iter()
        .filter(|w| layers == 0 || passed(w.name))
        .copied()
        .collect();
    check(&found.sums, &weights).map_err(|what| malformed(path, &what))?;
    Ok(found)
}

fn malformed(path: &Path, what: &str) -> Failure {
    Failure::Input(format!(
        "checkpoint `{}`: {what}; start anew with `--force` without `--resume`",
        path.display()
    ))
}

type Parsed<T> = std::result::Result<T, String>;

fn parse(file: &GgufFile) -> Parsed<Checkpoint> {
    let text = |e: gguf::Error| e.to_string();
    file.require_sound().map_err(text)?;
    let m = &file.metadata;
    let kind = m.string(GENERAL_TYPE).map_err(text)?;
    if kind != Some(KIND) {
        let found = kind.map_or_else(|| "nothing".to_owned(), |k| format!("`{k}`"));
        return Err(format!(
            "metadata key `{GENERAL_TYPE}`: expected `{KIND}`, found {found}"
        ));
    }
    if file
        .parts()
        .iter()
        .any(|p| p.header.endian != gguf::Endian::Little)
    {
        return Err("byte order: expected little-endian, found big-endian".into());
    }
    let number = |key: &str| {
        let n = m.uint(key).map_err(text)?.ok_or_else(|| missing(key))?;
        usize::try_from(n).map_err(|_| format!("metadata key `{key}`: {n} is too large"))
    };
    let float = |key: &str| {
        let v = m.float(key).map_err(text)?.ok_or_else(|| missing(key))?;
        if v.is_finite() {
            Ok(v)
        } else {
            Err(format!(
                "metadata key `{key}`: expected a finite number, found {v}"
            ))
        }
    };
    check_digest(file)?;
    Ok(Checkpoint {
        run: RunIdentity(pairs(m, RUN_NAMES, RUN_VALUES)?),
        reached: Reached {
            chunks: number(CHUNKS)?,
            layers: number(LAYERS)?,
            nll: score::Sums {
                sum: float(PPL_SUM)?,
                squares: float(PPL_SQUARES)?,
            },
            n_scored: number(PPL_TOKENS)?,
        },
        sums: SumSet {
            sums: sums(file)?,
            same: pairs(m, SAME_NAMES, SAME_FIRST)?.into_iter().collect(),
        },
    })
}

/// Refuses a file of which a byte is not as it was written.
fn check_digest(file: &GgufFile) -> Parsed<()> {
    let text = |e: gguf::Error| e.to_string();
    let stored = file
        .tensor(DIGEST)
        .ok_or_else(|| format!("tensor `{DIGEST}` is missing"))?;
    let stored = words(file, stored, "I64")?.concat();
    let part = file.parts().first().ok_or("no file")?;
    let n_head = usize::try_from(part.data_offset).map_err(|e| e.to_string())?;
    let mut hash = Sha256::new();
    hash.update(part.source().slice(0, n_head).map_err(text)?);
    let mut piece = vec![0; 1 << 20];
    for t in file.tensors.iter().filter(|t| t.name != DIGEST) {
        for at in (0..t.n_bytes).step_by(piece.len()) {
            let n = (t.n_bytes - at).min(piece.len() as u64) as usize;
            file.read_tensor(t, at, &mut piece[..n]).map_err(text)?;
            hash.update(&piece[..n]);
        }
    }
    if stored.as_slice() == hash.finalize().as_slice() {
        return Ok(());
    }
    Err("the bytes are not those that were written: the file is damaged".into())
}

fn missing(key: &str) -> String {
    format!("metadata key `{key}` is missing")
}

fn pairs(m: &Metadata, names: &str, values: &str) -> Parsed<Vec<(String, String)>> {
    let list = |key: &str| {
        let found = m.strings(key).map_err(|e| e.to_string())?;
        Ok::<_, String>(found.ok_or_else(|| missing(key))?.to_vec())
    };
    let (all, other) = (list(names)?, list(values)?);
    if all.len() != other.len() {
        return Err(format!(
            "metadata keys `{names}` and `{values}`: expected as many items in each, found {} and {}",
            all.len(),
            other.len()
        ));
    }
    Ok(all.into_iter().zip(other).collect())
}

fn sums(file: &GgufFile) -> Parsed<BTreeMap<String, Sums>> {
    let mut all = BTreeMap::new();
    for t in &file.tensors {
        let Some(name) = t.name.strip_suffix(SQUARES) else {
            continue;
        };
        let find = |suffix: &str| {
            let wanted = format!("{name}{suffix}");
            let found = file.tensor(&wanted);
            found.ok_or_else(|| format!("tensor `{wanted}` is missing"))
        };
        let squares = words(file, t, "F64")?.into_iter().map(f64::from_le_bytes);
        let values = words(file, find(VALUES)?, "F64")?
            .into_iter()
            .map(f64::from_le_bytes);
        let counts = words(file, find(COUNTS)?, "I64")?
            .into_iter()
            .map(u64::from_le_bytes);
        let sums = Sums {
            n_cols: usize::try_from(t.shape.n_cols()).map_err(|e| e.to_string())?,
            squares: squares.collect(),
            values: values.collect(),
            counts: counts.collect(),
        };
        let sound = sums.squares.iter().all(|v| v.is_finite() && *v >= 0.0)
            && sums.values.iter().all(|v| v.is_finite())
            && sums.counts.iter().all(|&c| i64::try_from(c).is_ok());
        if !sound {
            return Err(format!(
                "weight `{name}`: expected finite sums and counts, found others"
            ));
        }
        all.insert(name.to_owned(), sums);
    }
    Ok(all)
}

fn words(file: &GgufFile, t: &TensorInfo, kind: &str) -> Parsed<Vec<[u8; 8]>> {
    let found = t.type_name();
    if t.format().is_none_or(|f| f.name != kind) {
        return Err(format!(
            "tensor `{}`: expected type {kind}, found {found}",
            t.name
        ));
    }
    let bytes = file.tensor_bytes(t).map_err(|e| e.to_string())?;
    Ok(bytes.as_chunks().0.to_vec())
}

/// Refuses sums that are not those of all weights of the model, and no others.
fn check(set: &SumSet, weights: &[Observed<'_>]) -> Parsed<()> {
    let n = set.sums.len() + set.same.len();
    if n != weights.len() {
        return Err(format!("expected sums of {} weights, found {n}", weights.len()));
    }
    for &Observed {
        name,
        n_cols,
        n_experts: n_mat,
    } in weights
    {
        let s = set
            .of(name)
            .ok_or_else(|| format!("weight `{name}`: expected sums, found none"))?;
        let n_values = n_cols * n_mat;
        let fits = s.n_cols == n_cols
            && s.counts.len() == n_mat
            && s.squares.len() == n_values
            && s.values.len() == n_values;
        if !fits {
            return Err(format!(
                "weight `{name}`: expected {n_cols} x {n_mat} sums, found {} x {}",
                s.n_cols,
                s.counts.len()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{N_SHOWN, RunIdentity};

    #[test]
    fn of_many_differences_the_first_are_named() {
        let mut own = RunIdentity::default();
        own.add("text", "a");
        own.add("context", 512);
        assert_eq!(own.differences(&own), "");
        let mut other = RunIdentity::default();
        other.add("context", 256);
        other.add("context", 512);
        assert_eq!(
            own.differences(&other),
            "text: expected a, found nothing, context: expected 512, found 256"
        );
        // In time that grows with the names, in a message that does not.
        for i in 0..20_000 {
            other.add(&format!("{}{i}", "n".repeat(100)), i);
        }
        let list = own.differences(&other);
        assert!(
            list.ends_with(&format!(" and {} more", 20_002 - N_SHOWN)),
            "{list}"
        );
        assert!(list.len() < 2000);
    }
}

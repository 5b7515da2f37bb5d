//! What a change makes of a head, and whether that fits.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::pairs::{HEADER_BYTES, Pair, Pairs};
use crate::parse::{Keep, parse};
use crate::split::ShardName;
use crate::{Array, Error, GgufFile, Metadata, Result, TensorInfo, Value, key, limits, source};

/// A change of one key.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Sets a key. One that is there keeps its place, a new one stands behind all others but `gguf.pad`.
    Set {
        /// The key.
        key: String,
        /// Its new value.
        value: Value,
    },
    /// Removes a key, which must be there.
    Unset(String),
    /// Gives a value another key, in its place.
    Rename {
        /// The key that is there.
        from: String,
        /// The key that is not there yet.
        to: String,
    },
}

/// What becomes of the room for later edits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// It is used for what grows and takes what shrinks.
    #[default]
    Keep,
    /// A copy with a `gguf.pad` of this many bytes; none with 0.
    Exactly(u64),
}

/// A new head for a file, computed and parsed again, nothing written yet.
#[derive(Debug)]
pub struct Plan {
    pub(super) path: PathBuf,
    /// Bytes of the file.
    pub(super) n_bytes: u64,
    /// The head as it stands, up to the data section.
    pub(super) old: Arc<Vec<u8>>,
    /// The head of the same length, where there is one.
    pub(super) in_place: Option<Arc<Vec<u8>>>,
    /// The head of a copy.
    pub(super) copied: Arc<Vec<u8>>,
    /// Elements of `gguf.pad` after the change.
    room: u64,
}

impl Plan {
    /// Whether the new head fits the room of the old one.
    pub fn is_in_place(&self) -> bool {
        self.in_place.is_some()
    }

    /// Whether the file would be the same, byte for byte.
    pub fn is_nothing(&self) -> bool {
        self.copied == self.old
    }

    /// The head after the change. Its tensors lie beyond its end: only for a look at the metadata, for instance by
    /// [`crate::validate::metadata`].
    ///
    /// # Errors
    /// None: the head was parsed before. It is parsed again.
    pub fn head(&self) -> Result<GgufFile> {
        let head = self.in_place.as_ref().unwrap_or(&self.copied);
        GgufFile::from_source(source::shared(self.path.clone(), Arc::clone(head)))
    }

    /// Bytes of room for later edits (`gguf.pad`) after the change.
    pub fn room_bytes(&self) -> u64 {
        self.room
    }

    /// Bytes of a copy with the new head.
    pub fn copy_bytes(&self) -> u64 {
        self.n_bytes - self.old.len() as u64 + self.copied.len() as u64
    }

    /// Bytes of the head that are written in place.
    pub fn bytes_in_place(&self) -> u64 {
        let ranges = self.in_place.as_ref().map(|new| changed(&self.old, new));
        ranges.into_iter().flatten().map(|r| r.len() as u64).sum()
    }
}

/// Bytes that stay the same between two that change, up to which both are written as one range.
const SAME_BYTES: usize = 4096;

/// Ranges of two heads of the same length that have all bytes that differ.
pub(super) fn changed(old: &[u8], new: &[u8]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (i, (a, b)) in old.chunks(SAME_BYTES).zip(new.chunks(SAME_BYTES)).enumerate() {
        // Whole chunks are compared at the speed of memory.
        if a == b {
            continue;
        }
        for j in (0..a.len()).filter(|&j| a[j] != b[j]) {
            let at = i * SAME_BYTES + j;
            match ranges.last_mut() {
                Some(last) if at - last.end < SAME_BYTES => last.end = at + 1,
                _ => ranges.push(at..at + 1),
            }
        }
    }
    ranges
}

/// Bytes of a `gguf.pad` pair around its elements.
const PAD_PAIR_BYTES: u64 = 8 + key::PAD.len() as u64 + 4 + 4 + 8;

/// Computes the head that some changes, one after the other, make of a file. The file must be opened alone
/// ([`crate::OpenOptions::alone`]), since the head of one file is changed, of a split set that of the first shard.
///
/// # Errors
/// Keys that are not the user's to change (`split.*`, `general.alignment` unless only their type changes,
/// `gguf.pad`), keys that are not there or there already, arrays of arrays, a shard that is not the first, a
/// big-endian file, a file with repeated keys.
pub fn plan(file: &GgufFile, changes: &[Change], room: Room) -> Result<Plan> {
    let part = file.first();
    let refuse = |what: &str| Err(Error::malformed(part.path(), 0, what));
    if file.parts().len() > 1 {
        return refuse("a whole split set cannot be edited at once: expected its first shard");
    }
    if let Some(no) = part.split.no.filter(|&no| no > 0 && part.split.is_shard()) {
        let first = ShardName::parse(part.path()).map_or("the first shard".to_owned(), |name| {
            format!("`{}`", name.path(1).display())
        });
        let what = format!("shard {} has no metadata of the model: edit {first}", no + 1);
        return refuse(&what);
    }
    if part.data_offset > part.source().len() {
        return refuse("the file ends before its tensor data begins: it is truncated");
    }
    let n = usize::try_from(part.data_offset).expect("a head, at most MAX_HEAD_BYTES and its padding");
    let old = Arc::new(part.source().slice(0, n)?.into_owned());
    let mut pairs = Pairs::in_head(file, &old)?;
    let old_pairs_bytes = pairs.n_bytes();
    check_pad(&file.metadata)?;
    for change in changes {
        apply(&mut pairs, change, &file.metadata)?;
    }
    let span = &part.spans.tensors;
    let place = |at: u64| usize::try_from(at).expect("inside the head");
    let frame = Frame {
        version: part.header.version,
        list: &old[place(span.start)..place(span.end)],
        n_tensors: file.tensors.len() as u64,
        alignment: part.alignment,
        room: part.data_offset,
        unpadded_end: file.tensors.is_empty() && !part.data_offset.is_multiple_of(part.alignment),
    };
    let heads = frame.heads(pairs, old_pairs_bytes, room);
    let mut room = check(&heads.copied, part.path(), &file.tensors)?;
    if let Some(head) = &heads.in_place
        && !Arc::ptr_eq(head, &heads.copied)
    {
        room = check(head, part.path(), &file.tensors)?;
    }
    Ok(Plan {
        path: part.path().to_owned(),
        n_bytes: part.source().len(),
        old,
        in_place: heads.in_place,
        copied: heads.copied,
        room,
    })
}

/// Refuses a `gguf.pad` that is something else.
fn check_pad(metadata: &Metadata) -> Result<()> {
    match metadata.get(key::PAD) {
        None | Some(Value::Array(Array::U8(_))) => Ok(()),
        Some(other) => Err(Error::Key {
            key: key::PAD.into(),
            expected: "array of u8".into(),
            found: other.type_name().into(),
        }),
    }
}

fn refuse_key(key: &str, why: &str) -> Error {
    Error::Output(format!("cannot change metadata key `{key}`: {why}").into())
}

/// Refuses keys that say where the file's parts are. A type of those that some writers get wrong may be put right.
fn check_free(key: &str, value: Option<&Value>, before: &Metadata) -> Result<()> {
    if key.is_empty() || key.len() as u64 > limits::MAX_KEY_BYTES {
        let why = format!(
            "expected 1 to {} bytes, found {}",
            limits::MAX_KEY_BYTES,
            key.len()
        );
        return Err(refuse_key(key, &why));
    }
    if key == key::PAD {
        return Err(refuse_key(
            key,
            "it is the room for edits: see `--reserve-metadata`",
        ));
    }
    let old = before.get(key).and_then(Value::to_uint);
    if let Some(same) = value.filter(|new| old.is_some() && new.to_uint() == old) {
        return match key::type_of_place(key) {
            Some(only) if same.value_type() != only => {
                let why = format!(
                    "expected type {only}, in which llama.cpp reads it, found {}",
                    same.type_name()
                );
                Err(refuse_key(key, &why))
            }
            _ => Ok(()),
        };
    }
    if key == key::ALIGNMENT {
        let why =
            "all tensors would have to move: write the file again with `gguf-convert` or `gguf-quantize`";
        return Err(refuse_key(key, why));
    }
    if key.starts_with("split.") {
        let why = "it says which shard of a set this is: use `gguf-inspect split` or `gguf-inspect merge`";
        return Err(refuse_key(key, why));
    }
    Ok(())
}

fn apply(pairs: &mut Pairs, change: &Change, before: &Metadata) -> Result<()> {
    let there = |pairs: &Pairs, key: &str| {
        let missing = || {
            refuse_key(
                key,
                "the file does not have it: `gguf-inspect show --metadata` lists the keys",
            )
        };
        pairs.position(key).ok_or_else(missing)
    };
    match change {
        Change::Set { key, value } => {
            check_free(key, Some(value), before)?;
            if matches!(value, Value::Array(Array::Array(_))) {
                return Err(refuse_key(
                    key,
                    "arrays of arrays are read by no program: flatten the array",
                ));
            }
            let pair = Pair::encode(key, value);
            if let Some(i) = pairs.position(key) {
                pairs.0[i] = pair;
            } else {
                let end = pairs.0.len();
                let before_pad = pairs.position(key::PAD).filter(|&i| i + 1 == end);
                pairs.0.insert(before_pad.unwrap_or(end), pair);
            }
        }
        Change::Unset(key) => {
            check_free(key, None, before)?;
            let i = there(pairs, key)?;
            pairs.0.remove(i);
        }
        Change::Rename { from, to } => {
            check_free(from, None, before)?;
            check_free(to, None, before)?;
            let i = there(pairs, from)?;
            if from != to && pairs.position(to).is_some() {
                return Err(refuse_key(
                    from,
                    &format!("the file has a key `{to}` already: unset that first"),
                ));
            }
            pairs.0[i] = pairs.0[i].renamed(to);
        }
    }
    Ok(())
}

/// What stays around the pairs.
struct Frame<'a> {
    version: u32,
    list: &'a [u8],
    n_tensors: u64,
    alignment: u64,
    /// Bytes of the old head.
    room: u64,
    /// A file that ends with its tensor list, without padding.
    unpadded_end: bool,
}

/// Whether a head fits in place.
enum Fit {
    No,
    /// With a pad of so many elements, or with none.
    Pad(Option<u64>),
}

struct Heads {
    in_place: Option<Arc<Vec<u8>>>,
    copied: Arc<Vec<u8>>,
}

impl Frame<'_> {
    /// The heads for new pairs, where the old ones took `old_bytes`.
    fn heads(&self, mut pairs: Pairs, old_bytes: u64, room: Room) -> Heads {
        let pad = pairs.position(key::PAD);
        let place = pad.unwrap_or(pairs.0.len());
        pairs.remove(key::PAD);
        let around = HEADER_BYTES + self.list.len() as u64;
        let (base, old) = (around + pairs.n_bytes(), around + old_bytes);
        let mut head = |n: Option<u64>| {
            pairs.remove(key::PAD);
            if let Some(n) = n {
                pairs.0.insert(place, pad_pair(n));
            }
            let mut head = pairs.head(self.version, self.n_tensors, self.list, self.alignment);
            let padded = usize::try_from(self.padded(head.len() as u64)).expect("a head that is in memory");
            head.resize(padded, 0);
            Arc::new(head)
        };
        if let Room::Exactly(n) = room {
            return Heads {
                in_place: None,
                copied: head((n > 0).then_some(n)),
            };
        }
        let kept = pad.and_then(|_| old.checked_sub(base + PAD_PAIR_BYTES));
        let copied = head(kept);
        let in_place = match self.fit(base, old, pad.is_some()) {
            Fit::Pad(n) if n == kept => Some(Arc::clone(&copied)),
            Fit::Pad(n) => Some(head(n)),
            Fit::No => None,
        };
        Heads { in_place, copied }
    }

    /// How a head fits the old one's room. `base` and `old` are the bytes without padding of the new head without a
    /// pad and of the old head.
    fn fit(&self, base: u64, old: u64, had_pad: bool) -> Fit {
        // What the other keys take or give, the pad gives or takes: undone, it is the same file again.
        let same_end = old.checked_sub(base + PAD_PAIR_BYTES);
        if had_pad && same_end.is_some() {
            return Fit::Pad(same_end);
        }
        if self.padded(base) == self.room {
            return Fit::Pad(None);
        }
        let least = self.room.saturating_sub(self.alignment - 1);
        let n = same_end.unwrap_or_else(|| least.saturating_sub(base + PAD_PAIR_BYTES));
        if self.padded(base + PAD_PAIR_BYTES + n) == self.room {
            Fit::Pad(Some(n))
        } else {
            Fit::No
        }
    }

    fn padded(&self, n: u64) -> u64 {
        if self.unpadded_end {
            n
        } else {
            n.next_multiple_of(self.alignment)
        }
    }
}

fn pad_pair(n: u64) -> Pair {
    let zeros = vec![0_u8; usize::try_from(n).expect("bytes that a head had, or that a user asked for")];
    Pair::encode(key::PAD, &zeros.into())
}

/// Parses a new head and proves that it describes the same tensors. Returns the room that it has for later edits.
fn check(head: &Arc<Vec<u8>>, path: &Path, tensors: &[TensorInfo]) -> Result<u64> {
    let after = parse(&*source::shared(path.to_owned(), Arc::clone(head)), Keep::NONE)?;
    let same = |(a, b): (&TensorInfo, &TensorInfo)| {
        (&a.name, a.shape, a.type_id, a.offset) == (&b.name, b.shape, b.type_id, b.offset)
    };
    let sound = after.data_offset == head.len() as u64
        && after.tensors.len() == tensors.len()
        && after.tensors.iter().zip(tensors).all(same);
    if !sound {
        let what = "the change would move the tensor data: expected the alignment to stay";
        return Err(Error::malformed(path, HEADER_BYTES, what));
    }
    let pad = after.cut.iter().find(|(key, _)| key == key::PAD);
    Ok(pad.map_or(0, |(_, n)| *n))
}

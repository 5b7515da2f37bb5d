//! Metadata pairs as bytes: what a program does not change, it passes on as it stands in the file, also where that is
//! not what it would write itself (text that is not UTF-8, a bool of 2).

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use crate::read::Endian;
use crate::{Error, GgufFile, Metadata, Result, Value, encode, limits};

/// Bytes in front of the first pair: magic, version, two counts.
pub(crate) const HEADER_BYTES: u64 = 24;

/// A pair: its key, and key, type and value as they stand in a little-endian file.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) key: String,
    /// What the pair is a piece of: a vocabulary is not copied for every change beside it.
    whole: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Pair {
    /// A pair of a program's own.
    pub(crate) fn encode(key: &str, value: &Value) -> Self {
        let mut bytes = Vec::new();
        encode::string(&mut bytes, key);
        encode::value(&mut bytes, value);
        Self::alone(key, bytes)
    }

    fn alone(key: &str, bytes: Vec<u8>) -> Self {
        Self {
            key: key.to_owned(),
            range: 0..bytes.len(),
            whole: Arc::new(bytes),
        }
    }

    /// Key, type and value.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.whole[self.range.clone()]
    }

    /// The same value under another key.
    pub(crate) fn renamed(&self, key: &str) -> Self {
        let mut bytes = Vec::new();
        encode::string(&mut bytes, key);
        bytes.extend_from_slice(&self.bytes()[8 + self.key.len()..]);
        Self::alone(key, bytes)
    }
}

/// Pairs in the file's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pairs(pub(crate) Vec<Pair>);

impl Pairs {
    /// Pairs of a program's own.
    pub(crate) fn encode(metadata: &Metadata) -> Self {
        Self(
            metadata
                .iter()
                .map(|(key, value)| Pair::encode(key, value))
                .collect(),
        )
    }

    /// The pairs of a file, of a split set those of its first shard.
    ///
    /// # Errors
    /// A big-endian file, a key that appears twice.
    pub(crate) fn of(file: &GgufFile) -> Result<Self> {
        let end = file.first().spans.tensors.start;
        let n = usize::try_from(end).expect("at most MAX_HEAD_BYTES");
        Self::in_head(file, &Arc::new(file.first().source().slice(0, n)?.into_owned()))
    }

    /// As [`Pairs::of`], with the front of the file, at least up to its tensor list, at hand.
    pub(crate) fn in_head(file: &GgufFile, head: &Arc<Vec<u8>>) -> Result<Self> {
        let part = file.first();
        if part.header.endian == Endian::Big {
            let what =
                "the file is big-endian: expected little-endian; make it again for this kind of machine";
            return Err(Error::malformed(part.path(), 4, what));
        }
        if part.spans.pairs.len() != file.metadata.len() {
            let what = "a key appears twice: expected each key once; write the file again with `gguf-quantize IN \
                        OUT COPY`, which keeps the first";
            return Err(Error::malformed(part.path(), HEADER_BYTES, what));
        }
        let place = |at: u64| usize::try_from(at).expect("inside the head");
        let pairs = file.metadata.iter().zip(&part.spans.pairs);
        let pairs = pairs.map(|((key, _), span)| Pair {
            key: key.to_owned(),
            whole: Arc::clone(head),
            range: place(span.start)..place(span.end),
        });
        Ok(Self(pairs.collect()))
    }

    /// Where a key stands.
    pub(crate) fn position(&self, key: &str) -> Option<usize> {
        self.0.iter().position(|pair| pair.key == key)
    }

    /// Removes a key, if it is there.
    pub(crate) fn remove(&mut self, key: &str) {
        self.0.retain(|pair| pair.key != key);
    }

    /// Appends a pair; one with the same key goes.
    pub(crate) fn set(&mut self, key: &str, value: &Value) {
        self.remove(key);
        self.0.push(Pair::encode(key, value));
    }

    /// Bytes of all pairs.
    pub(crate) fn n_bytes(&self) -> u64 {
        self.0.iter().map(|pair| pair.bytes().len() as u64).sum()
    }

    /// A head without padding: header, pairs and the tensor list as given. It has room for `padding` more bytes.
    pub(crate) fn head(&self, version: u32, n_tensors: u64, tensors: &[u8], padding: u64) -> Vec<u8> {
        let n = HEADER_BYTES + self.n_bytes() + tensors.len() as u64 + padding;
        let mut out = Vec::with_capacity(usize::try_from(n).expect("pieces of heads in memory"));
        out.extend_from_slice(b"GGUF");
        encode::u32(&mut out, version);
        encode::u64(&mut out, n_tensors);
        encode::u64(&mut out, self.0.len() as u64);
        for pair in &self.0 {
            out.extend_from_slice(pair.bytes());
        }
        out.extend_from_slice(tensors);
        out
    }

    /// Refuses keys that readers do not take, and any that appears twice.
    pub(crate) fn check_keys(&self) -> Result<()> {
        let mut seen = HashSet::new();
        for Pair { key, .. } in &self.0 {
            if key.is_empty() || key.len() as u64 > limits::MAX_KEY_BYTES {
                let n = key.len();
                let what = format!(
                    "cannot write a metadata key of {n} bytes: expected 1 to {}",
                    limits::MAX_KEY_BYTES
                );
                return Err(Error::Output(what.into()));
            }
            if !seen.insert(key.as_str()) {
                let what = format!("cannot write metadata key `{key}` twice: expected each key once");
                return Err(Error::Output(what.into()));
            }
        }
        Ok(())
    }
}

//! Metadata pairs as bytes: what a program does not change, it passes on as it stands in the file, also where that is
//! not what it would write itself (text that is not UTF-8, a bool of 2).

use std::collections::HashSet;

use crate::read::Endian;
use crate::{Error, GgufFile, Metadata, Result, Value, encode, limits};

/// Bytes in front of the first pair: magic, version, two counts.
pub(crate) const HEADER_BYTES: u64 = 24;

/// A pair: its key, and key, type and value as they stand in a little-endian file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) key: String,
    pub(crate) bytes: Vec<u8>,
}

impl Pair {
    /// A pair of a program's own.
    pub(crate) fn encode(key: &str, value: &Value) -> Self {
        let mut bytes = Vec::new();
        encode::string(&mut bytes, key);
        encode::value(&mut bytes, value);
        Self {
            key: key.to_owned(),
            bytes,
        }
    }

    /// The same value under another key.
    pub(crate) fn renamed(&self, key: &str) -> Self {
        let mut bytes = Vec::new();
        encode::string(&mut bytes, key);
        bytes.extend_from_slice(&self.bytes[8 + self.key.len()..]);
        Self {
            key: key.to_owned(),
            bytes,
        }
    }
}

/// Pairs in the file's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
        let end = part.spans.tensors.start;
        let n = usize::try_from(end).expect("at most MAX_HEAD_BYTES");
        let head = part.source().slice(0, n)?;
        let place = |at: u64| usize::try_from(at).expect("inside the head");
        let pairs = file.metadata.iter().zip(&part.spans.pairs);
        let pairs = pairs.map(|((key, _), span)| Pair {
            key: key.to_owned(),
            bytes: head[place(span.start)..place(span.end)].to_vec(),
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
        self.0.iter().map(|pair| pair.bytes.len() as u64).sum()
    }

    /// A head without padding: header, pairs and the tensor list as given.
    pub(crate) fn head(&self, version: u32, n_tensors: u64, tensors: &[u8]) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        encode::u32(&mut out, version);
        encode::u64(&mut out, n_tensors);
        encode::u64(&mut out, self.0.len() as u64);
        for pair in &self.0 {
            out.extend_from_slice(&pair.bytes);
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

//! Builds GGUF files byte by byte, sound and unsound ones, without the code under test.

#[path = "../../../tests/src/skip.rs"]
pub(crate) mod skip;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use gguf::GgufFile;
use gguf::source;

/// Numbers of value types, as they stand in files.
pub(crate) const INT32: u32 = 5;
pub(crate) const UINT32: u32 = 4;
pub(crate) const STRING: u32 = 8;
pub(crate) const ARRAY: u32 = 9;

/// Numbers of tensor types.
pub(crate) const F32: u32 = 0;
pub(crate) const Q4_0: u32 = 2;

/// A file in the making.
pub(crate) struct Raw {
    big: bool,
    version: u32,
    counts: Option<(u64, u64)>,
    alignment: usize,
    n_pairs: u64,
    pairs: Vec<u8>,
    n_tensors: u64,
    tensors: Vec<u8>,
    data: Vec<u8>,
}

impl Raw {
    /// Version 3, little-endian, nothing in it.
    pub(crate) fn new() -> Self {
        Self {
            big: false,
            version: 3,
            counts: None,
            alignment: 32,
            n_pairs: 0,
            pairs: Vec::new(),
            n_tensors: 0,
            tensors: Vec::new(),
            data: Vec::new(),
        }
    }

    /// Big-endian from here on.
    pub(crate) fn big_endian(mut self) -> Self {
        self.big = true;
        self
    }

    pub(crate) fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Claims these counts of tensors and pairs instead of the true ones.
    pub(crate) fn counts(mut self, tensors: u64, pairs: u64) -> Self {
        self.counts = Some((tensors, pairs));
        self
    }

    /// Pads the head to this alignment.
    pub(crate) fn pad_to(mut self, alignment: usize) -> Self {
        self.alignment = alignment;
        self
    }

    fn u32_bytes(&self, x: u32) -> [u8; 4] {
        if self.big {
            x.to_be_bytes()
        } else {
            x.to_le_bytes()
        }
    }

    fn u64_bytes(&self, x: u64) -> [u8; 8] {
        if self.big {
            x.to_be_bytes()
        } else {
            x.to_le_bytes()
        }
    }

    fn text(&self, s: &[u8]) -> Vec<u8> {
        [&self.u64_bytes(s.len() as u64), s].concat()
    }

    /// A pair with the value's bytes as given.
    pub(crate) fn pair(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.n_pairs += 1;
        let pair = [
            self.text(key.as_bytes()),
            self.u32_bytes(kind).to_vec(),
            value.to_vec(),
        ]
        .concat();
        self.pairs.extend(pair);
        self
    }

    pub(crate) fn u32(self, key: &str, x: u32) -> Self {
        let value = self.u32_bytes(x);
        self.pair(key, UINT32, &value)
    }

    pub(crate) fn string(self, key: &str, s: &str) -> Self {
        let value = self.text(s.as_bytes());
        self.pair(key, STRING, &value)
    }

    /// The head of an array: element type and claimed length; `elements` follow as given.
    pub(crate) fn array(self, key: &str, kind: u32, claimed: u64, elements: &[u8]) -> Self {
        let value = [&self.u32_bytes(kind)[..], &self.u64_bytes(claimed), elements].concat();
        self.pair(key, ARRAY, &value)
    }

    pub(crate) fn strings(self, key: &str, strings: &[&str]) -> Self {
        let elements = strings
            .iter()
            .flat_map(|s| self.text(s.as_bytes()))
            .collect::<Vec<_>>();
        self.array(key, STRING, strings.len() as u64, &elements)
    }

    /// An entry of the tensor list.
    pub(crate) fn tensor(mut self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        let n_dims = u32::try_from(dims.len()).expect("few dimensions");
        self.n_tensors += 1;
        let mut entry = self.text(name.as_bytes());
        entry.extend(self.u32_bytes(n_dims));
        for &dim in dims {
            entry.extend(self.u64_bytes(dim));
        }
        entry.extend(self.u32_bytes(kind));
        entry.extend(self.u64_bytes(offset));
        self.tensors.extend(entry);
        self
    }

    /// An entry that claims a number of dimensions and has none.
    pub(crate) fn tensor_claiming_dims(mut self, name: &str, n_dims: u32) -> Self {
        self.n_tensors += 1;
        let entry = [
            self.text(name.as_bytes()),
            self.u32_bytes(n_dims).to_vec(),
            vec![0; 24],
        ]
        .concat();
        self.tensors.extend(entry);
        self
    }

    /// Bytes of the data section.
    pub(crate) fn data(mut self, n: usize) -> Self {
        self.data.extend((0..n).map(|i| (i % 251) as u8));
        self
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let (n_tensors, n_pairs) = self.counts.unwrap_or((self.n_tensors, self.n_pairs));
        let mut out = b"GGUF".to_vec();
        out.extend(self.u32_bytes(self.version));
        out.extend(self.u64_bytes(n_tensors));
        out.extend(self.u64_bytes(n_pairs));
        out.extend(&self.pairs);
        out.extend(&self.tensors);
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        out.extend(&self.data);
        out
    }
}

/// A small sound file: two tensors, a few keys.
pub(crate) fn sound() -> Raw {
    Raw::new()
        .string("general.architecture", "test")
        .u32("test.block_count", 1)
        .strings("tokenizer.ggml.tokens", &["a", "b", ""])
        .tensor("first", &[4, 3], F32, 0)
        .tensor("second", &[32, 2], Q4_0, 64)
        .data(128)
}

/// Parses bytes in memory.
pub(crate) fn parse(bytes: Vec<u8>) -> gguf::Result<GgufFile> {
    GgufFile::from_source(source::bytes(PathBuf::from("test.gguf"), bytes))
}

/// Writes a new file.
pub(crate) fn save(path: &Path, bytes: &[u8]) {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .expect("a new file");
    file.write_all(bytes).expect("room for a test file");
}

/// Puts other bytes under a name that is there.
pub(crate) fn replace(path: &Path, bytes: &[u8]) {
    std::fs::remove_file(path).expect("was there");
    save(path, bytes);
}

/// The shared material beside the project, if this machine has it.
pub(crate) fn shared(relative: &str) -> Option<PathBuf> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")).join(relative);
    if path.exists() {
        return Some(path);
    }
    skip::skip(&format!("{} is not there", path.display()));
    None
}

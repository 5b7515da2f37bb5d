//! Models made for tests, and runs of the program on them.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gguf::split::{Limits, plan};
use gguf::{GgufFile, Layout, Metadata, Shape, TensorSpec, Value, Writer};
use gguf_blocks::{Format, Importance, TypeId, registry};

/// What a run left.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).expect("JSON on stdout")
    }

    /// The run ended with this code, and its stdout has all of the words.
    pub(crate) fn assert(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        for word in words {
            assert!(self.out.contains(word), "`{word}` not in\n{}", self.out);
        }
    }
}

pub(crate) fn inspect(args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gguf-inspect"));
    let output = command
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Run {
        code: output.status.code().expect("no signal"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

pub(crate) fn format(name: &str) -> &'static Format {
    registry::by_name(name).expect("a type of the registry")
}

/// Numbers between -1 and 1 that look random, always the same for a seed.
pub(crate) fn values(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Rows of this many columns in a type.
pub(crate) fn encode(type_name: &str, n_cols: usize, values: &[f32]) -> Vec<u8> {
    let format = format(type_name);
    let encode = format
        .encoder(gguf_blocks::Cpu::best())
        .expect("a type that can be written");
    let n_bytes = format.geometry.row_bytes(n_cols as u64).expect("whole blocks") as usize;
    let mut bytes = vec![0; values.len() / n_cols * n_bytes];
    for (row, out) in values.chunks(n_cols).zip(bytes.chunks_mut(n_bytes)) {
        encode(row, Importance::None, out);
    }
    bytes
}

#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dims: Vec<u64>,
    pub(crate) type_name: &'static str,
    pub(crate) bytes: Vec<u8>,
}

/// A model in the making.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<Tensor>,
}

impl Model {
    pub(crate) fn new() -> Self {
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", Value::from("test"));
        metadata.set("general.name", Value::from("A model"));
        metadata.set("test.block_count", Value::from(2_u32));
        let tokens: Vec<String> = (0..40).map(|i| format!("token{i}")).collect();
        metadata.set("tokenizer.ggml.tokens", Value::from(tokens));
        let tensors = Vec::new();
        Self { metadata, tensors }
    }

    /// Tensors of several types, one of them a stack of three matrices, and lengths that need padding.
    pub(crate) fn usual() -> Self {
        Self::new()
            .random("token_embd.weight", &[256, 40], "Q8_0", 1)
            .random("blk.0.attn_norm.weight", &[33], "F32", 2)
            .random("blk.0.ffn_up_exps.weight", &[256, 8, 3], "Q4_K", 3)
            .random("blk.1.attn_q.weight", &[64, 9], "BF16", 4)
            .random("blk.1.attn_k.weight", &[32, 3], "Q4_0", 5)
    }

    pub(crate) fn tensor(
        mut self,
        name: &str,
        dims: &[u64],
        type_name: &'static str,
        bytes: Vec<u8>,
    ) -> Self {
        self.tensors.push(Tensor {
            name: name.to_owned(),
            dims: dims.to_vec(),
            type_name,
            bytes,
        });
        self
    }

    /// A tensor with these values.
    pub(crate) fn with(self, name: &str, dims: &[u64], type_name: &'static str, values: &[f32]) -> Self {
        let bytes = encode(type_name, dims[0] as usize, values);
        self.tensor(name, dims, type_name, bytes)
    }

    pub(crate) fn random(self, name: &str, dims: &[u64], type_name: &'static str, seed: u64) -> Self {
        let n: u64 = dims.iter().product();
        self.with(name, dims, type_name, &values(seed, n as usize))
    }

    pub(crate) fn save(&self, folder: &Path, name: &str) -> String {
        let specs = self.tensors.iter().map(spec).collect();
        let layout = Layout::plan(&self.metadata, specs).expect("a layout");
        let path = folder.join(name);
        write(&path, &layout, &self.tensors);
        text(&path)
    }

    /// Saves the model in shards; the path is that of the first.
    pub(crate) fn save_split(&self, folder: &Path, name: &str, tensors: u64) -> String {
        let whole = PathBuf::from(self.save(folder, "whole.gguf"));
        let file = GgufFile::open(&whole).expect("the file just written");
        let shards = plan(&file, Limits::Tensors(tensors), false).expect("a plan");
        let path = |i: usize| folder.join(format!("{name}-{:05}-of-{:05}.gguf", i + 1, shards.len()));
        for (i, shard) in shards.iter().enumerate() {
            let n = shard.layout.tensors.len();
            write(&path(i), &shard.layout, &self.tensors[shard.first_tensor..][..n]);
        }
        std::fs::remove_file(whole).expect("the file just written");
        text(&path(0))
    }
}

fn spec(t: &Tensor) -> TensorSpec {
    let shape = Shape::new(&t.dims).expect("a shape");
    let Some(number) = t.type_name.strip_prefix("type ") else {
        return TensorSpec::new(&t.name, shape, format(t.type_name).id);
    };
    let type_id = TypeId(number.parse().expect("a number"));
    TensorSpec {
        n_bytes: Some(t.bytes.len() as u64),
        ..TensorSpec::new(&t.name, shape, type_id)
    }
}

fn write(path: &Path, layout: &Layout, tensors: &[Tensor]) {
    let mut writer = Writer::new(Vec::new(), layout).expect("memory");
    for tensor in tensors {
        writer.write(&tensor.bytes).expect("memory");
    }
    save(path, &writer.finish().expect("all tensors"));
}

/// Writes a file of any bytes.
pub(crate) fn save(path: &Path, bytes: &[u8]) {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .expect("a file");
    file.write_all(bytes).expect("room for a test file");
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

/// Changes one bit of a file.
pub(crate) fn flip(path: &str, at: u64) {
    let mut bytes = std::fs::read(path).expect("a file");
    bytes[at as usize] ^= 4;
    save(Path::new(path), &bytes);
}

/// Where a tensor begins in its file.
pub(crate) fn place(path: &str, tensor: &str) -> u64 {
    let file = GgufFile::open(Path::new(path)).expect("a model");
    file.tensor_range(file.tensor(tensor).expect("the tensor")).start
}

//! The program from start to end on heads of every size, and on data against plain reading.
//!
//! Where the folder `shared` stands beside the workspace, its vocabularies and the shapes of its seven real models, as
//! sparse files of their real size, are measured too.

#![expect(clippy::unwrap_used, reason = "a benchmark stops at what goes wrong")]

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gguf::atomic::AtomicFile;
use gguf::split::ShardName;
use gguf::{Layout, Metadata, Shape, TensorSpec, Value, Writer};
use gguf_blocks::registry;

/// Tensors and shards of the large set.
const N_TENSORS: usize = 100_000;
const N_SHARDS: u32 = 100;
/// Tokens of the large vocabulary.
const N_TOKENS: usize = 256 << 10;
/// Bytes of the file of weights.
const DATA_BYTES: u64 = 1 << 30;

fn inspect(args: &[&str], path: &Path) {
    let status = Command::new(env!("CARGO_BIN_EXE_gguf-inspect"))
        .args(args)
        .arg(path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(
        status.code().is_some_and(|code| code < 2),
        "{args:?} {}",
        path.display()
    );
}

/// A file of which the data section is a hole.
fn sparse(path: &Path, metadata: &Metadata, specs: Vec<TensorSpec>) {
    let layout = Layout::plan(metadata, specs).unwrap();
    let mut file = File::options().write(true).create_new(true).open(path).unwrap();
    file.write_all(&layout.head).unwrap();
    file.set_len(layout.total_bytes).unwrap();
}

fn spec(name: String, dims: &[u64], kind: &str) -> TensorSpec {
    TensorSpec::new(
        name,
        Shape::new(dims).unwrap(),
        registry::by_name(kind).unwrap().id,
    )
}

fn vocabulary(folder: &Path) -> PathBuf {
    let path = folder.join("vocabulary.gguf");
    let mut m = Metadata::new();
    m.set("general.architecture", "llama".into());
    let tokens: Vec<String> = (0..N_TOKENS).map(|i| format!("token{i}")).collect();
    let merges: Vec<String> = (0..N_TOKENS).map(|i| format!("tok en{i}")).collect();
    m.set("tokenizer.ggml.model", "gpt2".into());
    m.set("tokenizer.ggml.tokens", tokens.into());
    m.set("tokenizer.ggml.token_type", vec![1_i32; N_TOKENS].into());
    m.set("tokenizer.ggml.merges", merges.into());
    sparse(&path, &m, Vec::new());
    path
}

fn large_set(folder: &Path) -> PathBuf {
    let name = ShardName::new(&folder.join("set"), 1, N_SHARDS);
    let per_shard = N_TENSORS / N_SHARDS as usize;
    for no in 1..=N_SHARDS {
        let mut m = Metadata::new();
        if no == 1 {
            m.set("general.architecture", "llama".into());
        }
        m.set("split.no", Value::U16((no - 1) as u16));
        m.set("split.tensors.count", Value::I32(N_TENSORS as i32));
        m.set("split.count", Value::U16(N_SHARDS as u16));
        let first = (no as usize - 1) * per_shard;
        let specs = (first..first + per_shard)
            .map(|i| spec(format!("blk.{}.t{}.weight", i / 10, i % 10), &[256, 16], "Q4_K"));
        sparse(&name.path(no), &m, specs.collect());
    }
    name.path(7)
}

/// The models of `golden/mix` as they would stand on disk in 16 bits.
fn real_shapes(shared: &Path, folder: &Path) -> Vec<PathBuf> {
    let tool = shared.join("tools/make_shape.py");
    let Ok(entries) = std::fs::read_dir(shared.join("golden/mix")) else {
        return Vec::new();
    };
    let mut made = Vec::new();
    for entry in entries {
        let json = entry.unwrap().path();
        let out = folder.join(json.file_stem().unwrap()).with_extension("gguf");
        let status = Command::new("python3")
            .arg(&tool)
            .args([&json, &out])
            .stdout(Stdio::null())
            .status();
        if status.is_ok_and(|s| s.success()) {
            made.push(out);
        }
    }
    made.sort();
    made
}

fn heads(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let shared = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared"));
    let mut group = c.benchmark_group("heads");
    group.sample_size(20);
    let made = vocabulary(folder.path());
    let real = shared.join("vocabs/ggml-vocab-llama-bpe.gguf");
    for path in [made, real].iter().filter(|p| p.exists()) {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        group.bench_function(format!("show/{name}"), |b| b.iter(|| inspect(&["show"], path)));
        group.bench_function(format!("check/{name}"), |b| b.iter(|| inspect(&["check"], path)));
    }
    let mut models = real_shapes(shared, folder.path());
    models.push(large_set(folder.path()));
    for path in &models {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        for command in ["show", "check", "estimate"] {
            group.bench_function(format!("{command}/{name}"), |b| {
                b.iter(|| inspect(&[command], path));
            });
        }
    }
    group.finish();
}

/// A file of pseudo-random `Q4_K` blocks.
fn weights(folder: &Path) -> PathBuf {
    let path = folder.join("weights.gguf");
    let n_tensors = 64;
    let rows = DATA_BYTES / n_tensors / (144 * 16);
    let specs = (0..n_tensors).map(|i| spec(format!("blk.{i}.ffn_up.weight"), &[4096, rows], "Q4_K"));
    let layout = Layout::plan(&Metadata::new(), specs.collect()).unwrap();
    let mut writer = Writer::new(AtomicFile::create(&path, false, &[], None).unwrap(), &layout).unwrap();
    let mut x = 1_u64;
    for tensor in &layout.tensors {
        let blocks: Vec<u8> = (0..tensor.n_bytes)
            .map(|i| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // The scales are halves: their upper bytes must not make infinities.
                if matches!(i % 144, 1 | 3) {
                    0x1c
                } else {
                    (x >> 56) as u8
                }
            })
            .collect();
        writer.write(&blocks).unwrap();
    }
    writer.finish().unwrap().commit().unwrap();
    path
}

fn read(path: &Path) {
    let mut file = File::open(path).unwrap();
    let mut buf = vec![0; 128 << 10];
    while file.read(&mut buf).unwrap() > 0 {}
}

fn data(c: &mut Criterion) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = weights(folder.path());
    let mut group = c.benchmark_group("data");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(std::fs::metadata(&path).unwrap().len()));
    group.bench_function("read", |b| b.iter(|| read(&path)));
    group.bench_function("check --data", |b| {
        b.iter(|| inspect(&["check", "--data"], &path));
    });
    group.bench_function("hash", |b| b.iter(|| inspect(&["hash"], &path)));
    group.finish();
}

criterion_group!(benches, heads, data);
criterion_main!(benches);

//! Malformed and mixed-up inputs of every known kind, each given to every program that reads GGUF files: all refuse
//! it in a word that helps, quickly, with little memory, and leave no output. Checkpoints likewise.

mod checkpoints;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::{ARRAY, F32, INT32, Q4_0, Raw, STRING, UINT32, save, sound};
use suite_tests::data;

/// A program that hangs is caught; how fast refusals are is measured in `tests/bench-runs`.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Bytes of address space that any run may take beside the base of its program.
#[cfg(target_os = "linux")]
const MEMORY_LIMIT: u64 = 64 << 20;

/// A malformed input: its files, the one to name, and what every refusal says.
struct Case {
    name: &'static str,
    files: Vec<(String, Vec<u8>)>,
    words: Vec<&'static str>,
}

fn one(name: &'static str, raw: &Raw, words: &[&'static str]) -> Case {
    bytes(name, raw.build(), words)
}

fn bytes(name: &'static str, bytes: Vec<u8>, words: &[&'static str]) -> Case {
    Case {
        name,
        files: vec![("m.gguf".to_owned(), bytes)],
        words: words.to_vec(),
    }
}

fn text(s: &str) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat()
}

fn alignments() -> Vec<Case> {
    let file = |kind, bytes: &[u8]| sound().pair("general.alignment", kind, bytes);
    vec![
        one(
            "alignment 0",
            &file(UINT32, &0_u32.to_le_bytes()),
            &["general.alignment", "found 0"],
        ),
        one(
            "alignment 3",
            &file(UINT32, &3_u32.to_le_bytes()),
            &["general.alignment", "found 3"],
        ),
        one(
            "alignment 2^30",
            &file(UINT32, &(1_u32 << 30).to_le_bytes()),
            &["general.alignment", "unreasonable"],
        ),
        one(
            "alignment in words",
            &file(STRING, &text("32")),
            &["general.alignment", "found string"],
        ),
    ]
}

fn shapes() -> Vec<Case> {
    let wrap = [(1 << 63) + 8, 2, 1, 1];
    let wraps = Raw::new().tensor("wide", &wrap, F32, 0);
    let strides = Raw::new().tensor("deep", &[1 << 22, (1 << 42) + 1], F32, 0);
    let dims = |n| Raw::new().tensor_claiming_dims("many", n);
    vec![
        one("dimensions wrap", &wraps, &["tensor `wide`", "overflows"]),
        one("row stride wraps", &strides, &["tensor `deep`", "overflow"]),
        one("5 dimensions", &dims(5), &["tensor `many`", "5 dimensions"]),
        one("9 dimensions", &dims(9), &["tensor `many`", "9 dimensions"]),
        one(
            "2^32 - 1 dimensions",
            &dims(u32::MAX),
            &["tensor `many`", "4294967295 dimensions"],
        ),
    ]
}

fn bombs() -> Vec<Case> {
    let nested: Vec<u8> = (0..10_000)
        .flat_map(|_| [&ARRAY.to_le_bytes()[..], &1_u64.to_le_bytes()].concat())
        .collect();
    let inner: Vec<u8> = (0..600_000)
        .flat_map(|_| [&0_u32.to_le_bytes()[..], &0_u64.to_le_bytes()].concat())
        .collect();
    let empty_strings = vec![0; 8 << 20];
    let long = "x".repeat(65_535);
    let broken = [
        &STRING.to_le_bytes()[..],
        &1_u64.to_le_bytes(),
        &1_u64.to_le_bytes(),
        b"\xff",
    ]
    .concat();
    let covered = (0..20_000).fold(Raw::new().tensor(&long, &[1 << 40], F32, 0), |raw, i| {
        raw.tensor(&i.to_string(), &[1], F32, 0)
    });
    vec![
        one(
            "2^40 pairs",
            &Raw::new().counts(0, 1 << 40),
            &["metadata count", "unreasonable"],
        ),
        one(
            "2^40 tensors",
            &Raw::new().counts(1 << 40, 0),
            &["tensor count", "unreasonable"],
        ),
        one(
            "string of 2^30",
            &sound().pair("long", STRING, &(1_u64 << 30).to_le_bytes()),
            &["key `long`", "1073741824"],
        ),
        one(
            "array of 2^30 strings",
            &sound().array("many", STRING, 1 << 30, &[0; 100]),
            &["key `many`", "1073741824"],
        ),
        one(
            "arrays nested 10,000 deep",
            &sound().array("deep", ARRAY, 1, &nested),
            &["key `deep`", "nested"],
        ),
        one(
            "600,000 empty arrays",
            &sound().array("wide", ARRAY, 600_000, &inner),
            &["key `wide`", "unreasonable"],
        ),
        one(
            "a million empty strings, then nothing",
            &sound()
                .array("void", STRING, 1 << 20, &empty_strings)
                .counts(3, 4),
            &["tensor"],
        ),
        one(
            "a hundred thousand things to say about a key of 64 KiB",
            &sound()
                .array(&long, ARRAY, 100_000, &broken.repeat(100_000))
                .tensor("third", &[8], F32, 96)
                .data(64),
            &["second", "third"],
        ),
        one(
            "20,000 tensors inside one with a name of 64 KiB",
            &covered,
            &["xxx.. (65535 bytes)"],
        ),
    ]
}

fn places() -> Vec<Case> {
    let beyond = sound().tensor("third", &[1 << 20], F32, 128);
    let wraps = sound().tensor("third", &[8], F32, u64::MAX - 31);
    let overlap = sound().tensor("third", &[8], F32, 96).data(64);
    let short = Raw::new()
        .tensor("narrow", &[8, 4], F32, 0)
        .tensor("next", &[8, 4], F32, 112)
        .data(256);
    let twice = sound().tensor("first", &[8], F32, 128).data(32);
    let long = "x".repeat(64);
    let named = sound().tensor(&long, &[8], F32, 128).data(32);
    vec![
        one("tensor beyond the file", &beyond, &["third", "truncated"]),
        one("offset near 2^64", &wraps, &["third"]),
        one("overlap", &overlap, &["second", "third"]),
        one("rows too short", &short, &["narrow", "next"]),
        one("two tensors of a name", &twice, &["first", "two tensors"]),
        one("name of 64 bytes", &named, &["the name has 64 bytes"]),
        one(
            "key twice",
            &sound().u32("test.block_count", 2),
            &["test.block_count", "second time"],
        ),
    ]
}

fn other_formats() -> Vec<Case> {
    let safetensors = [&60_u64.to_le_bytes()[..], br#"{"a":{}}"#, &[b' '; 90]].concat();
    let joined = [sound().build(), sound().build()].concat();
    vec![
        bytes(
            "LFS pointer",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n".to_vec(),
            &["Git LFS"],
        ),
        bytes("web page", b"<!DOCTYPE html><html><head>".to_vec(), &["web page"]),
        bytes("nothing", Vec::new(), &["empty"]),
        bytes("GGML", b"tjgg\x03\0\0\0rest of it".to_vec(), &["GGJT"]),
        bytes("safetensors", safetensors, &["safetensors"]),
        bytes("version 1", Raw::new().version(1).build(), &["version 1"]),
        bytes("version 4", Raw::new().version(4).build(), &["version 4"]),
        bytes("two files joined", joined, &["second GGUF"]),
    ]
}

/// Shard `no` of `count` of a set of three tensors.
fn shard(no: u16, count: u16, total: i32, tensor: &str) -> Raw {
    let raw = if no == 0 {
        Raw::new().string("general.architecture", "test")
    } else {
        Raw::new()
    };
    raw.pair("split.no", 2, &no.to_le_bytes())
        .pair("split.tensors.count", INT32, &total.to_le_bytes())
        .pair("split.count", 2, &count.to_le_bytes())
        .tensor(tensor, &[32, 2], Q4_0, 0)
        .data(64)
}

fn set(name: &'static str, shards: &[Option<Raw>; 3], words: &[&'static str]) -> Case {
    let files = shards.iter().enumerate().filter_map(|(i, raw)| {
        let bytes = raw.as_ref()?.build();
        Some((format!("m-{:05}-of-00003.gguf", i + 1), bytes))
    });
    Case {
        name,
        files: files.collect(),
        words: words.to_vec(),
    }
}

fn sets() -> Vec<Case> {
    let good = |no: u16| Some(shard(no, 3, 3, ["a", "b", "c"][usize::from(no)]));
    vec![
        set(
            "missing shard",
            &[good(0), None, good(2)],
            &["00002-of-00003", "missing"],
        ),
        set(
            "swapped shards",
            &[good(0), good(2), good(1)],
            &["split.no", "swapped"],
        ),
        set("one shard twice", &[good(0), good(1), good(1)], &["split.no"]),
        set(
            "counts disagree",
            &[good(0), Some(shard(1, 4, 3, "b")), good(2)],
            &["split.count"],
        ),
        set(
            "wrong number of tensors",
            &[
                Some(shard(0, 3, 4, "a")),
                Some(shard(1, 3, 4, "b")),
                Some(shard(2, 3, 4, "c")),
            ],
            &["split.tensors.count"],
        ),
        set(
            "a tensor in two shards",
            &[good(0), good(1), Some(shard(2, 3, 3, "b"))],
            &["two tensors"],
        ),
        Case {
            name: "shard under another name",
            files: vec![("m.gguf".to_owned(), shard(1, 3, 3, "b").build())],
            words: vec!["shard 2 of 3", "rename"],
        },
    ]
}

fn cases() -> Vec<Case> {
    [alignments(), shapes(), bombs(), places(), other_formats(), sets()]
        .into_iter()
        .flatten()
        .collect()
}

/// Command lines that must refuse a damaged model `m`; `out` is what they would write.
fn commands<'a>(m: &'a str, out: &'a str, text: &'a str) -> Vec<(&'static str, Vec<&'a str>)> {
    vec![
        ("gguf-inspect", vec!["check", m]),
        ("gguf-inspect", vec!["check", "--data", m]),
        ("gguf-inspect", vec!["diff", "--data", m, m]),
        ("gguf-inspect", vec!["split", m, out]),
        ("gguf-inspect", vec!["merge", m, out]),
        ("gguf-inspect", vec!["relayout", m, out, "--to", "kv_b"]),
        ("gguf-quantize", vec![m, out, "Q8_0"]),
        ("gguf-perplexity", vec!["-m", m, "-f", text]),
        ("gguf-imatrix", vec!["-m", m, "-f", text, "-o", out]),
        ("gguf-bench", vec!["-m", m]),
        ("gguf-run", vec!["-m", m, "-p", "a text", "--prompt-cache", out]),
    ]
}

struct Ran {
    code: Option<i32>,
    all: String,
    took: Duration,
}

fn ran(name: &str, args: &[&str]) -> Ran {
    let start = Instant::now();
    #[cfg(target_os = "linux")]
    let output = crate::memory::limited(crate::memory::base(name) + MEMORY_LIMIT, name, args);
    #[cfg(not(target_os = "linux"))]
    let output = suite_tests::run(name, args);
    let all = [output.stdout, output.stderr].concat();
    Ran {
        code: output.status.code(),
        all: String::from_utf8_lossy(&all).into_owned(),
        took: start.elapsed(),
    }
}

impl Ran {
    /// Checks a refusal with these words, which came in time.
    fn must_refuse(&self, place: &str, words: &[&str]) {
        assert_eq!(self.code, Some(1), "{place}: {}", self.all);
        assert!(!self.all.contains("panicked"), "{place}: {}", self.all);
        for word in words {
            assert!(self.all.contains(word), "{place}: `{word}` not in: {}", self.all);
        }
        assert!(self.took < TIME_LIMIT, "{place} took {:?}", self.took);
    }
}

fn put(case: &Case, folder: &Path) -> PathBuf {
    for (name, bytes) in &case.files {
        save(&folder.join(name), bytes);
    }
    folder.join(&case.files[0].0)
}

#[test]
fn every_program_refuses_every_malformed_file() {
    let sample = data("evaluation.txt");
    let mut slowest = (Duration::ZERO, String::new());
    for case in cases() {
        let folder = tempfile::tempdir().expect("a folder");
        let model = put(&case, folder.path());
        let out = folder.path().join("out");
        let (m, o, t) = (model.to_str(), out.to_str(), sample.to_str());
        let (m, o, t) = (m.expect("UTF-8"), o.expect("UTF-8"), t.expect("UTF-8"));
        for (name, args) in commands(m, o, t) {
            let place = format!("{}: {name} {args:?}", case.name);
            let ran = ran(name, &args);
            ran.must_refuse(&place, &case.words);
            assert!(!out.exists(), "{place} left an output");
            if ran.took > slowest.0 {
                slowest = (ran.took, place);
            }
        }
        // A look at a damaged file shows what can be shown; it may succeed or fail, but not fall over.
        for args in [
            &["show", m][..],
            &["diff", m, m],
            &["hash", m],
            &["hash", m, "--tensors-only"],
            &["set", m, "test.n:u32=1", "--dry-run"],
            &["estimate", m],
            &["report", m, "-o", o, "--force"],
        ] {
            let ran = ran("gguf-inspect", args);
            let sound = matches!(ran.code, Some(0 | 1)) && ran.took < TIME_LIMIT;
            assert!(sound, "{}: {args:?}: {:?} {}", case.name, ran.took, ran.all);
        }
        for (name, bytes) in &case.files {
            assert!(
                std::fs::read(folder.path().join(name)).is_ok_and(|b| b == *bytes),
                "{}: input changed",
                case.name
            );
        }
    }
    println!("slowest: {slowest:?}");
}

#[test]
fn any_shard_and_the_folder_open_the_set() {
    let folder = tempfile::tempdir().expect("a folder");
    for no in 0..3_u16 {
        let raw = shard(no, 3, 3, ["a", "b", "c"][usize::from(no)]);
        save(
            &folder.path().join(format!("m-{:05}-of-00003.gguf", no + 1)),
            &raw.build(),
        );
    }
    let inputs = [1, 2, 3].map(|no| folder.path().join(format!("m-{no:05}-of-00003.gguf")));
    for input in inputs.iter().map(PathBuf::as_path).chain([folder.path()]) {
        let shown = ran(
            "gguf-inspect",
            &["show", "--json", input.to_str().expect("UTF-8")],
        );
        assert_eq!(shown.code, Some(0), "{}", shown.all);
        for tensor in ["\"a\"", "\"b\"", "\"c\""] {
            assert!(shown.all.contains(tensor), "{tensor} not in: {}", shown.all);
        }
    }
}

//! The program against the reference: types, bytes, metadata, for every file type, with and without an
//! importance matrix, and for any number of threads.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use gguf::digest::Digest;
use gguf::{Endian, GgufFile, Layout, Metadata, TensorSpec, Value};
use serde_json::Value as Json;

const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/golden/quantize");
const IMATRIX: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/data/golden/qwen3moe.imatrix.gguf"
);

/// Keys that this program adds beyond the reference.
const OWN_KEYS: &[&str] = &[
    "quantize.version",
    "quantize.recipe",
    "quantize.source.file",
    "quantize.source.sha256",
    "quantize.imatrix.sha256",
];

/// The reference stores the path of the matrix as it was given, `gt/qwen3moe.imatrix.gguf`, where this program
/// stores the name alone: one of the same length, so that sizes can be compared.
const MATRIX_NAME: &str = "gt-qwen3moe.imatrix.gguf";

/// The model that the golden file was made from; a clone without the shared folder has none.
fn source() -> Option<PathBuf> {
    let path = Path::new(SHARED).join("qwen3moe-bf16.gguf");
    if path.exists() {
        return Some(path);
    }
    eprintln!("notice: {} is absent: nothing compared", path.display());
    None
}

fn quantize(args: &[&str]) {
    let out = Command::new(env!("CARGO_BIN_EXE_gguf-quantize"))
        .args(args)
        .arg("--quiet")
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

fn hex(bytes: &[u8]) -> String {
    Digest::of(bytes).to_string()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Checks an output against the golden record of a setting.
fn compare(setting: &str, expected: &Json, source: &GgufFile, path: &Path) {
    let file = GgufFile::open(path).unwrap();
    assert_eq!(
        (file.first().header.version, file.first().header.endian),
        (3, Endian::Little)
    );
    compare_tensors(setting, expected, &file);
    compare_metadata(setting, expected, source, &file);
}

fn compare_tensors(setting: &str, expected: &Json, file: &GgufFile) {
    let expected_tensors = expected["tensors"].as_array().unwrap();
    assert_eq!(file.tensors.len(), expected_tensors.len(), "{setting}");
    for (t, e) in file.tensors.iter().zip(expected_tensors) {
        let dims: Vec<u64> = e[1]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| d.as_u64().unwrap())
            .collect();
        assert_eq!(
            (t.name.as_str(), t.shape.dims()),
            (e[0].as_str().unwrap(), dims.as_slice()),
            "{setting}"
        );
        assert_eq!(t.type_name(), e[2].as_str().unwrap(), "{setting}, {}", t.name);
        assert_eq!(
            hex(&file.tensor_bytes(t).unwrap()),
            e[3].as_str().unwrap(),
            "{setting}, {}",
            t.name
        );
    }
}

fn compare_metadata(setting: &str, expected: &Json, source: &GgufFile, file: &GgufFile) {
    let added = expected["metadata_added"].as_object().unwrap();
    let kept: Vec<_> = source
        .metadata
        .iter()
        .filter(|(k, _)| !added.contains_key(*k))
        .collect();
    let found: Vec<_> = file.metadata.iter().collect();
    let (first, new) = found.split_at(kept.len());
    // What this program adds beyond the reference.
    let is_own = |(key, _): &&(&str, &Value)| OWN_KEYS.contains(key);
    let own: Vec<_> = new.iter().filter(is_own).collect();
    let new: Vec<_> = new.iter().filter(|pair| !is_own(pair)).collect();
    assert!(
        first == kept,
        "{setting}: the source's pairs come first, in order"
    );
    // The golden record leaves out the matrix's file name, which depends on the run.
    let file_key = "quantize.imatrix.file";
    for ((key, value), (e_key, e_value)) in new.iter().filter(|(k, _)| *k != file_key).zip(added) {
        assert_eq!(key, e_key, "{setting}");
        match (e_value[0][0].as_str().unwrap(), value) {
            ("UINT32", Value::U32(v)) => assert_eq!(e_value[1], *v, "{setting}, {key}"),
            ("STRING", Value::String(v)) => assert_eq!(e_value[1], v.as_str(), "{setting}, {key}"),
            _ => panic!("{setting}, {key}: expected {e_value}, found {value:?}"),
        }
    }
    let with_matrix = setting.contains('+');
    assert_eq!(new.len(), added.len() + usize::from(with_matrix), "{setting}");
    if with_matrix {
        assert_eq!(file.metadata.string(file_key).unwrap(), Some(MATRIX_NAME));
    }
    let expected_own = OWN_KEYS.iter().filter(|k| with_matrix || !k.contains("imatrix"));
    assert_eq!(own.len(), expected_own.count(), "{setting}");
    // The size is the reference's but for what this program adds.
    let pairs = file.metadata.iter().filter(|pair| !is_own(&pair));
    let metadata: Metadata = pairs.map(|(k, v)| (k, v.clone())).collect();
    let specs = file.tensors.iter().map(TensorSpec::from).collect();
    let bytes = Layout::plan(&metadata, specs).unwrap().total_bytes;
    assert_eq!(bytes, expected["bytes"].as_u64().unwrap(), "{setting}");
}

#[test]
fn every_tensor_is_the_references() {
    let Some(source_path) = source() else { return };
    let source = GgufFile::open(&source_path).unwrap();
    let golden = std::fs::read(Path::new(SHARED).join("qwen3moe.json")).unwrap();
    let golden: serde_json::Map<String, Json> = serde_json::from_slice(&golden).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let imatrix = dir.path().join(MATRIX_NAME);
    std::fs::copy(IMATRIX, &imatrix).unwrap();
    let (mut n_equal, mut n_refused) = (0, 0);
    for (setting, expected) in &golden {
        let (name, matrix) = setting
            .split_once('+')
            .map_or((setting.as_str(), false), |(n, _)| (n, true));
        let out = dir.path().join(setting);
        let mut args = vec![text(&source_path), text(&out), name];
        if matrix {
            args.extend(["--imatrix", text(&imatrix)]);
        }
        if let Some(why) = expected["refused"].as_array() {
            refuses(&args, why);
            n_refused += 1;
            continue;
        }
        quantize(&args);
        compare(setting, expected, &source, &out);
        std::fs::remove_file(&out).unwrap();
        n_equal += 1;
    }
    assert_eq!((n_equal, n_refused), (55, 11));
}

/// Runs what the reference refuses; without words of its own it did not know the type.
fn refuses(args: &[&str], why: &[Json]) {
    let out = Command::new(env!("CARGO_BIN_EXE_gguf-quantize"))
        .args(args)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    let (code, part) = match why.first().map(|line| line.as_str().unwrap()) {
        None => (2, "no mixture is defined for file type `NVFP4`"),
        Some(line) => {
            assert!(line.contains("requires an imatrix"), "{line}");
            (1, "`--imatrix`")
        }
    };
    assert_eq!(out.status.code(), Some(code), "{args:?}: {text}");
    assert!(text.contains(part), "{args:?}: {text}");
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let Some(source) = source() else { return };
    let dir = tempfile::tempdir().unwrap();
    let digest = |file_type: &str, threads: &str| {
        let out = dir.path().join(format!("{file_type}-{threads}"));
        quantize(&[
            "--imatrix",
            IMATRIX,
            text(&source),
            text(&out),
            file_type,
            threads,
        ]);
        hex(&std::fs::read(out).unwrap())
    };
    for file_type in ["Q4_K_M", "Q3_K_L", "IQ2_XS", "F16"] {
        let one = digest(file_type, "1");
        assert_eq!(one, digest(file_type, "2"));
        assert_eq!(one, digest(file_type, "4"));
        assert_eq!(one, digest(file_type, "8"));
    }
}

/// BF16 to BF16 copies; to F32 and back changes nothing either, and a quantized file can be encoded again
/// only on request.
#[test]
fn copies_and_requantizes() {
    let Some(source) = source() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let data = |p: &Path| {
        let f = GgufFile::open(p).unwrap();
        f.tensors
            .iter()
            .map(|t| (t.name.clone(), hex(&f.tensor_bytes(t).unwrap())))
            .collect::<Vec<_>>()
    };
    quantize(&[text(&source), text(&path("bf16")), "BF16"]);
    quantize(&[text(&source), text(&path("copy")), "COPY"]);
    quantize(&[text(&source), text(&path("f32")), "F32"]);
    quantize(&[text(&path("f32")), text(&path("back")), "BF16"]);
    let mut original = data(&source);
    original.sort();
    for name in ["bf16", "copy", "back"] {
        let mut found = data(&path(name));
        found.sort();
        assert_eq!(found, original, "{name}");
    }
    let file_type = GgufFile::open(&path("copy"))
        .unwrap()
        .metadata
        .uint("general.file_type")
        .unwrap();
    assert_eq!(file_type, Some(32));

    quantize(&[text(&path("f32")), text(&path("q8_0")), "Q8_0"]);
    quantize(&[
        "--allow-requantize",
        text(&path("q8_0")),
        text(&path("q4_0")),
        "--pure",
        "Q4_0",
    ]);
    let q4 = GgufFile::open(&path("q4_0")).unwrap();
    assert_eq!(q4.tensor("output.weight").unwrap().type_name(), "Q4_0");
}

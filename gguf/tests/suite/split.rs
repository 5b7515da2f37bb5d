//! Splits and merges: the reference's bytes, and there and back.

use std::path::{Path, PathBuf};

use crate::common::{F32, Q4_0, Raw, STRING, save, shared, sound};
use gguf::split::{self, Limits};
use gguf::{Error, GgufFile, OpenOptions};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

#[expect(clippy::unnecessary_wraps, reason = "a listener may stop the work")]
fn quiet(_: u64) -> gguf::Result<()> {
    Ok(())
}

fn sha256(path: &Path) -> String {
    let digest = Sha256::digest(std::fs::read(path).expect("readable"));
    let [high, low] =
        [0, 16].map(|at| u128::from_be_bytes(digest[at..at + 16].try_into().expect("16 bytes")));
    format!("{high:032x}{low:032x}")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> = entries
        .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A folder with `whole.gguf` and its shards of at most `limits`.
fn split_set(bytes: &[u8], limits: Limits) -> (TempDir, PathBuf, Vec<PathBuf>) {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = folder.path().join("whole.gguf");
    save(&whole, bytes);
    let file = GgufFile::open(&whole).expect("sound");
    let shards = split::plan(&file, limits, false).expect("a plan");
    let prefix = folder.path().join("s");
    let paths = split::write(&file, &shards, &prefix, false, &mut quiet).expect("room");
    (folder, whole, paths)
}

fn merge(path: &Path, out: &Path) -> Vec<u8> {
    let set = GgufFile::open(path).expect("a set");
    set.require_sound().expect("a sound set");
    let layout = split::merged(&set).expect("a plan");
    split::merge(&set, &layout, out, false, &mut quiet).expect("room");
    std::fs::read(out).expect("readable")
}

#[test]
fn shards_are_the_references() {
    let (Some(golden), Some(model)) = (
        shared("golden/split/qwen3moe.json"),
        shared("golden/quantize/qwen3moe-bf16.gguf"),
    ) else {
        return;
    };
    let golden: serde_json::Value =
        serde_json::from_slice(&std::fs::read(golden).expect("readable")).expect("JSON");
    for (name, limits, no_tensor_first) in [
        ("size4M", Limits::Bytes(4_000_000), false),
        ("tensors10", Limits::Tensors(10), false),
        ("notensor", Limits::Tensors(10), true),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = GgufFile::open(&model).expect("sound");
        let shards = split::plan(&file, limits, no_tensor_first).expect("a plan");
        let prefix = folder.path().join("OUT");
        let paths = split::write(&file, &shards, &prefix, false, &mut quiet).expect("room");
        let expected = golden["splits"][name]["shards"].as_array().expect("shards");
        assert_eq!(paths.len(), expected.len(), "{name}");
        for (path, shard) in paths.iter().zip(expected) {
            assert_eq!(path.file_name().and_then(|n| n.to_str()), shard["name"].as_str());
            assert_eq!(
                Some(path.metadata().expect("is there").len()),
                shard["bytes"].as_u64()
            );
            assert_eq!(
                Some(sha256(path).as_str()),
                shard["sha256"].as_str(),
                "{}",
                path.display()
            );
        }
        let out = folder.path().join("whole.gguf");
        assert!(
            merge(&paths[1], &out) == std::fs::read(&model).expect("readable"),
            "{name}"
        );
    }
}

#[test]
fn what_is_not_understood_comes_back_as_it_was() {
    let odd = Raw::new()
        .pair("test.text", STRING, &[3, 0, 0, 0, 0, 0, 0, 0, b'a', 0xff, b'b'])
        .pair("test.flag", 7, &[2])
        .u32("general.alignment", 64)
        .pad_to(64)
        .tensor("a", &[16], F32, 0)
        .tensor("b", &[7], 4242, 64)
        .tensor("c", &[32, 32, 1], Q4_0, 192)
        .data(192 + 576);
    let (folder, whole, paths) = split_set(&odd.build(), Limits::Tensors(1));
    assert_eq!(paths.len(), 3);
    let again = merge(&paths[2], &folder.path().join("again.gguf"));
    assert!(again == std::fs::read(whole).expect("readable"));
}

#[test]
fn a_large_tensor_has_a_shard_of_its_own_and_a_set_can_be_split_again() {
    let raw = Raw::new()
        .string("general.architecture", "test")
        .tensor("a", &[8], F32, 0)
        .tensor("b", &[104], F32, 32)
        .tensor("c", &[8], F32, 448)
        .tensor("d", &[8], F32, 480)
        .data(512);
    let (folder, whole, paths) = split_set(&raw.build(), Limits::Bytes(64));
    let tensors = |path: &Path| {
        OpenOptions::new()
            .alone()
            .open(path)
            .expect("a shard")
            .tensors
            .len()
    };
    assert_eq!(paths.iter().map(|p| tensors(p)).collect::<Vec<_>>(), [1, 1, 2]);

    let set = GgufFile::open(&paths[0]).expect("a set");
    let shards = split::plan(&set, Limits::Tensors(3), true).expect("a plan");
    let prefix = folder.path().join("again");
    let again = split::write(&set, &shards, &prefix, false, &mut quiet).expect("room");
    assert_eq!(again.iter().map(|p| tensors(p)).collect::<Vec<_>>(), [0, 3, 1]);
    let merged = merge(&again[1], &folder.path().join("merged.gguf"));
    assert!(merged == std::fs::read(whole).expect("readable"));
}

#[test]
fn an_interrupted_or_refused_split_leaves_nothing() {
    let (folder, whole, paths) = split_set(&sound().build(), Limits::Tensors(1));
    let file = GgufFile::open(&whole).expect("sound");
    let shards = split::plan(&file, Limits::Tensors(1), false).expect("a plan");
    let before = names(folder.path());
    let prefix = folder.path().join("other");
    let mut n = 0;
    let stop = split::write(&file, &shards, &prefix, false, &mut |_| {
        n += 1;
        if n < 6 {
            return Ok(());
        }
        Err(Error::Output("stopped".into()))
    });
    assert!(stop.is_err_and(|e| e.to_string() == "stopped"));
    assert_eq!(names(folder.path()), before);

    let shard = std::fs::read(&paths[1]).expect("readable");
    let exists = split::write(&file, &shards, &folder.path().join("s"), false, &mut quiet);
    assert!(exists.is_err_and(|e| e.to_string().contains("--force")));
    let set = GgufFile::open(&paths[0]).expect("a set");
    let input = split::write(&set, &shards, &folder.path().join("s"), true, &mut quiet);
    assert!(input.is_err_and(|e| e.to_string().contains("same file as the input")));
    assert_eq!(std::fs::read(&paths[1]).expect("readable"), shard);
    assert_eq!(names(folder.path()), before);
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let (_folder, whole, _) = split_set(&sound().build(), Limits::Tensors(1));
    let file = GgufFile::open(&whole).expect("sound");
    assert!(split::plan(&file, Limits::Bytes(0), false).is_err());
    let big = crate::common::parse(Raw::new().big_endian().tensor("a", &[8], F32, 0).data(32).build());
    let refused = split::plan(&big.expect("readable"), Limits::Tensors(1), false);
    assert!(refused.is_err_and(|e| e.to_string().contains("big-endian")));
}

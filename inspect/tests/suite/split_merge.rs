//! `split` and `merge` as a user meets them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::{F32, Raw, save};
use tempfile::TempDir;

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gguf-inspect"));
    command.current_dir(folder).args(args).stdin(Stdio::null());
    command
}

/// Exit code, stdout, stderr.
fn run(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command(folder, args).output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

fn fine(folder: &Path, args: &[&str]) -> (String, String) {
    let (code, out, err) = run(folder, args);
    assert_eq!(code, 0, "{args:?}: {err}");
    (out, err)
}

/// Refused with this code, one line with all of `words`, nothing changed.
fn refused(folder: &Path, args: &[&str], code: i32, words: &[&str]) {
    let before = contents(folder);
    let (found, _, err) = run(folder, args);
    assert_eq!(found, code, "{args:?}: {err}");
    let line = err.lines().last().expect("a line");
    assert!(line.starts_with("error: "), "{err}");
    for word in words {
        assert!(line.contains(word), "`{word}` not in {line}");
    }
    assert!(contents(folder) == before, "{args:?} changed a file");
}

fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut files: Vec<_> = entries
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.is_file())
        .map(|p| (p.clone(), std::fs::read(&p).expect("readable")))
        .collect();
    files.sort();
    files
}

/// `n` tensors of `kib` KiB.
fn model(n: u64, kib: u64) -> Vec<u8> {
    let mut raw = Raw::new().string("general.architecture", "test").u32("test.n", 7);
    for i in 0..n {
        raw = raw.tensor(&format!("t{i}"), &[kib * 256], F32, i * kib * 1024);
    }
    raw.data(usize::try_from(n * kib * 1024).expect("little")).build()
}

/// A folder with `m.gguf` and its shards `s-..`, a tensor each.
fn set(n: u64, kib: u64) -> (TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = model(n, kib);
    save(&folder.path().join("m.gguf"), &bytes);
    fine(folder.path(), &["split", "m.gguf", "s", "--max-tensors", "1"]);
    (folder, bytes)
}

fn shards(folder: &Path) -> Vec<String> {
    let files = contents(folder).into_iter();
    let names = files.filter_map(|(p, _)| Some(p.file_name()?.to_str()?.to_owned()));
    names.filter(|n| n.starts_with("s-")).collect()
}

#[test]
fn a_plan_is_shown_first_and_is_what_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    save(&folder.path().join("m.gguf"), &model(5, 4));
    let options = [
        "split",
        "m.gguf",
        "./",
        "--split_max-size",
        "9K",
        "--no_tensor_first_split",
    ];
    let (plan, err) = fine(folder.path(), &[&options[..], &["--dry-run"]].concat());
    assert!(err.contains("would write 4 shards"), "{err}");
    assert_eq!(contents(folder.path()).len(), 1);
    let (out, err) = fine(folder.path(), &options);
    assert_eq!(out, plan);
    assert!(err.contains("wrote 4 shards, 5 tensors"), "{err}");
    for (i, (path, bytes)) in contents(folder.path())[..4].iter().enumerate() {
        let name = path.file_name().and_then(|n| n.to_str()).expect("UTF-8");
        assert_eq!(name, format!("m-{:05}-of-00004.gguf", i + 1));
        let line = out.lines().find(|l| l.contains(name)).expect("a row");
        assert!(line.ends_with(&format!(" {}", bytes.len())), "{line}");
    }
    refused(folder.path(), &options, 2, &["exists already", "--force"]);
    let (_, err) = fine(
        folder.path(),
        &["split", "m.gguf", "one", "--max-size", "1K", "--dry-run"],
    );
    assert!(
        err.contains("tensor `t0` has 4096 bytes, more than the limit"),
        "{err}"
    );
    let (_, err) = fine(folder.path(), &["split", "m.gguf", "one", "--dry_run"]);
    assert!(err.contains("would write 1 shard, 5 tensors, "), "{err}");
    refused(
        folder.path(),
        &["split", "--split", "m.gguf", "one"],
        2,
        &["`--split`: ", "leave it out"],
    );
    refused(
        folder.path(),
        &["split", "--split-max", "m.gguf", "one"],
        2,
        &["tip: ", "'--split-max-"],
    );
    let (json, _) = fine(folder.path(), &["split", "m.gguf", "j", "--json", "-q"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&json["shards"][0]["file"], &json["written"]),
        (&"j-00001-of-00001.gguf".into(), &true.into())
    );
    refused(
        folder.path(),
        &["split", "m.gguf", "x", "--max-size", "4X"],
        2,
        &["500M or 2G"],
    );
}

#[test]
fn a_set_merges_from_any_list_of_its_shards() {
    let (folder, bytes) = set(3, 4);
    let folder = folder.path();
    let all = shards(folder);
    let reversed: Vec<&str> = all.iter().rev().map(String::as_str).collect();
    for (i, inputs) in [&reversed[..], &reversed[1..2], &reversed[..2]]
        .into_iter()
        .enumerate()
    {
        let out = format!("out{i}.gguf");
        fine(folder, &[&["merge"], inputs, &[&out[..]]].concat());
        assert!(std::fs::read(folder.join(&out)).expect("written") == bytes);
        refused(
            folder,
            &[&["merge"], inputs, &["-o", &out]].concat(),
            2,
            &["exists already"],
        );
    }
    // Under other names, their keys say which is which.
    std::fs::create_dir(folder.join("renamed")).expect("a folder");
    for (shard, name) in all.iter().zip(["c.gguf", "a.gguf", "b.gguf"]) {
        std::fs::copy(folder.join(shard), folder.join("renamed").join(name)).expect("room");
    }
    let renamed = ["renamed/a.gguf", "renamed/b.gguf", "renamed/c.gguf"];
    fine(
        folder,
        &[&["merge"], &renamed[..], &["-o", "again.gguf"]].concat(),
    );
    assert!(std::fs::read(folder.join("again.gguf")).expect("written") == bytes);
    let words = ["has 3 shards, 2 are named"];
    refused(
        folder,
        &[&["merge"], &renamed[1..], &["-o", "x.gguf"]].concat(),
        1,
        &words,
    );
}

#[test]
fn the_accidents_of_a_glob_are_refused() {
    let (folder, _) = set(3, 4);
    let folder = folder.path();
    let all = shards(folder);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let merge = |rest: &[&'static str]| [&["merge"], &all[..], rest].concat();
    let words = ["`s-00003-of-00003.gguf` is itself a shard", "`-o`"];
    refused(folder, &merge(&[]), 2, &words);
    refused(folder, &merge(&["--force"]), 2, &words);
    refused(folder, &merge(&["--in-place-safe"]), 2, &words);
    refused(folder, &["merge", all[0]], 2, &["only file named"]);
    refused(folder, &["merge", "m.gguf", "x.gguf"], 1, &["whole model"]);
    refused(
        folder,
        &merge(&["s-00001-of-00003.gguf", "x.gguf"]),
        2,
        &["named twice"],
    );

    fine(folder, &["split", "m.gguf", "other", "--max-tensors", "2"]);
    let mixed = merge(&["other-00002-of-00002.gguf", "x.gguf"]);
    refused(
        folder,
        &mixed,
        1,
        &["not of the set", "`other-00002-of-00002.gguf`"],
    );
    std::fs::remove_file(folder.join(all[1])).expect("was there");
    refused(
        folder,
        &["merge", all[0], "x.gguf"],
        1,
        &["s-00002-of-00003.gguf"],
    );
}

#[test]
fn a_merge_in_place_can_be_killed_at_any_moment() {
    let mut interrupted = 0;
    for i in 0..10_u64 {
        let (folder, bytes) = set(6, 1024);
        let folder = folder.path();
        std::fs::remove_file(folder.join("m.gguf")).expect("was there");
        let all = shards(folder);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let same = [&["merge", "--in-place-safe"], &all[..], &["out.gguf"]].concat();
        let mut child = command(folder, &same)
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        std::thread::sleep(Duration::from_millis(2 + 9 * i));
        child.kill().expect("killed");
        child.wait().expect("ended");
        let left = shards(folder);
        let unfinished = folder.join(".out.gguf.merge-journal").exists();
        if unfinished {
            interrupted += 1;
            let args = match i % 4 {
                1 => vec!["merge", "--in-place-safe", "--resume", "out.gguf"],
                2 => vec!["merge", "--in-place-safe", "out.gguf"],
                3 if !left.is_empty() => vec!["merge", "--in-place-safe", &left[left.len() - 1]],
                _ => same,
            };
            fine(folder, &args);
        } else if !folder.join("out.gguf").exists() {
            assert_eq!(left.len(), 6, "nothing was begun");
            fine(folder, &same);
        }
        assert!(
            std::fs::read(folder.join("out.gguf")).expect("written") == bytes,
            "killed {i}"
        );
        assert_eq!(contents(folder).len(), 1, "nothing else is left");
    }
    eprintln!("{interrupted} of 10 merges were interrupted midway");
    let (folder, _) = set(2, 4);
    let none = ["merge", "--in-place-safe", "--resume", "out.gguf"];
    refused(folder.path(), &none, 2, &["no merge to `out.gguf` was stopped"]);
}

#[test]
fn help_says_that_shards_are_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    for option in ["-h", "--help"] {
        let (help, _) = fine(folder.path(), &["merge", option]);
        assert!(help.contains("DELETE each shard"), "{help}");
    }
    let (folder, _) = set(2, 4);
    let plan = [
        "merge",
        "--in-place-safe",
        "s-00001-of-00002.gguf",
        "out.gguf",
        "--dry-run",
    ];
    let before = contents(folder.path());
    let (out, _) = fine(folder.path(), &plan);
    assert!(out.contains("deleting each shard on the way"), "{out}");
    assert!(contents(folder.path()) == before);
}

//! `set`, `unset` and `rename-key` as a user meets them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Raw, replace, save, sound};
use tempfile::TempDir;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gguf-inspect"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Exit code, stdout, stderr.
fn run(args: &[&str]) -> (i32, String, String) {
    let output = command(args).output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let code = output.status.code().expect("no signal");
    (code, text(output.stdout), text(output.stderr))
}

fn fine(args: &[&str]) -> (String, String) {
    let (code, out, err) = run(args);
    assert_eq!(code, 0, "{args:?}: {err}");
    (out, err)
}

/// A folder with a file `m.gguf` in it.
fn file(raw: &Raw) -> (TempDir, PathBuf, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.gguf");
    save(&path, &raw.build());
    let name = path.to_str().expect("UTF-8").to_owned();
    (folder, path, name)
}

fn value(path: &str, key: &str) -> String {
    fine(&["show", path, "--key", key]).0
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("readable")
}

#[test]
fn a_template_from_a_file_goes_into_the_room_that_was_reserved() {
    let (folder, path, m) = file(&sound());
    let (out, _) = fine(&["set", &m, "--reserve-metadata", "4K"]);
    assert!(
        out.contains("copied to") && out.contains("4096 bytes of room"),
        "{out}"
    );
    let before = read(&path);
    let template = folder.path().join("template.jinja");
    save(
        &template,
        "{% for m in messages %}é{{ m }}\n{% endfor %}"
            .repeat(20)
            .as_bytes(),
    );
    let from = format!("tokenizer.chat_template={}", template.display());
    let (out, _) = fine(&["set", &m, "--from-file", &from, "--dry-run"]);
    assert!(out.contains("would be changed in place"), "{out}");
    assert!(read(&path) == before);
    let (out, _) = fine(&["set", &m, "--from-file", &from]);
    assert!(
        out.contains("(new) -> \"{% for") && out.contains("changed in place"),
        "{out}"
    );
    assert_eq!(
        value(&m, "tokenizer.chat_template").trim_end().as_bytes(),
        read(&template)
    );
    let after = read(&path);
    assert!(after.len() == before.len() && after.ends_with(&before[before.len() - 128..]));
    fine(&["check", &m]);
    fine(&["unset", &m, "tokenizer.chat_template"]);
    assert!(read(&path) == before, "undone, it is the same file");
    fine(&["set", &m, "--compact"]);
    assert!(read(&path) == sound().build());
}

#[test]
fn values_keep_or_take_the_type_that_readers_want() {
    let (_folder, _, m) = file(&sound());
    let (json, err) = fine(&[
        "set",
        &m,
        "--json",
        "test.block_count=3",
        "general.name=A = B",
        "test.rope.freq_base=1e6",
        "my.x:i8=-3",
        "my.y=true",
        "general.tags=[\"a\", \"b\"]",
    ]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let changes = json["changes"].as_array().expect("changes");
    let types: Vec<_> = changes.iter().filter_map(|c| c["type"].as_str()).collect();
    assert_eq!(types, ["u32", "string", "f32", "i8", "bool", "array of string"]);
    assert!(
        err.contains("key `my.y` is new and not known: type bool") && !err.contains("my.x"),
        "{err}"
    );
    assert_eq!(value(&m, "general.name"), "A = B\n");
    assert_eq!(value(&m, "general.tags"), "a\nb\n");
    fine(&["set", &m, "--type", "u64", "test.block_count=4"]);
    fine(&["rename-key", &m, "my.x", "my.z"]);
    fine(&["set", &m, "--type", "arr[u8]", "my.long=1,2,3,4,5,6,7,8,9"]);
    let (out, _) = fine(&["unset", &m, "my.long"]);
    assert!(
        out.contains("[1, 2, 3, 4, 5, 6, .. 9 in all] -> (removed)"),
        "{out}"
    );
    assert_eq!(value(&m, "my.z"), "-3\n");
    let (_, err) = fine(&["set", &m, "tokenizer.ggml.eos_token_id=3"]);
    assert!(
        err.contains("warning: key `tokenizer.ggml.eos_token_id`: expected a token below 3"),
        "{err}"
    );
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let (folder, path, m) = file(&sound());
    let before = read(&path);
    let other = folder.path().join("other.gguf");
    save(&other, b"something");
    let other = other.to_str().expect("UTF-8");
    for (args, words) in [
        (vec!["set", &m], "nothing to do"),
        (vec!["set", &m, "general.name"], "expected KEY=VALUE"),
        (
            vec!["set", &m, "test.block_count=-1"],
            "expected u32 (0 to 4294967295), found `-1`",
        ),
        (vec!["set", &m, "x:int=1"], "expected a type (u8"),
        (vec!["set", &m, "--json-value", "x={"], "expected JSON"),
        (
            vec!["set", &m, "general.alignment=64"],
            "all tensors would have to move",
        ),
        (vec!["set", &m, "split.count=2"], "gguf-inspect split"),
        (vec!["unset", &m, "no.such"], "does not have it"),
        (vec!["set", &m, "a=1", "a=2"], "key `a` is given twice"),
        (vec!["set", "http://localhost/m.gguf", "a=1"], "download it first"),
        (
            vec!["unset", "https://localhost/m.gguf", "a"],
            "download it first",
        ),
        (
            vec!["rename-key", "http://localhost/m.gguf", "a", "b", "--dry-run"],
            "a file on a server cannot be edited",
        ),
        (
            vec!["rename-key", &m, "general.architecture", "test.block_count"],
            "already",
        ),
        (vec!["set", &m, "a=1", "-o", &m], "same file as the input"),
        (vec!["set", &m, "a=1", "-o", other], "exists already"),
        (vec!["set", &m, "a=1", "-o", other, "--dry-run"], "exists already"),
        (vec!["set", &m, "--from-file", "a=/no/such/file"], "/no/such/file"),
    ] {
        let (code, out, err) = run(&args);
        assert!(code == 2 && out.is_empty(), "{args:?}: {code} {out} {err}");
        let line = err.lines().last().expect("a line");
        assert!(
            line.starts_with("error: ") && line.contains(words),
            "`{words}` not in {err}"
        );
        assert!(read(&path) == before);
    }
}

#[test]
fn of_a_split_set_the_first_shard_is_edited() {
    let (folder, _, m) = file(&sound());
    let prefix = folder.path().join("s");
    fine(&["split", &m, prefix.to_str().expect("UTF-8"), "--max-tensors", "1"]);
    let shard = |no: u32| folder.path().join(format!("s-{no:05}-of-00002.gguf"));
    let second = shard(2).to_str().expect("UTF-8").to_owned();
    let (code, _, err) = run(&["set", &second, "general.name=x"]);
    assert!(code == 1 && err.contains("s-00001-of-00002.gguf"), "{err}");
    let first = shard(1).to_str().expect("UTF-8").to_owned();
    fine(&["set", &first, "general.name=x"]);
    assert_eq!(value(&second, "general.name"), "x\n");
    fine(&["check", &second]);
}

#[test]
fn an_edit_that_is_killed_leaves_the_old_head_or_the_way_back() {
    let zeros = vec![0; 4 << 20];
    let raw = sound().array("gguf.pad", 0, zeros.len() as u64, &zeros);
    let (folder, path, m) = file(&raw);
    let before = read(&path);
    let long = format!("general.name={}", "x".repeat(100_000));
    let mut interrupted = 0;
    for i in 0..24_u64 {
        let mut child = command(&["set", &m, &long, "-q"])
            .stdout(Stdio::null())
            .spawn()
            .expect("starts");
        std::thread::sleep(Duration::from_micros(500 * i));
        child.kill().expect("killed");
        child.wait().expect("ended");
        let journal = folder.path().join(".m.gguf.edit");
        if journal.exists() {
            interrupted += 1;
            let (code, _, err) = run(&["show", &m]);
            assert!(code == 1 && err.contains("gguf-inspect set"), "{err}");
            let (_, err) = fine(&["set", &m]);
            assert!(
                err.contains("was interrupted: the old head was restored"),
                "{err}"
            );
            assert!(read(&path) == before, "killed {i}");
        } else if read(&path) != before {
            assert_eq!(value(&m, "general.name").len(), 100_001, "the edit was done");
            replace(&path, &before);
        }
        let (code, _, _) = run(&["set", &m]);
        assert_eq!(code, 2, "nothing is left to restore");
        let left = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 1, "nothing is left beside the file");
    }
    eprintln!("{interrupted} of 24 edits were interrupted midway");
}

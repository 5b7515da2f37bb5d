//! Outputs appear complete or not at all, and never in place of an input.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::common::save;
use gguf::atomic::AtomicFile;
use tempfile::TempDir;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("in.gguf");
    save(&input, b"input");
    (folder, input)
}

fn refusal(path: &Path, force: bool, inputs: &[&Path], n_bytes: Option<u64>) -> String {
    AtomicFile::create(path, force, inputs, n_bytes)
        .expect_err("must be refused")
        .to_string()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> = entries
        .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn the_name_appears_with_the_last_byte() {
    let (folder, _) = folder();
    let path = folder.path().join("out.gguf");
    let mut out = AtomicFile::create(&path, false, &[], Some(5)).expect("room");
    assert_eq!(out.path(), path);
    out.write_all(b"whole").expect("room");
    assert_eq!(names(folder.path()), [".out.gguf.new", "in.gguf"]);
    out.commit().expect("renamed");
    assert_eq!(std::fs::read(&path).expect("readable"), b"whole");
    assert_eq!(names(folder.path()), ["in.gguf", "out.gguf"]);
    let mode = path.metadata().expect("is there").permissions().mode();
    assert_eq!(mode & 0o600, 0o600);
}

#[test]
fn a_name_that_is_too_long_is_refused_at_the_start() {
    let (folder, _) = folder();
    let longest = folder.path().join("n".repeat(255));
    let mut out = AtomicFile::create(&longest, false, &[], None).expect("just short enough");
    out.write_all(b"x").expect("room");
    out.commit().expect("renamed");
    assert!(longest.exists());
    // 2 bytes a letter.
    let name = "ä".repeat(128);
    let text = refusal(&folder.path().join(&name), false, &[], None);
    assert!(
        text.contains("256 bytes") && text.contains("255 at most"),
        "{text}"
    );
    assert_eq!(names(folder.path()).len(), 2);
}

#[test]
fn a_dropped_output_vanishes() {
    let (folder, _) = folder();
    let path = folder.path().join("out.gguf");
    let mut out = AtomicFile::create(&path, false, &[], None).expect("room");
    out.write_all(&vec![7; 3 << 20]).expect("room");
    drop(out);
    assert_eq!(names(folder.path()), ["in.gguf"]);
}

#[test]
fn inputs_are_never_outputs() {
    let (folder, input) = folder();
    let (soft, hard) = (folder.path().join("soft"), folder.path().join("hard"));
    symlink(&input, &soft).expect("a link");
    std::fs::hard_link(&input, &hard).expect("a link");
    for path in [&input, &soft, &hard, &folder.path().join("./in.gguf")] {
        for force in [false, true] {
            let text = refusal(path, force, &[&input], None);
            assert!(text.contains("same file as the input"), "{text}");
        }
    }
    assert_eq!(std::fs::read(&input).expect("readable"), b"input");
}

#[test]
fn existing_outputs_need_force() {
    let (folder, input) = folder();
    let text = refusal(&input, false, &[], None);
    assert!(text.contains("exists already: pass `--force`"), "{text}");
    let link = folder.path().join("link");
    symlink(&input, &link).expect("a link");
    let mut out = AtomicFile::create(&link, true, &[], None).expect("forced");
    out.write_all(b"new").expect("room");
    out.commit().expect("renamed");
    assert!(
        link.is_symlink(),
        "the file behind the link is replaced, not the link"
    );
    assert_eq!(std::fs::read(&input).expect("readable"), b"new");
}

#[test]
fn an_output_that_appears_meanwhile_is_kept() {
    let (folder, _) = folder();
    let path = folder.path().join("out.gguf");
    let out = AtomicFile::create(&path, false, &[], None).expect("room");
    save(&path, b"other");
    let text = out.commit().expect_err("taken").to_string();
    assert!(text.contains("exists already"), "{text}");
    assert_eq!(std::fs::read(&path).expect("readable"), b"other");
    assert_eq!(names(folder.path()), ["in.gguf", "out.gguf"]);
}

#[test]
fn places_that_cannot_hold_the_output_are_refused() {
    let (folder, _) = folder();
    let text = refusal(&folder.path().join("absent/out.gguf"), false, &[], None);
    assert!(text.contains("absent` does not exist"), "{text}");
    assert!(refusal(folder.path(), true, &[], None).contains("it is a folder"));
    assert!(refusal(Path::new(".."), true, &[], None).contains("names a folder"));
    let text = refusal(&folder.path().join("new/"), false, &[], None);
    assert!(text.contains("does not exist: create it"), "{text}");
    let text = refusal(&folder.path().join("in.gguf/"), true, &[], None);
    assert!(text.contains("that is a file: leave out"), "{text}");
    assert!(refusal(&folder.path().join("new/."), false, &[], None).contains("names a folder"));
    assert!(refusal(Path::new("/dev/null"), true, &[], None).contains("not a regular file"));
    let dangling = folder.path().join("dangling");
    symlink("absent", &dangling).expect("a link");
    assert!(refusal(&dangling, true, &[], None).contains("symbolic link to nothing"));
    let text = refusal(&folder.path().join("out.gguf"), false, &[], Some(1 << 60));
    assert!(text.contains("needs 1152921504606846976 bytes"), "{text}");
    assert_eq!(names(folder.path()), ["dangling", "in.gguf"]);
}

#[test]
fn names_as_long_as_the_system_allows_work() {
    let (folder, _) = folder();
    let path = folder.path().join("é".repeat(127));
    let mut out = AtomicFile::create(&path, false, &[], None).expect("a short part name");
    out.write_all(b"x").expect("room");
    out.commit().expect("renamed");
    assert!(path.exists());
}

/// What a run would take for a file of its own.
#[test]
fn inputs_keep_names_that_stand_beside_an_output() {
    let (folder, _) = folder();
    let out = folder.path().join("out.gguf");
    for kind in ["new", "part", "journal", "journal.part"] {
        let input = folder.path().join(format!(".out.gguf.{kind}"));
        save(&input, b"an input");
        for exists in [false, true] {
            if exists {
                save(&out, b"old");
            }
            let text = refusal(&out, true, &[&input], None);
            assert!(text.contains("the input") && text.contains(kind), "{text}");
            assert_eq!(std::fs::read(&input).expect("readable"), b"an input");
        }
        std::fs::remove_file(&out).expect("there");
        std::fs::remove_file(&input).expect("there");
    }
}

/// The name is a run's own, but a person may remove the file; then another run may begin.
#[test]
fn a_file_that_was_removed_by_hand_is_an_error_and_the_next_one_stays() {
    let (folder, _) = folder();
    let (path, part) = (folder.path().join("out"), folder.path().join(".out.new"));
    let start = |bytes: &[u8]| {
        let mut out = AtomicFile::create(&path, false, &[], None).expect("room");
        out.write_all(bytes).expect("room");
        out
    };
    for is_replaced in [false, true] {
        let first = start(b"first");
        std::fs::remove_file(&part).expect("there");
        let second = is_replaced.then(|| start(b"second"));
        let text = first.commit().expect_err("its file is gone").to_string();
        assert!(
            text.contains(".out.new") && text.contains("run it again"),
            "{text}"
        );
        assert!(!path.exists());
        if let Some(second) = second {
            second.commit().expect("its file is there");
            assert_eq!(std::fs::read(&path).expect("readable"), b"second");
        }
    }
    std::fs::remove_file(&path).expect("there");
    // One that gives up.
    let first = start(b"first");
    std::fs::remove_file(&part).expect("there");
    let second = start(b"second");
    drop(first);
    second.commit().expect("its file is there");
}

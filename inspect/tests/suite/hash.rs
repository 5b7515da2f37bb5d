//! `gguf-inspect hash`: the manifest, and what its verification names.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::models::{Model, flip, inspect, place, save, text};
use gguf::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").expect("memory");
    }
    text
}

/// A folder with the usual model and its manifest.
fn hashed() -> (TempDir, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let model = Model::usual().save(folder.path(), "m.gguf");
    let manifest = text(&folder.path().join("m.sha256"));
    let run = inspect(&["hash", &model, "-o", &manifest]);
    assert_eq!((run.code, run.out.as_str()), (0, ""));
    assert_eq!(
        run.err,
        format!("wrote `{manifest}`: digests of 1 file, 4 metadata values and 5 tensors\n")
    );
    (folder, model, manifest)
}

#[test]
fn digests_are_those_of_file_and_tensors_for_any_number_of_threads() {
    let (folder, model, manifest) = hashed();
    let manifest = std::fs::read_to_string(manifest).expect("text");
    let file = std::fs::read(&model).expect("bytes");
    assert!(manifest.contains(&format!("\n{}  m.gguf\n", hex(&file))));
    for t in Model::usual().tensors {
        let line = format!(
            "# tensor {}  {}  {:?}  {}\n",
            hex(&t.bytes),
            t.type_name,
            t.dims,
            t.name
        );
        assert!(manifest.contains(&line), "{line} not in\n{manifest}");
    }
    let name = Value::from("A model").to_bytes();
    assert!(manifest.contains(&format!("# metadata {}  string  general.name\n", hex(&name))));
    let private = folder.path().to_str().expect("UTF-8");
    assert!(!manifest.contains(private), "base names only");
    for threads in ["1", "2", "3", "7"] {
        assert_eq!(
            inspect(&["hash", &model, "-t", threads]).out,
            manifest,
            "{threads} threads"
        );
    }
    let alone = inspect(&["hash", &model, "--tensors-only"]).out;
    let tensors = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|l| l.starts_with("# tensor "));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(tensors(&alone), tensors(&manifest));
    let json = inspect(&["hash", &model, "--json"]).json();
    assert_eq!(json["files"][0]["sha256"], hex(&file));
    assert_eq!(json["tensors"][1]["name"], "blk.0.attn_norm.weight");
}

/// Buffers go round between the reader and two digests; one that was lost for each file would end them.
#[test]
fn sets_of_many_small_shards_are_hashed_to_their_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let all = (0..500).fold(Model::new(), |model, i| {
        model.with(&format!("t{i:03}.weight"), &[1], "F32", &[i as f32])
    });
    let first = all.save_split(folder.path(), "s", 1);
    for threads in ["1", "2", "4"] {
        let manifest = text(&folder.path().join(threads));
        let mut child = Command::new(env!("CARGO_BIN_EXE_gguf-inspect"))
            .args(["hash", &first, "-t", threads, "-o", &manifest])
            .spawn()
            .expect("the program starts");
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break status;
            }
            if start.elapsed() > Duration::from_secs(100) {
                child.kill().expect("stopped");
                panic!("{threads} threads: no end after 100 seconds");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success(), "{threads} threads");
        let lines = std::fs::read_to_string(manifest).expect("text");
        assert_eq!(lines.matches("# tensor ").count(), 500);
        assert_eq!(lines.matches("  s-00").count(), 500);
    }
}

#[test]
fn sha256sum_checks_the_files() {
    let (folder, model, manifest) = hashed();
    let check = || {
        let mut command = Command::new("sha256sum");
        command
            .args(["--check", "--strict", &manifest])
            .current_dir(folder.path())
            .output()
    };
    let Ok(output) = check() else {
        crate::common::skip::skip("no sha256sum here");
        return;
    };
    assert!(output.status.success());
    flip(&model, 100);
    assert!(!check().expect("it ran before").status.success());
}

#[test]
fn a_flipped_bit_is_named() {
    let (_folder, model, manifest) = hashed();
    let verify = || inspect(&["hash", &model, "--verify", &manifest]);
    let all = "as the manifest says: 1 of 1 file, 4 of 4 metadata keys, 5 of 5 tensors\n";
    assert_eq!((verify().code, verify().out.as_str()), (0, all));
    let norm = place(&model, "blk.0.attn_norm.weight");
    let find = |needle: &[u8]| {
        let bytes = std::fs::read(&model).expect("bytes");
        bytes
            .windows(needle.len())
            .position(|w| w == needle)
            .expect("in the head") as u64
    };
    let cases = [
        (
            norm,
            "tensor `blk.0.attn_norm.weight`: the data differs (132 bytes from byte",
        ),
        (norm + 131, "tensor `blk.0.attn_norm.weight`: the data differs"),
        (
            norm + 132,
            "file `m.gguf`: bytes outside of tensors and metadata values differ: padding",
        ),
        (find(b"A model"), "key `general.name`: the value differs"),
        (
            find(b"token39") + 6,
            "key `tokenizer.ggml.tokens`: the value differs",
        ),
        (find(b"general.name"), "key `general.name`: missing"),
        (find(b"blk.1.attn_k"), "tensor `blk.1.attn_k.weight`: missing"),
        // The type number stands behind the name and two dimensions.
        (
            find(b"blk.1.attn_k.weight") + 19 + 4 + 16,
            "tensor `blk.1.attn_k.weight`: expected Q4_0 [32, 3], found",
        ),
    ];
    for (at, words) in cases {
        flip(&model, at);
        let run = verify();
        run.assert(1, &[words]);
        assert!(
            run.err.starts_with("error: ") && run.err.lines().count() == 1,
            "{}",
            run.err
        );
        let json = inspect(&["hash", &model, "--verify", &manifest, "--json"]).json();
        assert_eq!(json["equal"], false);
        flip(&model, at);
    }
    verify().assert(0, &[]);
}

#[test]
fn models_that_were_split_merged_or_sorted_since_verify_by_name() {
    let (folder, model, manifest) = hashed();
    let shards = Model::usual().save_split(folder.path(), "s", 2);
    let run = inspect(&["hash", &shards, "--verify", &manifest]);
    run.assert(0, &["0 of 0 files, 4 of 4 metadata keys, 5 of 5 tensors"]);

    let of_shards = text(&folder.path().join("s.sha256"));
    assert_eq!(inspect(&["hash", &shards, "-o", &of_shards, "-t", "4"]).code, 0);
    assert_eq!(
        std::fs::read_to_string(&of_shards)
            .expect("text")
            .matches("  s-0000")
            .count(),
        3
    );
    inspect(&["hash", &model, "--verify", &of_shards]).assert(0, &["0 of 0 files"]);
    inspect(&["hash", &shards, "--verify", &of_shards]).assert(0, &["3 of 3 files"]);

    let mut sorted = Model::usual();
    sorted.tensors.reverse();
    let sorted = sorted.save(folder.path(), "sorted.gguf");
    inspect(&["hash", &sorted, "--verify", &manifest]).assert(0, &["5 of 5 tensors"]);

    let second = shards.replace("-00001-", "-00002-");
    flip(&second, place(&shards, "blk.0.ffn_up_exps.weight") + 10);
    let run = inspect(&["hash", &shards, "--verify", &of_shards]);
    run.assert(
        1,
        &[
            "tensor `blk.0.ffn_up_exps.weight`",
            "2 of 3 files",
            "4 of 5 tensors",
        ],
    );
}

#[test]
fn truncated_files_have_no_manifest_but_verify_tells_what_is_lost() {
    let (folder, model, manifest) = hashed();
    let bytes = std::fs::read(&model).expect("bytes");
    save(
        Path::new(&model),
        &bytes[..=place(&model, "blk.1.attn_q.weight") as usize],
    );
    let run = inspect(&["hash", &model]);
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    assert!(
        run.err
            .contains("tensor `blk.1.attn_q.weight` runs beyond the end"),
        "{}",
        run.err
    );
    let run = inspect(&["hash", &model, "--verify", &manifest]);
    run.assert(
        1,
        &[
            "tensor `blk.1.attn_q.weight`: its bytes run beyond",
            "3 of 5 tensors",
        ],
    );
    drop(folder);
}

#[test]
fn outputs_are_not_replaced_and_other_texts_are_no_manifests() {
    let (folder, model, manifest) = hashed();
    assert_eq!(inspect(&["hash", &model, "-o", &manifest]).code, 2);
    let again = inspect(&["hash", &model, "-o", &manifest, "--force", "--quiet"]);
    assert_eq!((again.code, again.err.as_str()), (0, ""));
    assert_ne!(inspect(&["hash", &model, "-o", &model, "--force"]).code, 0);

    let run = inspect(&["hash", &model, "--verify", &model]);
    assert_eq!(run.code, 1, "{}", run.err);
    let list = folder.path().join("SHA256SUMS");
    let sum = hex(&std::fs::read(&model).expect("bytes"));
    save(
        &list,
        format!("{}  other.gguf\n{sum} *m.gguf\n", "0".repeat(64)).as_bytes(),
    );
    let list = text(&list);
    inspect(&["hash", &model, "--verify", &list]).assert(0, &["1 of 1 file"]);
    save(
        Path::new(&list),
        format!("{}  other.gguf\n", "0".repeat(64)).as_bytes(),
    );
    let run = inspect(&["hash", &model, "--verify", &list]);
    assert!(
        run.code == 1 && run.err.contains("says nothing about"),
        "{}",
        run.err
    );
}

#[test]
fn of_several_manifests_the_one_that_lists_the_model_is_taken() {
    let (folder, model, manifest) = hashed();
    let shards = Model::usual().save_split(folder.path(), "s", 2);
    let of_shards = inspect(&["hash", &shards]).out;
    let of_model = std::fs::read_to_string(&manifest).expect("a manifest");
    let verify = |model: &str, parts: &[&str]| {
        save(Path::new(&manifest), parts.concat().as_bytes());
        inspect(&["hash", model, "--verify", &manifest])
    };
    for parts in [[&*of_model, &of_shards], [&of_shards, &of_model]] {
        verify(&model, &parts).assert(0, &["1 of 1 file", "5 of 5 tensors"]);
        verify(&shards, &parts).assert(0, &["3 of 3 files", "5 of 5 tensors"]);
    }
    let at = place(&model, "blk.0.attn_norm.weight");
    flip(&model, at);
    verify(&model, &[&of_shards, &of_model])
        .assert(1, &["tensor `blk.0.attn_norm.weight`: the data differs"]);
    let other = text(&folder.path().join("other.gguf"));
    std::fs::hard_link(&model, &other).expect("a new name");
    for (model, parts, found) in [
        (&other, [&*of_model, &of_shards], 0),
        (&shards, [&*of_model, &of_model], 0),
        (&shards, [&*of_shards, &of_shards], 2),
    ] {
        let run = verify(model, &parts);
        let what = format!("has 2 manifests: expected one that lists `{model}`, found {found};");
        assert!(run.code == 1 && run.err.contains(&what), "{}", run.err);
    }
}

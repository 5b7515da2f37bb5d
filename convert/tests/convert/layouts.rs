//! What a sound checkpoint can look like, and what must not change the output.

use std::fs;
use std::path::Path;

use gguf::GgufFile;

use crate::checkpoint::{Checkpoint, N_ROWS, write};
use crate::{carried, convert, convert_ok, stderr, text};

#[test]
fn threads_and_shards_do_not_change_the_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = Checkpoint::tiny("BF16").write(&folder.path().join("a/tiny"));
    let shards = Checkpoint::tiny("BF16").write_sharded(&folder.path().join("b/tiny"), 7);
    let first = folder.path().join("first.gguf");
    convert_ok(&whole, &first, &["--outtype", "f16", "-t", "1"]);
    for (dir, threads) in [(&whole, "2"), (&whole, "7"), (&shards, "3")] {
        let out = folder.path().join("other.gguf");
        convert_ok(dir, &out, &["--outtype", "f16", "-t", threads, "--force"]);
        assert!(
            fs::read(&first).expect("there") == fs::read(&out).expect("there"),
            "{threads} threads"
        );
    }
}

#[test]
fn fused_experts_equal_single_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut checkpoint = Checkpoint::tiny("F32");
    let (single, fused) = (
        folder.path().join("single.gguf"),
        folder.path().join("fused.gguf"),
    );
    convert_ok(&checkpoint.write(&folder.path().join("a/tiny")), &single, &[]);
    checkpoint.fuse();
    convert_ok(&checkpoint.write(&folder.path().join("b/tiny")), &fused, &[]);
    assert!(
        fs::read(single).expect("there") == fs::read(fused).expect("there"),
        "the files differ"
    );
}

#[test]
fn both_spellings_of_settings_count() {
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoint = Checkpoint::tiny("BF16");
    let mut other = checkpoint.clone();
    let settings = other.config.as_object_mut().expect("an object");
    let experts = settings.remove("num_experts").expect("there");
    let theta = settings.remove("rope_theta").expect("there");
    settings.insert("num_local_experts".into(), experts);
    settings.insert(
        "rope_parameters".into(),
        serde_json::json!({"rope_theta": theta, "rope_type": "default"}),
    );
    let (a, b) = (folder.path().join("a.gguf"), folder.path().join("b.gguf"));
    convert_ok(&checkpoint.write(&folder.path().join("a/tiny")), &a, &[]);
    convert_ok(&other.write(&folder.path().join("b/tiny")), &b, &[]);
    assert!(
        fs::read(a).expect("there") == fs::read(b).expect("there"),
        "the files differ"
    );
}

#[test]
fn rows_without_whole_blocks_become_f16_with_a_notice() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Checkpoint::tiny("BF16").write(&folder.path().join("tiny"));
    let out = folder.path().join("out.gguf");
    let run = convert(&[text(&dir), "-o", text(&out), "--outtype", "q8_0"]);
    assert!(
        run.status.success() && stderr(&run).contains("blk.0.ffn_down_exps.weight"),
        "{}",
        stderr(&run)
    );
    let file = GgufFile::open(&out).expect("readable");
    let type_of = |name: &str| file.tensor(name).expect("there").type_name();
    assert_eq!(type_of("blk.0.ffn_down_exps.weight"), "F16");
    assert_eq!(type_of("blk.0.ffn_gate_exps.weight"), "Q8_0");
    assert_eq!(type_of("blk.0.ffn_gate_inp.weight"), "F32");
}

#[test]
fn the_vocabulary_is_as_long_as_the_embedding() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Checkpoint::tiny("BF16").write(&folder.path().join("tiny"));
    let out = folder.path().join("out.gguf");
    convert_ok(&dir, &out, &[]);
    let file = GgufFile::open(&out).expect("readable");
    let tokens = file
        .metadata
        .strings("tokenizer.ggml.tokens")
        .expect("strings")
        .expect("there");
    assert_eq!(tokens.len(), N_ROWS);
    assert_eq!(
        (tokens.get(9).as_deref(), tokens.get(11).as_deref()),
        (Some("<|e|>"), Some("[PAD11]"))
    );
    assert_eq!(
        file.metadata
            .uint("tokenizer.ggml.eos_token_id")
            .expect("a number"),
        Some(9)
    );
}

#[test]
fn a_tied_model_needs_no_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut checkpoint = Checkpoint::tiny("BF16");
    checkpoint.tensors.retain(|t| t.name != "lm_head.weight");
    checkpoint.config["tie_word_embeddings"] = true.into();
    let out = folder.path().join("out.gguf");
    convert_ok(&checkpoint.write(&folder.path().join("tiny")), &out, &[]);
    assert!(
        GgufFile::open(&out)
            .expect("readable")
            .tensor("output.weight")
            .is_none()
    );
}

#[test]
fn the_template_file_wins_over_the_setting() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut checkpoint = Checkpoint::tiny("BF16");
    checkpoint.tokenizer_config["chat_template"] = "from the setting".into();
    let dir = checkpoint.write(&folder.path().join("tiny"));
    let out = folder.path().join("out.gguf");
    let template = |more: &[&str]| {
        convert_ok(&dir, &out, more);
        let file = GgufFile::open(&out).expect("readable");
        file.metadata
            .string("tokenizer.chat_template")
            .expect("a string")
            .map(str::to_owned)
    };
    assert_eq!(template(&[]).as_deref(), Some("from the setting"));
    write(&dir.join("chat_template.jinja"), b"from the file");
    assert_eq!(template(&["--force"]).as_deref(), Some("from the file"));
}

#[test]
fn a_dry_run_tells_all_and_writes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Checkpoint::tiny("BF16").write(&folder.path().join("tiny"));
    let run = convert(&[
        text(&dir),
        "-o",
        text(folder.path()),
        "--dry-run",
        "--json",
        "--model-name",
        "My Name",
    ]);
    let report: serde_json::Value = serde_json::from_slice(&run.stdout).expect("JSON");
    assert_eq!(report["metadata"]["general.name"], "My Name");
    assert_eq!(report["tensors"].as_array().expect("tensors").len(), 15);
    let out = std::path::PathBuf::from(report["output"].as_str().expect("a path"));
    assert!(
        !out.exists() && out.file_name().is_some_and(|n| n == "My-Name-3x8.7K-BF16.gguf"),
        "{report}"
    );
    convert_ok(&dir, folder.path(), &["--model-name", "My Name"]);
    assert_eq!(
        fs::metadata(&out).expect("written").len(),
        report["bytes"].as_u64().expect("a number")
    );
}

#[test]
fn no_path_goes_into_the_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Checkpoint::tiny("BF16").write(&folder.path().join("private-parent/tiny"));
    let out = folder.path().join("out.gguf");
    convert_ok(&dir, &out, &[]);
    let bytes = fs::read(&out).expect("there");
    assert!(
        !bytes
            .windows(14)
            .any(|w| w.eq_ignore_ascii_case(b"private-parent"))
    );
    let file = GgufFile::open(&out).expect("readable");
    assert_eq!(
        file.metadata.string("general.name").expect("a string"),
        Some("Tiny")
    );
}

#[test]
fn room_for_metadata_is_the_last_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Checkpoint::tiny("BF16").write(&folder.path().join("tiny"));
    let (plain, wide) = (folder.path().join("plain.gguf"), folder.path().join("wide.gguf"));
    convert_ok(&dir, &plain, &[]);
    convert_ok(&dir, &wide, &["--reserve-metadata", "1M"]);
    let open = |path: &Path| GgufFile::open(path).expect("readable");
    let (plain, wide) = (open(&plain), open(&wide));
    let (last, room) = wide.metadata.iter().last().expect("keys");
    assert_eq!(last, gguf::key::PAD);
    assert!(*room == gguf::Value::from(vec![0_u8; 1 << 20]));
    let mut without = wide.metadata.clone();
    without.remove(gguf::key::PAD);
    assert_eq!(without, plain.metadata);
}

#[test]
fn a_vocabulary_alone_is_no_cause_for_a_warning() {
    let temp = tempfile::tempdir().expect("a folder");
    let out = temp.path().join("vocabulary.gguf");
    let run = convert(&[text(&carried()), "--vocab-only", "--outfile", text(&out)]);
    assert!(run.status.success(), "{}", stderr(&run));
    assert!(!stderr(&run).contains("no tensors"), "{}", stderr(&run));
    let file = GgufFile::open(&out).expect("readable");
    assert!(file.tensors.is_empty() && file.metadata.contains("tokenizer.ggml.tokens"));
}

//! `estimate` as a user meets it.

use std::path::PathBuf;

use crate::common::{F32, Raw, save, shared};
use crate::models::{Run, inspect};
use serde_json::Value;
use tempfile::TempDir;

fn estimate(args: &[&str]) -> Run {
    inspect(&[&["estimate"], args].concat())
}

fn json(args: &[&str]) -> Value {
    let run = estimate(&[args, &["--json"]].concat());
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    run.json()
}

fn file(raw: &Raw) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path: PathBuf = folder.path().join("model.gguf");
    save(&path, &raw.build());
    let path = path.to_str().expect("UTF-8").to_owned();
    (folder, path)
}

fn assert_refused(run: &Run, code: i32, words: &[&str]) {
    assert_eq!((run.code, run.out.as_str()), (code, ""), "{}", run.err);
    assert!(
        run.err.starts_with("error: ") && run.err.lines().count() == 1,
        "{}",
        run.err
    );
    for word in words {
        assert!(run.err.contains(word), "`{word}` not in {}", run.err);
    }
}

/// Metadata with the sizes of Llama-3-8B.
fn llama(arch: &str) -> Raw {
    let key = |own: &str| format!("{arch}.{own}");
    Raw::new()
        .string("general.architecture", arch)
        .u32(&key("block_count"), 32)
        .u32(&key("context_length"), 8192)
        .u32(&key("embedding_length"), 4096)
        .u32(&key("feed_forward_length"), 14336)
        .u32(&key("attention.head_count"), 32)
        .u32(&key("attention.head_count_kv"), 8)
}

fn layer_names(raw: Raw) -> Raw {
    raw.tensor("token_embd.weight", &[8, 4], F32, 0)
        .tensor("blk.0.attn_k.weight", &[8, 1], F32, 128)
        .tensor("blk.0.ffn_gate_exps.weight", &[8, 2, 2], F32, 160)
        .tensor("blk.0.ffn_gate_shexp.weight", &[8], F32, 288)
        .data(320)
}

#[test]
fn caches_are_those_known_by_hand() {
    let (_folder, path) = file(&llama("made-up"));
    let cache = |args: &[&str]| json(&[&[&*path], args].concat())["cache"]["total"].clone();
    assert_eq!(cache(&["-c", "8192"]), 1_u64 << 30);
    assert_eq!(cache(&["-c", "0"]), 1_u64 << 30, "0 is the model's own");
    assert_eq!(cache(&[]), 1_u64 << 29, "4096 tokens");
    assert_eq!(
        cache(&["-c", "8192", "-ctk", "q8_0", "-ctv", "Q4_0"]),
        285_212_672 + 150_994_944
    );
    assert_eq!(
        cache(&["-c", "5000", "-np", "3"]),
        3 * 1792 * 32 * 8 * 128 * 2 * 2
    );
}

#[test]
fn what_is_no_model_is_refused() {
    let matrix = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/golden/qwen3moe.imatrix.gguf"
    );
    let words = [
        "expected a model, found an importance matrix",
        "gguf-imatrix stats",
    ];
    assert_refused(&estimate(&[matrix]), 1, &words);
    let (_folder, path) = file(&llama("made-up").string("general.type", "adapter"));
    assert_refused(&estimate(&[&path]), 1, &["expected a model, found an adapter"]);
    let (_folder, path) = file(&llama("made-up").string("general.type", "model"));
    json(&[&path]);
}

#[test]
fn compressed_attention_keeps_keys_alone() {
    let raw = Raw::new()
        .string("general.architecture", "deepseek2")
        .u32("deepseek2.block_count", 61)
        .u32("deepseek2.embedding_length", 7168)
        .u32("deepseek2.attention.head_count", 64)
        .u32("deepseek2.attention.head_count_kv", 1)
        .u32("deepseek2.attention.key_length", 576)
        .u32("deepseek2.attention.value_length", 512)
        .u32("deepseek2.attention.key_length_mla", 192)
        .u32("deepseek2.attention.value_length_mla", 128);
    let (_folder, path) = file(&raw);
    let all = json(&[&path, "-c", "32768"]);
    assert_eq!(all["cache"]["keys"], 61_u64 * 32768 * 576 * 2);
    assert_eq!(all["cache"]["values"], 0);
    let all = json(&[&path, "-c", "32768", "-ctk", "q8_0"]);
    assert_eq!(all["cache"]["total"], 61_u64 * 32768 * 576 / 32 * 34);
}

#[test]
fn weights_are_told_by_part_and_place() {
    let (_folder, path) = file(&layer_names(llama("made-up")));
    let all = json(&[&path, "--layers"]);
    let weights = &all["weights"];
    assert_eq!(
        (&weights["total"], &weights["experts"]),
        (&320.into(), &128.into())
    );
    assert_eq!(
        (&weights["embedding"], &weights["tied"]),
        (&128.into(), &true.into())
    );
    assert_eq!(all["layers"].as_array().map(Vec::len), Some(32));
    assert_eq!(all["layers"][0]["experts"], 128);
    assert_eq!(all["layers"][0]["weights"], 192);
    let number = |v: &Value| v.as_u64().expect("a number");
    let compute = &all["compute"];
    assert_eq!(
        number(&all["total"]),
        320 + number(&all["cache"]["total"]) + number(&compute["total"])
    );
    // The embeddings are the output matrix, too, so a device has a copy of them.
    assert_eq!(
        number(&all["experts_apart"]["device"]),
        64 + 128 + number(&all["cache"]["total"]) + number(&compute["total"]) - number(&compute["logits"])
    );

    let run = estimate(&[&path, "--layers"]);
    for line in [
        "context: 4096 tokens of the model's 8192",
        "with `-ngl 99 -ot exps=CPU`: ",
        "8 x (128 + 128)",
    ] {
        assert!(run.out.contains(line), "`{line}` not in\n{}", run.out);
    }
}

#[test]
fn compute_buffers_grow_with_what_they_depend_on() {
    let (_folder, path) = file(&llama("made-up"));
    let total = |args: &[&str]| {
        json(&[&[&*path], args].concat())["compute"]["total"]
            .as_u64()
            .expect("a number")
    };
    let usual = total(&[]);
    assert!(total(&["-ub", "1024"]) > usual);
    assert!(total(&["-b", "64"]) < usual, "a ubatch is no larger than a batch");
    // Scores of 512 tokens against 4096 cells in 32 heads, beside the mask.
    assert!(total(&["--no-flash-attn"]) > 512 * 4096 * 32 * 4);
}

#[test]
fn what_is_missing_is_told_and_left_out() {
    let (_folder, path) = file(&Raw::new().string("general.type", "model"));
    let run = estimate(&[&path]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(
        run.out
            .contains("left out: cache and compute buffers: no metadata key `general.architecture`"),
        "{}",
        run.out
    );

    let raw = layer_names(Raw::new().string("general.architecture", "made-up"));
    let (_folder, path) = file(&raw);
    let left_out = json(&[&path])["left_out"].to_string();
    for key in ["made-up.attention.head_count_kv", "made-up.embedding_length"] {
        assert!(left_out.contains(key), "{left_out}");
    }
    let raw = Raw::new()
        .string("general.architecture", "made-up")
        .string("made-up.block_count", "many");
    let (_folder, path) = file(&raw);
    let left_out = json(&[&path])["left_out"].to_string();
    assert!(
        left_out.contains("`made-up.block_count` is of type string"),
        "{left_out}"
    );
    assert_refused(&estimate(&[&path, "-c", "0"]), 1, &["context", "-c"]);
}

#[test]
fn hostile_numbers_are_refused() {
    let raw = || Raw::new().string("general.architecture", "x");
    let (_folder, path) = file(&raw().u32("x.block_count", u32::MAX));
    assert_refused(&estimate(&[&path]), 1, &["`x.block_count`", "4096", "4294967295"]);

    let raw = raw()
        .u32("x.block_count", 4096)
        .u32("x.embedding_length", u32::MAX)
        .u32("x.attention.head_count", u32::MAX)
        .u32("x.attention.key_length", u32::MAX)
        .u32("x.attention.value_length", u32::MAX);
    let (_folder, path) = file(&raw);
    assert_refused(&estimate(&[&path]), 1, &["64 bits"]);

    let raw = Raw::new()
        .string("general.architecture", "x")
        .u32("x.block_count", 1)
        .u32("x.embedding_length", u32::MAX)
        .u32("x.feed_forward_length", u32::MAX)
        .u32("x.expert_count", u32::MAX)
        .u32("x.expert_used_count", u32::MAX)
        .u32("x.ssm.conv_kernel", u32::MAX)
        .u32("x.ssm.inner_size", u32::MAX)
        .u32("x.ssm.state_size", u32::MAX)
        .u32("x.context_length", u32::MAX);
    let (_folder, path) = file(&raw);
    assert_refused(&estimate(&[&path, "-c", "0"]), 1, &["64 bits"]);
}

#[test]
fn wrong_options_are_refused() {
    let raw = llama("x").u32("x.attention.key_length", 72);
    let (_folder, path) = file(&raw);
    assert_refused(
        &estimate(&[&path, "-ctk", "q8_0"]),
        2,
        &["`Q8_0`", "32", "72", "f16"],
    );
    assert_refused(&estimate(&[&path, "-ctk", "q9"]), 2, &["`q9`"]);
    assert_refused(&estimate(&[&path, "-b", "0"]), 2, &["--batch-size"]);
    let run = estimate(&[&path, "-ctv", "q8_0", "--no-flash-attn"]);
    assert_refused(&run, 2, &["flash attention"]);
    assert_refused(&estimate(&["/nowhere/model.gguf"]), 2, &["/nowhere/model.gguf"]);
}

#[test]
fn a_real_vocabulary_gives_the_size_of_logits() {
    let Some(path) = shared("vocabs/ggml-vocab-llama-bpe.gguf") else {
        return;
    };
    let all = json(&[path.to_str().expect("UTF-8"), "-np", "2"]);
    assert_eq!(all["compute"]["logits"], 2 * 128_256 * 4);
}

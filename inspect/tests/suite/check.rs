//! `check` knows what a model needs, whatever its architecture.

use crate::models::{Model, inspect, save, text};
use gguf::Value;
use tempfile::TempDir;

/// A sound decoder of an architecture that no build describes: two layers, the second with four experts.
fn decoder() -> Model {
    let mut model = Model::new();
    let set = &mut model.metadata;
    set.set("general.architecture", "test".into());
    set.set("general.file_type", 0_u32.into());
    set.set("test.context_length", 64_u32.into());
    set.set("test.embedding_length", 32_u32.into());
    set.set("test.feed_forward_length", 16_u32.into());
    set.set("test.attention.head_count", 4_u32.into());
    set.set("test.attention.head_count_kv", vec![2_u32, 2].into());
    set.set("test.attention.layer_norm_rms_epsilon", 1e-5_f32.into());
    set.set("test.expert_count", 4_u32.into());
    set.set("test.expert_used_count", 2_u32.into());
    set.set("tokenizer.ggml.bos_token_id", 1_u32.into());
    set.set("tokenizer.ggml.merges", vec!["token tail".to_owned()].into());
    let mut tokens: Vec<String> = (0..37).map(|i| format!("t{i}")).collect();
    tokens.extend(["token", "tail", "tokentail"].map(str::to_owned));
    set.set("tokenizer.ggml.tokens", tokens.into());
    set.set("tokenizer.ggml.token_type", vec![1_i32; 40].into());
    model
        .random("token_embd.weight", &[32, 40], "F32", 1)
        .random("output_norm.weight", &[32], "F32", 2)
        .random("blk.0.attn_q.weight", &[32, 32], "F32", 3)
        .random("blk.0.ffn_up.weight", &[32, 16], "F32", 4)
        .random("blk.1.attn_q.weight", &[32, 32], "F32", 5)
        .random("blk.1.ffn_gate_inp.weight", &[32, 4], "F32", 6)
        .random("blk.1.ffn_up_exps.weight", &[32, 16, 4], "F32", 7)
}

fn check(model: &Model, options: &[&str]) -> crate::models::Run {
    let folder = TempDir::new().expect("a folder");
    let path = model.save(folder.path(), "m.gguf");
    inspect(&[&["check", &path], options].concat())
}

/// One finding, of this severity, that has all the words.
fn assert_finds(what: &str, model: &Model, severity: &str, words: &[&str]) {
    let run = check(model, &[]);
    assert_eq!(
        run.code,
        i32::from(severity == "error"),
        "{what}: {}{}",
        run.out,
        run.err
    );
    let lines: Vec<_> = run.out.lines().filter(|l| !l.starts_with("proved")).collect();
    assert_eq!(lines.len(), 1, "{what}: {}", run.out);
    assert!(
        lines[0].starts_with(&format!("{severity}: ")),
        "{what}: {}",
        run.out
    );
    for word in words {
        assert!(run.out.contains(word), "{what}: `{word}` not in\n{}", run.out);
    }
    assert_eq!(check(model, &["--strict"]).code, 1, "{what}");
}

fn without(key: &str) -> Model {
    let mut model = decoder();
    model.metadata.remove(key).expect("the key");
    model
}

fn with(key: &str, value: impl Into<Value>) -> Model {
    let mut model = decoder();
    model.metadata.set(key, value.into());
    model
}

fn without_tensors(part: &str) -> Model {
    let mut model = decoder();
    model.tensors.retain(|t| !t.name.contains(part));
    model
}

#[test]
fn a_sound_decoder_passes() {
    check(&decoder(), &["--strict"]).assert(0, &["proved: 7 of 7 tensors"]);
    let json = check(&decoder(), &["--json"]).json();
    assert_eq!((&json["sound"], &json["proved"]), (&true.into(), &7.into()));
}

#[test]
fn keys_that_loaders_need_are_missed_and_their_ranges_known() {
    for key in [
        "test.context_length",
        "test.embedding_length",
        "test.block_count",
        "test.attention.head_count",
        "test.attention.layer_norm_rms_epsilon",
    ] {
        let found = "found nothing";
        assert_finds(
            key,
            &without(key),
            "error",
            &[&format!("key `{key}`: expected"), found],
        );
    }
    let epsilon = "test.attention.layer_norm_rms_epsilon";
    let heads = "test.attention.head_count";
    for (key, value, word) in [
        ("test.block_count", 0_u32.into(), "expected at least 1, found 0"),
        (
            "test.block_count",
            2_u64.into(),
            "expected type u32, found u64: llama.cpp refuses",
        ),
        (epsilon, f32::NAN.into(), "expected a finite number, found NaN"),
        (epsilon, 0_f32.into(), "expected a number above 0, found 0"),
        (epsilon, 1e-5_f64.into(), "expected type f32, found f64"),
        (heads, 0_u32.into(), "expected at least 1, found 0"),
        (
            heads,
            vec![4_u32; 3].into(),
            "expected one number for each of 2 layers, found 3",
        ),
        (
            heads,
            vec![4_f32; 2].into(),
            "expected type u32, or an array of u32 or i32",
        ),
        (
            "test.attention.head_count_kv",
            3_u32.into(),
            "expected a divisor of the 4 heads",
        ),
        ("test.expert_used_count", 5_u32.into(), "expected 1 to 4"),
        ("test.expert_used_count", 0_u32.into(), "expected 1 to 4"),
        (
            "tokenizer.ggml.add_bos_token",
            1_u32.into(),
            "expected type bool, found u32",
        ),
    ] {
        let value: Value = value;
        assert_finds(key, &with(key, value), "error", &[key, word]);
    }
}

#[test]
fn layers_experts_and_the_embedding_are_counted() {
    assert_finds(
        "layer missing",
        &without_tensors("blk.0."),
        "error",
        &["1 of 2 layers have no tensors, the first is layer 0"],
    );
    let beyond = decoder().random("blk.7.attn_q.weight", &[32, 32], "F32", 9);
    assert_finds(
        "layer beyond",
        &beyond,
        "error",
        &["tensor `blk.7.attn_q.weight` at byte", "layers below 2"],
    );
    assert_finds(
        "no embedding",
        &without_tensors("token_embd"),
        "error",
        &["tensor `token_embd.weight`: expected a token embedding"],
    );
    assert_finds(
        "no norm",
        &without_tensors("output_norm"),
        "warning",
        &["tensor `output_norm.weight`"],
    );
    assert_finds(
        "width",
        &with("test.embedding_length", 64_u32),
        "error",
        &["expected rows of 64 (`test.embedding_length`), found 32"],
    );
    assert_finds(
        "experts",
        &with("test.expert_count", 8_u32),
        "error",
        &[
            "expected 8 experts (`test.expert_count`), found 4",
            "1 more tensors differ too",
        ],
    );
    let mut sized = without("tokenizer.ggml.tokens");
    sized.metadata.set("test.vocab_size", 99_u32.into());
    assert_finds(
        "a size without tokens",
        &sized,
        "warning",
        &["expected a row for each of 99 tokens, found 40"],
    );
    let head = decoder().random("output.weight", &[32, 39], "F32", 9);
    assert_finds(
        "rows of the output",
        &head,
        "error",
        &["tensor `output.weight` at byte", "each of 40 tokens, found 39"],
    );
}

#[test]
fn the_vocabulary_agrees_with_itself() {
    let mut tokens: Vec<String> = (0..40).map(|i| format!("t{i}")).collect();
    tokens[30] = "t3".to_owned();
    let doubled = with("tokenizer.ggml.tokens", tokens);
    let run = check(&doubled, &[]);
    run.assert(1, &["1 tokens have the text of another, the first is 30, `t3`"]);
    assert_finds(
        "types",
        &with("tokenizer.ggml.token_type", vec![9_i32; 40]),
        "warning",
        &["token 0 has type 9: expected 1 to 6"],
    );
    assert_finds(
        "number of types",
        &with("tokenizer.ggml.token_type", vec![1_i32; 39]),
        "error",
        &["expected one element for each of 40 tokens, found 39"],
    );
    assert_finds(
        "special token",
        &with("tokenizer.ggml.eos_token_id", 40_u32),
        "error",
        &["expected a token below 40, found 40"],
    );
    assert_finds(
        "merge of one part",
        &with("tokenizer.ggml.merges", vec!["tokentail".to_owned()]),
        "error",
        &["merge 0, `tokentail`: expected two parts"],
    );
    assert_finds(
        "merge of strangers",
        &with("tokenizer.ggml.merges", vec!["token x".to_owned()]),
        "warning",
        &["1 merges have a part or a result that is no token"],
    );
}

#[test]
fn oddities_are_warnings() {
    for (key, value, word) in [
        (
            "tokenizer.chat_template",
            Value::from(" \n"),
            "the chat template is empty",
        ),
        (
            "quantize.imatrix.file",
            "/home/ann/imatrix.dat".into(),
            "a path of somebody's machine",
        ),
        (
            "general.source.url",
            "C:\\models\\base".into(),
            "a path of somebody's machine",
        ),
        (
            "general.file_type",
            15_u32.into(),
            "the key says `Q4_K_M`, but most bytes of the tensors are F32",
        ),
        (
            "general.file_type",
            1_u32.into(),
            "the key says `F16`, but most bytes of the tensors are F32",
        ),
        ("general.file_type", 999_u32.into(), "file type 999 is not known"),
        (
            "general.quantization_version",
            1_u32.into(),
            "expected 2, found 1",
        ),
        (
            "general.tags",
            "one".into(),
            "expected type array of string, found string",
        ),
    ] {
        assert_finds(key, &with(key, value), "warning", &[key, word]);
    }
    // What a file says cannot move the cursor of a terminal.
    let run = check(&with("quantize.imatrix.file", "/tmp/\u{1b}[2J"), &[]);
    run.assert(0, &["`/tmp/\\u{1b}[2J`"]);
}

#[test]
fn errors_of_a_described_architecture_are_findings() {
    let Some(name) = gguf_models::arch::all().first().map(|a| a.name) else {
        return;
    };
    let mut model = decoder();
    model.metadata.set("general.architecture", name.into());
    for (key, value) in [
        ("block_count", Value::from(0_u32)),
        ("attention.head_count", 0_u32.into()),
        ("attention.layer_norm_rms_epsilon", f32::NAN.into()),
    ] {
        let mut model = model.clone();
        for other in [
            "block_count",
            "context_length",
            "embedding_length",
            "attention.head_count",
            "expert_feed_forward_length",
        ] {
            model.metadata.set(format!("{name}.{other}"), 2_u32.into());
        }
        model.metadata.set(
            format!("{name}.attention.layer_norm_rms_epsilon"),
            1e-5_f32.into(),
        );
        model.metadata.set(format!("{name}.{key}"), value);
        check(&model, &[]).assert(1, &["error: ", &format!("{name}.{key}`: expected")]);
    }
    let mut empty = model.clone();
    empty.tensors.clear();
    empty.metadata.remove("tokenizer.ggml.tokens");
    check(&empty, &[]).assert(1, &["expected tensors, found none, nor a vocabulary"]);
}

#[test]
fn files_that_are_no_models_are_not_accused() {
    for kind in ["adapter", "mmproj", "imatrix"] {
        let mut model = Model::new().random("blk.0.attn_q.weight.lora_a", &[32, 8], "F32", 1);
        model.metadata.set("general.type", kind.into());
        check(&model, &["--strict"]).assert(0, &[]);
    }
    check(&Model::new(), &["--strict"]).assert(0, &["proved: 0 of 0 tensors"]);
}

#[test]
fn a_set_with_bad_shards_is_checked_as_far_as_it_goes() {
    let folder = TempDir::new().expect("a folder");
    let first = decoder().save_split(folder.path(), "m", 3);
    inspect(&["check", &first, "--strict"]).assert(0, &["proved: 7 of 7"]);
    let second = folder.path().join("m-00002-of-00003.gguf");
    save(
        &second,
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    );
    let run = inspect(&["check", &first]);
    run.assert(
        1,
        &[
            "error: ",
            "set: shard 2 cannot be read",
            "git lfs pull",
            "proved: 4 of 4",
        ],
    );
    let run = inspect(&["check", &first, "--json"]);
    assert_eq!(run.json()["findings"][0]["object"], "set");

    let run = inspect(&[&first]);
    run.assert(0, &["shard m-00002-of-00003.gguf: 63 B, UNREADABLE"]);
    assert!(run.err.contains("is damaged"), "{}", run.err);
    std::fs::remove_file(&second).expect("the shard");
    inspect(&[&first]).assert(0, &["shard m-00002-of-00003.gguf: MISSING"]);
    inspect(&["check", &text(folder.path())]).assert(1, &["shard 2 is missing", "proved: 4 of 4"]);
}

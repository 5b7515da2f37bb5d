//! Tokens, types, special ids and refusals.

#![expect(clippy::disallowed_methods, reason = "inputs of tests need no atomic writes")]

use serde_json::json;

use super::tokenizer::TokenizerJson;
use super::*;
use crate::error::Error;

/// A folder with the given files: JSON, or text as it is.
fn folder(files: &[(&str, Json)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, content) in files {
        let text = content
            .as_str()
            .map_or_else(|| content.to_string(), str::to_owned);
        std::fs::write(dir.path().join(name), text).expect("a file");
    }
    dir
}

/// The keys that a folder's vocabulary gives, and what was noted.
fn keys(files: &[(&str, Json)], n_rows: u64) -> Result<(Metadata, Vec<String>)> {
    let dir = folder(files);
    let mut metadata = Metadata::new();
    let notes = Vocabulary::read(dir.path(), None)?.metadata(&json!({}), n_rows, &mut metadata)?;
    Ok((metadata, notes))
}

fn refusal(files: &[(&str, Json)], n_rows: u64) -> String {
    match keys(files, n_rows) {
        Ok((_, notes)) => panic!("a refusal, not {notes:?}"),
        Err(e) => e.to_string(),
    }
}

fn strings(metadata: &Metadata, key: &str) -> Vec<String> {
    let array = metadata.strings(key).expect("strings").expect("there");
    array.iter().map(std::borrow::Cow::into_owned).collect()
}

fn types(metadata: &Metadata) -> Vec<i32> {
    match metadata.array("tokenizer.ggml.token_type") {
        Ok(Some(gguf::Array::I32(types))) => types.clone(),
        other => panic!("types, not {other:?}"),
    }
}

fn scores(metadata: &Metadata) -> Vec<f32> {
    match metadata.array("tokenizer.ggml.scores") {
        Ok(Some(gguf::Array::F32(scores))) => scores.clone(),
        other => panic!("scores, not {other:?}"),
    }
}

fn added(id: u64, content: &str, special: bool) -> Json {
    json!({"id": id, "content": content, "special": special, "single_word": false, "lstrip": false,
           "rstrip": false, "normalized": false})
}

fn qwen2() -> Json {
    let regex = gguf_models::vocab::by_name("qwen2").expect("known").patterns[0];
    json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
    ]})
}

/// Byte-level BPE with the words of Qwen2.
fn bytes(vocab: &Json, merges: &Json, added: &Json) -> Json {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "decoder": null,
        "added_tokens": added, "pre_tokenizer": qwen2(),
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    })
}

fn tokenizer(json: Json) -> TokenizerJson {
    serde_json::from_value(json).expect("of the right form")
}

#[test]
fn holes_become_placeholders_up_to_the_rows() {
    let added = json!([
        added(3, "<|x|>", false),
        added(5, "user\u{2581}text", false),
        added(6, "s", true)
    ]);
    let file = (
        "tokenizer.json",
        bytes(&json!({"a": 0, "b": 1}), &json!([]), &added),
    );
    let (metadata, _) = keys(&[file], 8).expect("sound");
    let tokens = strings(&metadata, "tokenizer.ggml.tokens");
    assert_eq!(
        tokens,
        ["a", "b", "[PAD2]", "<|x|>", "[PAD4]", "user text", "s", "[PAD7]"]
    );
    assert_eq!(types(&metadata), [1, 1, 5, 3, 5, 4, 3, 5]);
}

#[test]
fn added_tokens_beyond_holes_are_padded_or_refused() {
    let vocab: serde_json::Map<_, _> = (0u32..100).map(|i| (format!("t{i}"), json!(i))).collect();
    let vocab = Json::Object(vocab);
    let of = |ids: &[u64]| {
        let added: Vec<_> = ids
            .iter()
            .map(|id| added(*id, &format!("<|{id}|>"), true))
            .collect();
        [("tokenizer.json", bytes(&vocab, &json!([]), &json!(added)))]
    };
    let (metadata, _) = keys(&of(&[100, 101, 105]), 112).expect("sound");
    let unused: Vec<_> = (0..112).filter(|&i| types(&metadata)[i] == 5).collect();
    assert_eq!(unused, [102, 103, 104, 106, 107, 108, 109, 110, 111]);
    let message = refusal(&of(&[200]), 112);
    assert!(
        message.contains("below the 112 rows") && message.contains("found 200"),
        "{message}"
    );
}

#[test]
fn unsound_ids_are_refused() {
    let cases = [
        (json!({"a": 0, "b": 8}), json!([]), "below the 8 rows"),
        (json!({"a": 0}), json!([added(0, "x", true)]), "`a` and `x`"),
        (json!({"a": 0, "b": 1}), json!([added(2, "a", true)]), "0 and 2"),
        (json!({"a": 0, "[PAD3]": 1}), json!([]), "1 and 3"),
    ];
    for (vocab, added, message) in cases {
        let error = refusal(&[("tokenizer.json", bytes(&vocab, &json!([]), &added))], 8);
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn merges_come_in_both_forms() {
    let t = tokenizer(json!({"model": {"vocab": {}, "merges": ["a b", ["c", "d e"]]}}));
    assert_eq!(t.model.merges, ["a b", "c d\u{120}e"]);
    for bad in [json!(["a"]), json!(["a", "b", "c"])] {
        assert!(serde_json::from_value::<TokenizerJson>(json!({"model": {"merges": [bad]}})).is_err());
    }
}

fn recognised(pre_tokenizer: &Json, name: Option<&str>) -> Result<&'static str> {
    let t = tokenizer(json!({"pre_tokenizer": pre_tokenizer, "model": {"type": "BPE"}}));
    pre::recognise(&t, name, &mut Vec::new()).map(gguf_models::vocab::PreTokenizer::name)
}

#[test]
fn pre_tokenizers_are_recognised_by_structure() {
    assert_eq!(recognised(&qwen2(), None).expect("known"), "qwen2");
    let gpt2 = json!({"type": "ByteLevel", "add_prefix_space": false});
    assert_eq!(recognised(&gpt2, None).expect("known"), "gpt-2");
    let digits = json!({"type": "Digits", "individual_digits": true});
    let smollm = json!({"type": "Sequence", "pretokenizers": [digits, gpt2]});
    assert_eq!(recognised(&smollm, None).expect("known"), "smollm");
}

#[test]
fn unknown_pre_tokenizers_are_refused_with_a_way_out() {
    let mut changed = qwen2();
    let regex = &mut changed["pretokenizers"][0]["pattern"]["Regex"];
    *regex = json!(regex.as_str().expect("text").replace(r"+[\r\n]*", r"+[\r\n]?"));
    let message = recognised(&changed, None).expect_err("unknown").to_string();
    assert!(
        message.contains(r"+[\r\n]?") && message.contains("--pre qwen2"),
        "{message}"
    );
    assert_eq!(recognised(&changed, Some("qwen2")).expect("named"), "qwen2");
    let message = recognised(&qwen2(), Some("qwen9"))
        .expect_err("no such name")
        .to_string();
    assert!(message.contains("qwen9"), "{message}");
    let plain = json!({"pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "BPE", "vocab": {"a": 0}}});
    let message = refusal(&[("tokenizer.json", plain)], 1);
    assert!(
        message.contains("ByteLevel") && message.contains("`Whitespace`"),
        "{message}"
    );
    let words = json!({"model": {"type": "WordLevel", "vocab": {"a": 0}}});
    let message = refusal(&[("tokenizer.json", words)], 1);
    assert!(message.contains("WordLevel"), "{message}");
}

#[test]
fn the_kind_is_what_the_model_says() {
    let t5 = json!({
        "added_tokens": [added(0, "<pad>", true)],
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AQID"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁", "add_prefix_space": true}]},
        "model": {"type": "Unigram", "unk_id": 1, "vocab": [["<pad>", 0.0], ["<unk>", 0.0], ["▁a", -1.5]]},
    });
    let (metadata, _) = keys(&[("tokenizer.json", t5)], 3).expect("sound");
    let text = |key: &str| metadata.string(key).expect("a string").map(str::to_owned);
    assert_eq!(text("tokenizer.ggml.model").as_deref(), Some("t5"));
    assert_eq!(types(&metadata), [3, 2, 1]);
    assert_eq!(scores(&metadata)[2], -1.5);
    assert_eq!(
        metadata
            .uint("tokenizer.ggml.unknown_token_id")
            .expect("a number"),
        Some(1)
    );
    let array = metadata
        .array("tokenizer.ggml.precompiled_charsmap")
        .expect("an array");
    assert_eq!(array, Some(&gguf::Array::U8(vec![1, 2, 3])));
    let bert = json!({
        "added_tokens": [added(0, "[UNK]", true), added(1, "[CLS]", true)],
        "normalizer": {"type": "BertNormalizer", "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "[CLS]": 1, "a": 2, "##b": 3}},
    });
    let config = json!({"cls_token": "[CLS]"});
    let (metadata, _) =
        keys(&[("tokenizer.json", bert), ("tokenizer_config.json", config)], 4).expect("sound");
    assert_eq!(
        strings(&metadata, "tokenizer.ggml.tokens"),
        ["[UNK]", "[CLS]", "▁a", "b"]
    );
    assert_eq!(
        metadata.uint("tokenizer.ggml.bos_token_id").expect("a number"),
        Some(1)
    );
}

#[test]
fn scores_follow_the_ranks_of_merges() {
    let spm = json!({
        "added_tokens": [added(0, "<unk>", true), added(7, "<|x|>", false)],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true,
            "vocab": {"<unk>": 0, "<0x0A>": 1, "a": 2, "b": 3, "▁": 4, "ab": 5, "▁ab": 6},
            "merges": [["a", "b"], ["▁", "ab"]]},
    });
    let (metadata, _) = keys(&[("tokenizer.json", spm)], 9).expect("sound");
    assert_eq!(types(&metadata), [2, 6, 1, 1, 1, 1, 1, 3, 5]);
    assert_eq!(
        scores(&metadata),
        [0.0, 0.0, -2.0, -3.0, -4.0, 0.0, -1.0, -1000.0, -10000.0]
    );
    assert!(metadata.get("tokenizer.ggml.add_space_prefix").is_none());
}

#[test]
fn lists_need_a_class_or_a_name() {
    let vocab = json!({"a": 0, "b": 1, "ab": 2});
    let mut files = vec![
        ("vocab.json", vocab),
        ("merges.txt", json!("#version: 0.2\na b\n")),
    ];
    let message = refusal(&files, 4);
    assert!(
        message.contains("--pre NAME") && message.contains("GPT2Tokenizer"),
        "{message}"
    );
    files.push((
        "tokenizer_config.json",
        json!({"tokenizer_class": "GPT2Tokenizer"}),
    ));
    files.push(("added_tokens.json", json!({"<|x|>": 3})));
    let (metadata, _) = keys(&files, 4).expect("sound");
    assert_eq!(strings(&metadata, "tokenizer.ggml.merges"), ["a b"]);
    assert_eq!(
        strings(&metadata, "tokenizer.ggml.tokens"),
        ["a", "b", "ab", "<|x|>"]
    );
    let message = refusal(&[], 4);
    assert!(
        message.contains("tokenizer.model") && message.contains("tiktoken.model"),
        "{message}"
    );
}

#[test]
fn flags_come_from_the_template_and_the_config() {
    let template = |single: Json| json!({"type": "TemplateProcessing", "single": single, "pair": []});
    let text = json!({"Sequence": {"id": "A"}});
    let token = |id: &str| json!({"SpecialToken": {"id": id}});
    let config = json!({"bos_token": "<s>", "eos_token": {"content": "</s>"}});
    let qwen2 = gguf_models::vocab::by_name("qwen2");
    let llama = gguf_models::vocab::by_name("llama-bpe");
    let plain = template(json!([text]));
    assert_eq!(special::flags(&config, &plain, qwen2), []);
    assert_eq!(special::flags(&config, &plain, llama), [("bos", false)]);
    let both = template(json!([token("<s>"), text, token("</s>")]));
    let expected = [("bos", true), ("eos", true), ("sep", false)];
    assert_eq!(special::flags(&config, &both, qwen2), expected);
    let told = json!({"bos_token": "<s>", "add_bos_token": false});
    let front = template(json!([token("<s>"), text]));
    assert_eq!(
        special::flags(&told, &front, qwen2),
        [("bos", false), ("sep", false)]
    );
}

/// What a comparison of a folder's tokenizer with its keys gives, the pre-tokenizer being called `pre`.
fn verified(files: &[(&str, Json)], n_rows: u64, pre: Option<&str>) -> Result<Vec<String>> {
    let dir = folder(files);
    let vocabulary = Vocabulary::read(dir.path(), None)?;
    let source = vocabulary.source();
    let mut metadata = Metadata::new();
    vocabulary.metadata(&json!({}), n_rows, &mut metadata)?;
    if let Some(pre) = pre {
        metadata.set("tokenizer.ggml.pre", Value::String(pre.to_owned()));
    }
    verify(&source, &metadata)
}

/// Byte-level BPE that knows every byte and some numbers.
fn all_bytes() -> Json {
    let mut vocab: serde_json::Map<_, _> = tiktoken::letters()
        .iter()
        .zip(0u32..)
        .map(|(c, i)| (c.to_string(), json!(i)))
        .collect();
    vocab.extend([("12".to_owned(), json!(256)), ("ab".to_owned(), json!(257))]);
    bytes(
        &Json::Object(vocab),
        &json!([["1", "2"], ["a", "b"]]),
        &json!([added(300, "<|x|>", true), added(302, "wörd", false)]),
    )
}

#[test]
fn a_wrong_pre_tokenizer_is_found_by_running_both() {
    let files = [("tokenizer.json", all_bytes())];
    assert_eq!(verified(&files, 310, None).expect("equal"), Vec::<String>::new());
    let message = verified(&files, 310, Some("llama-bpe"))
        .expect_err("words differ")
        .to_string();
    assert!(
        message.contains("0 12 345") && message.contains("256"),
        "{message}"
    );
}

#[test]
fn what_gguf_cannot_express_is_a_note() {
    let mut json = all_bytes();
    json["normalizer"] = json!({"type": "NFC"});
    let notes = verified(&[("tokenizer.json", json)], 310, None).expect("as equal as can be");
    assert!(notes.len() == 1 && notes[0].contains("normalizer"), "{notes:?}");
}

#[test]
fn a_tokenizer_that_the_library_cannot_run_is_a_note() {
    let mut json = all_bytes();
    json["added_tokens"][0]["single_word"] = json!("no flag");
    let notes = verified(&[("tokenizer.json", json)], 310, None).expect("not compared");
    assert!(notes.len() == 1 && notes[0].contains("not compared"), "{notes:?}");
}

#[test]
fn steps_that_take_more_than_the_file_backs_are_a_note() {
    let grow = json!({"type": "Replace", "pattern": {"String": "e"}, "content": "e".repeat(1000)});
    let slow = |key: &str| json!({"type": key, "pattern": {"Regex": r"(?:(?:a|a)*)*(?!.)x"}, "content": "b"});
    for (key, step, word) in [
        (
            "normalizer",
            json!({"type": "Sequence", "normalizers": [grow, grow, grow, grow]}),
            "2000000000000",
        ),
        ("normalizer", slow("Replace"), "look-around"),
        ("decoder", slow("Replace"), "look-around"),
        (
            "decoder",
            json!({"type": "Sequence", "decoders": vec![json!({"type": "Fuse"}); 100]}),
            "64 steps",
        ),
    ] {
        let mut json = all_bytes();
        json[key] = step;
        let notes = verified(&[("tokenizer.json", json)], 310, None).expect("not compared");
        assert!(
            notes.len() == 1 && notes[0].contains("not compared"),
            "{key}: {notes:?}"
        );
        assert!(notes[0].contains(word), "{key}: {notes:?}");
    }
}

#[test]
fn tokens_that_take_more_than_the_file_backs_are_a_note() {
    // The library drops a Unigram token's bytes one inside the other: a thread's stack would end.
    let long = "a".repeat(30_000);
    let unigram = json!({
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], [long, -5.0]]},
    });
    let mut blanks = all_bytes();
    blanks["added_tokens"][1]["content"] = json!("\u{2581}".to_owned() + &"ж".repeat(300));
    let mut many = all_bytes();
    let tokens = (300..1500).map(|id| added(id, &format!("{id:0100}"), false));
    many["added_tokens"] = tokens.collect();
    for (json, word) in [
        (unigram, "at most 128 bytes, found one of 30000"),
        (blanks, "at most 512 bytes, found one of 603"),
        (many, "found 120000"),
    ] {
        let notes = verified(&[("tokenizer.json", json)], 2000, None).expect("not compared");
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.contains("not compared") && note.contains(word), "{note}");
    }
}

#[test]
fn named_templates_are_bounded() {
    let template = |i: usize| json!({"name": format!("n{i}"), "template": "x"});
    let config = |n: usize| json!({"chat_template": (0..n).map(template).collect::<Vec<_>>()});
    let with = |n: usize| {
        keys(
            &[
                ("tokenizer.json", all_bytes()),
                ("tokenizer_config.json", config(n)),
            ],
            310,
        )
    };
    let (metadata, _) = with(1024).expect("few enough");
    assert_eq!(strings(&metadata, "tokenizer.chat_templates").len(), 1024);
    let message = with(1025).expect_err("too many").to_string();
    assert!(
        message.contains("tokenizer_config.json `chat_template`: expected at most 1024 named templates"),
        "{message}"
    );
}

#[test]
fn what_is_put_around_texts_is_left_out_of_the_comparison() {
    let mut json = all_bytes();
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    json["post_processor"] = json!({
        "type": "TemplateProcessing", "single": vec![text; 1000], "pair": [], "special_tokens": {},
    });
    let notes = verified(&[("tokenizer.json", json)], 310, None).expect("equal");
    assert_eq!(notes, Vec::<String>::new());
}

#[test]
fn long_pre_tokenizers_are_quoted_by_their_start() {
    let split = |regex: String| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated"});
    for step in [
        split(r"(\p{L}|a)*x".repeat(100_000)),
        json!({"type": "Sequence", "pretokenizers": vec![split("ab".repeat(2000)); 500]}),
        json!({"type": "Split", "pattern": {"String": "a".repeat(1 << 20)}, "behavior": "Removed"}),
        json!({"type": "a".repeat(1 << 20)}),
    ] {
        let message = recognised(&step, None).expect_err("unknown").to_string();
        assert!(
            message.contains("bytes") && message.len() < 16 << 10,
            "{}",
            message.len()
        );
    }
}

#[test]
fn broken_files_are_refused_at_their_place() {
    let message = refusal(
        &[("tokenizer.json", json!("{\"model\":\n {\"vocab\": {\"a\": 0,}}}"))],
        1,
    );
    assert!(message.contains("line 2 column"), "{message}");
    let plain = bytes(&json!({"a": 0}), &json!([]), &json!([]));
    let message = refusal(
        &[
            ("tokenizer.json", plain),
            ("tokenizer_config.json", json!("{\"a\": 1,}")),
        ],
        1,
    );
    assert!(
        message.contains("tokenizer_config.json` line 1 column 9"),
        "{message}"
    );
    let message = refusal(&[("tokenizer.model", json!("\u{1}\u{2}no such thing"))], 1);
    assert!(message.contains("byte"), "{message}");
    let dir = folder(&[]);
    assert!(matches!(
        Vocabulary::read(dir.path(), None),
        Err(Error::Io { .. })
    ));
}

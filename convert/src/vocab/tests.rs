//! Tokens, types and refusals.

use serde_json::json;

use super::*;

fn tokenizer(json: Json) -> TokenizerJson {
    serde_json::from_value(json).expect("of the right form")
}

fn added(id: u64, content: &str, special: bool) -> Json {
    json!({"id": id, "content": content, "special": special})
}

#[test]
fn holes_become_placeholders_up_to_the_rows() {
    let t = tokenizer(json!({
        "added_tokens": [added(3, "<|x|>", false), added(5, "user\u{2581}text", false), added(6, "s", true)],
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}},
    }));
    let (tokens, types) = tokens(&t, 8).expect("sound");
    assert_eq!(
        tokens,
        ["a", "b", "[PAD2]", "<|x|>", "[PAD4]", "user text", "s", "[PAD7]"]
    );
    assert_eq!(types, [1, 1, 5, 3, 5, 4, 3, 5]);
}

#[test]
fn unsound_ids_are_refused() {
    let cases = [
        (json!({"a": 0, "b": 8}), json!([]), "below the 8 rows"),
        (json!({"a": 0}), json!([added(200, "x", true)]), "found 200"),
        (json!({"a": 0}), json!([added(0, "x", true)]), "`a` and `x`"),
        (json!({"a": 0, "b": 1}), json!([added(2, "a", true)]), "0 and 2"),
        (json!({"a": 0, "[PAD3]": 1}), json!([]), "1 and 3"),
    ];
    for (vocab, added, message) in cases {
        let t = tokenizer(json!({"added_tokens": added, "model": {"vocab": vocab}}));
        let error = tokens(&t, 8).expect_err(message).to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn merges_come_in_both_forms() {
    let t = tokenizer(json!({"model": {"vocab": {}, "merges": ["a b", ["c", "d e"]]}}));
    assert_eq!(t.model.merges, ["a b", "c d\u{120}e"]);
    assert!(serde_json::from_value::<TokenizerJson>(json!({"model": {"merges": [["a"]]}})).is_err());
    assert!(
        serde_json::from_value::<TokenizerJson>(json!({"model": {"merges": [["a", "b", "c"]]}})).is_err()
    );
    let known: Vec<String> = ["a", "b", "ab", " ", "  "].map(str::to_owned).into();
    for (merge, sound) in [
        ("a b", true),
        ("b a", false),
        ("ab", false),
        ("", false),
        ("   ", true),
    ] {
        assert_eq!(
            check_merges(&[merge.to_owned()], &known).is_ok(),
            sound,
            "`{merge}`"
        );
    }
}

fn qwen2() -> Json {
    let regex = gguf_models::vocab::by_name("qwen2").expect("known").patterns[0];
    json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
    ]})
}

fn recognised(pre_tokenizer: &Json, name: Option<&str>) -> Result<&'static str> {
    let t = tokenizer(json!({"pre_tokenizer": pre_tokenizer, "model": {"type": "BPE"}}));
    pre::recognise(&t, name, &mut Vec::new()).map(PreTokenizer::name)
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
    assert!(
        recognised(&qwen2(), Some("qwen9"))
            .expect_err("no such name")
            .to_string()
            .contains("qwen9")
    );
    let metaspace = json!({"type": "Metaspace"});
    assert!(
        recognised(&metaspace, None)
            .expect_err("unknown")
            .to_string()
            .contains("ByteLevel")
    );
    let unigram = tokenizer(json!({"model": {"type": "Unigram", "vocab": [["a", -1.0]]}}));
    let message = pre::recognise(&unigram, None, &mut Vec::new())
        .expect_err("unigram")
        .to_string();
    assert!(message.contains("Unigram"), "{message}");
}

#[test]
fn flags_come_from_the_template_and_the_config() {
    let template = |single: Json| {
        tokenizer(json!({
            "model": {},
            "post_processor": {"type": "TemplateProcessing", "single": single, "pair": []},
        }))
    };
    let text = json!({"Sequence": {"id": "A"}});
    let token = |id: &str| json!({"SpecialToken": {"id": id}});
    let config = json!({"bos_token": "<s>", "eos_token": {"content": "</s>"}});
    let qwen2 = gguf_models::vocab::by_name("qwen2").expect("known");
    let llama = gguf_models::vocab::by_name("llama-bpe").expect("known");
    assert_eq!(special::added(&template(json!([text])), &config, qwen2), []);
    assert_eq!(
        special::added(&template(json!([text])), &config, llama),
        [("bos", false)]
    );
    let both = template(json!([token("<s>"), text, token("</s>")]));
    assert_eq!(
        special::added(&both, &config, qwen2),
        [("bos", true), ("eos", true), ("sep", false)]
    );
    let told = json!({"bos_token": "<s>", "add_bos_token": false});
    let front = template(json!([token("<s>"), text]));
    assert_eq!(
        special::added(&front, &told, qwen2),
        [("bos", false), ("sep", false)]
    );
}

//! `show` says first what a person wants first.

use crate::models::{Model, inspect};
use gguf::Value;
use tempfile::TempDir;

fn show(model: &Model, options: &[&str]) -> crate::models::Run {
    let folder = TempDir::new().expect("a folder");
    let path = model.save(folder.path(), "m.gguf");
    inspect(&[&[path.as_str()], options].concat())
}

/// 2 of 8 experts: half of the parameters are theirs.
fn experts() -> Model {
    let mut model = Model::new();
    model.metadata.set("test.expert_count", 8_u32.into());
    model.metadata.set("test.expert_used_count", 2_u32.into());
    model
        .random("token_embd.weight", &[256, 40], "Q8_0", 1)
        .random("blk.0.ffn_up_exps.weight", &[256, 5, 8], "Q4_K", 2)
        .random("blk.0.attn_norm.weight", &[256], "F32", 3)
}

#[test]
fn active_parameters_leave_out_experts_that_are_not_used() {
    let run = show(&experts(), &[]);
    // 10240 + 256 are for every token, 10240 are the experts'.
    run.assert(0, &["parameters: 20.7 K, 13.1 K active (2 of 8 experts)"]);
    let json = show(&experts(), &["--json"]).json();
    assert_eq!(json["summary"]["active_parameters"], 10_240 + 256 + 10_240 / 4);
    let parts = json["summary"]["by_component"].as_array().expect("a list");
    let part = |name: &str| parts.iter().find(|p| p["component"] == name).expect("the part");
    assert_eq!(part("experts")["parameters"], 10_240);
    assert_eq!(part("norms")["bytes"], 1024);
}

#[test]
fn the_file_type_is_what_the_key_and_the_tensors_say() {
    let with = |id: u32| {
        let mut model = experts();
        model.metadata.set("general.file_type", id.into());
        show(&model, &[])
    };
    with(15).assert(0, &["file type: Q4_K_M\n"]);
    with(1).assert(0, &["file type: F16, but the tensors are mostly Q8_0\n"]);
    with(138).assert(0, &["file type: IQ2_K\n"]);
    with(999).assert(0, &["file type: file type 999\n"]);
    show(&experts(), &[]).assert(0, &["file type: Q8_0 (not stated; guessed from the tensors)\n"]);
}

#[test]
fn special_tokens_are_shown_by_their_text_and_the_template_by_its_beginning() {
    let mut model = Model::new();
    let m = &mut model.metadata;
    m.set("tokenizer.ggml.model", "gpt2".into());
    m.set("tokenizer.ggml.pre", "qwen2".into());
    m.set("tokenizer.ggml.bos_token_id", 3_u32.into());
    m.set("tokenizer.ggml.eos_token_id", 99_u32.into());
    m.set("tokenizer.chat_template", "\n{% for m in messages %}\nx".into());
    show(&model, &[]).assert(
        0,
        &[
            "vocabulary: 40 tokens, gpt2 (qwen2); bos 3 \"token3\"; eos 99 (not in the vocabulary)\n",
            "chat template: 26 characters, begins \"{% for m in messages %}\"\n",
        ],
    );
}

#[test]
fn one_value_comes_as_it_stands() {
    let mut model = Model::new();
    let m = &mut model.metadata;
    m.set("text", "ä\n\"b\" \\ \u{1b}".into());
    m.set("list", vec!["a b".to_owned(), String::new()].into());
    m.set("x", 0.1_f32.into());
    let value = |key| show(&model, &["--key", key]).out;
    assert_eq!(value("text"), "ä\n\"b\" \\ \u{1b}\n");
    assert_eq!(value("list"), "a b\n\n");
    assert_eq!(value("x"), "0.1\n");
    assert_eq!(
        show(&model, &["--key", "list", "--json"]).json(),
        serde_json::json!(["a b", ""])
    );
}

/// Keys, names, types, texts and names of files that clear the screen, go to another line, turn round what follows and
/// are not to be seen.
#[test]
fn names_cannot_move_the_cursor() {
    let odd = "a\u{1b}[2J\u{9b}31m\u{7f}\r\n\u{202e}\u{2066}\u{200b}b";
    let model = |type_name, text: &str| {
        let mut model = experts().tensor(odd, &[100], type_name, vec![7; 96]);
        model = model.random(&format!("{odd}.{text}"), &[32], "F32", 1);
        model.metadata.set(odd, Value::from(odd));
        for key in ["general.name", "general.type", "tokenizer.ggml.model"] {
            model.metadata.set(key, Value::from(odd));
        }
        let both = vec![odd.to_owned(), text.to_owned()];
        model.metadata.set(format!("list {odd}"), Value::from(both));
        model
    };
    let folder = tempfile::tempdir().expect("a folder");
    let a = model("type 4242", "1").save(folder.path(), "a.gguf");
    let named = model("type 4242", "1").save(folder.path(), &format!("{odd}.gguf"));
    let mut other = model("type 4242", "1");
    other.metadata.set("general.architecture", Value::from(odd));
    let other = other.save(folder.path(), "other.gguf");
    let b = model("type 4243", "2").save(folder.path(), "b.gguf");
    let shards = model("type 4242", "1").save_split(folder.path(), "s", 2);
    let merged = folder.path().join("merged.gguf");
    let merged = merged.to_str().expect("UTF-8");
    let manifest = format!("{named}.sha256");
    let runs: [&[&str]; 27] = [
        &["show", &named],
        &["show", &named, "--json"],
        &["check", &named],
        &["diff", &named, &b],
        &["estimate", &named, "--layers"],
        &["estimate", &other],
        &["show", &other],
        &["split", &named, &named, "--dry-run"],
        &["hash", &named, "-o", &manifest],
        &["hash", &named],
        &["hash", &named, "--verify", &manifest],
        &["hash", &b, "--verify", &manifest],
        &["show", &a],
        &["show", &a, "--tensors"],
        &["show", &a, "--metadata"],
        &["show", &a, "--json"],
        &["check", &a],
        &["check", &a, "--json"],
        &["diff", &a, &b],
        &["diff", &a, &b, "--data"],
        &["diff", &a, &b, "--json"],
        &["split", &a, "--dry-run", merged],
        &["merge", &shards, "--dry-run", merged],
        &["merge", &shards, "-o", merged, "--json"],
        &["set", &a, "test.n:u32=1", "--dry-run"],
        &["rename-key", &a, odd, &format!("{odd}{odd}"), "--dry-run"],
        &["estimate", &a],
    ];
    for args in runs {
        let run = inspect(args);
        let acts =
            |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || ('\u{200b}'..='\u{2069}').contains(&c);
        let text = format!("{}{}", run.out, run.err);
        assert_eq!(text.chars().find(|&c| acts(c)), None, "{args:?}: {text}");
        assert!(
            !text.lines().any(|l| l.starts_with("\\u{202e}")),
            "{args:?}: {text}"
        );
        if args.contains(&"--json") {
            run.json();
        }
    }
    // The values are the same all the same, and a text asked for is as it stands.
    let pairs = inspect(&["show", &a, "--json"]).json()["metadata"].clone();
    let pairs = pairs.as_array().expect("a list");
    assert!(pairs.iter().any(|p| p["key"] == odd && p["value"] == odd));
    assert_eq!(inspect(&["show", &a, "--key", odd]).out, format!("{odd}\n"));
}

#[test]
fn unknown_types_are_shown_with_a_warning() {
    let model = experts().tensor("odd", &[100], "type 4242", vec![7; 96]);
    let run = show(&model, &["--tensors"]);
    run.assert(0, &["odd", "type 4242"]);
    assert!(
        run.err
            .contains("1 tensor of a type that this build does not know, the first is `odd` of type 4242"),
        "{}",
        run.err
    );
    let run = show(&model, &["--json"]);
    assert_eq!(run.json()["tensors"][3]["bytes"], 96);
}

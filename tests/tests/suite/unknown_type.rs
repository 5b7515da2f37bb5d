//! A type that this build does not know hides nothing and stops only who needs its values.

use crate::common::{F32, Raw, save};
use suite_tests::run;

/// Exit code, and all that was printed.
fn said(name: &str, args: &[&str]) -> (Option<i32>, String) {
    let output = run(name, args);
    let all = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&all).into_owned())
}

#[test]
fn an_unknown_type_is_shown_and_refused_only_where_its_values_are_needed() {
    let tokens: Vec<String> = (0..256 << 10).map(|i| format!("t{i}")).collect();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let raw = Raw::new()
        .string("general.architecture", "test")
        .strings("tokenizer.ggml.tokens", &tokens)
        .tensor("blk.0.known.weight", &[4, 3], F32, 0)
        .tensor("blk.0.new.weight", &[32, 2], 4242, 64)
        .data(128);
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("m.gguf");
    save(&model, &raw.build());
    let m = model.to_str().expect("UTF-8");
    let (code, summary) = said("gguf-inspect", &["show", m]);
    assert_eq!(code, Some(0), "{summary}");
    let (code, list) = said("gguf-inspect", &["show", "--tensors", m]);
    assert_eq!(code, Some(0), "{list}");
    let shown = summary + &list;
    for words in [
        "tokenizer.ggml.tokens",
        "262144",
        "type 4242",
        "blk.0.known.weight",
    ] {
        assert!(shown.contains(words), "`{words}` not in: {shown}");
    }
    let (_, checked) = said("gguf-inspect", &["check", m]);
    assert!(checked.contains("type 4242 is not known"), "{checked}");
    let out = folder.path().join("out.gguf");
    let (code, refused) = said("gguf-quantize", &[m, out.to_str().expect("UTF-8"), "Q8_0"]);
    assert_eq!(code, Some(1), "{refused}");
    assert!(refused.contains("blk.0.new.weight"), "{refused}");
}

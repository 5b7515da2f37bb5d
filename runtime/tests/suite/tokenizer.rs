//! Ids against the reference's vocabularies, and vocabularies that are none.

use crate::common::{Tiny, letters, shared};
use crate::vocabularies::spm;
use gguf::{Array, GgufFile, Value};
use gguf_runtime::Tokenizer;

fn tiny(change: impl FnOnce(&mut Tiny)) -> Result<Tokenizer, String> {
    let mut tiny = Tiny::new();
    change(&mut tiny);
    Tokenizer::from_metadata(&tiny.metadata).map_err(|e| e.to_string())
}

#[test]
fn words_are_merged_and_special_tokens_found() {
    let t = tiny(|_| ()).unwrap();
    let n = letters().len() as u32;
    let (the, bos, tool) = (n + 2, n + 4, n + 6);
    assert_eq!(t.encode(" the", false, false).unwrap(), [the]);
    assert_eq!(t.encode(" the the", false, false).unwrap(), [the, the]);
    assert_eq!(
        t.encode("x<tool> the", false, false).unwrap(),
        [u32::from(b'x'), tool, the]
    );
    assert_eq!(t.encode("<|bos|>", false, true).unwrap(), [bos]);
    assert_eq!(t.encode("<|bos|>", false, false).unwrap().len(), 7);
    assert!(t.encode("", true, true).unwrap().is_empty());
    assert_eq!((t.bos(), t.leading(), t.trailing()), (Some(bos), None, None));
}

#[test]
fn flags_add_bos_and_eos() {
    let t = tiny(|t| {
        t.metadata.set("tokenizer.ggml.add_bos_token", Value::Bool(true));
        t.metadata.set("tokenizer.ggml.add_eos_token", Value::Bool(true));
    });
    let t = t.unwrap();
    let (bos, eos) = (t.bos().unwrap(), t.eos().unwrap());
    assert_eq!(t.encode("a", true, false).unwrap(), [bos, u32::from(b'a'), eos]);
    assert_eq!(t.encode("a", false, false).unwrap(), [u32::from(b'a')]);
    assert_eq!((t.leading(), t.trailing()), (Some(bos), Some(eos)));
}

#[test]
fn decoding_gives_the_text_back() {
    let t = tiny(|_| ()).unwrap();
    let text = "In the inn: grüße, 你好 \u{1F999}\r\n\t the<tool>  end \u{0}";
    let ids = t.encode(text, false, false).unwrap();
    assert_eq!(t.decode(&ids), text);
    let cut: Vec<u32> = t.encode("é", false, false).unwrap()[..1].to_vec();
    assert_eq!(t.decode_bytes(&cut), [0xC3]);
    assert_eq!(t.decode(&[u32::MAX]), "");
}

#[test]
fn other_families_and_broken_vocabularies_are_named() {
    let refuse = |change: fn(&mut Tiny)| tiny(change).expect_err("a broken vocabulary is refused");
    let e = refuse(|t| {
        t.metadata
            .set("tokenizer.ggml.model", Value::String("rwkv".into()));
    });
    assert!(e.contains("tokenizer.ggml.model") && e.contains("rwkv"), "{e}");
    let e = refuse(|t| {
        t.metadata
            .set("tokenizer.ggml.pre", Value::String("qwen99".into()));
    });
    assert!(e.contains("tokenizer.ggml.pre") && e.contains("qwen99"), "{e}");
    let e = refuse(|t| drop(t.metadata.remove("tokenizer.ggml.merges")));
    assert!(e.contains("tokenizer.ggml.merges"), "{e}");
    let e = refuse(|t| {
        let same = vec!["a".to_owned(), "b".into(), "a".into()];
        t.metadata.set("tokenizer.ggml.tokens", Value::from(same));
        for key in ["token_type", "bos_token_id", "eos_token_id"] {
            t.metadata.remove(&format!("tokenizer.ggml.{key}"));
        }
    });
    assert!(
        e.contains("tokenizer.ggml.tokens") && e.contains("`a` twice: ids 0 and 2"),
        "{e}"
    );
    let e = refuse(|t| {
        t.metadata
            .set("tokenizer.ggml.merges", Value::from(vec!["ab".to_owned()]));
    });
    assert!(
        e.contains("tokenizer.ggml.merges") && e.contains("merge 0"),
        "{e}"
    );
    let e = refuse(|t| {
        t.metadata
            .set("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![1; 3])));
    });
    assert!(
        e.contains("tokenizer.ggml.token_type") && e.contains("found 3 values"),
        "{e}"
    );
    let e = refuse(|t| t.metadata.set("tokenizer.ggml.tokens", Value::U32(3)));
    assert!(e.contains("tokenizer.ggml.tokens"), "{e}");
}

#[test]
fn ids_of_special_tokens_must_be_in_the_vocabulary() {
    let n = Tiny::new().n_vocab();
    for key in ["bos", "eos", "padding", "eot", "fim_pre"] {
        let key = format!("tokenizer.ggml.{key}_token_id");
        tiny(|t| t.metadata.set(&key, Value::U32(n as u32 - 1))).unwrap();
        for id in [n as u32, u32::MAX] {
            let e = tiny(|t| t.metadata.set(&key, Value::U32(id))).expect_err("no such token");
            for part in [
                format!("`{key}`"),
                format!("the {n} tokens"),
                format!("found {id}"),
            ] {
                assert!(e.contains(&part), "no {part} in: {e}");
            }
        }
    }
}

#[test]
fn empty_tokens_get_a_name() {
    let t = tiny(|t| {
        let mut tokens = t
            .metadata
            .strings("tokenizer.ggml.tokens")
            .unwrap()
            .unwrap()
            .to_vec();
        tokens[5] = String::new();
        tokens[6] = String::new();
        t.metadata.set("tokenizer.ggml.tokens", Value::from(tokens));
    });
    assert!(t.is_ok());
}

/// The reference's own cases: texts in `.inp`, ids in `.out`.
#[test]
fn the_reference_s_cases_come_out_the_same() {
    let Some(folder) = shared("vocabs") else { return };
    let mut passed = Vec::new();
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for path in files.filter(|path| path.extension().is_some_and(|e| e == "gguf")) {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let file = GgufFile::open(&path).unwrap();
        let tokenizer = Tokenizer::from_metadata(&file.metadata).unwrap();
        let read = |ext: &str| std::fs::read_to_string(format!("{}.{ext}", path.display())).unwrap();
        let (texts, ids) = (read("inp"), read("out"));
        let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
        let ids: Vec<&str> = ids.lines().collect();
        let mut n = 0;
        for (text, ids) in texts.iter().zip(&ids) {
            let expected: Vec<u32> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
            let found = tokenizer.encode(text, false, false).unwrap();
            assert_eq!(found, expected, "{name}: {text:?}");
            assert_eq!(tokenizer.decode(&found), *text, "{name}");
            n += 1;
        }
        assert!(n >= 40, "{name} has only {n} cases");
        passed.push(format!("{name} ({n})"));
    }
    assert!(passed.len() >= 7, "vocabularies are missing: {passed:?}");
    println!("equal to the reference: {}", passed.join(", "));
}

/// As long as a text may be in a test of each push: a heap or a table must do, no look at every pair.
#[test]
fn long_runs_are_encoded_and_decoded() {
    let tokenizers = [tiny(|_| ()).unwrap(), spm(|_| ()).unwrap()];
    let texts = [
        "The council of Fenquin met in the inn. ".repeat(3_000),
        " ".repeat(200_000),
        "a".repeat(200_000),
        "\n".repeat(200_000),
        "<|bos|>".repeat(20_000),
    ];
    for (tokenizer, text) in tokenizers
        .iter()
        .flat_map(|t| texts.iter().map(move |text| (t, text)))
    {
        let ids = tokenizer.encode(text, false, true).unwrap();
        assert_eq!(tokenizer.decode(&ids), *text);
    }
}

//! Small vocabularies of each family. Where ids are compared with the reference's, those were made with the
//! Python package `xllamacpp` 2026.10 from a model with the very vocabulary of the test.

use std::borrow::Cow;

use gguf::{Array, Metadata, Value};
use gguf_runtime::{TokenRole, Tokenizer};

/// Tokens with score and type: 1 normal, 2 unknown, 3 control, 4 user defined, 6 byte.
type Token = (&'static str, f32, i32);

fn vocabulary(model: &str, tokens: &[Token]) -> Metadata {
    let mut m = Metadata::new();
    let mut set = |key: &str, value: Value| m.set(format!("tokenizer.ggml.{key}"), value);
    let texts: Vec<String> = tokens.iter().map(|t| t.0.to_owned()).collect();
    set("model", Value::String(model.into()));
    set("tokens", Value::from(texts));
    set(
        "scores",
        Value::Array(Array::F32(tokens.iter().map(|t| t.1).collect())),
    );
    set(
        "token_type",
        Value::Array(Array::I32(tokens.iter().map(|t| t.2).collect())),
    );
    m
}

fn build(mut m: Metadata, change: impl FnOnce(&mut Metadata)) -> Result<Tokenizer, String> {
    change(&mut m);
    Tokenizer::from_metadata(&m).map_err(|e| e.to_string())
}

const SPM: &[Token] = &[
    ("<unk>", 0.0, 2),
    ("<s>", 0.0, 3),
    ("</s>", 0.0, 3),
    ("▁", -3.0, 1),
    ("a", -4.0, 1),
    ("b", -4.0, 1),
    ("ab", -2.0, 1),
    ("ba", -2.0, 1),
    ("▁a", -1.0, 1),
    ("aba", -2.5, 1),
    ("<tool>", 0.0, 4),
    ("▁▁", -0.5, 1),
    ("cd", -5.0, 1),
];

/// SPM with all byte tokens behind [`SPM`]'s tokens.
pub(crate) fn spm(change: impl FnOnce(&mut Metadata)) -> Result<Tokenizer, String> {
    let bytes: Vec<Token> = (0..=255u8)
        .map(|b| (&*format!("<0x{b:02X}>").leak(), 0.0, 6))
        .collect();
    build(vocabulary("llama", &[SPM, &bytes].concat()), change)
}

const OVER_SPACES: &[Token] = &[
    ("<unk>", 0.0, 2),
    ("<s>", 0.0, 3),
    ("</s>", 0.0, 3),
    ("▁", -3.0, 1),
    ("a", -4.0, 1),
    ("b", -4.0, 1),
    ("a▁", -2.0, 1),
    ("a▁b", -1.5, 1),
    ("▁a", -2.5, 1),
    ("ba▁b", -9.0, 1),
];

const CHARACTERS: &[Token] = &[
    ("<pad>", 0.0, 3),
    ("<eos>", 0.0, 3),
    ("<bos>", 0.0, 3),
    ("<unk>", 0.0, 2),
    ("▁", 0.0, 1),
    ("a", 0.0, 1),
    ("b", 0.0, 1),
    ("ab", 0.0, 1),
    ("▁ab", 0.0, 1),
    ("\n", 0.0, 1),
    ("\n\n", 0.0, 1),
    ("b\n", 0.0, 1),
    ("<x>", 0.0, 4),
    ("▁▁", 0.0, 1),
    ("<0xC3>", 0.0, 6),
    ("<0xA9>", 0.0, 6),
];

/// Merges of [`CHARACTERS`].
const CHARACTER_MERGES: &[&str] = &["a b", "▁ ab", "\n \n", "b \n", "▁ ▁"];

const UGM: &[Token] = &[
    ("<pad>", 0.0, 3),
    ("</s>", 0.0, 3),
    ("<unk>", 0.0, 2),
    ("▁", -2.0, 1),
    ("a", -3.0, 1),
    ("b", -3.5, 1),
    ("ab", -4.0, 1),
    ("▁a", -3.5, 1),
    ("ba", -6.6, 1),
    ("<x>", -9.0, 4),
    ("▁b", -7.0, 5),
    ("é", -8.0, 1),
];

fn ugm(change: impl FnOnce(&mut Metadata)) -> Result<Tokenizer, String> {
    build(vocabulary("t5", UGM), change)
}

const WPM: &[Token] = &[
    ("[PAD]", 0.0, 3),
    ("[UNK]", 0.0, 3),
    ("[CLS]", 0.0, 3),
    ("[SEP]", 0.0, 3),
    ("[MASK]", 0.0, 3),
    ("▁hello", 0.0, 1),
    ("▁he", 0.0, 1),
    ("llo", 0.0, 1),
    ("▁,", 0.0, 1),
    ("▁世", 0.0, 1),
    ("▁Hello", 0.0, 1),
    ("s", 0.0, 1),
    ("▁$", 0.0, 1),
    ("▁é", 0.0, 1),
    ("▁e", 0.0, 1),
];

fn wpm(change: impl FnOnce(&mut Metadata)) -> Result<Tokenizer, String> {
    build(vocabulary("bert", WPM), |m| {
        for (key, id) in [("bos", 2), ("unknown", 1), ("seperator", 3), ("mask", 4)] {
            m.set(format!("tokenizer.ggml.{key}_token_id"), Value::U32(id));
        }
        change(m);
    })
}

/// A text, its ids, and its ids with special tokens added and read.
type Case = (&'static str, &'static [u32], &'static [u32]);

const SPM_CASES: &[Case] = &[
    ("", &[], &[1]),
    ("a", &[8], &[1, 8]),
    (" a", &[11, 4], &[1, 11, 4]),
    ("  a b", &[11, 8, 3, 5], &[1, 11, 8, 3, 5]),
    ("abab", &[8, 7, 5], &[1, 8, 7, 5]),
    ("ababa", &[8, 7, 7], &[1, 8, 7, 7]),
    ("bab", &[3, 7, 5], &[1, 3, 7, 5]),
    ("é", &[3, 208, 182], &[1, 3, 208, 182]),
    ("a<tool>b <tool>", &[8, 10, 3, 5, 3, 10], &[1, 8, 10, 3, 5, 3, 10]),
    ("<s>a</s>", &[3, 73, 128, 75, 4, 73, 60, 128, 75], &[1, 1, 8, 2]),
    ("<unk>a", &[3, 73, 130, 123, 120, 75, 4], &[1, 0, 8]),
    ("acd", &[8, 12], &[1, 8, 12]),
    ("\u{a}", &[3, 23], &[1, 3, 23]),
    ("▁a", &[11, 4], &[1, 11, 4]),
];

const SPM_WITHOUT_PREFIX: &[Case] = &[
    ("", &[], &[1]),
    ("a", &[4], &[1, 4]),
    (" a", &[8], &[1, 8]),
    ("  a b", &[11, 4, 3, 5], &[1, 11, 4, 3, 5]),
    ("abab", &[6, 6], &[1, 6, 6]),
    ("ababa", &[6, 9], &[1, 6, 9]),
    ("bab", &[7, 5], &[1, 7, 5]),
    ("é", &[208, 182], &[1, 208, 182]),
];

const UGM_CASES: &[Case] = &[
    ("a", &[4], &[4, 1]),
    ("ab", &[6], &[6, 1]),
    ("aba", &[6, 4], &[6, 4, 1]),
    (" ab  b ", &[3, 6, 3, 3, 5, 3], &[3, 6, 3, 3, 5, 3, 1]),
    ("xyz", &[2], &[2, 1]),
    ("aé x<x>y", &[4, 11, 3, 2, 9, 2], &[4, 11, 3, 2, 9, 2, 1]),
    ("<x> b", &[9, 3, 5], &[9, 3, 5, 1]),
    ("</s>a", &[2, 4], &[1, 4, 1]),
    ("▁b", &[3, 5], &[3, 5, 1]),
    ("ba", &[5, 4], &[5, 4, 1]),
    ("aaabbb", &[4, 4, 6, 5, 5], &[4, 4, 6, 5, 5, 1]),
];

const UGM_MERGED: &[Case] = &[
    ("a", &[7], &[7, 1]),
    ("ab", &[3, 6], &[3, 6, 1]),
    ("aba", &[3, 6, 4], &[3, 6, 4, 1]),
    (" ab  b ", &[3, 6, 3, 5], &[3, 6, 3, 5, 1]),
    ("xyz", &[3, 2], &[3, 2, 1]),
    ("aé x<x>y", &[7, 11, 3, 2, 9, 3, 2], &[7, 11, 3, 2, 9, 3, 2, 1]),
    ("<x> b", &[9, 3, 5], &[9, 3, 5, 1]),
    ("</s>a", &[3, 2, 4], &[1, 7, 1]),
    ("▁b", &[3, 3, 5], &[3, 3, 5, 1]),
    ("ba", &[3, 5, 4], &[3, 5, 4, 1]),
    ("aaabbb", &[7, 4, 6, 5, 5], &[7, 4, 6, 5, 5, 1]),
];

const WPM_CASES: &[Case] = &[
    ("Hello, HELLOS", &[5, 8, 5, 11], &[2, 5, 8, 5, 11, 3]),
    ("he llo", &[6, 1], &[2, 6, 1, 3]),
    ("hello世世x", &[5, 9, 9, 1], &[2, 5, 9, 9, 1, 3]),
    ("É e\u{301}", &[14, 14], &[2, 14, 14, 3]),
    ("[MASK] hello[SEP]", &[1, 1, 1, 5, 1, 1, 1], &[2, 4, 5, 3, 3]),
    ("$,", &[12, 8], &[2, 12, 8, 3]),
    ("\u{9}x\u{0}", &[1], &[2, 1, 3]),
    ("hel\u{200b}lo", &[5], &[2, 5, 3]),
    ("hellohello", &[1], &[2, 1, 3]),
];

const OVER_SPACES_CASES: &[Case] = &[
    ("a b", &[3, 7], &[1, 3, 7]),
    ("ba b", &[3, 9], &[1, 3, 9]),
    ("aa bb a b", &[8, 7, 5, 3, 7], &[1, 8, 7, 5, 3, 7]),
    (" a", &[3, 8], &[1, 3, 8]),
    ("a  b", &[3, 6, 3, 5], &[1, 3, 6, 3, 5]),
];

const CHARACTER_CASES: &[Case] = &[
    ("ab", &[7], &[2, 7]),
    (" ab", &[8], &[2, 8]),
    ("b\u{a}ab", &[6, 9, 7], &[2, 6, 9, 7]),
    ("a\u{a}\u{a}\u{a}b", &[5, 10, 9, 6], &[2, 5, 10, 9, 6]),
    ("  ab", &[4, 8], &[2, 4, 8]),
    ("é<x>z", &[14, 15, 12], &[2, 14, 15, 12]),
    ("<bos>a", &[6, 5], &[2, 2, 5]),
];

fn set(m: &mut Metadata, key: &str, value: Value) {
    m.set(format!("tokenizer.ggml.{key}"), value);
}

/// Compares with ids that the reference gave.
fn compare(t: &Tokenizer, cases: &[Case]) {
    for (text, plain, special) in cases {
        assert_eq!(t.encode(text, false, false).unwrap(), *plain, "{text:?}");
        assert_eq!(t.encode(text, true, true).unwrap(), *special, "{text:?}");
    }
}

#[test]
fn spm_merges_by_score() {
    compare(&spm(|_| ()).unwrap(), SPM_CASES);
    compare(
        &spm(|m| set(m, "add_space_prefix", Value::Bool(false))).unwrap(),
        SPM_WITHOUT_PREFIX,
    );
}

#[test]
fn spm_decodes_without_the_first_space() {
    let t = spm(|_| ()).unwrap();
    for text in ["a b", " a", "  ", "", "é\n\u{1F999}", "ab<tool>"] {
        assert_eq!(t.decode(&t.encode(text, false, false).unwrap()), text);
    }
    assert_eq!(t.decode(&t.encode(" a", true, false).unwrap()), "<s> a");
    let t = spm(|m| set(m, "add_space_prefix", Value::Bool(false))).unwrap();
    assert_eq!(t.decode(&t.encode(" a", false, false).unwrap()), " a");
}

#[test]
fn spm_tokens_may_reach_over_spaces() {
    let t = build(vocabulary("llama", OVER_SPACES), |_| ()).unwrap();
    compare(&t, OVER_SPACES_CASES);
    // Without tokens of bytes, what has no token is unknown.
    assert_eq!(t.encode("xé", false, false).unwrap(), [3, 0, 0, 0]);
}

#[test]
fn bpe_of_characters_merges_characters() {
    let t = build(vocabulary("gemma4", CHARACTERS), |m| {
        let merges: Vec<String> = CHARACTER_MERGES.iter().map(|&merge| merge.into()).collect();
        set(m, "merges", Value::from(merges));
        set(m, "bos_token_id", Value::U32(2));
        set(m, "eos_token_id", Value::U32(1));
        set(m, "add_bos_token", Value::Bool(true));
    });
    let t = t.unwrap();
    compare(&t, CHARACTER_CASES);
    assert_eq!(
        t.decode(&t.encode("  ab\né<x>", false, false).unwrap()),
        "  ab\né<x>"
    );
}

#[test]
fn ugm_takes_the_likeliest_tokens() {
    compare(&ugm(|_| ()).unwrap(), UGM_CASES);
    let merged = ugm(|m| {
        set(m, "add_space_prefix", Value::Bool(true));
        set(m, "remove_extra_whitespaces", Value::Bool(true));
    });
    let merged = merged.unwrap();
    compare(&merged, UGM_MERGED);
    assert_eq!(
        merged.decode(&merged.encode(" a  b ", false, false).unwrap()),
        "a b"
    );
}

#[test]
fn wpm_takes_the_longest_tokens() {
    let t = wpm(|_| ()).unwrap();
    compare(&t, WPM_CASES);
    assert_eq!(t.decode(&[5, 11, 8, 9]), "hellos , 世");
    let cased = wpm(|m| {
        set(m, "normalizer.lowercase", Value::Bool(false));
        set(m, "normalizer.strip_accents", Value::Bool(false));
    });
    let cased = cased.unwrap();
    assert_eq!(cased.encode("Hello hello", false, false).unwrap(), [10, 5]);
    // The text is decomposed, the token is not.
    assert_eq!(cased.encode("é", false, false).unwrap(), [1]);
}

#[test]
fn families_have_their_own_special_tokens() {
    let t = spm(|_| ()).unwrap();
    assert_eq!((t.leading(), t.trailing(), t.add_sep()), (Some(1), None, false));
    assert_eq!(t.role(TokenRole::Unknown), Some(0));
    let t = ugm(|_| ()).unwrap();
    assert_eq!((t.leading(), t.trailing(), t.bos()), (None, Some(1), None));
    assert_eq!(t.role(TokenRole::Padding), Some(0));
    let t = wpm(|_| ()).unwrap();
    assert_eq!((t.leading(), t.trailing(), t.add_sep()), (Some(2), Some(3), true));
    assert_eq!(t.role(TokenRole::Mask), Some(4));
    assert_eq!(t.eos(), None);
}

#[test]
fn roles_are_found_by_key_then_by_text() {
    let texts = [
        "<s>",
        "</s>",
        "<unk>",
        "<|endoftext|>",
        "<|im_end|>",
        "<fim_suffix>",
        "<|prefix|>",
    ];
    let tokens: Vec<Token> = texts.map(|t| (t, 0.0, 4)).to_vec();
    let found = |change: fn(&mut Metadata)| build(vocabulary("llama", &tokens), change).unwrap();
    let t = found(|_| ());
    assert_eq!(t.role(TokenRole::Eot), Some(4));
    assert_eq!(t.role(TokenRole::FimSuffix), Some(5));
    assert_eq!(t.role(TokenRole::FimPrefix), Some(6));
    assert_eq!(t.role(TokenRole::FimMiddle), None);
    // What was found by its text is a control token, and text does not mean it.
    assert!(t.encode("<fim_suffix>", false, true).unwrap().contains(&5));
    assert!(!t.encode("<fim_suffix>", false, false).unwrap().contains(&5));
    let t = found(|m| {
        set(m, "eot_token_id", Value::U32(3));
        set(m, "suffix_token_id", Value::U32(6));
        set(m, "fim_pre_token_id", Value::U32(5));
        set(m, "prefix_token_id", Value::U32(4));
    });
    assert_eq!(t.role(TokenRole::Eot), Some(3));
    assert_eq!(t.role(TokenRole::FimSuffix), Some(6));
    assert_eq!(t.role(TokenRole::FimPrefix), Some(5));
}

#[test]
fn pre_tokenizers_set_what_the_file_does_not() {
    let tokens: Vec<Token> = (0..20).map(|i| (&*format!("t{i}").leak(), 0.0, 1)).collect();
    let with = |pre: &str| {
        build(vocabulary("gpt2", &tokens), |m| {
            set(m, "pre", Value::String(pre.into()));
            set(m, "merges", Value::from(Vec::<String>::new()));
        })
        .unwrap()
    };
    let told = |pre: &str| (with(pre).bos(), with(pre).leading(), with(pre).add_sep());
    assert_eq!(told("qwen2"), (Some(11), None, false));
    assert_eq!(told("llama-bpe"), (Some(11), Some(11), false));
    assert_eq!(told("roberta-bpe"), (Some(11), None, true));
    for pre in ["chatglm-bpe", "glm4", "glm5"] {
        assert_eq!(told(pre), (None, None, false));
    }
}

#[test]
fn broken_vocabularies_are_named() {
    type Change = fn(&mut Metadata);
    let cases: &[(Change, &str, &str)] = &[
        (|m| drop(m.remove("tokenizer.ggml.scores")), "scores", "nothing"),
        (
            |m| set(m, "scores", Value::Array(Array::F32(vec![0.0]))),
            "scores",
            "1 values",
        ),
        (
            |m| set(m, "scores", Value::Array(Array::U8(vec![0]))),
            "scores",
            "another type",
        ),
        (
            |m| {
                let n = m.strings("tokenizer.ggml.tokens").unwrap().unwrap().len();
                let mut scores = vec![0.0; n];
                scores[3] = f32::NAN;
                set(m, "scores", Value::Array(Array::F32(scores)));
            },
            "scores",
            "NaN for token 3",
        ),
        (|m| drop(m.remove("tokenizer.ggml.tokens")), "tokens", "nothing"),
        (
            |m| set(m, "token_type", Value::Array(Array::I32(vec![1]))),
            "token_type",
            "1 values",
        ),
        (
            |m| set(m, "unknown_token_id", Value::U32(9999)),
            "unknown_token_id",
            "9999",
        ),
        (
            |m| set(m, "add_space_prefix", Value::U32(1)),
            "add_space_prefix",
            "a bool",
        ),
    ];
    for (change, key, found) in cases {
        for e in [spm(change).unwrap_err(), ugm(change).unwrap_err()] {
            assert!(
                e.contains(&format!("`tokenizer.ggml.{key}`")) && e.contains(found),
                "{e}"
            );
        }
    }
    for blob in [vec![1u8], vec![4, 0, 0, 0, 1], vec![0; 4], vec![255; 8]] {
        let e = ugm(|m| set(m, "precompiled_charsmap", Value::Array(Array::U8(blob)))).unwrap_err();
        assert!(e.contains("precompiled_charsmap"), "{e}");
    }
    let long = |n: usize| {
        move |m: &mut Metadata| {
            let tokens = m.strings("tokenizer.ggml.tokens").unwrap().unwrap();
            let mut tokens: Vec<String> = tokens.iter().map(Cow::into_owned).collect();
            tokens[3] = "a".repeat(n);
            set(m, "tokens", Value::from(tokens));
        }
    };
    assert!(spm(long(100_000)).is_ok() && ugm(long(512)).is_ok() && wpm(long(512)).is_ok());
    for e in [ugm(long(513)).unwrap_err(), wpm(long(513)).unwrap_err()] {
        let words = ["`tokenizer.ggml.tokens`", "at most 512 bytes", "513 in token 3"];
        assert!(words.iter().all(|word| e.contains(word)), "{e}");
    }
    // No token at all is no crash either.
    for model in ["llama", "t5", "bert"] {
        let t = build(vocabulary(model, &[]), |_| ()).unwrap();
        assert_eq!(t.encode("a b", true, true).unwrap(), [0; 0]);
    }
}

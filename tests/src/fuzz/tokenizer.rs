//! Vocabularies and texts.

use std::sync::OnceLock;

use gguf::{Array, Metadata, Value};
use gguf_runtime::Tokenizer;

use super::container::parse;

/// Text up to the magic number of a GGUF file, whose metadata describe the vocabulary. Without one the text goes through
/// a vocabulary of all bytes, which must give it back.
pub(super) fn tokenizer(data: &[u8]) {
    let at = data.windows(4).position(|w| w == b"GGUF");
    let text = String::from_utf8_lossy(&data[..at.unwrap_or(data.len())]);
    let Some(at) = at else {
        for tokenizer in built_in() {
            let ids = tokenizer.encode(&text, false, false).expect("a short text");
            // SPM writes spaces with a sign of their own, of which this vocabulary has the bytes.
            let plain = |text: &str| text.replace('\u{2581}', " ");
            let found = tokenizer.decode(&ids);
            assert_eq!(plain(&found), plain(&text));
            round_trip(tokenizer, &text);
        }
        return;
    };
    let Ok(file) = parse(data[at..].to_vec()) else {
        return;
    };
    if let Ok(tokenizer) = Tokenizer::from_metadata(&file.metadata) {
        round_trip(&tokenizer, &text);
        round_trip(&tokenizer, "a b\u{e9}\n 12 <s></s>");
    }
}

/// What comes of a text are tokens of the vocabulary, and each has bytes.
fn round_trip(tokenizer: &Tokenizer, text: &str) {
    for (add_special, parse_special) in [(true, true), (false, false)] {
        let Ok(ids) = tokenizer.encode(text, add_special, parse_special) else {
            continue;
        };
        let known = ids.iter().all(|&id| (id as usize) < tokenizer.n_vocab());
        assert!(known, "{ids:?} of {}", tokenizer.n_vocab());
        tokenizer.decode(&ids);
    }
    for &id in tokenizer.ends() {
        tokenizer.is_control(id);
        assert!(tokenizer.token_text(id).is_some());
    }
}

/// Vocabularies of all bytes: in the byte alphabet, and as SPM writes them.
pub(super) fn built_in() -> &'static [Tokenizer; 2] {
    static BUILT_IN: OnceLock<[Tokenizer; 2]> = OnceLock::new();
    BUILT_IN.get_or_init(|| {
        [bpe(), spm()].map(|metadata| Tokenizer::from_metadata(&metadata).expect("a sound vocabulary"))
    })
}

/// The letters that stand for bytes, in order of the bytes.
pub(super) fn letters() -> Vec<String> {
    let mut next = 0x100u32;
    let letter = |b: u32| {
        if matches!(b, 33..=126 | 161..=172 | 174..=255) {
            return b;
        }
        next += 1;
        next - 1
    };
    let letters = (0..256).map(letter);
    letters.filter_map(char::from_u32).map(String::from).collect()
}

/// Merges of a small vocabulary.
pub(super) const MERGES: [&str; 4] = ["\u{120} t", "h e", "\u{120}t he", "i n"];

fn bpe() -> Metadata {
    let mut tokens = letters();
    tokens.extend(MERGES.map(|m| m.replace(' ', "")));
    let mut m = common("gpt2", tokens, 1);
    m.set("tokenizer.ggml.pre", Value::String("qwen2".into()));
    m.set(
        "tokenizer.ggml.merges",
        Value::from(MERGES.map(str::to_owned).to_vec()),
    );
    m
}

fn spm() -> Metadata {
    let mut m = common("llama", (0..256).map(|b| format!("<0x{b:02X}>")).collect(), 6);
    m.set("tokenizer.ggml.scores", Value::Array(Array::F32(vec![0.0; 259])));
    m.set("tokenizer.ggml.add_space_prefix", Value::Bool(false));
    m
}

/// Tokens of one kind, with three special ones behind them.
fn common(model: &str, mut tokens: Vec<String>, kind: i32) -> Metadata {
    let mut kinds = vec![kind; tokens.len()];
    kinds.extend([3, 3, 2]);
    let first = tokens.len() as u32;
    tokens.extend(["<bos>", "<eos>", "<unk>"].map(str::to_owned));
    let mut m = Metadata::new();
    m.set("tokenizer.ggml.model", Value::String(model.into()));
    m.set("tokenizer.ggml.tokens", Value::from(tokens));
    m.set("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)));
    for (key, id) in [("bos", first), ("eos", first + 1), ("unknown", first + 2)] {
        m.set(format!("tokenizer.ggml.{key}_token_id"), Value::U32(id));
    }
    m
}

/// A small vocabulary of each family.
pub(super) fn families() -> Vec<(&'static str, Metadata)> {
    let pieces = [
        "<unk>",
        "\u{2581}",
        "\u{2581}a",
        "b",
        "\u{2581}ab",
        "c",
        "1",
        "h",
        "e",
    ]
    .map(str::to_owned);
    let scores: Vec<f32> = (0..pieces.len() as i32 + 3).map(|i| -(i as f32)).collect();
    let mut ugm = common("t5", pieces.to_vec(), 1);
    ugm.set("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
    let words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "\u{2581}hello",
        "\u{2581}w",
        "or",
        "ld",
        "\u{2581}1",
    ];
    let wpm = common("bert", words.map(str::to_owned).to_vec(), 1);
    vec![("bpe", bpe()), ("spm", spm()), ("ugm", ugm), ("wpm", wpm)]
}

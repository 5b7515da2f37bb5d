//! Checkpoints: their settings, headers of weights and tokenizers.

use gguf_convert::{Checkpoint, Options, Plan};
use gguf_runtime::{ChatTemplate, Tokenizer};
use serde_json::{Value, json};

use super::{folder, tokenizer};

/// Files of weights: `model.safetensors.index.json` and headers.
pub(super) fn safetensors(data: &[u8]) {
    checkpoint(data);
}

/// Settings: `config.json` and what lies beside it.
pub(super) fn config(data: &[u8]) {
    checkpoint(data);
}

/// Opens a folder as the model that it would become, and reads of all its tensors.
fn checkpoint(data: &[u8]) {
    let has_weights = folder::files(data)
        .iter()
        .any(|(name, _)| name.contains("safetensors"));
    let usual = usual();
    let dir = folder::write(data, if has_weights { &usual[..2] } else { &usual });
    // Two of three types are enough for one input.
    let other = if data.len().is_multiple_of(2) {
        "f32"
    } else {
        "q8_0"
    };
    for (outtype, repack) in [("auto", true), (other, false)] {
        let options = Options {
            outtype: outtype.to_owned(),
            repack,
            ..Options::default()
        };
        let Ok(plan) = Plan::new(dir.path(), &options) else {
            continue;
        };
        read(plan);
    }
}

/// The first and the last bytes of every tensor, which are computed as they are read.
fn read(plan: Plan) {
    const SOME: u64 = 512;
    // With the head some weights are read, which may be no numbers.
    let Ok(Checkpoint { file, .. }) = Checkpoint::new(plan) else {
        return;
    };
    file.require_sound().expect("what was planned is sound");
    let mut buf = Vec::new();
    for tensor in &file.tensors {
        let n = tensor.n_bytes.min(SOME);
        buf.resize(n as usize, 0);
        for at in [0, tensor.n_bytes - n] {
            // Numbers that are none, or too large for the type, are refused.
            let _refused = file.read_tensor(tensor, at, &mut buf);
        }
    }
}

/// The files of a tokenizer.
pub(super) fn vocabulary(data: &[u8]) {
    let dir = folder::write(data, &[("config.json", CONFIG.as_bytes())]);
    let options = Options {
        outtype: "auto".to_owned(),
        vocab_only: true,
        ..Options::default()
    };
    let Ok(plan) = Plan::new(dir.path(), &options) else {
        return;
    };
    let verified = plan.verify_vocabulary(&plan.metadata);
    let Ok(tokenizer) = Tokenizer::from_metadata(&plan.metadata) else {
        return;
    };
    let text = "The  caf\u{e9}\r\n42 \u{4f60}\u{597d} <s>";
    if let Ok(ids) = tokenizer.encode(text, true, true) {
        tokenizer.decode(&ids);
    }
    drop(verified);
    let _refused =
        ChatTemplate::from_metadata(&plan.metadata, None, &tokenizer, gguf_runtime::Interpreter::Here);
}

/// A checkpoint that can be converted: what an input leaves out is taken from here.
fn usual() -> [(&'static str, &'static [u8]); 3] {
    use std::sync::OnceLock;
    static FILES: OnceLock<[Vec<u8>; 3]> = OnceLock::new();
    let files = FILES.get_or_init(|| [CONFIG.to_owned(), tokenizer_json(), header()].map(String::into_bytes));
    [
        ("config.json", &files[0]),
        ("tokenizer.json", &files[1]),
        ("model.safetensors.header", &files[2]),
    ]
}

/// The small sound checkpoint with these files instead of its own, in a folder.
pub fn usual_but(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let files = files.iter().map(|(name, bytes)| folder::entry(name, bytes));
    folder::write(&files.collect::<Vec<_>>().concat(), &usual())
}

/// Its settings.
pub const CONFIG: &str = r#"{"architectures":["LlamaForCausalLM"],"model_type":"llama","head_dim":16,"hidden_act":"silu","hidden_size":32,"intermediate_size":32,"max_position_embeddings":64,"num_attention_heads":2,"num_hidden_layers":1,"num_key_value_heads":1,"rms_norm_eps":1e-05,"rope_theta":10000.0,"tie_word_embeddings":true,"bos_token_id":256,"eos_token_id":257,"vocab_size":264}"#;

/// The header of its weights.
pub fn header() -> String {
    header_of(16)
}

/// The same with heads of so many elements.
pub(super) fn header_of(head: u64) -> String {
    let layer = "model.layers.0";
    let tensors = [
        ("model.embed_tokens.weight".to_owned(), vec![264, 32]),
        ("model.norm.weight".to_owned(), vec![32]),
        (format!("{layer}.input_layernorm.weight"), vec![32]),
        (format!("{layer}.post_attention_layernorm.weight"), vec![32]),
        (format!("{layer}.self_attn.q_proj.weight"), vec![2 * head, 32]),
        (format!("{layer}.self_attn.k_proj.weight"), vec![head, 32]),
        (format!("{layer}.self_attn.v_proj.weight"), vec![head, 32]),
        (format!("{layer}.self_attn.o_proj.weight"), vec![32, 2 * head]),
        (format!("{layer}.mlp.gate_proj.weight"), vec![32, 32]),
        (format!("{layer}.mlp.up_proj.weight"), vec![32, 32]),
        (format!("{layer}.mlp.down_proj.weight"), vec![32, 32]),
    ];
    let mut at = 0u64;
    let mut header = serde_json::Map::new();
    for (name, shape) in tensors {
        let end = at + shape.iter().product::<u64>() * 2;
        header.insert(
            name,
            json!({"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}),
        );
        at = end;
    }
    Value::Object(header).to_string()
}

/// Its tokenizer: BPE of bytes.
pub(super) fn tokenizer_json() -> String {
    let letters = tokenizer::letters();
    let merged = tokenizer::MERGES.map(|m| m.replace(' ', ""));
    let special = |id: usize, content: &str| json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    let mut vocab = serde_json::Map::new();
    for (id, token) in letters.into_iter().enumerate() {
        vocab.insert(token, id.into());
    }
    for (i, token) in merged.into_iter().enumerate() {
        vocab.insert(token, (258 + i).into());
    }
    let pattern = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    json!({
        "version": "1.0",
        "added_tokens": [special(256, "<bos>"), special(257, "<eos>")],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
        ]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "vocab": vocab, "merges": tokenizer::MERGES.to_vec()}
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise nothing but refusals would be tried.
    #[test]
    fn the_usual_checkpoint_can_be_converted() {
        let dir = folder::write(b"", &usual());
        let options = Options {
            outtype: "auto".to_owned(),
            ..Options::default()
        };
        let plan = Plan::new(dir.path(), &options).unwrap();
        plan.verify_vocabulary(&plan.metadata).unwrap();
        read(plan);
    }
}

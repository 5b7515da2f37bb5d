//! `gguf-run`: a text continued, a conversation, or the logits of given tokens.

mod args;
mod cache;
mod chat;
mod engine;
mod ids;
mod input;
mod report;
mod start;
mod stream;

/// The program.
pub fn main() -> std::process::ExitCode {
    if let Some(code) = crate::interpret() {
        return code;
    }
    gguf_cli::run(|args: args::Args| start::run(&args))
}

#[cfg(test)]
pub(crate) mod tests {
    use gguf::{Array, Metadata, Value};

    use crate::Tokenizer;

    /// A vocabulary in which each byte is a token, by SPM, with `<bos>` and `<eos>` behind them.
    pub(crate) fn tokenizer() -> Tokenizer {
        let mut tokens: Vec<String> = (0..256).map(|b| format!("<0x{b:02X}>")).collect();
        tokens.extend(["<bos>", "<eos>", "<unk>"].map(str::to_owned));
        let mut kinds = vec![6i32; 256];
        kinds.extend([3, 3, 2]);
        let mut m = Metadata::new();
        m.set("tokenizer.ggml.model", Value::String("llama".into()));
        m.set(
            "tokenizer.ggml.scores",
            Value::Array(Array::F32(vec![0.0; tokens.len()])),
        );
        m.set("tokenizer.ggml.tokens", Value::from(tokens));
        m.set("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)));
        for (key, id) in [("bos", 256), ("eos", 257), ("unknown", 258)] {
            m.set(format!("tokenizer.ggml.{key}_token_id"), Value::U32(id));
        }
        m.set("tokenizer.ggml.add_space_prefix", Value::Bool(false));
        Tokenizer::from_metadata(&m).unwrap()
    }
}

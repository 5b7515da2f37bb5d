//! Continues a text with a GGUF model, by the library alone:
//!
//! ```text
//! cargo run --release --example generate -- model.gguf "The council met at the inn"
//! ```

use std::io::Write as _;
use std::path::Path;

use gguf_runtime::{Error, Model, Sampler, SamplerSettings, Session, Settings, Token};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, path, text] = &args[..] else {
        return Err("usage: generate MODEL.gguf TEXT".into());
    };
    let text = generate(Path::new(path), text, 64)?;
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

/// The text that follows `prompt`: at most `n` tokens, fewer where the model ends.
fn generate(path: &Path, prompt: &str, n: usize) -> Result<String, Error> {
    let model = Model::open(path)?;
    let tokenizer = model.tokenizer()?;
    let mut sampler = Sampler::new(SamplerSettings::default())?;

    // `true`: with the tokens around a text that the file asks for; `false`: `<|im_end|>` in the text is text.
    let prompt = tokenizer.encode(prompt, true, false)?;
    let settings = Settings {
        n_ctx: prompt.len() + n,
        ..Settings::default()
    };
    let mut session = Session::new(&model, settings)?;

    // Logits are wanted behind the last token alone.
    let last = prompt.len().saturating_sub(1);
    let token = |(i, &id): (usize, &u32)| Token {
        id,
        seq: 0,
        pos: i as u32,
        logits: i == last,
    };
    let batch: Vec<Token> = prompt.iter().enumerate().map(token).collect();
    let mut logits = session.decode(&batch)?;

    let mut written = Vec::new();
    for pos in prompt.len()..prompt.len() + n {
        let id = sampler.sample(&logits)?;
        if tokenizer.ends().contains(&id) {
            break;
        }
        written.push(id);
        // A program that shows text as it comes collects bytes with `append_bytes` until they are whole characters.
        let next = Token {
            id,
            seq: 0,
            pos: pos as u32,
            logits: true,
        };
        logits = session.decode(&[next])?;
    }
    Ok(tokenizer.decode(&written))
}

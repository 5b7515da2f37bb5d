//! What the program says about a run.

use serde_json::{Value, json};

use super::start::{Run, Stop, Turn};
use crate::SamplerSettings;
use crate::pool;

/// Tokens per second; none where nothing was evaluated.
fn rate(n: usize, seconds: f64) -> Option<f64> {
    (n > 0).then(|| n as f64 / seconds.max(1e-9))
}

/// The reason by its name in the object.
fn stop_name(stop: Stop) -> &'static str {
    match stop {
        Stop::End(_) => "eos",
        Stop::Text(_) => "word",
        Stop::Limit => "limit",
        Stop::Context => "context",
    }
}

/// The lines for people.
pub(super) fn lines(run: &Run<'_>, turn: &Turn, n_ctx: usize) -> [String; 2] {
    let told = |n: usize, seconds: f64| {
        rate(n, seconds).map_or(String::new(), |rate| format!(", {rate:.2} tokens/s"))
    };
    let kept = match turn.fed.n_kept {
        0 => String::new(),
        n => format!(", {n} of them were there"),
    };
    let why = match turn.stop {
        Stop::End(id) => {
            let text = run.tokenizer.token_text(id).unwrap_or_default();
            format!("the model ended with `{}`", gguf_cli::printable(text))
        }
        Stop::Text(i) => format!("stopped in front of `{}`", gguf_cli::printable(&run.stops[i])),
        Stop::Limit => format!("stopped behind the {} tokens asked for", turn.ids.len()),
        Stop::Context => format!("stopped: all {n_ctx} positions of the context are taken, see `-c`"),
    };
    [
        format!(
            "prompt: {}{kept}{}",
            gguf_cli::count(turn.prompt.len() as u64, "token"),
            told(turn.fed.n_evaluated, turn.fed.seconds)
        ),
        format!(
            "generated: {}{}; {why}",
            gguf_cli::count(turn.ids.len() as u64, "token"),
            told(turn.ids.len(), turn.seconds)
        ),
    ]
}

/// The object for scripts.
pub(super) fn object(run: &Run<'_>, prompt: &str, turn: &Turn, settings: &SamplerSettings) -> Value {
    let end = match turn.stop {
        Stop::End(id) => Some(id),
        _ => None,
    };
    let word = match turn.stop {
        Stop::Text(i) => Some(&run.stops[i]),
        _ => None,
    };
    json!({
        "model": gguf_cli::file_name(&run.args.model),
        "arch": run.model.arch(),
        "prompt": prompt,
        "prompt_ids": turn.prompt,
        "generated_ids": turn.ids,
        "text": turn.text,
        "stop": stop_name(turn.stop),
        "stop_id": end,
        "stop_text": word,
        "seed": settings.seed,
        "temperature": settings.temperature,
        "n_prompt": turn.prompt.len(),
        "n_cached": turn.fed.n_kept,
        "n_evaluated": turn.fed.n_evaluated,
        "n_generated": turn.ids.len(),
        "prompt_seconds": turn.fed.seconds,
        "prompt_tokens_per_second": rate(turn.fed.n_evaluated, turn.fed.seconds),
        "generation_seconds": turn.seconds,
        "generation_tokens_per_second": rate(turn.ids.len(), turn.seconds),
        "cpu": gguf_blocks::Cpu::best().level().name(),
        "threads": pool::n_threads(),
    })
}

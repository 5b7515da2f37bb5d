//! The measurement.

use std::io::IsTerminal as _;
use std::time::Instant;

use gguf_cli::{Failure, Result};

use super::args::Args;
use super::report::{self, Machine, Measured};
use crate::{Model, Session, Settings, Token};

/// Runs the program.
pub(super) fn run(args: &Args) -> Result<()> {
    if args.n_prompt == 0 && args.n_gen == 0 {
        return Err(Failure::Usage(
            "nothing to measure: `-p` and `-n` are both 0".into(),
        ));
    }
    args.threads.pool()?.install(|| measure(args))
}

fn measure(args: &Args) -> Result<()> {
    let model = Model::open(&args.model)?;
    let machine = Machine::now();
    let tests = [("pp", args.n_prompt), ("tg", args.n_gen)];
    let tests: Vec<_> = tests.into_iter().filter(|(_, n)| *n > 0).collect();
    let settings = Settings {
        n_ctx: args.n_prompt.max(args.n_gen),
        n_ubatch: args.ubatch.ubatch_size.min(args.n_prompt.max(1)),
        ..Settings::default()
    };
    let mut session = Session::new(&model, settings)?;
    let rounds = u64::from(args.repetitions) + 1;
    let talk = !args.talk.quiet && std::io::stderr().is_terminal();
    let mut random = Random(1);
    let mut measured = Vec::new();
    for (kind, n_tokens) in tests {
        let mut rates = Vec::new();
        for round in 0..rounds {
            let tokens: Vec<u32> = (0..n_tokens)
                .map(|_| random.below(model.spec().n_vocab))
                .collect();
            session.clear();
            let started = Instant::now();
            match kind {
                "pp" => prompt(&mut session, &tokens)?,
                _ => generate(&mut session, &tokens)?,
            }
            let seconds = started.elapsed().as_secs_f64();
            let rate = n_tokens as f64 / seconds;
            if round > 0 {
                rates.push(rate);
            }
            if talk {
                eprintln!(
                    "{kind}{n_tokens}, repetition {round} of {}: {rate:.2} t/s",
                    args.repetitions
                );
            }
        }
        measured.push(Measured {
            kind,
            n_tokens,
            rates,
        });
    }
    if args.json {
        return gguf_cli::print_json(&report::object(args, &model, &machine, &measured));
    }
    gguf_cli::print_data(&report::table(args, &model, &machine, &measured))
}

/// One batch; logits of the last token only, as in a conversation.
fn prompt(session: &mut Session<'_>, tokens: &[u32]) -> crate::Result<()> {
    let last = tokens.len() - 1;
    let batch: Vec<Token> = tokens
        .iter()
        .enumerate()
        .map(|(i, &id)| token(id, i, i == last))
        .collect();
    session.decode_with(&batch, None, &mut |_| Ok(()))
}

/// Batches of one token each, all with logits.
fn generate(session: &mut Session<'_>, tokens: &[u32]) -> crate::Result<()> {
    for (i, &id) in tokens.iter().enumerate() {
        session.decode_with(&[token(id, i, true)], None, &mut |_| Ok(()))?;
    }
    Ok(())
}

fn token(id: u32, pos: usize, logits: bool) -> Token {
    Token {
        id,
        seq: 0,
        pos: pos as u32,
        logits,
    }
}

/// The `SplitMix64` sequence, so that every run measures the same tokens.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as u32
    }
}

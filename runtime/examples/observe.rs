//! Shows what every matrix product of a GGUF model sees on a text: the root mean square of its input, and how
//! many rows meet it.
//!
//! ```text
//! cargo run --release --example observe -- model.gguf "The council met at the inn"
//! ```

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use gguf_runtime::{Input, Model, Observe, Session, Settings, Token};

/// Sum of squares, elements and products of each weight.
#[derive(Default)]
struct Inputs(BTreeMap<String, (f64, usize, usize)>);

impl Observe for Inputs {
    fn input(&mut self, tensor: &str, input: Input<'_>) {
        // A stack of experts meets some of the rows, chosen by the router: `source` and `group_starts` say which.
        let (rows, _) = input.rows();
        let squares: f64 = rows.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        // Called for each micro-batch: the name is copied once.
        if !self.0.contains_key(tensor) {
            self.0.insert(tensor.to_owned(), (0.0, 0, 0));
        }
        if let Some((sum, n, products)) = self.0.get_mut(tensor) {
            *sum += squares;
            *n += rows.len();
            *products += input.n_products();
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, path, text] = &args[..] else {
        return Err("usage: observe MODEL.gguf TEXT".into());
    };
    let model = Model::open(Path::new(path))?;
    let ids = model.tokenizer()?.encode(text, true, false)?;
    let settings = Settings {
        n_ctx: ids.len().max(1),
        ..Settings::default()
    };
    let mut session = Session::new(&model, settings)?;
    // Logits of all tokens: the output matrix sees the rows whose logits are wanted.
    let token = |(i, &id): (usize, &u32)| Token {
        id,
        seq: 0,
        pos: i as u32,
        logits: true,
    };
    let batch: Vec<Token> = ids.iter().enumerate().map(token).collect();
    let mut inputs = Inputs::default();
    session.decode_with(&batch, Some(&mut inputs), &mut |_| Ok(()))?;

    let mut out = std::io::stdout().lock();
    for (tensor, (squares, n, products)) in &inputs.0 {
        let rms = (squares / (*n).max(1) as f64).sqrt();
        writeln!(out, "{tensor:<40} {products:>6} products {rms:>12.5}")?;
    }
    Ok(())
}

//! Where a value that is no finite number came from.

use gguf::{GgufFile, TensorInfo};
use gguf_cli::Failure;
use gguf_models::component::layer_of;

use crate::{BadWeight, Error, Input, Model, Observe, Session, Settings, Token};

/// A logit that is no finite number.
pub(super) struct BadLogit {
    /// Text and chunk, or task, for people.
    pub(super) place: String,
    pub(super) pos: usize,
    pub(super) token: usize,
    pub(super) value: f32,
}

/// The failure for a bad logit behind the last of `ids`, which are evaluated again to find its cause.
pub(super) fn explain(bad: &BadLogit, model: &Model, ids: &[u32], settings: &Settings) -> Failure {
    let BadLogit {
        place,
        pos,
        token,
        value,
    } = bad;
    let file = model.file().path().display();
    let cause = cause(model, ids, settings);
    Failure::Input(format!(
        "`{file}`, {place}, position {pos}: the logit of token {token} is {value}: {cause}"
    ))
}

/// What to do about a weight that is no number.
fn told(weight: &BadWeight) -> String {
    format!("{weight}; make or fetch the file again from a sound source")
}

/// The failure for a number that is not finite in an evaluation layer by layer, which is not repeated: weights of the
/// layers that it passed are looked through.
pub(super) fn explain_layered(e: &Error, file: &GgufFile) -> Failure {
    let last = match e {
        Error::NonFiniteState { layer, .. } => Some(*layer),
        _ => None,
    };
    let cause = BadWeight::first(file, last).map_or_else(
        || "all weights up to there are finite".to_owned(),
        |weight| told(&weight),
    );
    Failure::Input(format!("`{}`, {e}: {cause}", file.path().display()))
}

fn cause(model: &Model, ids: &[u32], settings: &Settings) -> String {
    let mut watch = Watch::default();
    let finite = match watch.run(model, ids, settings) {
        Ok(finite) => finite,
        Err(e) => {
            return format!("its cause is unknown, because the position cannot be evaluated again: {e}");
        }
    };
    if watch.found.is_none() && finite {
        return "the same evaluation does not repeat it; test the memory of this machine".into();
    }
    let layer = watch.found.as_ref().and_then(|f| layer_of(&f.tensor));
    let part = match (layer, &watch.found) {
        (Some(n), _) => format!("layer {n}"),
        (None, Some(_)) => "the output norm or the last layer".into(),
        (None, None) => "the output matrix".into(),
    };
    let mut weights = watch.suspects(model).into_iter();
    if let Some(weight) = weights.find_map(|t| BadWeight::of(model.file(), t)) {
        return format!("seen first in {part}, because {}", told(&weight));
    }
    let seen = watch.found.map_or_else(String::new, |f| f.to_string(model));
    format!(
        "seen first in {part}{seen}, where all weights are finite: values outgrow a type; try `--compute f32` with \
         `-ctk f32 -ctv f32`, or quantize that layer with more bits"
    )
}

/// Finds the first product with an input that is no finite number.
#[derive(Default)]
struct Watch {
    /// Position of the first row of the micro-batch.
    first: usize,
    found: Option<Found>,
    /// Weights whose products were computed before, in order.
    passed: Vec<String>,
}

struct Found {
    /// The weight in front of which the value stands.
    tensor: String,
    /// Position of the row, or the expert that it is for.
    row: String,
    col: usize,
    value: f32,
}

impl Found {
    fn to_string(&self, model: &Model) -> String {
        let Self {
            tensor,
            row,
            col,
            value,
        } = self;
        let kind = model
            .file()
            .tensor(tensor)
            .map_or_else(String::new, |t| t.type_name().clone());
        format!(", {value} in front of `{tensor}` ({kind}), {row}, column {col}")
    }
}

impl Observe for Watch {
    fn input(&mut self, tensor: &str, input: Input<'_>) {
        if self.found.is_some() {
            return;
        }
        let (rows, n_cols) = input.rows();
        let Some(at) = rows.iter().position(|v| !v.is_finite()) else {
            self.passed.push(tensor.to_owned());
            return;
        };
        let row = at / n_cols;
        let place = match input {
            Input::Experts {
                source, group_starts, ..
            } => {
                let pair = source.iter().position(|&s| s as usize == row).unwrap_or(0);
                let expert = group_starts
                    .partition_point(|&start| start <= pair)
                    .saturating_sub(1);
                format!("expert {expert}")
            }
            Input::Heads { n_head, .. } => {
                format!("position {}, head {}", self.first + row / n_head, row % n_head)
            }
            Input::Dense { .. } => format!("position {}", self.first + row),
        };
        self.found = Some(Found {
            tensor: tensor.to_owned(),
            row: place,
            col: at % n_cols,
            value: rows[at],
        });
    }
}

impl Watch {
    /// Evaluates `ids` up to the first bad input. Whether the last logits were finite.
    fn run(&mut self, model: &Model, ids: &[u32], settings: &Settings) -> crate::Result<bool> {
        let settings = Settings {
            n_seq: 1,
            ..*settings
        };
        let mut session = Session::new(model, settings)?;
        let mut finite = true;
        for (i, part) in ids.chunks(settings.n_ubatch).enumerate() {
            self.first = i * settings.n_ubatch;
            self.passed.clear();
            let token = |(i, &id): (usize, &u32)| Token {
                id,
                seq: 0,
                pos: (self.first + i) as u32,
                logits: self.first + i + 1 == ids.len(),
            };
            let batch: Vec<Token> = part.iter().enumerate().map(token).collect();
            session.decode_with(&batch, Some(self), &mut |logits| {
                finite = logits.rows.iter().all(|l| l.is_finite());
                Ok(())
            })?;
            if self.found.is_some() {
                break;
            }
        }
        Ok(finite)
    }

    /// The tensors that can have made the value, the likeliest first: with finite inputs everywhere the output
    /// matrix; else vectors (norms, biases) of the layer in which it was seen, the products before it,
    /// last first, then all other tensors of this layer and the one before.
    fn suspects<'m>(&self, model: &'m Model) -> Vec<&'m TensorInfo> {
        let file = model.file();
        let Some(found) = &self.found else {
            return self
                .passed
                .last()
                .and_then(|name| file.tensor(name))
                .into_iter()
                .collect();
        };
        let last = || self.passed.iter().rev().find_map(|name| layer_of(name));
        let layer = layer_of(&found.tensor);
        let before = match layer {
            Some(n) => n.checked_sub(1),
            None => last(),
        };
        let near = |name: &str| {
            let of = layer_of(name);
            of == layer || of == before
        };
        let vectors = file
            .tensors
            .iter()
            .filter(|t| layer_of(&t.name) == layer && t.shape.n_rows() == 1);
        let passed = self.passed.iter().rev().filter(|name| near(name));
        let passed = passed.filter_map(|name| file.tensor(name));
        let others = file.tensors.iter().filter(|t| near(&t.name));
        let mut all: Vec<&TensorInfo> = Vec::new();
        for t in vectors.chain(passed).chain(others) {
            if !all.iter().any(|known| known.name == t.name) {
                all.push(t);
            }
        }
        all
    }
}

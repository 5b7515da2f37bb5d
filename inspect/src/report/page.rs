//! The page, section by section.

use std::collections::HashMap;
use std::fmt::Write;

use gguf::GgufFile;
use gguf_cli::{count, file_name, human_bytes};
use gguf_imatrix_format::Imatrix;

use super::html::{self, escape};
use super::imatrix;
use super::losses::Losses;
use super::model::{Cell, Grid, Parts};
use crate::diff::error::{Compared, Outcome};
use crate::show::{Summary, Totals, human_count};

const STYLE: &str = include_str!("style.css");

/// What the page shows besides the model, where there is something.
pub(super) struct Extras<'a> {
    pub(super) matrix: Option<&'a Imatrix>,
    /// The tensors beside those of another model.
    pub(super) compared: Option<&'a [Compared<'a>]>,
    pub(super) losses: Option<&'a Losses>,
}

/// The whole page. The same models give the same bytes: no date, no path but base names.
pub(super) fn page(file: &GgufFile, summary: &Summary, extras: &Extras<'_>) -> String {
    let file_name = file_name(file.path());
    let title = summary
        .name
        .clone()
        .unwrap_or_else(|| file_name.clone().into_owned());
    let parts = Parts::of(file);
    let mut body = format!("<h1>{}</h1><p>{}</p>", escape(&title), escape(&file_name));
    body.push_str(&facts(summary, file));
    body.push_str(&sizes(&parts));
    body.push_str(&types(file));
    body.push_str(&bits(file, &parts));
    if let Some(matrix) = extras.matrix {
        body.push_str(&importance(matrix));
    }
    if let Some(losses) = extras.losses {
        body.push_str(&loss_map(losses));
    }
    if let Some(compared) = extras.compared {
        body.push_str(&error_map(compared));
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}\n\
         <footer>made by gguf-inspect {}</footer>\n</body>\n</html>\n",
        escape(&title),
        env!("CARGO_PKG_VERSION")
    )
}

fn facts(s: &Summary, file: &GgufFile) -> String {
    let mut out = String::from("<dl>");
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(&value));
        }
    };
    fact("architecture", s.architecture.clone());
    fact("parameters", Some(human_count(s.parameters)));
    fact("active", s.active_parameters.map(human_count));
    fact("file type", s.file_type.clone().or_else(|| s.mostly.clone()));
    fact("bits/weight", s.bits_per_weight.map(|b| format!("{b:.3}")));
    fact("size", Some(human_bytes(file.n_bytes())));
    fact("tensors", Some(file.tensors.len().to_string()));
    fact(
        "files",
        (file.parts().len() > 1).then(|| file.parts().len().to_string()),
    );
    fact("layers", s.layers.map(|n| n.to_string()));
    fact("embedding", s.embedding_length.map(|n| n.to_string()));
    fact(
        "experts",
        s.experts
            .map(|n| format!("{n}, {} used", s.experts_used.unwrap_or(0))),
    );
    fact("context", s.context_length.map(|n| n.to_string()));
    fact(
        "vocabulary",
        s.vocabulary.as_ref().map(|v| count(v.tokens, "token")),
    );
    out + "</dl>"
}

fn sizes(parts: &Parts) -> String {
    format!(
        "<h2>Where the bytes are</h2>\
         <p>Each block is a layer, cut into its parts; the area is the size in the file. Rest the pointer on a part \
         for its numbers.</p>{}{}",
        html::key(parts),
        html::size_map(parts)
    )
}

fn types(file: &GgufFile) -> String {
    let totals = Totals::of(file);
    let rows: Vec<Vec<String>> = totals
        .by_type
        .iter()
        .map(|t| {
            vec![
                t.type_name.clone(),
                t.sums.tensors.to_string(),
                human_count(t.sums.parameters),
                human_bytes(t.sums.bytes),
                format!(
                    "{:.1} %",
                    t.sums.bytes as f64 * 100.0 / totals.all.bytes.max(1) as f64
                ),
                t.bits_per_weight.map_or("-".to_owned(), |b| format!("{b:.3}")),
            ]
        })
        .collect();
    let headers = ["type", "tensors", "parameters", "size", "share", "bits/weight"];
    format!("<h2>Types</h2>{}", html::table(&headers, &rows))
}

fn bits(file: &GgufFile, parts: &Parts) -> String {
    let grid = Grid::of(file.tensors.iter().map(|t| t.name.as_str()), |name| {
        let tensor = file.tensor(name)?;
        let bits = tensor.bits_per_weight()?;
        Some(Cell {
            value: bits,
            text: tensor.type_name(),
            title: format!(
                "{name}: {}, {}, {bits:.3} bits/weight",
                tensor.type_name(),
                tensor.shape
            ),
        })
    });
    if grid.is_empty() {
        return String::new();
    }
    format!(
        "<h2>Bits by layer</h2>{}<h2>Type of each tensor</h2>{}",
        html::layer_bits(parts),
        html::heat(&grid, "bits", true)
    )
}

fn importance(matrix: &Imatrix) -> String {
    format!(
        "<h2>Importance matrix: tokens that reached each tensor</h2>\
         <p>{} of {} tokens. Of experts: how many of them any token reached, and the tokens of the one with the \
         fewest.</p>{}<h2>Importance matrix: mean square of activations</h2>{}",
        count(u64::from(matrix.chunk_count), "chunk"),
        matrix.chunk_size,
        html::heat(&imatrix::coverage(matrix), "tokens", true),
        html::heat(&imatrix::strength(matrix), "heat", true)
    )
}

fn loss_map(losses: &Losses) -> String {
    format!(
        "<h2>Error of quantization</h2>\
         <p>Root of the mean squared error, weighted with the importance matrix that was used, in percent of the root \
         mean square of the source's weights; on sampled rows.</p>{}",
        html::heat(&losses.grid(), "heat", false)
    )
}

fn error_map(errors: &[Compared<'_>]) -> String {
    let by_name: HashMap<&str, &Compared<'_>> = errors.iter().map(|e| (e.name, e)).collect();
    let grid = Grid::of(errors.iter().map(|e| e.name), |name| {
        let found = by_name.get(name)?;
        let (value, text) = if found.outcome == Outcome::Equal {
            (0.0, "same".to_owned())
        } else {
            let relative = found.error()?.sums.relative();
            (relative, format!("{:.2} %", relative * 100.0))
        };
        let title = format!("{name}: {} against {}", found.type_b, found.type_a);
        Some(Cell { value, text, title })
    });
    format!(
        "<h2>Error against the other model</h2>\
         <p>Root of the mean squared error, in percent of the root mean square of the other model's weights.</p>{}",
        html::heat(&grid, "heat", false)
    )
}

//! Plans and results for people and for programs.

use std::time::Duration;

use gguf_cli::{count, human_bytes};
use serde::Serialize;

use crate::job::{Job, Target};
use crate::plan::{Coverage, Plan};

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    input: String,
    output: String,
    file_type: &'a str,
    bytes: u64,
    data_bytes: u64,
    bits_per_weight: f64,
    tensors_chosen: usize,
    tensors_fallback: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    warnings: &'a [String],
    notes: &'a [String],
    tensors: Vec<Row<'a>>,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    name: &'a str,
    shape: &'a [u64],
    from: &'a str,
    to: &'a str,
    reason: String,
    bytes: u64,
    /// Share of matrices with importance; absent where none is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    importance: Option<f64>,
}

/// Plan, or with `took` the result.
pub(crate) fn of<'a>(job: &Job, target: &'a Target, plan: &'a Plan, took: Option<Duration>) -> Report<'a> {
    let steps = plan.steps.iter().zip(&plan.layout.tensors);
    let tensors = steps.map(|(s, out)| Row {
        name: &s.source.name,
        shape: s.source.shape.dims(),
        from: s.from.name,
        to: s.to.name,
        reason: s.reason.to_string(),
        bytes: out.n_bytes,
        importance: match s.coverage {
            Coverage::Unused => None,
            Coverage::Missing => Some(0.0),
            Coverage::Share(share) => Some(share),
        },
    });
    Report {
        input: job.input.display().to_string(),
        output: target.output.display().to_string(),
        file_type: target.type_name,
        bytes: plan.layout.total_bytes,
        data_bytes: plan.data_bytes(),
        bits_per_weight: plan.bits_per_weight(),
        tensors_chosen: plan.n_chosen,
        tensors_fallback: plan.n_fallback,
        seconds: took.map(|t| t.as_secs_f64()),
        warnings: &plan.warnings,
        notes: &plan.notes,
        tensors: tensors.collect(),
    }
}

/// The plan as a table, a row a tensor.
pub(crate) fn table(plan: &Plan) -> String {
    let rows: Vec<Vec<String>> = plan
        .steps
        .iter()
        .zip(&plan.layout.tensors)
        .map(|(s, out)| {
            let importance = match s.coverage {
                Coverage::Unused => String::new(),
                Coverage::Missing => "none".to_owned(),
                Coverage::Share(share) => format!("{:.0} %", share * 100.0),
            };
            let name = s.source.name.clone();
            let (from, to) = (s.from.name.to_owned(), s.to.name.to_owned());
            vec![
                name,
                s.source.shape.to_string(),
                from,
                to,
                s.reason.to_string(),
                importance,
                out.n_bytes.to_string(),
            ]
        })
        .collect();
    gguf_cli::table(
        &["tensor", "shape", "from", "to", "why", "imatrix", "bytes"],
        &rows,
        &[6],
    )
}

/// One line: what comes out.
pub(crate) fn summary(target: &Target, plan: &Plan, took: Option<Duration>) -> String {
    let time = took.map_or(String::new(), |t| format!(", {:.1} s", t.as_secs_f64()));
    format!(
        "{} `{}`: {}, {} bytes ({}), {:.3} bits per weight, {} of {} encoded{time}",
        if took.is_some() { "wrote" } else { "would write" },
        target.output.display(),
        target.type_name,
        plan.layout.total_bytes,
        human_bytes(plan.layout.total_bytes),
        plan.bits_per_weight(),
        plan.steps.iter().filter(|s| !s.is_copy()).count(),
        count(plan.steps.len() as u64, "tensor"),
    )
}

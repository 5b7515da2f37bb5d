//! Plans and results for people and for programs.

mod sums;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use gguf::atomic::AtomicFile;
use gguf::short;
use gguf_cli::{Result, count, human_bytes};
use serde::Serialize;

use crate::job::{Job, Target};
use crate::plan::{Coverage, Plan};
use crate::shards::Shards;
use crate::verify::{self, Loss, TensorLoss};

pub(crate) use sums::Needs;
use sums::Sum;

/// What there is to say of one target.
pub(crate) struct View<'a> {
    pub(crate) target: &'a Target,
    pub(crate) plan: &'a Plan,
    pub(crate) shards: &'a Shards,
    /// What sampled rows of each tensor lost; empty before the work and without verification.
    pub(crate) losses: &'a [Option<Loss>],
    /// `None` for a plan.
    pub(crate) took: Option<Duration>,
    /// What all targets together need of the machine.
    pub(crate) needs: Needs,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    input: String,
    outputs: Vec<String>,
    file_type: &'a str,
    bytes: u64,
    /// Bytes of all shards, where this run writes only some.
    #[serde(skip_serializing_if = "Option::is_none")]
    set_bytes: Option<u64>,
    data_bytes: u64,
    bits_per_weight: f64,
    tensors_chosen: usize,
    tensors_fallback: usize,
    /// What fallback types add.
    fallback_bits_per_weight: f64,
    needs: Needs,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    problems: Vec<String>,
    warnings: &'a [String],
    notes: &'a [String],
    by_role: Vec<Sum<'a>>,
    by_type: Vec<Sum<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roles: Vec<RoleLoss<'a>>,
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

/// What encoding lost in one part of the model.
#[derive(Debug, Serialize)]
pub(crate) struct RoleLoss<'a> {
    role: &'a str,
    sampled_rows: u64,
    weighted_error: f64,
    error: f64,
}

/// What `--report` writes; `gguf-inspect report --errors` reads it.
#[derive(Debug, Serialize)]
struct LossFile<'a> {
    tool: &'a str,
    input: String,
    outputs: Vec<Losses<'a>>,
}

#[derive(Debug, Serialize)]
struct Losses<'a> {
    file_type: &'a str,
    roles: Vec<RoleLoss<'a>>,
    tensors: Vec<TensorLoss<'a>>,
}

fn role_losses<'a>(view: &View<'a>) -> Vec<RoleLoss<'a>> {
    let losses = verify::role_losses(&view.plan.steps, view.losses).into_iter();
    losses
        .map(|(role, loss)| RoleLoss {
            role,
            sampled_rows: loss.n_rows,
            weighted_error: loss.weighted_error(),
            error: loss.error(),
        })
        .collect()
}

/// Writes the losses of all tensors as JSON.
pub(crate) fn write_losses(
    path: &Path,
    force: bool,
    inputs: &[&Path],
    job: &Job<'_>,
    views: &[View<'_>],
) -> Result<()> {
    let outputs = views.iter().map(|view| Losses {
        file_type: view.target.type_name,
        roles: role_losses(view),
        tensors: verify::tensor_losses(&view.plan.steps, view.losses),
    });
    let mut json = serde_json::to_vec_pretty(&LossFile {
        tool: concat!("gguf-quantize ", env!("CARGO_PKG_VERSION")),
        input: gguf_cli::file_name(job.input).into_owned(),
        outputs: outputs.collect(),
    })
    .expect("numbers and texts are JSON");
    json.push(b'\n');
    let mut out = AtomicFile::create(path, force, inputs, Some(json.len() as u64))?;
    out.write_all(&json)
        .map_err(|e| gguf::Error::from_write(e, path))?;
    Ok(out.commit()?)
}

/// What was lost, a line for each part of the model.
pub(crate) fn losses(view: &View<'_>) -> Vec<String> {
    let line = |r: RoleLoss<'_>| {
        format!(
            "{}: relative error {:.3e} weighted, {:.3e} plain ({} sampled)",
            r.role,
            r.weighted_error,
            r.error,
            count(r.sampled_rows, "row")
        )
    };
    role_losses(view).into_iter().map(line).collect()
}

/// The plan, or with `took` the result.
pub(crate) fn of<'a>(job: &Job<'_>, view: &View<'a>) -> Report<'a> {
    let View {
        target,
        plan,
        shards,
        took,
        needs,
        ..
    } = *view;
    let mine = shards.outputs();
    let tensors = plan.steps.iter().map(|s| Row {
        name: &s.name,
        shape: s.source.shape.dims(),
        from: s.from.name,
        to: s.to.name,
        reason: plan.why(s),
        bytes: s.n_bytes(),
        importance: s.coverage.share(),
    });
    Report {
        input: job.input.display().to_string(),
        outputs: mine.iter().map(|(p, _)| p.display().to_string()).collect(),
        file_type: target.type_name,
        bytes: mine.iter().map(|(_, n)| n).sum(),
        set_bytes: (mine.len() < shards.n_files()).then(|| shards.total_bytes()),
        data_bytes: plan.data_bytes(),
        bits_per_weight: plan.bits_per_weight(),
        tensors_chosen: plan.n_chosen,
        tensors_fallback: plan.n_fallback,
        fallback_bits_per_weight: plan.fallback_bits_per_weight(),
        needs,
        seconds: took.map(|t| t.as_secs_f64()),
        problems: plan.problems(),
        warnings: &plan.warnings,
        notes: &plan.notes,
        by_role: sums::by_role(plan),
        by_type: sums::by_type(plan),
        roles: role_losses(view),
        tensors: tensors.collect(),
    }
}

/// The whole plan for people: tensors, sums, what it costs and needs.
pub(crate) fn plan(view: &View<'_>) -> String {
    let mut text = format!("{}\n\n{}\n", table(view), sums::tables(view.plan));
    let lines = sums::fallback(view.plan).into_iter().chain(view.needs.lines());
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text + &summary(view)
}

/// A row a tensor.
fn table(view: &View<'_>) -> String {
    let steps = view.plan.steps.iter();
    let rows: Vec<Vec<String>> = steps
        .map(|s| {
            let importance = match s.coverage {
                Coverage::Unused => String::new(),
                Coverage::Missing => "none".to_owned(),
                Coverage::Neutral => "neutral".to_owned(),
                Coverage::Found(ref found) => format!("{:.0} %", found.share() * 100.0),
            };
            let name = s.name.clone();
            let (from, to) = (s.from.name.to_owned(), s.to.name.to_owned());
            vec![
                name,
                s.source.shape.to_string(),
                from,
                to,
                short(&view.plan.why(s)).into_owned(),
                importance,
                s.n_bytes().to_string(),
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
pub(crate) fn summary(view: &View<'_>) -> String {
    let View {
        plan, shards, took, ..
    } = *view;
    let time = took.map_or(String::new(), |t| format!(", {:.1} s", t.as_secs_f64()));
    let mine = shards.outputs();
    let path = mine
        .first()
        .map_or_else(String::new, |(p, _)| format!(" `{}`", p.display()));
    let set = match mine.len() {
        0 | 1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    let of_set = if mine.len() == shards.n_files() {
        String::new()
    } else {
        format!(
            ", {} of {} of the set",
            mine.len(),
            count(shards.n_files() as u64, "shard")
        )
    };
    let bytes = mine.iter().map(|(_, n)| n).sum();
    let places = shards.places();
    let steps = plan
        .steps
        .iter()
        .zip(&places)
        .filter(|(_, place)| place.is_some());
    let (n_steps, n_encoded) = (steps.clone().count(), steps.filter(|(s, _)| !s.is_copy()).count());
    format!(
        "{}{path}{set}: {}, {bytes} bytes ({}), {:.3} bits per weight, {n_encoded} of {} encoded{of_set}{time}",
        if took.is_some() { "wrote" } else { "would write" },
        view.target.type_name,
        human_bytes(bytes),
        plan.bits_per_weight(),
        count(n_steps as u64, "tensor"),
    )
}

//! `stats FILE`, or `--show-statistics --in-file FILE`.

use std::path::PathBuf;

use gguf_cli::{Failure, Result, print_data, print_json, warn};
use gguf_imatrix_format::stats::{Change, LayerStats, SCHEMA, Statistics, TensorStats};
use gguf_imatrix_format::{Imatrix, Origin};
use serde::Serialize;
use serde_json::{Map, Value as Json};

use crate::args::Args;
use crate::coverage::{Coverage, ENOUGH};
use crate::files;

/// Show what a matrix holds: statistics of each weight and layer, and what the experts saw
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct StatsArgs {
    /// Matrix, of either form
    pub(crate) file: PathBuf,
    /// Rank the weights by a statistic, largest first; with a minus in front, smallest first
    #[arg(long, value_name = "STATISTIC", allow_hyphen_values = true, value_parser = parse_sort)]
    pub(crate) sort: Option<Sort>,
    /// Tokens that each expert should have seen [default: 64]; if it is given and one saw fewer the exit code is 1
    #[arg(long, value_name = "N")]
    pub(crate) min_expert_tokens: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// An order of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sort {
    /// Place in [`SCHEMA`].
    by: usize,
    ascending: bool,
}

fn parse_sort(text: &str) -> std::result::Result<Sort, String> {
    let (ascending, name) = match text.strip_prefix('-') {
        Some(name) => (true, name),
        None => (false, text),
    };
    let by = SCHEMA.iter().position(|s| *s == name);
    let by = by.ok_or_else(|| format!("expected one of {}", SCHEMA.join(", ")))?;
    Ok(Sort { by, ascending })
}

/// Runs the command.
pub(crate) fn run(args: &StatsArgs) -> Result<()> {
    let imatrix = files::read(&args.file)?;
    let mut found = Statistics::of(&imatrix);
    if let Some(sort) = args.sort {
        rank(&mut found.tensors, sort);
    }
    let coverage = Coverage::of(&imatrix.entries, args.min_expert_tokens.unwrap_or(ENOUGH));
    let is_met = args.min_expert_tokens.is_none() || coverage.below() == 0;
    let end = if is_met { Ok(()) } else { Err(Failure::Reported) };
    if args.json {
        print_json(&Report::of(&imatrix, &found, &coverage))?;
        return end;
    }
    print_data(&tensor_table(&found.tensors))?;
    if !found.layers.is_empty() {
        print_data(&format!("\n{}", layer_table(&found.layers)))?;
    }
    if coverage.has_experts() {
        print_data(&format!("\n{}", coverage.table()))?;
    }
    for line in missing_layers(&found.layers).iter().chain(&coverage.warning()) {
        warn(line);
    }
    end
}

/// What is NaN comes last.
fn rank(tensors: &mut [TensorStats], sort: Sort) {
    tensors.sort_by(|a, b| {
        let (a, b) = (a.values[sort.by], b.values[sort.by]);
        let order = if sort.ascending {
            a.total_cmp(&b)
        } else {
            b.total_cmp(&a)
        };
        a.is_nan().cmp(&b.is_nan()).then(order)
    });
}

/// A layer that lacks in between is a sign of a file that was cut or merged badly.
fn missing_layers(layers: &[LayerStats]) -> Option<String> {
    let (first, last) = (layers.first()?.layer, layers.last()?.layer);
    let n = u64::from(last - first) + 1 - layers.len() as u64;
    (n > 0).then(|| {
        format!("layers {first} to {last}: {n} of them have no entry; changes are against the layer before that has")
    })
}

/// A number as a table has it.
fn cell(v: f64, decimals: usize) -> String {
    if v.is_nan() {
        "-".to_owned()
    } else if v != 0.0 && v.abs() < 0.5 * 10_f64.powi(-(decimals as i32)) {
        format!("{v:.1e}")
    } else {
        format!("{v:.decimals$}")
    }
}

/// Headers and decimals of the statistics, in the order of [`SCHEMA`].
const COLUMNS: [(&str, usize); SCHEMA.len()] = [
    ("∑ E[A²]", 4),
    ("μ", 4),
    ("N", 0),
    ("σ", 4),
    ("skewness", 3),
    ("kurtosis", 3),
    ("gain", 4),
    ("H norm %", 2),
    ("L2", 4),
    ("cos", 4),
    ("PCC", 4),
    ("cov", 4),
];

fn tensor_table(tensors: &[TensorStats]) -> String {
    let headers: Vec<&str> = ["layer", "tensor"]
        .into_iter()
        .chain(COLUMNS.map(|(h, _)| h))
        .collect();
    let row = |t: &TensorStats| {
        let layer = t.layer.map_or_else(|| "-".to_owned(), |l| l.to_string());
        let values = t.values.iter().zip(COLUMNS);
        let values = values.map(|(v, (_, decimals))| cell(*v, decimals));
        [layer, gguf::short(&t.name).into_owned()]
            .into_iter()
            .chain(values)
            .collect()
    };
    let right: Vec<usize> = (2..headers.len()).chain([0]).collect();
    gguf_cli::table(&headers, &tensors.iter().map(row).collect::<Vec<_>>(), &right)
}

fn layer_table(layers: &[LayerStats]) -> String {
    let row = |l: &LayerStats| {
        let c = l.change;
        let mut row = vec![l.layer.to_string(), cell(l.sum_sq, 4)];
        row.extend([c.gain, c.l2_dist, c.cossim, c.pearson, c.covariance].map(|v| cell(v, 4)));
        row
    };
    gguf_cli::table(
        &["layer", "∑ E[A²]", "gain", "L2", "cos", "PCC", "cov"],
        &layers.iter().map(row).collect::<Vec<_>>(),
        &[0, 1, 2, 3, 4, 5, 6],
    )
}

/// What `--json` prints. Statistics that there are none of are null.
#[derive(Serialize)]
struct Report<'a> {
    datasets: &'a [String],
    chunk_count: u32,
    chunk_size: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<Json>,
    tensors: Vec<Json>,
    layers: Vec<Json>,
    coverage: Json,
}

impl<'a> Report<'a> {
    fn of(imatrix: &'a Imatrix, found: &Statistics, coverage: &Coverage) -> Self {
        Self {
            datasets: &imatrix.datasets,
            chunk_count: imatrix.chunk_count,
            chunk_size: imatrix.chunk_size,
            origin: imatrix.origin.as_ref().map(origin),
            tensors: found.tensors.iter().map(tensor).collect(),
            layers: found.layers.iter().map(layer).collect(),
            coverage: coverage.json(),
        }
    }
}

fn origin(origin: &Origin) -> Json {
    let model = origin.model.as_ref().map(|m| {
        serde_json::json!({
            "architecture": m.architecture, "fingerprint": m.fingerprint, "settings": m.settings,
        })
    });
    serde_json::json!({ "model": model, "texts": origin.texts, "tool": origin.tool })
}

fn tensor(t: &TensorStats) -> Json {
    let mut out = Map::new();
    out.insert("name".to_owned(), t.name.as_str().into());
    out.insert("layer".to_owned(), t.layer.into());
    for (name, v) in SCHEMA.iter().zip(t.values) {
        let v = if *name == "elements" {
            Json::from(v as u64)
        } else {
            v.into()
        };
        out.insert((*name).to_owned(), v);
    }
    out.into()
}

fn layer(l: &LayerStats) -> Json {
    let Change {
        gain,
        l2_dist,
        cossim,
        pearson,
        covariance,
    } = l.change;
    serde_json::json!({
        "layer": l.layer, "sum_sq": l.sum_sq, "gain": gain, "l2_dist": l2_dist, "cossim": cossim,
        "pearson": pearson, "covariance": covariance,
    })
}

/// The one file whose statistics are asked for by the options of the reference.
pub(crate) fn of_in_files(args: &Args) -> Result<()> {
    match args.in_file.as_slice() {
        [] => Err(Failure::Usage(
            "`--show-statistics` needs a matrix: `--in-file FILE`".to_owned(),
        )),
        [first, rest @ ..] => {
            if !rest.is_empty() && !args.talk.quiet {
                warn("`--show-statistics` shows the first of the files only");
            }
            run(&StatsArgs {
                file: first.clone(),
                sort: None,
                min_expert_tokens: args.min_expert_tokens,
                json: args.json,
            })
        }
    }
}

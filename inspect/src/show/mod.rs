//! `show`: what a model is.

mod facts;
mod summary;
mod text;

use std::path::PathBuf;

use clap::Args as ClapArgs;
use gguf::{GgufFile, OpenOptions, Outline, Value, key, validate};
use gguf_cli::{Failure, Result, count, in_file, print_json, printable, warn, write_data, write_report};
use serde::Serialize;

pub(crate) use facts::{Sums, Totals};
use facts::{Tensor, tensors};
pub(crate) use summary::{Summary, human_count};

use crate::json::JsonValue;

#[derive(ClapArgs, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of the command line"
)]
pub(crate) struct Args {
    /// A GGUF file, any shard of a split set, a folder with one model, or an address
    file: PathBuf,
    /// Write JSON, with arrays and strings in full
    #[arg(long)]
    json: bool,
    /// Only the tensors
    #[arg(long)]
    tensors: bool,
    /// Only the metadata
    #[arg(long)]
    metadata: bool,
    /// Only the value of this metadata key, in full: a string as it stands, an array as one line for each element
    #[arg(long, value_name = "KEY", conflicts_with_all = ["tensors", "metadata"])]
    key: Option<String>,
    /// Browse in the terminal
    #[cfg(feature = "tui")]
    #[arg(long, conflicts_with_all = ["json", "tensors", "metadata", "key"])]
    tui: bool,
}

/// The parts of a report.
#[derive(Clone, Copy, Debug)]
struct Sections {
    summary: bool,
    metadata: bool,
    tensors: bool,
}

impl Sections {
    /// Summary and metadata, unless parts are named. JSON leaves nothing out.
    fn of(args: &Args) -> Self {
        let all = !(args.metadata || args.tensors);
        Self {
            summary: all,
            metadata: all || args.metadata,
            tensors: args.tensors || (all && args.json),
        }
    }
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    header: Option<facts::Header>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<facts::Totals>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Vec<facts::Pair<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensors: Option<Vec<Tensor<'a>>>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    #[cfg(feature = "tui")]
    if args.tui {
        return crate::tui::run(&args.file);
    }
    let sections = Sections::of(args);
    if let Some(key) = &args.key {
        return value(args, key);
    }
    if args.json {
        let file = OpenOptions::new().incomplete().open(&args.file)?;
        print_json(&Whole {
            header: sections.summary.then(|| facts::Header::of(&file)),
            summary: sections.summary.then(|| Summary::of(&file)),
            totals: sections.summary.then(|| facts::Totals::of(&file)),
            metadata: sections.metadata.then(|| facts::pairs(&file.metadata)),
            tensors: sections.tensors.then(|| tensors(&file)),
        })?;
        warn_of_damage(&file);
        return Ok(());
    }
    let mut options = OpenOptions::new().incomplete();
    if sections.summary {
        // Special tokens are shown by their text.
        options = options.whole(key::TOKENS);
    }
    let outline: Outline = options.outline(&args.file, text::N_ITEMS)?;
    write_report(|out| text::show(out, &outline, sections))?;
    warn_of_damage(outline.file());
    Ok(())
}

/// What is wrong does not keep a model from being shown; the exit code stays 0.
fn warn_of_damage(file: &GgufFile) {
    let path = file.path().display();
    let n = validate::layout(file).iter().filter(|f| f.severe).count();
    if n > 0 {
        let n = count(n as u64, "finding");
        warn(&format!(
            "`{path}` is damaged ({n}): see `gguf-inspect check {path}`"
        ));
    }
    let mut unknown = file.tensors.iter().filter(|t| t.format().is_none());
    if let Some(first) = unknown.next() {
        let n = count(1 + unknown.count() as u64, "tensor");
        warn(&format!(
            "`{path}`: {n} of a type that this build does not know, the first is `{}` of {}: sizes are the room up \
             to what comes next",
            printable(&first.name),
            first.type_name()
        ));
    }
}

fn value(args: &Args, key: &str) -> Result<()> {
    let file = OpenOptions::new()
        .incomplete()
        .open(&args.file)
        .map_err(in_file(&args.file))?;
    let Some(value) = file.metadata.get(key) else {
        let path = args.file.display();
        return Err(Failure::Input(format!(
            "`{path}` has no metadata key `{key}`: `--metadata` lists them"
        )));
    };
    if args.json {
        print_json(&JsonValue(value))
    } else if let Value::String(s) = value {
        write_data(|out| writeln!(out, "{s}"))
    } else {
        write_data(|out| text::value(out, value))
    }
}

//! `diff`: what sets one model apart from another, whatever their types, splits and orders of tensors.

pub(crate) mod error;
mod metadata;
mod report;
mod tensors;

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};
use gguf::GgufFile;
use gguf_cli::{Failure, Result, TalkArgs, ThreadArgs, print_json, write_report};
use regex::Regex;

use self::report::Report;

#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// The model to compare with: a GGUF file, any shard of a split set, or a folder
    a: PathBuf,
    /// The other model
    b: PathBuf,
    /// Read the weights and give the error of B against A for each tensor
    #[arg(long)]
    data: bool,
    /// Only tensors whose name this regular expression finds
    #[arg(long, value_name = "REGEX")]
    filter: Option<Regex>,
    /// Order of the table of errors
    #[arg(long, value_enum, default_value_t = Sort::Relative)]
    sort: Sort,
    /// Rows of a table, and values of an array, that are shown; 0 shows all
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Exit 1 also where only the layout differs: order, places, alignment, split
    #[arg(long)]
    strict: bool,
    /// Write JSON, with nothing shortened
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    talk: TalkArgs,
}

/// By what errors are sorted; the largest stand first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// RMSE over the root mean square of A
    Relative,
    Rmse,
    /// Largest absolute error
    Max,
    /// Least cosine first
    Cosine,
    /// Relative error of the worst row
    Row,
    Name,
    /// The order in A
    File,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (a, b) = (GgufFile::open(&args.a)?, GgufFile::open(&args.b)?);
    let wanted = |name: &str| args.filter.as_ref().is_none_or(|f| f.is_match(name));
    let metadata = match args.filter {
        None => metadata::compare(&a.metadata, &b.metadata),
        Some(_) => metadata::Differences::default(),
    };
    let tensors = tensors::compare(&a, &b, &wanted);
    let errors = if args.data {
        a.require_sound()?;
        b.require_sound()?;
        let pool = args.threads.pool()?;
        let mut errors = error::compute(&a, &b, &tensors.pairs, &pool, args.talk.quiet)?;
        sort(&mut errors, args.sort);
        Some(errors)
    } else {
        None
    };
    let report = Report::new(&a, &b, metadata, tensors, errors);
    if args.json {
        print_json(&report)?;
    } else {
        let top = if args.top == 0 { usize::MAX } else { args.top };
        write_report(|out| report.write(out, top))?;
    }
    if report.equal() && !(args.strict && report.layout_differs()) {
        Ok(())
    } else {
        Err(Failure::Reported)
    }
}

/// Those without numbers stand behind the others.
fn sort(errors: &mut [error::Compared<'_>], by: Sort) {
    let key = |c: &error::Compared<'_>| {
        let e = c.error()?;
        Some(match by {
            Sort::Relative => e.sums.relative(),
            Sort::Rmse => e.sums.rmse(),
            Sort::Max => e.max.map_or(0.0, |m| m.abs),
            Sort::Cosine => -e.sums.cosine().unwrap_or(0.0),
            Sort::Row => e.worst_row.as_ref().map_or(0.0, |r| r.relative),
            Sort::Name | Sort::File => 0.0,
        })
    };
    match by {
        Sort::File => {}
        Sort::Name => errors.sort_by(|x, y| x.name.cmp(y.name)),
        // Stable: equal numbers stay in the order of A.
        _ => errors.sort_by(|x, y| {
            let (x, y) = (key(x), key(y));
            let number = |k: Option<f64>| k.unwrap_or(f64::NEG_INFINITY);
            number(y).total_cmp(&number(x))
        }),
    }
}

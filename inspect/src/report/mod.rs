//! `report`: a model on one page, for a browser: no scripts, nothing fetched.

mod html;
mod imatrix;
mod losses;
mod model;
mod page;
mod treemap;

use std::io::Write;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use gguf::atomic::AtomicFile;
use gguf::{GgufFile, OpenOptions};
use gguf_cli::{Failure, OutputArgs, Result, TalkArgs, ThreadArgs, printable, say};
use gguf_imatrix_format::Imatrix;

use crate::diff::error::{self, Compared};
use crate::show::Summary;
use losses::Losses;

#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// A GGUF file, any shard of a split set, a folder with one model, or an address
    file: PathBuf,
    /// The page to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Show what this importance matrix says of each tensor
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,
    /// Show the error of each tensor against this model, which the file was made from
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Show the error of each tensor that `gguf-quantize --report` wrote to this file
    #[arg(long, value_name = "FILE")]
    errors: Option<PathBuf>,
    #[command(flatten)]
    replace: OutputArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    talk: TalkArgs,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let options = [&args.imatrix, &args.compare, &args.errors];
    let inputs: Vec<&std::path::Path> = std::iter::once(&args.file)
        .chain(options.into_iter().flatten())
        .map(PathBuf::as_path)
        .collect();
    // The name is checked before the weights of two models are read.
    let mut out = AtomicFile::create(&args.output, args.replace.force, &inputs, None)?;
    let file = OpenOptions::new().incomplete().open(&args.file)?;
    let matrix = args.imatrix.as_ref().map(|path| Imatrix::read(path)).transpose();
    let matrix = matrix.map_err(|e| Failure::Input(e.to_string()))?;
    if let (Some(matrix), Some(path)) = (&matrix, &args.imatrix) {
        imatrix::check(matrix, path, &file)?;
    }
    let base = args
        .compare
        .as_ref()
        .map(|path| GgufFile::open(path))
        .transpose()?;
    let errors = base.as_ref().map(|base| compare(base, &file, args)).transpose()?;
    let summary = Summary::of(&file);
    let losses = args.errors.as_ref();
    let losses = losses
        .map(|path| Losses::read(path, &file, summary.file_type.as_deref()))
        .transpose()?;
    let page = page::page(
        &file,
        &summary,
        &page::Extras {
            matrix: matrix.as_ref(),
            compared: errors.as_deref(),
            losses: losses.as_ref(),
        },
    );
    out.write_all(page.as_bytes())
        .map_err(|e| gguf::Error::from_write(e, &args.output))?;
    out.commit()?;
    if !args.talk.quiet {
        say(&format!(
            "wrote `{}`",
            printable(&args.output.display().to_string())
        ));
    }
    Ok(())
}

/// The errors of the tensors that two models have in common.
fn compare<'a>(base: &'a GgufFile, file: &'a GgufFile, args: &Args) -> Result<Vec<Compared<'a>>> {
    file.require_sound()?;
    base.require_sound()?;
    let pairs = base
        .tensors
        .iter()
        .filter_map(|a| Some((a, file.tensor(&a.name)?)));
    let pairs: Vec<_> = pairs.filter(|(a, b)| a.shape == b.shape).collect();
    if pairs.is_empty() {
        return Err(Failure::Input(format!(
            "`{}` and `{}` have no tensor of the same name and shape: there is nothing to compare",
            base.path().display(),
            file.path().display()
        )));
    }
    error::compute(base, file, &pairs, &args.threads.pool()?, args.talk.quiet)
}

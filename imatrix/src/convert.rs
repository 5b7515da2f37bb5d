//! `convert IN OUT`: a matrix in the other form, or with a prior for experts that saw few tokens.

use std::path::PathBuf;

use gguf::atomic::AtomicFile;
use gguf_cli::{Failure, OutputArgs, Result, TalkArgs, count, say, warn};

use crate::args::Form;
use crate::files;

/// Write a matrix in another form, and say what that loses
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ConvertArgs {
    /// Matrix, of either form
    pub(crate) input: PathBuf,
    /// Where the result goes
    pub(crate) output: PathBuf,
    /// Form of the result; without this option that of OUTPUT's name: `dat` if it ends so, else `gguf`
    #[arg(long, value_enum)]
    pub(crate) output_format: Option<Form>,
    /// Add N tokens of the tensor's mean to each expert, for quantizers that have no such option
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) prior: Option<u32>,
    #[command(flatten)]
    pub(crate) force: OutputArgs,
    #[command(flatten)]
    pub(crate) talk: TalkArgs,
}

impl ConvertArgs {
    fn form(&self) -> Form {
        self.output_format
            .unwrap_or(if Form::is_legacy_name(&self.output) {
                Form::Dat
            } else {
                Form::Gguf
            })
    }
}

/// Runs the command.
pub(crate) fn run(args: &ConvertArgs) -> Result<()> {
    let mut imatrix = files::read(&args.input)?;
    let was_legacy = imatrix.chunk_size == 1 && imatrix.origin.is_none();
    let form = args.form();
    let mut told = Vec::new();
    if let Some(prior) = args.prior {
        let n = imatrix.bake_prior(prior);
        if n == 0 {
            return Err(Failure::Input(format!(
                "`{}`: `--prior` needs counts of single experts, found none",
                args.input.display()
            )));
        }
        told.push(format!(
            "counts of {} hold {} of the tensor's mean in each expert from now on",
            count(n as u64, "weight"),
            count(prior.into(), "token")
        ));
    }
    if was_legacy && form == Form::Gguf {
        told.push(
            "the legacy form had lost the counts of single experts and the plain sums: they stay lost, and counts are \
             chunks"
                .to_owned(),
        );
    }
    told.extend(files::lost(&imatrix, form));
    let out = AtomicFile::create(&args.output, args.force.force, &[&args.input], None)?;
    files::write(&imatrix, form, out)?;
    if !args.talk.quiet {
        for line in &told {
            warn(line);
        }
        say(&format!(
            "wrote `{}`: {}",
            args.output.display(),
            count(imatrix.entries.len() as u64, "weight")
        ));
    }
    Ok(())
}

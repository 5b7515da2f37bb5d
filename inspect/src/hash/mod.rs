//! `hash`: SHA-256 of each file, of each tensor and of each metadata value; a manifest of them, and its check.

mod digest;
mod manifest;
mod verify;

use std::path::PathBuf;

use clap::Args as ClapArgs;
use gguf::GgufFile;
use gguf::atomic::AtomicFile;
use gguf_cli::{
    OutputArgs, Result, TalkArgs, ThreadArgs, count, print_json, printable, read_text, say, write_data,
};

use self::manifest::Manifest;

#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// The GGUF file, any shard of a split set, or the folder of a model
    file: PathBuf,
    /// Write the manifest to this file instead of the standard output
    #[arg(short, long, value_name = "MANIFEST", conflicts_with = "verify")]
    output: Option<PathBuf>,
    /// Compare with a manifest (or a list that `sha256sum` wrote) and name what differs
    #[arg(long, value_name = "MANIFEST")]
    verify: Option<PathBuf>,
    /// Leave out the digests of whole files, which cannot be computed in parallel
    #[arg(long)]
    tensors_only: bool,
    /// Write JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    replace: OutputArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    talk: TalkArgs,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let file = GgufFile::open(&args.file)?;
    let expected = args.verify.as_deref();
    let expected = expected.map(|path| Manifest::of_model(&file, &read_text(path)?, path));
    let expected = expected.transpose()?;
    let pool = args.threads.pool()?;
    let whole_files = !args.tensors_only && expected.as_ref().is_none_or(|m| !m.files.is_empty());
    let digests = digest::compute(&file, whole_files, &pool, args.talk.quiet)?;
    if let Some(expected) = expected {
        return verify::run(&file, &digests, &expected, args.json);
    }
    digest::require_all(&file, &digests)?;
    let manifest = Manifest::of(&file, &digests);
    if let Some(path) = &args.output {
        let inputs: Vec<_> = file.parts().iter().map(gguf::Part::path).collect();
        let mut out = AtomicFile::create(path, args.replace.force, &inputs, None)?;
        manifest.write(&mut out).map_err(|source| gguf::Error::Io {
            action: "write",
            path: path.clone(),
            source,
        })?;
        out.commit()?;
        if !args.talk.quiet {
            say(&format!(
                "wrote `{}`: digests of {}, {} and {}",
                printable(&path.display().to_string()),
                count(manifest.files.len() as u64, "file"),
                count(manifest.metadata.len() as u64, "metadata value"),
                count(manifest.tensors.len() as u64, "tensor")
            ));
        }
    }
    match (args.json, &args.output) {
        (true, _) => print_json(&manifest),
        (false, None) => write_data(|out| manifest.write(out)),
        (false, Some(_)) => Ok(()),
    }
}

//! The model of a run: a GGUF file, or a checkpoint that is converted while it is read.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gguf_cli::{Failure, Progress, Result, Unit};
use gguf_convert::{Options, open_checkpoint};
use gguf_runtime::Model;

use crate::args::Args;

/// The file that makes a folder a checkpoint.
const CONFIG: &str = "config.json";

/// Opens a model, mapped, in memory or to be read layer by layer.
pub(crate) fn open(args: &Args, path: &Path) -> Result<Model> {
    let quiet = args.talk.quiet;
    if !path.join(CONFIG).is_file() {
        if path.is_dir() && !has_gguf(path) {
            return Err(Failure::Usage(format!(
                "folder `{}`: expected a GGUF file, or a checkpoint with `{CONFIG}`, found neither; name another one",
                path.display()
            )));
        }
        return Ok(args.order.open(path, 0, args.load, quiet)?);
    }
    let options = Options {
        outtype: "auto".to_owned(),
        ..Options::default()
    };
    let checkpoint = open_checkpoint(path, &options).map_err(Failure::from)?;
    let n_bytes = checkpoint.file.n_bytes();
    if args.order.is_layer_major(n_bytes, 0, args.load) {
        args.order.tell(path, n_bytes, quiet);
        return Ok(Model::bind(checkpoint.file)?);
    }
    let progress = Arc::new(Progress::new("reading", n_bytes, Unit::Bytes, quiet));
    let (shown, read) = (Arc::clone(&progress), AtomicU64::new(0));
    let model = Model::read(
        &checkpoint.file,
        &(Arc::new(move |loaded: gguf_runtime::Loaded| {
            read.fetch_add(loaded.piece, Ordering::Relaxed);
            shown.add(loaded.piece);
        }) as gguf_runtime::LoadWatch),
    )?;
    if let Ok(progress) = Arc::try_unwrap(progress) {
        progress.finish();
    }
    Ok(model)
}

/// Whether a folder has a file whose name says GGUF; one that cannot be listed is left to whoever opens it.
fn has_gguf(folder: &Path) -> bool {
    let is_gguf = |e: &std::fs::DirEntry| {
        e.path()
            .extension()
            .is_some_and(|x| x.eq_ignore_ascii_case("gguf"))
    };
    std::fs::read_dir(folder).map_or(true, |mut entries| entries.any(|e| e.as_ref().is_ok_and(is_gguf)))
}

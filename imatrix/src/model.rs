//! The model of a run: a GGUF file, or a checkpoint that is converted while it is read.

use std::path::Path;

use gguf_cli::{Failure, Result};
use gguf_convert::{Options, open_checkpoint};
use gguf_runtime::Model;
use gguf_runtime::options::{Reserve, shown_reading};
use gguf_runtime::pool::off_seat;

use crate::args::Args;
use crate::collect::collected;

/// The file that makes a folder a checkpoint.
const CONFIG: &str = "config.json";

/// Opens a model, mapped, in memory or to be read layer by layer.
pub(crate) fn open(args: &Args, path: &Path) -> Result<Model> {
    let (quiet, settings) = (args.talk.quiet, args.chunks.session_settings());
    let reserve = |model: &Model| reserve(args, model);
    if !path.join(CONFIG).is_file() {
        if path.is_dir() && !has_gguf(path) {
            return Err(Failure::Usage(format!(
                "folder `{}`: expected a GGUF file, or a checkpoint with `{CONFIG}`, found neither; name another one",
                path.display()
            )));
        }
        return Ok(args.order.open(path, &settings, &reserve, args.load, quiet)?);
    }
    if args.load.mlock || args.load.prefetch {
        return Err(Failure::Usage(format!(
            "`--mlock` and `--prefetch` are for GGUF files, and `{}` is a checkpoint; leave them out",
            path.display()
        )));
    }
    let options = Options {
        outtype: "auto".to_owned(),
        ..Options::default()
    };
    // The plan is made on a pool of the kind that conversion uses.
    let pool = off_seat(|| gguf_cli::thread_pool(args.threads.threads))?;
    let checkpoint = pool
        .install(|| open_checkpoint(path, &options))
        .map_err(Failure::from)?;
    let model = Model::bind(checkpoint.file)?;
    if args
        .order
        .is_layer_major(&model, &settings, reserve(&model), args.load)
    {
        args.order.tell(path, model.n_bytes(), quiet);
        return Ok(model);
    }
    Ok(shown_reading(path, quiet, |watch| {
        Model::read(model.file(), &watch)
    })?)
}

/// What a run takes beside the model.
pub(crate) fn reserve<'a>(args: &'a Args, model: &Model) -> Reserve<'a> {
    Reserve {
        bytes: sums_bytes(args, model).saturating_add(gguf_cli::text_memory(args.file.as_slice())),
        n_models: 1,
        temp_dir: gguf::atomic::folder_of(&args.output),
    }
}

/// Bytes of the sums of all weights, at most.
fn sums_bytes(args: &Args, model: &Model) -> u64 {
    if args.no_collect {
        return 0;
    }
    let wanted = collected(model, args.process_output).into_iter();
    let n_values = wanted.map(|w| w.n_cols as u64 * w.n_experts as u64);
    let each = 2 * size_of::<f64>() as u64;
    n_values.fold(0, u64::saturating_add).saturating_mul(each)
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

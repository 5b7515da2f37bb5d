//! Command-line options that the programs over a [`crate::Session`] share.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use clap::Args;
use gguf_cli::{Progress, Unit, file_name, human_bytes, human_time, say};

use crate::chunks::ChunkSettings;
use crate::{Compute, KvType, LoadOptions, Loaded, Model, Prefetch, Result, Settings};

/// How exact a run is: `-ctk`, `-ctv`, `--compute`.
#[derive(Args, Clone, Copy, Debug)]
pub struct ExactnessArgs {
    /// Type of cached keys: `f32`, `f16`, `bf16`, `q8_0`, `q4_0` (short: -ctk)
    #[arg(long, alias = "ctk", value_name = "TYPE", default_value_t)]
    pub cache_type_k: KvType,
    /// Type of cached values (short: -ctv)
    #[arg(long, alias = "ctv", value_name = "TYPE", default_value_t)]
    pub cache_type_v: KvType,
    /// How weights are multiplied: fast, by the kernels of their types, or f32, decoded, for exact comparisons
    #[arg(long, value_name = "HOW", default_value_t)]
    pub compute: Compute,
}

impl ExactnessArgs {
    /// `settings` with what was asked for.
    #[must_use]
    pub fn apply(self, settings: Settings) -> Settings {
        Settings {
            type_k: self.cache_type_k,
            type_v: self.cache_type_v,
            compute: self.compute,
            ..settings
        }
    }
}

/// How the bytes of models are had: `--no-mmap`, `--mlock`, `--prefetch`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct LoadArgs {
    /// Read all of the file into memory first, rather than map it
    #[arg(long)]
    pub no_mmap: bool,
    /// Keep the file's bytes in physical memory (see `ulimit -l`)
    #[arg(long)]
    pub mlock: bool,
    /// Read a mapped file ahead, in the order of its layers, beside other work
    #[arg(long, conflicts_with = "no_mmap")]
    pub prefetch: bool,
}

impl LoadArgs {
    /// The options of [`Model::open_with`].
    pub fn options(self) -> LoadOptions {
        LoadOptions {
            mmap: !self.no_mmap,
            mlock: self.mlock,
            prefetch: if self.prefetch {
                Prefetch::Background
            } else {
                Prefetch::Off
            },
        }
    }

    /// Opens a model: shows how far reading is, and says when all was read ahead, unless `quiet`.
    pub fn open(self, path: &Path, quiet: bool) -> Result<Model> {
        if self.no_mmap {
            return read(path, self.options(), quiet);
        }
        let (start, done) = (Instant::now(), AtomicU64::new(0));
        let name = file_name(path).into_owned();
        let watch = move |loaded: Loaded| {
            let done = done.fetch_add(loaded.piece, Ordering::Relaxed) + loaded.piece;
            if done >= loaded.total && !quiet {
                let (bytes, time) = (human_bytes(loaded.total), human_time(start.elapsed()));
                say(&format!("`{name}`: {bytes} read ahead in {time}"));
            }
        };
        Model::open_watched(path, self.options(), Arc::new(watch))
    }
}

fn read(path: &Path, options: LoadOptions, quiet: bool) -> Result<Model> {
    let shown: Arc<OnceLock<Mutex<Option<Progress>>>> = Arc::default();
    let watched = Arc::clone(&shown);
    let label = format!("reading {}", file_name(path));
    let watch = move |loaded: Loaded| {
        let start = || Mutex::new(Some(Progress::new(&label, loaded.total, Unit::Bytes, quiet)));
        if let Ok(progress) = watched.get_or_init(start).lock()
            && let Some(progress) = &*progress
        {
            progress.add(loaded.piece);
        }
    };
    let model = Model::open_watched(path, options, Arc::new(watch));
    let progress = shown.get().and_then(|p| p.lock().ok()?.take());
    if let Some(progress) = progress {
        progress.finish();
    }
    model
}

/// `-ub`, `--ubatch-size`.
#[derive(Args, Clone, Copy, Debug)]
pub struct UbatchArgs {
    /// Tokens that go through the layers together (short: -ub)
    #[arg(long, aliases = ["ub", "ubatch"], value_name = "N", default_value_t = 512)]
    pub ubatch_size: usize,
}

/// Tokens of a chunk where none are given.
const N_CTX: usize = 512;

/// How a text is cut and evaluated: `-c`, `-b`, `-ub`, `--chunks`.
#[derive(Args, Clone, Copy, Debug)]
pub struct ChunkArgs {
    /// Tokens of a chunk [default: 512]
    #[arg(short = 'c', long, value_name = "N")]
    pub ctx_size: Option<usize>,
    /// Tokens that are evaluated together; whole chunks as far as they fit
    #[arg(short, long, value_name = "N", default_value_t = 2048)]
    pub batch_size: usize,
    #[command(flatten)]
    #[expect(missing_docs, reason = "described by its own options")]
    pub ubatch: UbatchArgs,
    /// Chunks to use at most; all if not given
    #[arg(long, value_name = "N")]
    pub chunks: Option<usize>,
}

impl ChunkArgs {
    /// Tokens of a chunk: as given, else the usual number.
    pub fn n_ctx(&self) -> usize {
        self.ctx_size.unwrap_or(N_CTX)
    }

    /// The settings for chunks of `n_ctx` tokens.
    pub fn settings(&self, n_ctx: usize) -> ChunkSettings {
        ChunkSettings {
            n_ctx,
            n_batch: self.batch_size,
            limit: self.chunks,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        chunks: ChunkArgs,
    }

    #[test]
    fn settings_have_their_usual_values() {
        let parse = |line: &str| Line::try_parse_from(line.split(' '));
        let args = parse("x -b 64 --ub 16 -c 32").unwrap().chunks;
        assert_eq!(
            (args.batch_size, args.ubatch.ubatch_size, args.ctx_size),
            (64, 16, Some(32))
        );
        assert_eq!(parse("x").unwrap().chunks.ubatch.ubatch_size, 512);
        assert!(parse("x --ub").is_err());
        Line::command().debug_assert();
    }
}

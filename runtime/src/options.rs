//! Command-line options that the programs over a [`crate::Session`] share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::time::Instant;

use clap::Args;
use gguf_cli::{
    AddressSpace, Failure, Progress, Unit, file_name, human_bytes, human_time, parse_threads, say,
};

use crate::chunks::{ChunkSettings, Chunks, Evaluator, Wanted};
use crate::layered::PROGRAM;
use crate::pool::{CpuSet, Numa, Placement, Pool, PoolOptions};
use crate::{
    Compute, KvType, LayerStep, Layered, LayeredOptions, LoadOptions, LoadWatch, Loaded, MemoryPlan, Model,
    Prefetch, Result, Session, Settings,
};

/// The part of the help that has the options of placement.
const HEADING: &str = "Placement";

/// Where threads run and memory lies: `--cpu-mask`, `--cpu-range`, `--cpu-strict`, `--numa`, `--huge-pages`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct PlacementArgs {
    /// Processors for the threads, as a hexadecimal mask; those of `--cpu-range` besides
    #[arg(short = 'C', long, value_name = "MASK", value_parser = CpuSet::from_mask, help_heading = HEADING)]
    pub cpu_mask: Option<CpuSet>,
    /// Processors for the threads, such as `0-7` (short: -Cr)
    #[arg(long, alias = "Cr", value_name = "LO-HI", value_parser = CpuSet::from_ranges, help_heading = HEADING)]
    pub cpu_range: Option<CpuSet>,
    /// Whether each thread stays on one processor: 0 or 1
    #[arg(
        long,
        value_name = "0|1",
        default_value_t = 0,
        hide_default_value = true,
        value_parser = clap::value_parser!(u8).range(0..=1),
        help_heading = HEADING
    )]
    pub cpu_strict: u8,
    /// Use of nodes of memory: distribute (over all), isolate (the node that the program started on), numactl (as
    /// numactl gave them)
    #[arg(long, value_name = "HOW", help_heading = HEADING)]
    pub numa: Option<Numa>,
    /// Ask for huge pages for caches, states and activations
    #[arg(long, help_heading = HEADING)]
    pub huge_pages: bool,
}

impl PlacementArgs {
    /// What they ask for.
    pub(crate) fn placement(self) -> Placement {
        let given = self.cpu_mask.into_iter().chain(self.cpu_range);
        Placement {
            cpus: given.reduce(|a, b| a.union(&b)),
            strict: self.cpu_strict == 1,
            numa: self.numa,
            huge_pages: self.huge_pages,
        }
    }
}

/// The threads of a run: `-t`, `-tb`, and their placement.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct PoolArgs {
    /// Threads to generate with, and to compute all else with where `--threads-batch` says nothing; 0, or -1, takes one
    /// for each core
    #[arg(short, long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = parse_threads, allow_negative_numbers = true)]
    pub threads: usize,
    /// Threads for prompts and batches; 0, or -1, takes as many as generate (short: -tb)
    #[arg(
        long,
        alias = "tb",
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        value_parser = parse_threads,
        allow_negative_numbers = true
    )]
    pub threads_batch: usize,
    #[command(flatten)]
    #[expect(missing_docs, reason = "described by its own options")]
    pub placement: PlacementArgs,
}

/// Whether the user was told what of a placement has no effect.
static TOLD: Once = Once::new();

impl PoolArgs {
    /// The threads.
    ///
    /// # Errors
    /// More than there can be; processors that the program may not use, or a system without such options.
    pub fn pool(self) -> gguf_cli::Result<Pool> {
        let options = PoolOptions {
            n_batch: self.threads_batch,
            n_generating: self.threads,
            spins: None,
            placement: self.placement.placement(),
        };
        let pool = Pool::new(&options).map_err(|e| Failure::Usage(format!("threads: {e}")))?;
        // A program may make several pools.
        TOLD.call_once(|| tell_no_effect(&options.placement, &pool));
        Ok(pool)
    }
}

/// Says what of a placement has no effect here.
fn tell_no_effect(placement: &Placement, pool: &Pool) {
    if let Some(why) = placement.lack_of_huge_pages() {
        gguf_cli::warn(&format!("`--huge-pages`: {why}"));
    }
    if placement.numa == Some(Numa::Distribute) && pool.n_nodes() == 1 {
        gguf_cli::warn(
            "`--numa distribute` has no effect: the processors are on one node of memory, as far as the system tells",
        );
    }
}

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
    shown_reading(path, quiet, |watch| Model::open_watched(path, options, watch))
}

/// Reads a model, unless `quiet` with progress under its name.
///
/// # Errors
/// Those of `read`.
pub fn shown_reading(
    path: &Path,
    quiet: bool,
    read: impl FnOnce(LoadWatch) -> Result<Model>,
) -> Result<Model> {
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
    let model = read(Arc::new(watch));
    let progress = shown.get().and_then(|p| p.lock().ok()?.take());
    if let Some(progress) = progress {
        progress.finish();
    }
    model
}

/// In which order chunks are evaluated: `--layer-major`, `--no-layer-major`, `--max-memory`, `--temp-dir`.
#[derive(Args, Clone, Debug, Default)]
pub struct OrderArgs {
    /// Take all chunks through one layer after the other: weights are read once, in order, and need not fit in memory.
    /// Chosen by itself where the model does not fit; results are the same
    #[arg(long, conflicts_with_all = ["no_layer_major", "no_mmap", "mlock", "prefetch"])]
    pub layer_major: bool,
    /// Never do so
    #[arg(long)]
    pub no_layer_major: bool,
    /// Memory to use at most, as 8G; a larger model is evaluated layer by layer [default: what is free]
    #[arg(long, value_name = "SIZE", value_parser = gguf_cli::parse_size)]
    pub max_memory: Option<u64>,
    /// Folder of the temporary file that holds hidden states which do not fit in memory
    #[arg(long, value_name = "DIR")]
    pub temp_dir: Option<PathBuf>,
}

/// What an evaluation of chunks takes beside weights and activations: results that are kept.
#[derive(Clone, Copy, Debug)]
pub struct Reserve<'a> {
    /// Bytes, for all models together.
    pub bytes: u64,
    /// Models that are evaluated beside one another, which share the memory.
    pub n_models: u64,
    /// Folder of temporary files where none was given.
    pub temp_dir: &'a Path,
}

impl OrderArgs {
    /// Whether a model is to be evaluated layer by layer: if that was asked for, or if
    /// its weights and what a session with `settings` takes do not fit. `load` may ask for its bytes in memory.
    pub fn is_layer_major(
        &self,
        model: &Model,
        settings: &Settings,
        reserve: Reserve<'_>,
        load: LoadArgs,
    ) -> bool {
        // What no session can have is told when it is made.
        let beside = MemoryPlan::of(model.spec(), settings).map_or(0, |p| p.kv.saturating_add(p.scratch));
        let needed = [beside, PROGRAM]
            .into_iter()
            .fold(model.n_bytes(), u64::saturating_add);
        let limit = self.limit(gguf_cli::available_memory);
        let limit = limit.map(|limit| limit.saturating_sub(reserve.bytes) / reserve.n_models.max(1));
        let too_large = limit.is_some_and(|limit| needed > limit);
        self.layer_major || (!self.is_elsewhere(load) && too_large)
    }

    /// Bytes that may be used in all: as given, else as `usual` says. A limit of the address space holds in either case.
    fn limit(&self, usual: impl FnOnce() -> Option<u64>) -> Option<u64> {
        // Of what the program itself takes, most is there by now.
        let space = AddressSpace::now().map(|space| space.left().saturating_add(PROGRAM / 2));
        let given = self.max_memory.or_else(usual);
        given.into_iter().chain(space).min()
    }

    /// Whether the weights are to be where they are in a usual run, whatever fits.
    fn is_elsewhere(&self, load: LoadArgs) -> bool {
        self.no_layer_major || load.no_mmap || load.mlock
    }

    /// Opens a model for the evaluation of chunks, mapped or to be read layer by layer; says so in the latter case,
    /// unless `quiet`. The session would have `settings`.
    pub fn open<'r>(
        &self,
        path: &Path,
        settings: &Settings,
        reserve: &dyn Fn(&Model) -> Reserve<'r>,
        load: LoadArgs,
        quiet: bool,
    ) -> Result<Model> {
        if self.is_elsewhere(load) {
            return load.open(path, quiet);
        }
        let by_layer = |model: &Model| self.is_layer_major(model, settings, reserve(model), load);
        // Most models fit, and are opened once. A map takes as many addresses as the file has bytes, though, and where
        // these are limited it must not be tried before it is known that all else has some.
        let limited = self.max_memory.is_some() || AddressSpace::now().is_some();
        if !self.layer_major && limited && !by_layer(&Model::open_streamed(path)?) {
            return load.open(path, quiet);
        }
        let mapped = (!self.layer_major && !limited).then(|| load.open(path, quiet));
        if let Some(Ok(model)) = &mapped
            && !by_layer(model)
        {
            return mapped.expect("it is some");
        }
        let model = Model::open_streamed(path)?;
        // What cannot be mapped may be too large for it; nothing else is an excuse.
        if let Some(Err(e)) = mapped
            && !by_layer(&model)
        {
            return Err(e);
        }
        self.tell(path, model.n_bytes(), quiet);
        Ok(model)
    }

    /// Says that a model is read layer by layer, where nobody asked for it.
    pub fn tell(&self, path: &Path, n_bytes: u64, quiet: bool) {
        if !self.layer_major && !quiet {
            say(&format!(
                "`{}` has {}, more than fits in memory: it is read layer by layer (`--no-layer-major` maps it)",
                file_name(path),
                human_bytes(n_bytes)
            ));
        }
    }

    /// What evaluates `texts`, of which the logits of `wanted` are wanted, with a model as [`OrderArgs::open`] opened it.
    pub fn evaluator<'m>(
        &self,
        model: &'m Model,
        settings: Settings,
        texts: &[&Chunks],
        wanted: Wanted,
        reserve: Reserve<'_>,
    ) -> Result<Evaluator<'m>> {
        if model.is_resident() {
            return Ok(Evaluator::Session(Session::new(model, settings)?));
        }
        let limit = self.limit(LayeredOptions::usual_limit);
        let options = LayeredOptions {
            max_memory: limit.map(|limit| limit.saturating_sub(reserve.bytes) / reserve.n_models.max(1)),
            temp_dir: self
                .temp_dir
                .clone()
                .unwrap_or_else(|| reserve.temp_dir.to_owned()),
        };
        Ok(Evaluator::Layered(Layered::new(
            model, settings, texts, wanted, &options,
        )?))
    }
}

/// Takes chunks through the layers where that comes before all else, and shows how far it is, unless `quiet`.
pub fn pass_layers(
    evaluator: &mut Evaluator<'_>,
    texts: &[&Chunks],
    wanted: Wanted,
    label: &str,
    quiet: bool,
) -> Result<()> {
    let Evaluator::Layered(layered) = evaluator else {
        return Ok(());
    };
    let mut progress = LayerProgress::new(layered, texts, label, quiet);
    layered.run_layers(texts, wanted, None, None, &mut |step| {
        progress.step(step);
        Ok(())
    })?;
    progress.finish();
    Ok(())
}

/// Shows how far an evaluation layer by layer is.
#[derive(Debug)]
pub struct LayerProgress {
    progress: Progress,
}

impl LayerProgress {
    /// None done yet. A step is a chunk through a layer.
    pub fn new(layered: &Layered<'_>, texts: &[&Chunks], label: &str, quiet: bool) -> Self {
        let n_chunks: usize = texts.iter().map(|c| c.n_chunks()).sum();
        let total = n_chunks * layered.model().spec().layers.len();
        Self {
            progress: Progress::new(label, total as u64, Unit::Steps, quiet),
        }
    }

    /// A batch has passed a layer.
    pub fn step(&mut self, step: LayerStep<'_>) {
        let (layer, n_layer) = (step.layer + 1, step.n_layer);
        self.progress.status(&format!("layer {layer} of {n_layer}"));
        // Parts of a chunk are no step of their own.
        if step.batch.positions.start == 0 {
            self.progress.add(step.batch.chunks.len() as u64);
        }
    }

    /// All done.
    pub fn finish(self) {
        self.progress.finish();
    }
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
    /// Chunks to use at most; all if not given, or for -1
    #[arg(long, value_name = "N", value_parser = parse_limit, allow_negative_numbers = true)]
    chunks: Option<Limit>,
}

/// Chunks to use at most, or all, which is -1 in llama.cpp.
#[derive(Clone, Copy, Debug)]
struct Limit(Option<usize>);

fn parse_limit(text: &str) -> std::result::Result<Limit, String> {
    match text {
        "-1" => Ok(Limit(None)),
        _ => text
            .parse()
            .map(|n| Limit(Some(n)))
            .map_err(|_| "expected a number of chunks, or -1 for all".to_owned()),
    }
}

impl ChunkArgs {
    /// Chunks to use at most; `None` for all.
    pub fn limit(&self) -> Option<usize> {
        self.chunks.and_then(|limit| limit.0)
    }

    /// Tokens of a chunk: as given, else the usual number.
    pub fn n_ctx(&self) -> usize {
        self.ctx_size.unwrap_or(N_CTX)
    }

    /// The settings of a session for chunks of the usual number of tokens, before the text is known.
    pub fn session_settings(&self) -> Settings {
        Settings {
            n_ctx: self.n_ctx(),
            n_seq: (self.batch_size / self.n_ctx().max(1)).max(1),
            n_ubatch: self.ubatch.ubatch_size.min(self.batch_size),
            ..Settings::default()
        }
    }

    /// The settings for chunks of `n_ctx` tokens.
    pub fn settings(&self, n_ctx: usize) -> ChunkSettings {
        ChunkSettings {
            n_ctx,
            n_batch: self.batch_size,
            limit: self.limit(),
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
        for (line, limit) in [("x", None), ("x --chunks -1", None), ("x --chunks 7", Some(7))] {
            assert_eq!(parse(line).unwrap().chunks.limit(), limit, "{line}");
        }
        let text = parse("x --chunks -2").unwrap_err().to_string();
        assert!(text.contains("or -1 for all"), "{text}");
        Line::command().debug_assert();
    }
}

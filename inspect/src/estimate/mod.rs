//! `estimate`: the memory that a model needs to run, from the front of the file.
//!
//! Weights are what the file has, caches what llama.cpp allots ([`cache`]), compute buffers an upper bound
//! ([`compute`]). Beside that stands what this suite's own programs take ([`suite`]). Metadata of any architecture will do: a key that is missing leaves out what depends on it, and the
//! report says so. Numbers come from a file that may be hostile, so all products and sums are checked.

mod cache;
mod compute;
mod suite;
mod text;
mod weights;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::Args as ClapArgs;
use gguf::{GgufFile, OpenOptions, Outline, key};
use gguf_blocks::{Format, registry};
use gguf_cli::{Failure, Result, count, in_file, print_json, write_report};
use gguf_models::Attributes;
use serde::Serialize;

use cache::{Cache, LayerCache};
use compute::Compute;
use suite::Suite;
use weights::{Layer, Weights};

/// Layers that a file may claim; of lists with one number a layer so many elements are read.
const MAX_LAYERS: u64 = 4096;
/// The largest width or count that is computed with.
const MAX_NUMBER: u64 = 1 << 32;
/// Tokens of a context, batch or ubatch, and sequences.
const MAX_TOKENS: u64 = 1 << 32;

#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// A GGUF file, any shard of a split set, a folder with one model, or an address
    file: PathBuf,
    /// Tokens of the context, shared by all sequences; 0 for as many as the model was made for
    #[arg(short = 'c', long, value_name = "N", default_value_t = 4096, value_parser = tokens(0))]
    ctx_size: u64,
    /// Tensor type of cached keys (short: -ctk)
    #[arg(long, alias = "ctk", value_name = "TYPE", default_value = "f16", value_parser = cache_type)]
    cache_type_k: &'static Format,
    /// Tensor type of cached values (short: -ctv)
    #[arg(long, alias = "ctv", value_name = "TYPE", default_value = "f16", value_parser = cache_type)]
    cache_type_v: &'static Format,
    /// Tokens that are given at once
    #[arg(short, long, value_name = "N", default_value_t = 2048, value_parser = tokens(1))]
    batch_size: u64,
    /// Tokens that go through the layers together, at most those of a batch (short: -ub)
    #[arg(long, alias = "ub", value_name = "N", default_value_t = 512, value_parser = tokens(1))]
    ubatch_size: u64,
    /// Sequences that are kept side by side (short: -np)
    #[arg(long, alias = "np", value_name = "N", default_value_t = 1, value_parser = tokens(1))]
    parallel: u64,
    /// Without flash attention, which keeps the scores of a ubatch in memory
    #[arg(long)]
    no_flash_attn: bool,
    /// Show each layer
    #[arg(long)]
    layers: bool,
    /// Write JSON, all in bytes
    #[arg(long)]
    json: bool,
}

fn tokens(least: u64) -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(least..=MAX_TOKENS)
}

/// A type whose rows can be written one by one.
fn cache_type(name: &str) -> std::result::Result<&'static Format, String> {
    let plain = |f: &&'static Format| f.geometry.is_plain();
    registry::by_name(name).filter(plain).ok_or_else(|| {
        format!("`{name}` is no type for a cache: `f32`, `f16`, `bf16` and types of 32 elements a block, for instance `q8_0`")
    })
}

/// How a model is run.
#[derive(Debug, Serialize)]
struct Run {
    n_ctx: u64,
    n_batch: u64,
    n_ubatch: u64,
    n_seq: u64,
    #[serde(serialize_with = "type_name")]
    type_k: &'static Format,
    #[serde(serialize_with = "type_name")]
    type_v: &'static Format,
    flash_attn: bool,
}

fn type_name<S: serde::Serializer>(format: &Format, s: S) -> std::result::Result<S::Ok, S::Error> {
    s.serialize_str(format.name)
}

impl Run {
    fn of(args: &Args, a: Option<Attributes<'_>>) -> Result<Self> {
        let n_ctx = match args.ctx_size {
            0 => {
                let length = a.and_then(|a| a.context_length()).filter(|&n| n > 0);
                length.ok_or_else(|| {
                    let path = args.file.display();
                    Failure::Input(format!(
                        "`{path}` does not say the length of its context: give it with `-c`"
                    ))
                })?
            }
            given => given,
        };
        at_most("context_length", n_ctx, MAX_TOKENS, "tokens")?;
        if args.no_flash_attn && args.cache_type_v.quantized {
            let name = args.cache_type_v.name;
            return Err(Failure::Usage(format!(
                "values of type `{name}` need flash attention: leave out `--no-flash-attn`, or use `-ctv f16`"
            )));
        }
        Ok(Self {
            n_ctx,
            n_batch: args.batch_size,
            n_ubatch: args.ubatch_size.min(args.batch_size).min(n_ctx),
            n_seq: args.parallel,
            type_k: args.cache_type_k,
            type_v: args.cache_type_v,
            flash_attn: !args.no_flash_attn,
        })
    }
}

/// Memory in bytes.
#[derive(Debug, Serialize)]
struct Estimate {
    file: String,
    architecture: Option<String>,
    context_length: Option<u64>,
    run: Run,
    weights: Weights,
    cache: Cache,
    compute: Compute,
    total: u64,
    /// What the programs of this suite take, where they run the model.
    this_suite: Option<Suite>,
    /// With all layers on a device but their experts (`-ngl 99 -ot exps=CPU`).
    experts_apart: Placement,
    /// What could not be estimated, and why.
    left_out: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layers: Option<Vec<LayerMemory>>,
}

/// Two memories, in bytes.
#[derive(Debug, Serialize)]
struct Placement {
    /// Experts, token embeddings, buffers for the experts' activations.
    main_memory: u64,
    /// Everything else, and all buffers.
    device: u64,
}

#[derive(Debug, Serialize)]
struct LayerMemory {
    layer: usize,
    weights: u64,
    experts: u64,
    #[serde(flatten)]
    cache: LayerCache,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let keep = MAX_LAYERS as usize;
    let outline = OpenOptions::new().incomplete().outline(&args.file, keep);
    let outline = outline.map_err(in_file(&args.file))?;
    require_model(outline.file())?;
    let estimate = Estimate::of(&outline, args)?;
    if args.json {
        print_json(&estimate)
    } else {
        write_report(|out| text::write(out, &estimate))
    }
}

/// Refuses files that hold what is made for a model: nothing runs them alone.
fn require_model(file: &GgufFile) -> Result<()> {
    let (what, see) = match file.metadata.string(key::TYPE).ok().flatten() {
        Some("imatrix") => (
            "an importance matrix",
            "; `gguf-imatrix stats` shows what it holds",
        ),
        Some("adapter") => ("an adapter", ""),
        _ => return Ok(()),
    };
    let path = file.path().display();
    Err(Failure::Input(format!(
        "`{path}`: expected a model, found {what}{see}"
    )))
}

impl Estimate {
    fn of(outline: &Outline, args: &Args) -> Result<Self> {
        let file = outline.file();
        let a = Attributes::of(&file.metadata);
        let run = Run::of(args, a)?;
        let weights = Weights::of(file)?;
        let mut left_out = Vec::new();
        if !file.is_complete() {
            let n = count((file.missing().len() + file.unreadable().len()) as u64, "shard");
            left_out.push(format!("weights of {n} that are not there or cannot be read"));
        }
        let (mut cache, mut compute, mut layers) = (Cache::default(), Compute::default(), Vec::new());
        let mut this_suite = None;
        if let Some(a) = a {
            let n_layers = n_layers(a, outline, &mut left_out)?;
            layers = weights::layers(file, n_layers);
            cache = Cache::of(a, &layers, &run, &mut left_out)?;
            let n_vocab = weights::vocabulary(file)
                .or_else(|| a.uint("vocab_size"))
                .or_else(|| tokens_listed(outline));
            compute = Compute::of(a, &cache, n_vocab, &run, &mut left_out)?;
            if file.is_complete() {
                this_suite = Suite::of(file, a, n_vocab, &run)?;
            }
        } else {
            left_out.push(format!(
                "cache and compute buffers: no metadata key `{}`",
                key::ARCHITECTURE
            ));
        }
        Ok(Self {
            file: file.path().display().to_string(),
            architecture: a.map(|a| a.architecture().to_owned()),
            context_length: a.and_then(|a| a.context_length()),
            total: sum("the memory", [weights.total, cache.total, compute.total])?,
            this_suite,
            experts_apart: Placement::of(&weights, &cache, &compute)?,
            layers: args.layers.then(|| by_layer(&layers, &cache)),
            run,
            weights,
            cache,
            compute,
            left_out,
        })
    }
}

impl Placement {
    fn of(weights: &Weights, cache: &Cache, compute: &Compute) -> Result<Self> {
        let host = sum("the memory", [weights.experts, weights.embedding])?;
        let experts = if weights.experts > 0 {
            compute.feed_forward
        } else {
            0
        };
        let copied = if weights.tied { weights.embedding } else { 0 };
        Ok(Self {
            main_memory: sum("the memory", [host, experts, compute.logits])?,
            device: sum(
                "the memory",
                [
                    weights.total.saturating_sub(host),
                    copied,
                    cache.total,
                    compute.total - compute.logits,
                ],
            )?,
        })
    }
}

fn by_layer(layers: &[Layer], cache: &Cache) -> Vec<LayerMemory> {
    let both = layers.iter().zip(&cache.layers);
    both.enumerate()
        .map(|(layer, (of, cache))| LayerMemory {
            layer,
            weights: of.weights,
            experts: of.experts,
            cache: *cache,
        })
        .collect()
}

/// Layers by the metadata, else by the tensors' names.
fn n_layers(a: Attributes<'_>, outline: &Outline, left_out: &mut Vec<String>) -> Result<usize> {
    let named = || weights::count_layers(outline.file());
    let n = a.block_count().or_else(named).unwrap_or_else(|| {
        left_out.push(format!("keys and values: {}", a.absence("block_count")));
        0
    });
    at_most(&a.key("block_count"), n, MAX_LAYERS, "layers")?;
    Ok(n as usize)
}

/// Tokens of the vocabulary in the file.
fn tokens_listed(outline: &Outline) -> Option<u64> {
    let kept = || Some(outline.file().metadata.strings(key::TOKENS).ok()??.len() as u64);
    outline.cut_len(key::TOKENS).or_else(kept)
}

fn at_most(key: &str, n: u64, most: u64, what: &str) -> Result<()> {
    if n <= most {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "metadata key `{key}`: expected at most {most} {what}, found {n}; no model has as many"
    )))
}

fn product(what: &str, factors: &[u64]) -> Result<u64> {
    let all = factors.iter().try_fold(1_u64, |all, &n| all.checked_mul(n));
    all.ok_or_else(|| too_large(what))
}

fn sum<const N: usize>(what: &str, terms: [u64; N]) -> Result<u64> {
    let all = terms.iter().try_fold(0_u64, |all, &n| all.checked_add(n));
    all.ok_or_else(|| too_large(what))
}

fn too_large(what: &str) -> Failure {
    Failure::Input(format!(
        "{what}: the file's numbers come to more than 64 bits can count; see `gguf-inspect check`"
    ))
}

//! What a run found, and each test as a flat record for scripts.

use std::path::Path;

use gguf_blocks::Cpu;
use gguf_models::file_type;
use serde_json::{Map, Value, json};

use super::bandwidth::Bandwidth;
use super::cold::Start;
use super::load::{self, Interval};
use super::plan::{Config, Test};
use super::stats::Summary;
use super::timing::Warmup;
use super::traffic::Traffic;
use crate::pool::{Numa, Placement};
use crate::{Compute, Model};

/// One test's results.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Place among the models.
    pub(super) model: usize,
    pub(super) config: Config,
    pub(super) test: Test,
    /// What went ahead; `None` where it was not wanted.
    pub(super) warmup: Option<Warmup>,
    /// Runs of one repetition.
    pub(super) runs: u32,
    /// Of a run, the mean of each repetition, in order.
    pub(super) seconds: Vec<f64>,
    /// What a generated token reads; `None` for tests with a prompt.
    pub(super) traffic: Option<Traffic>,
    /// Use of the processors meanwhile; `None` where the system does not say.
    pub(super) interval: Option<Interval>,
    /// Why it was not alone on the machine.
    pub(super) contended: Vec<String>,
}

impl Measured {
    /// Tokens per second of each repetition, in order.
    fn rates(&self) -> Vec<f64> {
        let n = self.test.n_tokens() as f64;
        self.seconds.iter().map(|s| n / s).collect()
    }

    /// Of tokens per second.
    pub(super) fn summary(&self) -> Summary {
        Summary::of(&self.rates())
    }

    /// Bytes that generation read each second.
    pub(super) fn read_rate(&self) -> Option<f64> {
        Some(self.traffic?.total() * self.summary().median)
    }
}

/// A model, and how it started.
#[derive(Clone, Debug)]
pub(super) struct ModelFacts {
    /// Without folders.
    pub(super) file: String,
    pub(super) arch: &'static str,
    /// The file's type, or the type that most of its bytes have.
    pub(super) type_name: String,
    pub(super) n_bytes: u64,
    pub(super) n_params: u64,
    pub(super) compute: Compute,
    pub(super) start: Start,
}

impl ModelFacts {
    pub(super) fn of(path: &Path, model: &Model, compute: Compute, start: Start) -> Self {
        Self {
            file: gguf_cli::file_name(path).into_owned(),
            arch: model.arch(),
            type_name: type_name(model),
            n_bytes: model.n_bytes(),
            n_params: model.n_params(),
            compute,
            start,
        }
    }
}

/// The name of the file's type, or of the type that most of its bytes have.
fn type_name(model: &Model) -> String {
    let metadata = &model.file().metadata;
    let id = metadata.uint(gguf::key::FILE_TYPE).ok().flatten();
    let id = id.and_then(|id| u32::try_from(id).ok());
    if let Some(known) = id.and_then(file_type::by_id) {
        return known.name.into();
    }
    let largest = model.file().tensors.iter().max_by_key(|t| t.n_bytes);
    largest.map_or("none".into(), gguf::TensorInfo::type_name)
}

/// All that a run found.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) models: Vec<ModelFacts>,
    /// One for each number of threads that generated.
    pub(super) bandwidths: Vec<Bandwidth>,
    pub(super) measured: Vec<Measured>,
    pub(super) n_cores: usize,
    /// The step of a sweep.
    pub(super) sweep: Option<usize>,
    /// What was asked for; the same for all tests.
    pub(super) placement: Placement,
    /// Load averages at the start and at the end.
    pub(super) load: [Option<f64>; 2],
    /// Why the whole run was not alone on the machine.
    pub(super) contended: Vec<String>,
}

impl Results {
    /// At the start of a run.
    pub(super) fn new(sweep: Option<usize>, placement: Placement) -> Self {
        let (load, n_cores) = (load::load_average(), load::n_cores());
        Self {
            models: Vec::new(),
            bandwidths: Vec::new(),
            measured: Vec::new(),
            n_cores,
            sweep,
            placement,
            load: [load, None],
            contended: load::busy_at_start(load, n_cores).into_iter().collect(),
        }
    }

    /// Repetitions that each test has at least.
    pub(super) fn repetitions(&self) -> usize {
        let all = self.measured.iter().map(|m| m.seconds.len());
        all.min().unwrap_or(0)
    }

    /// At the end of a run: what is to be said of all of it.
    pub(super) fn finish(&mut self, whole: Option<Interval>, n_threads: usize) {
        self.load[1] = load::load_average();
        if self.measured.iter().all(|m| m.contended.is_empty()) {
            let why = whole.map(|w| w.contention(n_threads, self.n_cores));
            self.contended.extend(why.unwrap_or_default());
        }
    }

    pub(super) fn model(&self, m: &Measured) -> &ModelFacts {
        &self.models[m.model]
    }

    /// What the machine can read with a test's threads.
    pub(super) fn bandwidth(&self, m: &Measured) -> Option<&Bandwidth> {
        self.bandwidths.iter().find(|b| b.n_threads == m.config.n_threads)
    }

    /// Share of the read bandwidth that a test's generation reached.
    pub(super) fn share(&self, m: &Measured) -> Option<f64> {
        Some(m.read_rate()? / self.bandwidth(m)?.best)
    }

    /// A test for scripts; keys with `_ts` in tokens per second.
    pub(super) fn record(&self, m: &Measured) -> Map<String, Value> {
        let parts = [
            what(self.model(m), m),
            placement(&self.placement),
            speed(m),
            self.reading(m),
            start(&self.model(m).start),
            samples(m),
        ];
        let objects = parts.into_iter().filter_map(|part| match part {
            Value::Object(map) => Some(map),
            _ => None,
        });
        objects.flatten().collect()
    }

    fn reading(&self, m: &Measured) -> Value {
        json!({
            "weight_bytes_per_token": m.traffic.map(|t| t.weights),
            "cache_bytes_per_token": m.traffic.map(|t| t.cache),
            "read_bytes_per_second": m.read_rate(),
            "read_bandwidth": self.bandwidth(m).map(|b| b.best),
            "read_bandwidth_share": self.share(m),
            "own_cores": m.interval.map(|i| i.own),
            "others_cores": m.interval.map(|i| i.others),
            "contended": m.contended,
        })
    }

    /// Everything as one object.
    pub(super) fn object(&self) -> Value {
        let bandwidths: Vec<Value> = self
            .bandwidths
            .iter()
            .map(|b| {
                json!({
                    "n_threads": b.n_threads,
                    "best": b.best,
                    "median": b.median,
                    "passes": b.n_passes,
                    "n_bytes": b.n_bytes,
                })
            })
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cores": self.n_cores,
            "load_average": { "start": self.load[0], "end": self.load[1] },
            "contended": self.contended,
            "read_bandwidth": bandwidths,
            "tests": self.measured.iter().map(|m| self.record(m)).collect::<Vec<_>>(),
        })
    }
}

fn what(model: &ModelFacts, m: &Measured) -> Value {
    let (config, test) = (&m.config, &m.test);
    json!({
        "test": test.name(),
        "model_filename": model.file,
        "model_arch": model.arch,
        "model_type": model.type_name,
        "model_size": model.n_bytes,
        "model_n_params": model.n_params,
        "backend": "CPU",
        "cpu_level": Cpu::best().level().name(),
        "compute": match model.compute { Compute::Fast => "fast", Compute::F32 => "f32" },
        "n_threads": config.n_threads,
        "n_batch": config.n_batch,
        "n_ubatch": config.n_ubatch,
        "type_k": config.type_k.name(),
        "type_v": config.type_v.name(),
        "n_prompt": test.n_prompt,
        "n_gen": test.n_gen,
        "n_depth": test.n_depth,
    })
}

/// The options of placement, named as in llama-bench where it has them.
fn placement(asked: &Placement) -> Value {
    json!({
        "cpu_mask": asked.cpus.unwrap_or_default().to_mask(),
        "cpu_strict": asked.strict,
        "numa": asked.numa.map(Numa::name),
        "huge_pages": asked.huge_pages,
    })
}

fn speed(m: &Measured) -> Value {
    let (rates, times) = (m.summary(), Summary::of(&m.seconds));
    json!({
        "repetitions": m.seconds.len(),
        "runs_per_repetition": m.runs,
        "median_ts": rates.median,
        "ci_low_ts": rates.ci.0,
        "ci_high_ts": rates.ci.1,
        "ci_level": rates.level,
        "avg_ts": rates.mean,
        "stddev_ts": rates.stddev,
        "min_ts": rates.min,
        "max_ts": rates.max,
        "median_ns": nanoseconds(times.median),
        "avg_ns": nanoseconds(times.mean),
        "stddev_ns": nanoseconds(times.stddev),
        "warmup_rounds": m.warmup.map_or(0, |w| w.rounds),
        "warmup_steady": m.warmup.map(|w| w.steady()),
    })
}

fn start(start: &Start) -> Value {
    json!({
        "cold": start.cold,
        "open_ns": nanoseconds(start.open),
        "session_ns": nanoseconds(start.session),
        "first_prompt_tokens": start.prompt.map(|(n, _)| n),
        "first_prompt_ns": start.prompt.map(|(_, s)| nanoseconds(s)),
        "first_token_ns": start.token.map(nanoseconds),
        "disk_bytes": start.disk,
    })
}

fn samples(m: &Measured) -> Value {
    json!({
        "samples_ns": m.seconds.iter().map(|&s| nanoseconds(s)).collect::<Vec<_>>(),
        "samples_ts": m.rates(),
    })
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

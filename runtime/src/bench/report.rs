//! What the program prints.

use gguf_blocks::Cpu;
use gguf_models::file_type;
use serde_json::{Value, json};

use super::args::Args;
use crate::Model;

/// One test's results.
pub(super) struct Measured {
    /// `pp` or `tg`.
    pub(super) kind: &'static str,
    pub(super) n_tokens: usize,
    /// Tokens per second of each repetition, in order.
    pub(super) rates: Vec<f64>,
}

impl Measured {
    fn name(&self) -> String {
        format!("{}{}", self.kind, self.n_tokens)
    }

    fn median(&self) -> f64 {
        let mut sorted = self.rates.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        }
    }

    fn min(&self) -> f64 {
        self.rates.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn max(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// Standard deviation of the repetitions; 0 of a single one.
    fn stddev(&self) -> f64 {
        let n = self.rates.len() as f64;
        let mean = self.rates.iter().sum::<f64>() / n;
        let squares: f64 = self.rates.iter().map(|r| (r - mean).powi(2)).sum();
        if n > 1.0 {
            (squares / (n - 1.0)).sqrt()
        } else {
            0.0
        }
    }
}

/// What else the numbers depend on.
pub(super) struct Machine {
    threads: usize,
    /// Runnable tasks over the last minute, before the run; absent where the system does not say.
    load: Option<f64>,
}

impl Machine {
    pub(super) fn now() -> Self {
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let load = load.and_then(|text| text.split(' ').next()?.parse().ok());
        Self {
            threads: rayon::current_num_threads(),
            load,
        }
    }
}

/// The name of the file's type, or of the type that most of its bytes have.
fn type_name(model: &Model) -> String {
    let metadata = &model.file().metadata;
    let id = metadata
        .uint(gguf::key::FILE_TYPE)
        .ok()
        .flatten()
        .and_then(|id| u32::try_from(id).ok());
    if let Some(known) = id.and_then(file_type::by_id) {
        return known.name.into();
    }
    let largest = model.file().tensors.iter().max_by_key(|t| t.n_bytes);
    largest.map_or("none".into(), gguf::TensorInfo::type_name)
}

/// A count of parameters as people write it: `1.26 B`.
fn human_count(n: u64) -> String {
    match n {
        0..1_000_000 => format!("{:.2} K", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", n as f64 / 1e6),
        _ => format!("{:.2} B", n as f64 / 1e9),
    }
}

/// The results for people.
pub(super) fn table(args: &Args, model: &Model, machine: &Machine, measured: &[Measured]) -> String {
    let headers = [
        "model",
        "size",
        "params",
        "type",
        "cpu",
        "threads",
        "test",
        "t/s median",
        "min .. max",
        "stddev",
    ];
    let name = args
        .model
        .file_stem()
        .map_or(String::new(), |n| n.to_string_lossy().into_owned());
    let rows: Vec<Vec<String>> = measured
        .iter()
        .map(|m| {
            vec![
                format!("{name} ({})", model.arch()),
                gguf_cli::human_bytes(model.n_bytes()),
                human_count(model.n_params()),
                type_name(model),
                Cpu::best().level().name().into(),
                machine.threads.to_string(),
                m.name(),
                format!("{:.2}", m.median()),
                format!("{:.2} .. {:.2}", m.min(), m.max()),
                format!("{:.2}", m.stddev()),
            ]
        })
        .collect();
    let load = machine.load.map_or("unknown".into(), |l| format!("{l:.2}"));
    format!(
        "{}\n\n{} repetitions, load average {load} before the run",
        gguf_cli::table(&headers, &rows, &[1, 2, 5, 7, 8, 9]).trim_end(),
        args.repetitions
    )
}

/// The results as one object. `pp` and `tg` are the medians.
pub(super) fn object(args: &Args, model: &Model, machine: &Machine, measured: &[Measured]) -> Value {
    let median = |kind| measured.iter().find(|m| m.kind == kind).map(Measured::median);
    let tests: Vec<Value> = measured
        .iter()
        .map(|m| {
            json!({
                "test": m.name(),
                "n_tokens": m.n_tokens,
                "median": m.median(),
                "min": m.min(),
                "max": m.max(),
                "stddev": m.stddev(),
                "tokens_per_second": m.rates,
            })
        })
        .collect();
    json!({
        "model": args.model.file_name().map(|n| n.to_string_lossy()),
        "arch": model.arch(),
        "type": type_name(model),
        "n_bytes": model.n_bytes(),
        "n_params": model.n_params(),
        "cpu": Cpu::best().level().name(),
        "threads": machine.threads,
        "n_ubatch": args.ubatch.ubatch_size,
        "repetitions": args.repetitions,
        "load_average": machine.load,
        "pp": median("pp"),
        "tg": median("tg"),
        "tests": tests,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spread() {
        let m = |rates: &[f64]| Measured {
            kind: "pp",
            n_tokens: 8,
            rates: rates.to_vec(),
        };
        assert_eq!(m(&[3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(m(&[4.0, 1.0, 2.0, 3.0]).median(), 2.5);
        assert_eq!(m(&[2.0, 4.0]).stddev(), 2f64.sqrt());
        assert_eq!(m(&[2.0]).stddev(), 0.0);
        assert_eq!((m(&[2.0, 4.0]).min(), m(&[2.0, 4.0]).max()), (2.0, 4.0));
        assert_eq!(m(&[1.0]).name(), "pp8");
    }

    #[test]
    fn counts_for_people() {
        assert_eq!(human_count(5_340), "5.34 K");
        assert_eq!(human_count(5_340_000), "5.34 M");
        assert_eq!(human_count(1_260_000_000), "1.26 B");
    }
}

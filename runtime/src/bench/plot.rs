//! The results as a drawing: what varies along the bottom, tokens per second upwards, one panel for prompts and one
//! for generation. The same results give the same bytes.

use std::io::Write as _;
use std::path::Path;

use gguf::atomic::AtomicFile;
use gguf_blocks::Cpu;
use gguf_cli::{Result, count, human_bytes};

use super::record::{Measured, Results};
use super::svg::{self, Panel, Point, Series};

/// A drawing that appears under its name when it is complete.
#[derive(Debug)]
pub(super) struct Plot {
    file: AtomicFile,
}

impl Plot {
    /// Refuses what outputs may not be, before anything is measured.
    pub(super) fn create(path: &Path, force: bool, inputs: &[&Path]) -> Result<Self> {
        Ok(Self {
            file: AtomicFile::create(path, force, inputs, None)?,
        })
    }

    pub(super) fn draw(mut self, results: &Results) -> Result<()> {
        let text = drawing(results);
        let path = self.file.path().to_path_buf();
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|e| gguf::Error::from_write(e, &path))?;
        Ok(self.file.commit()?)
    }
}

/// What can vary from one test to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    Depth,
    Threads,
    Batch,
    Ubatch,
    TypeK,
    TypeV,
    Model,
    Test,
}

impl Axis {
    /// Those that come first are drawn along the bottom.
    const ALL: [Self; 8] = [
        Self::Depth,
        Self::Threads,
        Self::Batch,
        Self::Ubatch,
        Self::TypeK,
        Self::TypeV,
        Self::Model,
        Self::Test,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Depth => "tokens in the context",
            Self::Threads => "threads",
            Self::Batch => "tokens given at once (-b)",
            Self::Ubatch => "tokens of a ubatch (-ub)",
            Self::TypeK => "type of cached keys",
            Self::TypeV => "type of cached values",
            Self::Model => "model",
            Self::Test => "test",
        }
    }

    /// The value as text.
    fn value(self, results: &Results, m: &Measured) -> String {
        let c = &m.config;
        match self {
            Self::Depth => m.test.n_depth.to_string(),
            Self::Threads => c.n_threads.to_string(),
            Self::Batch => c.n_batch.to_string(),
            Self::Ubatch => c.n_ubatch.to_string(),
            Self::TypeK => c.type_k.to_string(),
            Self::TypeV => c.type_v.to_string(),
            Self::Model => results.model(m).file.clone(),
            Self::Test => m.test.kind(),
        }
    }

    /// The value as part of a series' name.
    fn named(self, results: &Results, m: &Measured) -> String {
        let value = self.value(results, m);
        match self {
            Self::Depth => format!("@ d{value}"),
            Self::Threads => count(m.config.n_threads as u64, "thread"),
            Self::Batch => format!("-b {value}"),
            Self::Ubatch => format!("-ub {value}"),
            Self::TypeK => format!("K {value}"),
            Self::TypeV => format!("V {value}"),
            Self::Model | Self::Test => value,
        }
    }

    /// Whether tests differ in it.
    fn varies(self, results: &Results, measured: &[&Measured]) -> bool {
        let mut values = measured.iter().map(|m| self.value(results, m));
        let first = values.next();
        values.any(|v| Some(&v) != first.as_ref())
    }
}

fn drawing(results: &Results) -> String {
    let all: Vec<&Measured> = results.measured.iter().collect();
    let title = |m: &Measured| match (m.test.n_prompt, m.test.n_gen) {
        (_, 0) => "Prompt",
        (0, _) => "Generation",
        _ => "Prompt and generation",
    };
    let kinds: Vec<_> = ["Prompt", "Generation", "Prompt and generation"]
        .into_iter()
        .map(|kind| {
            let tests = all.iter().copied().filter(|&m| title(m) == kind);
            (kind, tests.collect::<Vec<_>>())
        })
        .filter(|(_, tests)| !tests.is_empty())
        .collect();
    let axis = Axis::ALL
        .into_iter()
        .find(|axis| kinds.iter().any(|(_, tests)| axis.varies(results, tests)))
        .unwrap_or(Axis::Test);
    let panels: Vec<Panel> = kinds
        .iter()
        .map(|(title, tests)| panel(results, title, axis, tests))
        .collect();
    svg::page(
        "Tokens per second",
        &subtitle(results, axis),
        axis.label(),
        &panels,
    )
}

/// What all tests have in common, and whether they can be trusted.
fn subtitle(results: &Results, axis: Axis) -> String {
    let Some(model) = results.models.first() else {
        return String::new();
    };
    let all: Vec<&Measured> = results.measured.iter().collect();
    let mut parts = Vec::new();
    if !Axis::Model.varies(results, &all) {
        parts.push(format!(
            "{}: {} {}, {}",
            model.file,
            model.arch,
            model.type_name,
            human_bytes(model.n_bytes)
        ));
    }
    parts.push(format!("CPU {}", Cpu::best().level().name()));
    for fixed in [Axis::Threads, Axis::Depth] {
        if let Some(m) = all.first().filter(|m| {
            fixed != axis && !fixed.varies(results, &all) && (fixed != Axis::Depth || m.test.n_depth > 0)
        }) {
            parts.push(fixed.named(results, m));
        }
    }
    if !results.contended.is_empty() || all.iter().any(|m| !m.contended.is_empty()) {
        parts.push("measured beside other processes".into());
    }
    parts.join(", ")
}

fn panel(results: &Results, title: &str, axis: Axis, tests: &[&Measured]) -> Panel {
    let varying: Vec<Axis> = Axis::ALL
        .into_iter()
        .filter(|a| *a != axis && a.varies(results, tests))
        .collect();
    let mut series: Vec<Series> = Vec::new();
    let mut places: Vec<String> = Vec::new();
    for &m in tests {
        let name = if varying.is_empty() && axis != Axis::Test {
            m.test.kind()
        } else {
            let parts = varying.iter().map(|a| a.named(results, m));
            parts.collect::<Vec<_>>().join(", ")
        };
        let place = axis.value(results, m);
        let ordinal = places.iter().position(|p| *p == place).unwrap_or_else(|| {
            places.push(place.clone());
            places.len() - 1
        });
        let x = if axis == Axis::Depth {
            m.test.n_depth as f64
        } else {
            ordinal as f64
        };
        let s = m.summary();
        let point = Point {
            x,
            y: s.median,
            low: s.ci.0,
            high: s.ci.1,
            title: results.line(m),
        };
        match series.iter_mut().find(|s| s.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series {
                name,
                points: vec![point],
            }),
        }
    }
    for s in &mut series {
        s.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    Panel {
        title: format!("{title}, tokens per second"),
        series,
        places: (axis != Axis::Depth).then_some(places),
    }
}

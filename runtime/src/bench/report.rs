//! What the program prints.

use std::fmt::Write as _;

use gguf_blocks::Cpu;
use gguf_cli::{Result, human_bytes, print_data, print_json, print_json_line, write_report};
use serde_json::Value;

use super::plan::{N_BATCH, N_UBATCH};
use super::record::{Measured, ModelFacts, Results};
use super::stats::{self, LEVEL};
use crate::KvType;
use crate::pool::Placement;

/// Form of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// A table in Markdown, and what is to be said of it
    Md,
    /// One object with everything
    Json,
    /// An object for each test, as it ends
    Jsonl,
    /// A line for each test, as it ends
    Csv,
}

/// Prints results as they come.
#[derive(Debug)]
pub(super) struct Output {
    format: Format,
    n_lines: usize,
}

impl Output {
    pub(super) fn new(format: Format) -> Self {
        Self { format, n_lines: 0 }
    }

    /// A test has ended.
    pub(super) fn one(&mut self, results: &Results, m: &Measured) -> Result<()> {
        let record = match self.format {
            Format::Md | Format::Json => return Ok(()),
            Format::Jsonl | Format::Csv => results.record(m),
        };
        if self.format == Format::Jsonl {
            return print_json_line(&Value::Object(record));
        }
        if self.n_lines == 0 {
            let keys: Vec<&str> = record.keys().map(String::as_str).collect();
            print_data(&keys.join(","))?;
        }
        self.n_lines += 1;
        print_data(&record.values().map(csv_field).collect::<Vec<_>>().join(","))
    }

    /// All tests have ended.
    pub(super) fn end(&self, results: &Results) -> Result<()> {
        match self.format {
            Format::Md => write_report(|out| out.write_all(markdown(results).as_bytes())),
            Format::Json => print_json(&results.object()),
            Format::Jsonl | Format::Csv => Ok(()),
        }
    }
}

/// Contended tests that are told of one by one.
const MAX_DOUBTS: usize = 4;

/// A value as a field: lists with their elements apart by `; `.
fn csv_field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(s) => quoted(s),
        Value::Array(all) => {
            let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
            quoted(&all.iter().map(text).collect::<Vec<_>>().join("; "))
        }
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// A count of parameters as people write it: `1.26 B`.
fn human_count(n: u64) -> String {
    match n {
        0..1_000_000 => format!("{:.2} K", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", n as f64 / 1e6),
        _ => format!("{:.2} B", n as f64 / 1e9),
    }
}

fn seconds(s: f64) -> String {
    match s {
        0.0..0.001 => format!("{:.0} µs", s * 1e6),
        0.001..1.0 => format!("{:.1} ms", s * 1e3),
        _ => format!("{s:.2} s"),
    }
}

fn per_second(bytes: f64) -> String {
    format!("{}/s", human_bytes(bytes as u64))
}

/// A column of the table: its head, whether its numbers stand to the right, and what it says of a test.
struct Column<'a> {
    head: &'a str,
    right: bool,
    cell: Box<dyn Fn(&Measured) -> String + 'a>,
}

fn column<'a>(head: &'a str, right: bool, cell: impl Fn(&Measured) -> String + 'a) -> Column<'a> {
    Column {
        head,
        right,
        cell: Box::new(cell),
    }
}

/// The results for people.
fn markdown(results: &Results) -> String {
    let mut out = if results.sweep.is_some() {
        sweep_table(results)
    } else {
        table(&columns(results), results.measured.iter())
    };
    out.push('\n');
    for line in notes(results) {
        let _ = writeln!(out, "- {line}");
    }
    out
}

/// The columns that tell tests of different settings apart.
fn settings(results: &Results) -> Vec<Column<'_>> {
    let model = |m: &Measured| {
        let model = results.model(m);
        format!("{} {}", model.arch, model.type_name)
    };
    let mut columns = Vec::new();
    let first = results.models.first();
    if results
        .models
        .iter()
        .any(|m| Some(&m.file) != first.map(|f| &f.file))
    {
        columns.push(column("file", false, |m| results.model(m).file.clone()));
    }
    columns.push(column("model", false, model));
    columns.push(column("size", true, |m| human_bytes(results.model(m).n_bytes)));
    columns.push(column("params", true, |m| human_count(results.model(m).n_params)));
    let backend = format!("CPU {}", Cpu::best().level().name());
    columns.push(column("backend", false, move |_| backend.clone()));
    columns.push(column("threads", true, |m| m.config.n_threads.to_string()));
    let differ = |what: fn(&Measured) -> bool| results.measured.iter().any(what);
    if differ(|m| m.config.n_batch != N_BATCH) {
        columns.push(column("n_batch", true, |m| m.config.n_batch.to_string()));
    }
    if differ(|m| m.config.n_ubatch != N_UBATCH) {
        columns.push(column("n_ubatch", true, |m| m.config.n_ubatch.to_string()));
    }
    if differ(|m| m.config.type_k != KvType::F16) {
        columns.push(column("type_k", false, |m| m.config.type_k.to_string()));
    }
    if differ(|m| m.config.type_v != KvType::F16) {
        columns.push(column("type_v", false, |m| m.config.type_v.to_string()));
    }
    columns
}

fn columns(results: &Results) -> Vec<Column<'_>> {
    let mut columns = settings(results);
    columns.push(column("test", true, |m| m.test.name()));
    columns.push(column("t/s", true, |m| format!("{:.2}", m.summary().median)));
    columns.push(column("CI", true, |m| {
        let ci = m.summary().ci;
        format!("{:.2} .. {:.2}", ci.0, ci.1)
    }));
    if !results.bandwidths.is_empty() {
        let cell = |of: Option<String>| of.unwrap_or_default();
        columns.push(column("reads", true, move |m| {
            cell(m.read_rate().map(per_second))
        }));
        columns.push(column("of memory", true, move |m| {
            cell(results.share(m).map(|s| format!("{:.0} %", s * 100.0)))
        }));
    }
    columns
}

/// A table in Markdown whose source is one, too.
fn table<'m>(columns: &[Column<'_>], rows: impl Iterator<Item = &'m Measured>) -> String {
    let heads = columns.iter().map(|c| c.head.to_owned()).collect();
    let rows = rows.map(|m| columns.iter().map(|c| (c.cell)(m)).collect());
    let right: Vec<bool> = columns.iter().map(|c| c.right).collect();
    aligned(&right, &[vec![heads], rows.collect()].concat())
}

/// `rows` of cells, the first being the heads.
fn aligned(right: &[bool], rows: &[Vec<String>]) -> String {
    let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..right.len()).map(|i| width(i).max(2)).collect();
    let line = |cells: &[String]| {
        let mut line = String::from("|");
        for ((cell, &width), &right) in cells.iter().zip(&widths).zip(right) {
            let _ = if right {
                write!(line, " {cell:>width$} |")
            } else {
                write!(line, " {cell:<width$} |")
            };
        }
        line.push('\n');
        line
    };
    let rule: Vec<String> = right
        .iter()
        .zip(&widths)
        .map(|(&right, &width)| "-".repeat(width - usize::from(right)) + if right { ":" } else { "" })
        .collect();
    let mut out = String::new();
    for (i, cells) in rows.iter().enumerate() {
        out.push_str(&line(cells));
        if i == 0 {
            out.push_str(&line(&rule));
        }
    }
    out
}

/// A table for each setting: times and rates of prompt and generation at each fill of the context.
fn sweep_table(results: &Results) -> String {
    let mut out = String::new();
    let groups = results
        .measured
        .chunk_by(|a, b| (a.model, a.config) == (b.model, b.config) && a.test.n_depth <= b.test.n_depth);
    for group in groups {
        let named = settings(results);
        let says = named
            .iter()
            .map(|c| format!("{}: {}", c.head, (c.cell)(&group[0])));
        let _ = writeln!(out, "{}\n", says.collect::<Vec<_>>().join(", "));
        let heads = [
            "PP",
            "TG",
            "N_KV",
            "T_PP s",
            "S_PP t/s",
            "T_TG s",
            "S_TG t/s",
            "of memory",
        ];
        let n_heads = if results.bandwidths.is_empty() { 7 } else { 8 };
        let mut rows = vec![heads[..n_heads].iter().map(|&h| h.to_owned()).collect::<Vec<_>>()];
        for [made, prompt] in group.as_chunks::<2>().0 {
            let time = |m: &Measured| format!("{:.4}", stats::Summary::of(&m.seconds).median);
            let rate = |m: &Measured| format!("{:.2}", m.summary().median);
            let share = results
                .share(made)
                .map_or(String::new(), |s| format!("{:.0} %", s * 100.0));
            let mut row = vec![
                prompt.test.n_prompt.to_string(),
                made.test.n_gen.to_string(),
                made.test.n_depth.to_string(),
                time(prompt),
                rate(prompt),
                time(made),
                rate(made),
                share,
            ];
            row.truncate(n_heads);
            rows.push(row);
        }
        let _ = writeln!(out, "{}", aligned(&vec![true; n_heads], &rows));
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

impl Results {
    /// A test that has just ended, on one line.
    pub(super) fn line(&self, m: &Measured) -> String {
        let s = m.summary();
        let mut line = String::new();
        if self.models.len() > 1 {
            let _ = write!(line, "{}: ", self.model(m).file);
        }
        let threads = gguf_cli::count(m.config.n_threads as u64, "thread");
        let _ = write!(
            line,
            "{}, {threads}: {:.2} t/s ({:.2} .. {:.2})",
            m.test.name(),
            s.median,
            s.ci.0,
            s.ci.1
        );
        if let Some(w) = m.warmup {
            let rounds = gguf_cli::count(u64::from(w.rounds), "round");
            let _ = write!(line, ", {rounds} of warm-up");
        }
        line
    }
}

/// What is to be said beside the table.
fn notes(results: &Results) -> Vec<String> {
    let (_, level) = stats::rank(results.repetitions());
    let few = if level < LEVEL {
        ", which more repetitions would make one of 95 %"
    } else {
        ""
    };
    let mut lines = vec![format!(
        "t/s: median of {}; CI: {:.1} % confidence interval of the median{few}",
        gguf_cli::count(results.repetitions() as u64, "repetition"),
        level * 100.0
    )];
    for b in &results.bandwidths {
        lines.push(format!(
            "memory, {}: {} read in the best of {} over {} (median {})",
            gguf_cli::count(b.n_threads as u64, "thread"),
            per_second(b.best),
            gguf_cli::count(b.n_passes as u64, "pass"),
            human_bytes(b.n_bytes),
            per_second(b.median)
        ));
    }
    lines.extend(placement_note(&results.placement));
    lines.extend(traffic_notes(results));
    lines.extend(results.models.iter().map(start_note));
    let load = |l: Option<f64>| l.map_or("unknown".into(), |l| format!("{l:.2}"));
    lines.push(format!(
        "load average: {} at the start, {} at the end, on {} cores",
        load(results.load[0]),
        load(results.load[1]),
        results.n_cores
    ));
    lines.extend(doubts(results));
    lines
}

/// The placement that was asked for, as on the command line.
fn placement_note(asked: &Placement) -> Option<String> {
    let parts = [
        asked.cpus.map(|cpus| format!("--cpu-range {cpus}")),
        asked.strict.then(|| "--cpu-strict 1".to_owned()),
        asked.numa.map(|numa| format!("--numa {}", numa.name())),
        asked.huge_pages.then(|| "--huge-pages".to_owned()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("placement: `{}`", parts.join(" ")))
}

/// What a token reads, of each model's first and last generating test.
fn traffic_notes(results: &Results) -> Vec<String> {
    if results.bandwidths.is_empty() {
        return Vec::new();
    }
    let of_model = |i: usize| {
        let tests = results
            .measured
            .iter()
            .filter(move |m| m.model == i && m.traffic.is_some());
        let shallow = tests.clone().min_by_key(|m| m.test.n_depth)?;
        let deep = tests.max_by_key(|m| m.test.n_depth)?;
        let cache = |m: &Measured| {
            let bytes = m.traffic.map_or(0.0, |t| t.cache);
            format!("{} of cache in `{}`", human_bytes(bytes as u64), m.test.name())
        };
        let mut line = format!(
            "a generated token of `{}` reads {} of weights, {}",
            results.models[i].file,
            human_bytes(shallow.traffic?.weights),
            cache(shallow)
        );
        if deep.test != shallow.test {
            let _ = write!(line, ", {}", cache(deep));
        }
        if results
            .measured
            .iter()
            .any(|m| m.model == i && results.share(m).is_some_and(|s| s > 1.0))
        {
            line.push_str("; more than memory can give comes from caches");
        }
        Some(line)
    };
    (0..results.models.len()).filter_map(of_model).collect()
}

fn start_note(model: &ModelFacts) -> String {
    let start = &model.start;
    let mut line = format!(
        "{} `{}`: open {}, session {}",
        if start.cold { "cold start of" } else { "start of" },
        model.file,
        seconds(start.open),
        seconds(start.session)
    );
    if let Some((n, s)) = start.prompt {
        let _ = write!(line, ", first prompt of {n} tokens {}", seconds(s));
    }
    if let Some(s) = start.token {
        let _ = write!(line, ", first token {}", seconds(s));
    }
    if let Some(bytes) = start.disk {
        let _ = write!(line, "; {} read from disk", human_bytes(bytes));
    }
    line
}

/// Why numbers may mean less than they seem to.
fn doubts(results: &Results) -> Vec<String> {
    let mut lines: Vec<String> = results
        .contended
        .iter()
        .map(|why| format!("contended: {why}"))
        .collect();
    let contended = results.measured.iter().filter(|m| !m.contended.is_empty());
    let more = contended.clone().count().saturating_sub(MAX_DOUBTS);
    for m in contended.take(MAX_DOUBTS) {
        let why = m.contended.join("; ");
        lines.push(format!("contended: {}: {why}", m.test.name()));
    }
    if more > 0 {
        let more = gguf_cli::count(more as u64, "more test");
        lines.push(format!("contended: {more}, which `-o json` tells of"));
    }
    for (m, w) in results.measured.iter().filter_map(|m| Some((m, m.warmup?))) {
        if !w.steady() {
            lines.push(format!(
                "not steady: {}: after {} of warm-up the last two times were {:.0} % apart",
                m.test.name(),
                gguf_cli::count(u64::from(w.rounds), "round"),
                w.apart * 100.0
            ));
        }
    }
    for model in results.models.iter().filter(|m| m.start.not_cold()) {
        lines.push(format!(
            "not cold: `{}`: pages remained in memory, as they do where another program has the file mapped or the file \
             lies in memory",
            model.file
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_for_people() {
        assert_eq!(human_count(5_340), "5.34 K");
        assert_eq!(human_count(5_340_000), "5.34 M");
        assert_eq!(human_count(1_260_000_000), "1.26 B");
        assert_eq!([2e-6, 0.0025, 2.5].map(seconds), ["2 µs", "2.5 ms", "2.50 s"]);
    }

    #[test]
    fn fields_are_quoted_where_they_must() {
        let field = |v: Value| csv_field(&v);
        assert_eq!(field(serde_json::json!("a,\"b\"")), "\"a,\"\"b\"\"\"");
        assert_eq!(field(serde_json::json!(["a", 2])), "a; 2");
        assert_eq!(field(Value::Null), "");
    }

    #[test]
    fn tables_are_aligned_in_their_source() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let text = aligned(&[false, true], &[row(["model", "t/s"]), row(["ä", "1234.5"])]);
        let expected = "| model |    t/s |\n| ----- | -----: |\n| ä     | 1234.5 |\n";
        assert_eq!(text, expected);
    }
}

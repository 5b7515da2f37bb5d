//! What the program prints.

use gguf_cli::table;
use serde_json::{Map, Value, json};

use super::kl::{Distribution, Divergence, Estimate, Summary};
use super::score::Perplexity;
use super::tally::{Tally, mean_of_texts};
use super::texts::Text;

/// Heading of the lines of a comparison.
pub(super) const COMPARISON_HEAD: &str = "chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              Δp RMS            Same top p";

/// Label of the correlation.
const CORRELATION: &str = "Cor(ln(PPL(Q)), ln(PPL(base)))";

/// A chunk's item in the line of running perplexities; `chunk` counts from 1.
pub(super) fn running(chunk: usize, ppl: f64) -> String {
    format!("[{chunk}]{ppl:.4},")
}

/// A chunk's line with more numbers: its first token, the perplexity so far, mean and standard error of the
/// negative log probabilities.
pub(super) fn detailed(first_token: usize, p: &Perplexity) -> String {
    let (mean, stderr) = (p.nll.mean(p.n), p.nll.stderr(p.n).unwrap_or(0.0));
    format!("{first_token:8}  {:.4}  {mean:.6}  {stderr:.6}", p.value())
}

/// How things stand, for the progress.
pub(super) fn status(t: &Tally) -> String {
    let p = &t.perplexity;
    let ppl = format!("PPL {:.4} ± {:.4}", p.value(), p.stderr().unwrap_or(0.0));
    match t.divergence.as_ref().map(Divergence::mean_kld) {
        Some(kld) => format!("{ppl}, KLD {:.6} ± {:.6}", kld.value, kld.stderr),
        None => ppl,
    }
}

/// The last lines of a plain run.
pub(super) fn final_estimate(t: &Tally) -> String {
    let p = &t.perplexity;
    let ppl = match p.stderr() {
        Some(e) => format!("Final estimate: PPL = {:.4} +/- {e:.5}", p.value()),
        None => format!(
            "Final estimate: PPL = {:.4}, its standard error cannot be told",
            p.value()
        ),
    };
    match t.bits_per_byte() {
        Some(e) => format!(
            "{ppl}\nBits per byte: {:.4} +/- {:.5} ({} tokens, {} bytes)",
            e.value, e.stderr, p.n, t.n_bytes
        ),
        None => ppl,
    }
}

/// All texts of a run below one another, then all as one text, then the mean of the texts.
pub(super) fn texts_table(texts: &[Text], tallies: &[Tally], all: &Tally) -> String {
    let row = |name: &str, t: &Tally| {
        let p = &t.perplexity;
        let bits = t.bits_per_byte();
        let bits = |f: fn(Estimate) -> f64| bits.map_or("-".into(), |e| format!("{:.4}", f(e)));
        vec![
            name.to_owned(),
            p.by_chunk.len().to_string(),
            p.n.to_string(),
            t.n_bytes.to_string(),
            format!("{:.4}", p.value()),
            p.stderr().map_or("-".into(), |e| format!("{e:.4}")),
            bits(|e| e.value),
            bits(|e| e.stderr),
        ]
    };
    let mut rows: Vec<_> = texts
        .iter()
        .zip(tallies)
        .map(|(text, t)| row(name(text), t))
        .collect();
    rows.push(row("all", all));
    let ppl = mean_of_texts(tallies, |t| Some(t.perplexity.value()));
    let bits = mean_of_texts(tallies, |t| Some(t.bits_per_byte()?.value));
    let number = |v: Option<f64>| v.map_or("-".into(), |v| format!("{v:.4}"));
    let mut mean = vec![String::new(); 8];
    mean[0] = "mean of texts".into();
    (mean[4], mean[6]) = (number(ppl), number(bits));
    rows.push(mean);
    let headers = ["text", "chunks", "tokens", "bytes", "PPL", "±", "bits/byte", "±"];
    table(&headers, &rows, &[1, 2, 3, 4, 5, 6, 7])
}

fn name(text: &Text) -> &str {
    text.name.as_deref().unwrap_or("(base file)")
}

/// A chunk's line in a comparison.
pub(super) fn comparison(chunk: usize, d: &Divergence) -> String {
    let pair = |e: Estimate, width: usize, digits: usize| {
        format!("{:width$.digits$} ± {:width$.digits$}", e.value, e.stderr)
    };
    format!(
        "{chunk:4}   {}   {}   {}   {} %   {} %",
        pair(d.ppl(), 9, 4),
        pair(d.ln_ratio(), 10, 5),
        pair(d.mean_kld(), 10, 5),
        pair(d.rms_dp(), 6, 3),
        pair(d.same_top(), 6, 3),
    )
}

/// The sections at the end of a comparison.
pub(super) fn summary(s: &Summary) -> String {
    let estimate = |label: &str, e: Estimate| format!("{label:<30}: {:10.6} ± {:10.6}", e.value, e.stderr);
    let mut lines = vec![
        String::new(),
        "====== Perplexity statistics ======".into(),
        estimate("Mean PPL(Q)", s.ppl),
        estimate("Mean PPL(base)", s.ppl_base),
        s.correlation_percent.map_or_else(
            || format!("{CORRELATION:<30}: unknown"),
            |c| format!("{CORRELATION:<30}: {c:6.2}%"),
        ),
        estimate("Mean ln(PPL(Q)/PPL(base))", s.ln_ratio),
        estimate("Mean PPL(Q)/PPL(base)", s.ratio),
        estimate("Mean PPL(Q)-PPL(base)", s.difference),
        String::new(),
        "====== KL divergence statistics ======".into(),
        format!(
            "{:<7} KLD: {:10.6} ± {:10.6}",
            "Mean", s.kld.mean, s.kld.mean_stderr
        ),
    ];
    let quartiles = ["75.0%", "25.0%"];
    if let Some(c) = s.compact_base {
        lines.push(format!(
            "compact base: {:.6} of the probability left out, the mean of all tokens is at most {:.6} larger",
            c.left_out, c.kld_error_bound
        ));
    }
    let kld = percentiles(&s.kld)
        .into_iter()
        .filter(|(label, _)| !quartiles.contains(label));
    lines.extend(kld.map(|(label, v)| format!("{label:<7} KLD: {v:10.6}")));

    let dp = &s.dp_percent;
    lines.extend([
        String::new(),
        "====== Token probability statistics ======".into(),
        format!("{:<7} Δp: {:6.3} ± {:5.3} %", "Mean", dp.mean, dp.mean_stderr),
    ]);
    lines.extend(percentiles(dp).map(|(label, v)| format!("{label:<7} Δp: {v:6.3}%")));
    let percent = |label: &str, e: Estimate| format!("{label:<10}: {:6.3} ± {:5.3} %", e.value, e.stderr);
    lines.extend([
        percent("RMS Δp", s.rms_dp_percent),
        percent("Same top p", s.same_top_percent),
    ]);
    lines.join("\n")
}

fn percentiles(d: &Distribution) -> [(&'static str, f32); 13] {
    [
        ("Maximum", d.maximum),
        ("99.9%", d.p99_9),
        ("99.0%", d.p99),
        ("95.0%", d.p95),
        ("90.0%", d.p90),
        ("75.0%", d.p75),
        ("Median", d.median),
        ("25.0%", d.p25),
        ("10.0%", d.p10),
        ("5.0%", d.p5),
        ("1.0%", d.p1),
        ("0.1%", d.p0_1),
        ("Minimum", d.minimum),
    ]
}

/// Adds what a model scored, then, beside a base, the comparison.
pub(super) fn add_scores(object: &mut Map<String, Value>, t: &Tally) {
    let p = &t.perplexity;
    let bits = t.bits_per_byte();
    let mut add = |key: &str, value: Value| object.insert(key.into(), value);
    add("count", json!(p.n));
    add("bytes", json!(t.n_bytes));
    add("mean_nll", json!(p.nll.mean(p.n)));
    add("ppl", json!(p.value()));
    add("ppl_stderr", json!(p.stderr()));
    add("bits_per_byte", json!(bits.map(|e| e.value)));
    add("bits_per_byte_stderr", json!(bits.map(|e| e.stderr)));
    if let Some(d) = &t.divergence {
        add("mean_kld", json!(d.mean_kld().value));
        if let Value::Object(more) = json!(d.summary()) {
            object.extend(more);
        }
    }
    object.insert("ppl_by_chunk".into(), json!(p.by_chunk));
}

/// Adds the texts' own results, and the mean of the texts.
pub(super) fn add_texts(object: &mut Map<String, Value>, texts: &[Text], tallies: &[Tally]) {
    let ppl = mean_of_texts(tallies, |t| Some(t.perplexity.value()));
    let bits = mean_of_texts(tallies, |t| Some(t.bits_per_byte()?.value));
    object.insert(
        "mean_of_texts".into(),
        json!({ "ppl": ppl, "bits_per_byte": bits }),
    );
    let one = |(text, tally): (&Text, &Tally)| {
        let mut object = Map::new();
        object.insert("text".into(), json!(text.name));
        object.insert("chunks".into(), json!(text.chunks.n_chunks()));
        add_scores(&mut object, tally);
        Value::Object(object)
    };
    let all = texts.iter().zip(tallies).map(one).collect();
    object.insert("texts".into(), Value::Array(all));
}

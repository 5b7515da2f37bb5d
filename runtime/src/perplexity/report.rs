//! What the program prints.

use serde_json::{Map, Value, json};

use super::kl::{Distribution, Divergence, Estimate, Summary};
use super::score::Perplexity;

/// Heading of the lines of a comparison.
pub(super) const COMPARISON_HEAD: &str = "chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              Δp RMS            Same top p";

/// Label of the correlation.
const CORRELATION: &str = "Cor(ln(PPL(Q)), ln(PPL(base)))";

/// A chunk's item in the line of running perplexities; `chunk` counts from 1.
pub(super) fn running(chunk: usize, ppl: f64) -> String {
    format!("[{chunk}]{ppl:.4},")
}

/// The last line of a plain run.
pub(super) fn final_estimate(p: &Perplexity) -> String {
    match p.stderr() {
        Some(e) => format!("\nFinal estimate: PPL = {:.4} +/- {e:.5}", p.value()),
        None => format!(
            "\nFinal estimate: PPL = {:.4}, its standard error cannot be told",
            p.value()
        ),
    }
}

/// A chunk's line in a comparison.
pub(super) fn comparison(chunk: usize, d: &Divergence) -> String {
    let pair = |e: Estimate, width: usize, digits: usize| {
        format!("{:width$.digits$} ± {:width$.digits$}", e.value, e.stderr)
    };
    format!(
        "{chunk:4}   {}   {}   {}   {} %   {} %\n",
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

/// All results as one object: `head` first, then perplexity, then the comparison.
pub(super) fn object(mut head: Map<String, Value>, p: &Perplexity, d: Option<&Divergence>) -> Value {
    head.insert("count".into(), json!(p.n));
    head.insert("mean_nll".into(), json!(p.nll.mean(p.n)));
    head.insert("ppl".into(), json!(p.value()));
    head.insert("ppl_stderr".into(), json!(p.stderr()));
    if let Some(d) = d {
        head.insert("mean_kld".into(), json!(d.mean_kld().value));
        if let Value::Object(more) = json!(d.summary()) {
            head.extend(more);
        }
    }
    head.insert("ppl_by_chunk".into(), json!(p.by_chunk));
    Value::Object(head)
}

//! What the program prints.

use serde_json::{Map, Value, json};

use super::kl::{Distribution, Divergence, Estimate, Summary};
use super::score::Perplexity;

/// Heading of the lines of a comparison.
pub(super) const COMPARISON_HEAD: &str = "chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              Δp RMS            Same top p";

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
    let mut out = String::from("\n====== Perplexity statistics ======\n");
    let mut line = |label: &str, e: Estimate| {
        out.push_str(&format!("{label:<30}: {:10.6} ± {:10.6}\n", e.value, e.stderr));
    };
    line("Mean PPL(Q)", s.ppl);
    line("Mean PPL(base)", s.ppl_base);
    line("Mean ln(PPL(Q)/PPL(base))", s.ln_ratio);
    line("Mean PPL(Q)/PPL(base)", s.ratio);
    line("Mean PPL(Q)-PPL(base)", s.difference);
    out.push_str(&format!(
        "{:<30}: {:6.2}%\n",
        "Cor(ln(PPL(Q)), ln(PPL(base)))", s.correlation_percent
    ));

    out.push_str("\n====== KL divergence statistics ======\n");
    out.push_str(&format!(
        "{:<7} KLD: {:10.6} ± {:10.6}\n",
        "Mean", s.kld.mean, s.kld.mean_stderr
    ));
    for (label, v) in percentiles(&s.kld)
        .into_iter()
        .filter(|(l, _)| !["75.0%", "25.0%"].contains(l))
    {
        out.push_str(&format!("{label:<7} KLD: {v:10.6}\n"));
    }

    out.push_str("\n====== Token probability statistics ======\n");
    let dp = &s.dp_percent;
    out.push_str(&format!(
        "{:<7} Δp: {:6.3} ± {:5.3} %\n",
        "Mean", dp.mean, dp.mean_stderr
    ));
    for (label, v) in percentiles(dp) {
        out.push_str(&format!("{label:<7} Δp: {v:6.3}%\n"));
    }
    let percent = |label: &str, e: Estimate| format!("{label:<10}: {:6.3} ± {:5.3} %\n", e.value, e.stderr);
    out.push_str(&percent("RMS Δp", s.rms_dp_percent));
    out.push_str(percent("Same top p", s.same_top_percent).trim_end());
    out
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

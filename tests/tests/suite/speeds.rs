//! The README's table of speeds is what the committed runs give.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use serde_json::Value;
use suite_tests::{docs, workspace};

const RUNS: &str = "tests/bench-runs/2026-11-29-kernels/results.jsonl";

/// Shape, type, threads and depth.
type Case = (String, String, u64, u64);

fn runs(text: &str) -> BTreeMap<Case, Value> {
    let parsed = text.lines().map(|line| {
        let run: Value = serde_json::from_str(line).expect("a line is an object");
        let of = |key: &str| run[key].as_str().expect("a name").to_owned();
        let number = |key: &str| run[key].as_u64().expect("a number");
        ((of("shape"), of("type"), number("threads"), number("depth")), run)
    });
    parsed.collect()
}

/// A row for each shape and type, with the ratios to the peer: prompt and generation.
fn table(runs: &BTreeMap<Case, Value>) -> String {
    const COLUMNS: [(u64, u64); 4] = [(2, 0), (1, 0), (2, 4096), (1, 4096)];
    let mut out = String::new();
    let Some(first) = runs.values().next() else {
        return "Nothing is recorded yet.\n".to_owned();
    };
    let text = |key: &str| first[key].as_str().unwrap_or_default();
    let _ = writeln!(
        out,
        "{}, {}; prompt of 256 tokens / 32 generated tokens, times as fast as the peer:\n",
        text("machine"),
        text("date")
    );
    out += "| shape | type | 2 threads | 1 thread | 2 threads behind 4096 | 1 thread behind 4096 |\n";
    out += "| ----- | ---- | --------: | -------: | --------------------: | -------------------: |\n";
    let mut rows: Vec<(&str, &str)> = runs.keys().map(|c| (c.0.as_str(), c.1.as_str())).collect();
    rows.dedup();
    for (shape, kind) in rows {
        let _ = write!(out, "| {shape} | {kind} |");
        for (threads, depth) in COLUMNS {
            let run = runs.get(&(shape.to_owned(), kind.to_owned(), threads, depth));
            let ratio = |key: &str| {
                let ratio = run.and_then(|run| run[key].as_f64());
                ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
            };
            let cell = match run {
                Some(_) => format!("{} / {}", ratio("ratio_pp"), ratio("ratio_tg")),
                None => String::new(),
            };
            let _ = write!(out, " {cell} |");
        }
        out.push('\n');
    }
    out
}

#[test]
fn the_readme_has_the_speeds_that_were_measured() {
    let text = fs::read_to_string(workspace().join(RUNS)).expect("committed runs");
    docs::check("README.md", "speeds", &table(&runs(&text)));
}

#[test]
fn cases_without_a_run_stay_empty() {
    let one = r#"{"shape":"big","type":"Q8_0","threads":2,"depth":0,"ratio_pp":2.126,"ratio_tg":null,"machine":"M","date":"D"}"#;
    let table = table(&runs(one));
    assert!(table.ends_with("| big | Q8_0 | 2.13 / - |  |  |  |\n"), "{table}");
    assert_eq!(self::table(&BTreeMap::new()), "Nothing is recorded yet.\n");
}

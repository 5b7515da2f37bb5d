//! `gguf-bench` as a user runs it, on a small random model.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::cli::{Work, error, ok};
use crate::common::{Tiny, write};
#[cfg(target_os = "linux")]
use crate::placement::own_cpu;
use serde_json::Value;

const BENCH: &str = env!("CARGO_BIN_EXE_gguf-bench");

/// Runs on two threads with few repetitions, and without reading memory, unless `line` says otherwise.
fn bench(work: &Work, line: &str) -> Output {
    let mut args: Vec<&str> = vec!["-m", "tiny.gguf", "-q"];
    args.extend(line.split_whitespace());
    for usual in [["-t", "2"], ["-r", "3"], ["-ub", "16"]] {
        if !args.contains(&usual[0]) {
            args.extend(usual);
        }
    }
    if !args.contains(&"--bandwidth") {
        args.push("--no-bandwidth");
    }
    args.retain(|a| *a != "--bandwidth");
    work.run(BENCH, &args)
}

fn json(work: &Work, line: &str) -> Value {
    serde_json::from_str(&ok(&bench(work, &format!("{line} --json")))).unwrap()
}

fn tests(object: &Value) -> &[Value] {
    object["tests"].as_array().unwrap()
}

fn number(test: &Value, key: &str) -> f64 {
    test[key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key}: {}", test[key]))
}

#[test]
fn tests_are_named_and_summed_up() {
    let work = Work::new(&Tiny::new());
    let object = json(&work, "-p 20,40 -n 6 -pg 8,3 -d 0,10 -r 6");
    let names: Vec<&str> = tests(&object)
        .iter()
        .map(|t| t["test"].as_str().unwrap())
        .collect();
    let kinds = ["pp20", "pp40", "tg6", "pp8+tg3"];
    let deep = kinds.map(|k| format!("{k} @ d10"));
    assert_eq!(names[..4], kinds);
    assert_eq!(names[4..], deep);
    for t in tests(&object) {
        let rates = t["samples_ts"].as_array().unwrap();
        let times = t["samples_ns"].as_array().unwrap();
        assert_eq!((rates.len(), times.len()), (6, 6));
        let n_tokens = number(t, "n_prompt") + number(t, "n_gen");
        for (rate, ns) in rates.iter().zip(times) {
            let expected = n_tokens * 1e9 / ns.as_f64().unwrap();
            assert!(
                (rate.as_f64().unwrap() / expected - 1.0).abs() < 1e-2,
                "{rate}, {expected}"
            );
        }
        let inside = ["min_ts", "ci_low_ts", "median_ts", "ci_high_ts", "max_ts"].map(|k| number(t, k));
        assert!(inside.is_sorted() && inside[0] > 0.0, "{inside:?}");
        assert!((number(t, "ci_level") - 0.968_75).abs() < 1e-9);
        assert!(number(t, "warmup_rounds") >= 2.0);
        assert!(number(t, "first_token_ns") > 0.0 && t["cold"] == false);
    }
    assert_eq!(tests(&object)[0]["n_threads"], 2);
    assert!(object["cores"].as_u64().unwrap() > 0);
}

/// What the program does with these lines on standard input.
fn in_turn(work: &Work, line: &str, input: &str) -> Output {
    let args = format!("-m tiny.gguf -q -t 2 --no-bandwidth --json --in-turn {line}");
    let mut child = Command::new(BENCH)
        .current_dir(work.folder.path())
        .args(args.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that does not read all of it has ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn repetitions_wait_for_lines() {
    let work = Work::new(&Tiny::new());
    let out = in_turn(&work, "-p 4 -n 2 -d 3 -r 3", "\n\nnext\n\n\n\n");
    let talk = String::from_utf8(out.stderr.clone()).unwrap();
    let told: Vec<&str> = talk.lines().filter(|l| l.contains("repetition ")).collect();
    assert_eq!(told.len(), 5, "{talk}");
    assert!(told[1].contains("repetition 2 of pp4 @ d3: "), "{talk}");
    let object: Value = serde_json::from_str(&ok(&out)).unwrap();
    let counts: Vec<_> = tests(&object)
        .iter()
        .map(|t| t["samples_ts"].as_array().unwrap().len())
        .collect();
    assert_eq!(counts, [2, 3]);
    let e = error(&in_turn(&work, "-p 4 -n 2", "\n"), 2);
    assert!(e.contains("before repetition 2 of `pp4`: it has ended"), "{e}");
}

#[test]
fn all_combinations_are_run_in_every_form() {
    let work = Work::new(&Tiny::new());
    let line = "-p 4 -n 2 -t 1,2 -b 2,8 -ub 2,4 -r 1 --no-warmup";
    let rows = 2 * 2 * 2 * 2;
    let table = ok(&bench(&work, line));
    let cells = |row: &str| row.split('|').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
    let lines: Vec<_> = table
        .lines()
        .take_while(|l| l.starts_with('|'))
        .map(cells)
        .collect();
    assert_eq!(lines.len(), 2 + rows, "{table}");
    let heads = [
        "model", "size", "params", "backend", "threads", "n_batch", "n_ubatch", "test", "t/s", "CI",
    ];
    assert_eq!(lines[0][1..=10], heads);
    assert_eq!(lines[2][1], "qwen3moe F32");
    assert_eq!(
        (lines[2][5].as_str(), lines[17][5].as_str()),
        ("1", "2"),
        "{table}"
    );
    for part in [
        "median of 1 repetition",
        "load average",
        "start of `tiny.gguf`: open",
    ] {
        assert!(table.contains(part), "no {part} in {table}");
    }
    let csv = ok(&bench(&work, &format!("{line} -o csv")));
    let lines: Vec<Vec<&str>> = csv.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(lines.len(), 1 + rows);
    assert!(lines.iter().all(|l| l.len() == lines[0].len()), "{csv}");
    let jsonl = ok(&bench(&work, &format!("{line} -o jsonl")));
    let records: Vec<Value> = jsonl.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(records.len(), rows);
    let keys: Vec<&String> = records[0].as_object().unwrap().keys().collect();
    assert_eq!(lines[0], keys);
    assert!(records[0]["warmup_steady"].is_null());
}

#[cfg(target_os = "linux")]
#[test]
fn results_say_how_threads_and_memory_were_placed() {
    let work = Work::new(&Tiny::new());
    let cpu = own_cpu();
    let line = format!("-p 4 -n 0 -r 1 -t 1 -Cr{cpu} --cpu-strict 1 --numa numactl --huge-pages");
    let told = |test: &Value| ["cpu_mask", "cpu_strict", "numa", "huge_pages"].map(|key| test[key].clone());
    let mask = format!("0x{}{}", 1 << (cpu % 4), "0".repeat(cpu / 4));
    let placed = [
        Value::from(mask.clone()),
        true.into(),
        "numactl".into(),
        true.into(),
    ];
    assert_eq!(told(&tests(&json(&work, &line))[0]), placed);
    let csv = ok(&bench(&work, &format!("{line} -o csv")));
    let heads: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let values: Vec<&str> = csv.lines().nth(1).unwrap().split(',').collect();
    let at = heads.iter().position(|head| *head == "cpu_mask").unwrap();
    assert_eq!(
        heads[at..at + 4],
        ["cpu_mask", "cpu_strict", "numa", "huge_pages"]
    );
    assert_eq!(values[at..at + 4], [&mask, "true", "numactl", "true"]);
    let note = format!("- placement: `--cpu-range {cpu} --cpu-strict 1 --numa numactl --huge-pages`\n");
    let table = ok(&bench(&work, &line));
    assert!(table.contains(&note), "{table}");
    let usual = "-p 4 -n 0 -r 1";
    let nothing = [Value::from("0x0"), false.into(), Value::Null, false.into()];
    assert_eq!(told(&tests(&json(&work, usual))[0]), nothing);
    assert!(!ok(&bench(&work, usual)).contains("placement"));
}

#[test]
fn models_are_measured_one_after_the_other() {
    let work = Work::new(&Tiny::new());
    let q8 = Tiny {
        matrix_type: "Q8_0",
        ..Tiny::new()
    };
    q8.write(&work.path("q8.gguf"));
    let table = ok(&bench(&work, "-m q8.gguf -p 4 -n 0 -r 1"));
    // On a machine that is busy a note names the test, too.
    let is_row = |l: &&str| l.starts_with('|') && l.contains("pp4");
    let rows: Vec<&str> = table.lines().filter(is_row).collect();
    assert_eq!(rows.len(), 2, "{table}");
    assert!(
        rows[0].contains("tiny.gguf") && rows[1].contains("q8.gguf"),
        "{table}"
    );
    let e = error(&bench(&work, "-m none.gguf -p 4"), 2);
    assert!(e.contains("none.gguf"), "{e}");
}

#[test]
fn sweeps_fill_the_context() {
    let work = Work::new(&Tiny::new());
    let out = ok(&bench(&work, "--sweep -c 50 -r 2"));
    let rows: Vec<Vec<&str>> = out
        .lines()
        .filter(|l| l.starts_with('|'))
        .map(|l| l.split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows[0][1..4], ["PP", "TG", "N_KV"]);
    let filled: Vec<_> = rows[2..].iter().map(|r| [r[1], r[2], r[3]]).collect();
    assert_eq!(filled, [["16", "4", "0"], ["16", "4", "16"], ["16", "4", "32"]]);
    for row in &rows[2..] {
        let n: Vec<f64> = row[4..8].iter().map(|c| c.parse().unwrap()).collect();
        assert!(n[1] > 0.0 && n[3] > 0.0, "{row:?}");
    }
}

#[test]
fn a_token_s_bytes_are_counted() {
    let mut tiny = Tiny::new();
    let bytes = |tiny: &Tiny, tied: bool| -> f64 {
        let of = |(name, shape, values): &(String, Vec<u64>, Vec<f32>)| match name.as_str() {
            "token_embd.weight" if !tied => 4.0 * shape[0] as f64,
            _ if name.contains("exps") => 4.0 * values.len() as f64 * 2.0 / 5.0,
            _ => 4.0 * values.len() as f64,
        };
        tiny.tensors.iter().map(of).sum()
    };
    let work = Work::new(&tiny);
    let object = json(&work, "-p 0 -n 2 -d 3 -r 1 --no-warmup --bandwidth");
    let test = &tests(&object)[0];
    assert_eq!(number(test, "weight_bytes_per_token"), bytes(&tiny, false));
    // Two layers, two heads of 16 keys and 16 values, f16; positions 3 and 4 see 4 and 5.
    let position = 2.0 * 2.0 * 32.0 * 2.0;
    assert_eq!(number(test, "cache_bytes_per_token"), 4.5 * position);
    let total = bytes(&tiny, false) + 4.5 * position;
    let read = number(test, "read_bytes_per_second");
    assert!((read / (total * number(test, "median_ts")) - 1.0).abs() < 1e-9);
    let machine = &object["read_bandwidth"][0];
    assert_eq!(machine["n_threads"], 2);
    assert!(number(machine, "best") >= number(machine, "median") && number(machine, "median") > 1e8);
    let share = number(test, "read_bandwidth_share");
    assert!((share * number(machine, "best") / read - 1.0).abs() < 1e-9);

    tiny.tensors.retain(|t| t.0 != "output.weight");
    tiny.write(&work.path("tiny.gguf"));
    let object = json(&work, "-p 0 -n 2 -r 1 --no-warmup");
    assert_eq!(
        number(&tests(&object)[0], "weight_bytes_per_token"),
        bytes(&tiny, true)
    );
}

#[test]
fn drawings_are_outputs_like_others() {
    let work = Work::new(&Tiny::new());
    let line = "-p 4 -n 2 -d 0,8 -r 2 --plot speed.svg";
    ok(&bench(&work, line));
    let svg = std::fs::read_to_string(work.path("speed.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<circle").count(), 4);
    for part in ["tokens in the context", "pp4", "tg2", "tiny.gguf: qwen3moe F32"] {
        assert!(svg.contains(part), "no {part} in {svg}");
    }
    let e = error(&bench(&work, line), 2);
    assert!(e.contains("speed.svg") && e.contains("--force"), "{e}");
    assert_eq!(std::fs::read_to_string(work.path("speed.svg")).unwrap(), svg);
    ok(&bench(&work, &format!("{line} --force")));
    let model = std::fs::read(work.path("tiny.gguf")).unwrap();
    error(&bench(&work, "-p 4 --plot tiny.gguf --force"), 2);
    assert_eq!(std::fs::read(work.path("tiny.gguf")).unwrap(), model);
    error(&bench(&work, "-m none.gguf -p 4 --plot other.svg"), 2);
    assert!(!work.path("other.svg").exists());
}

#[test]
fn a_cold_start_is_timed_apart() {
    let work = Work::new(&Tiny::new());
    let object = json(&work, "-p 8 -n 2 -r 1 --cold --no-warmup");
    for test in tests(&object) {
        assert_eq!(
            (&test["cold"], &test["first_prompt_tokens"]),
            (&Value::Bool(true), &Value::from(8))
        );
        for key in ["open_ns", "session_ns", "first_prompt_ns", "first_token_ns"] {
            assert!(number(test, key) > 0.0);
        }
    }
    let table = ok(&bench(&work, "-p 8 -n 2 -r 1 --cold"));
    assert!(table.contains("cold start of `tiny.gguf`: open "), "{table}");
    assert!(table.contains("first prompt of 8 tokens "), "{table}");
}

/// Processes that keep cores busy as long as this lives.
struct Busy(Vec<std::process::Child>);

impl Busy {
    fn new(n: usize) -> Self {
        let spin = || {
            let mut shell = Command::new("sh");
            shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            shell.spawn().unwrap()
        };
        Self((0..n).map(|_| spin()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[test]
fn others_on_the_machine_are_told_of() {
    if !std::path::Path::new("/proc/stat").exists() {
        crate::skip::skip("the system does not tell processor times");
        return;
    }
    let work = Work::new(&Tiny::new());
    let busy = Busy::new(3);
    let table = ok(&bench(&work, "-p 512 -n 0 -r 40 -ub 64 --no-warmup"));
    drop(busy);
    assert!(
        table.contains("contended: pp512: other processes used "),
        "{table}"
    );
}

#[test]
fn bad_input_gets_one_line() {
    let work = Work::new(&Tiny::new());
    write(&work.path("noise.gguf"), b"no model at all");
    let cases = [
        ("-p 0 -n 0", 2, "nothing to measure"),
        ("-p 1-1000 -n 1-1000 -d 0,1", 2, "4000 runs"),
        ("-p 1-1000 -d 0-9", 2, "runs, expected at most"),
        ("-p 4, -n 2", 2, "expected a number"),
        ("-ub 0", 2, "above 0"),
        ("-r 0", 2, "0 is not in"),
        ("-pg 5", 2, "512,128"),
        ("-ctk q9", 2, "q8_0"),
        ("-t 100000", 2, "threads"),
        ("-d 100 -c 120", 2, "`-c` allows 120"),
        ("--sweep -c 4", 2, "no room"),
        ("-m noise.gguf", 1, "noise.gguf"),
        ("-m noise.gguf --cold", 1, "noise.gguf"),
        ("-p 2147483647 -d 1", 2, "2147483648 tokens"),
        ("-o xml", 2, "jsonl"),
        ("--json -o csv", 2, "cannot be used"),
    ];
    for (line, code, part) in cases {
        let e = error(&bench(&work, line), code);
        assert!(e.contains(part), "{line}: {e}");
    }
}

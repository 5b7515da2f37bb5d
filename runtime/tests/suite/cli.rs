//! The programs as a user runs them, on a small random model.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Random, Tiny, data, shared, write};
use gguf::Value;

const PERPLEXITY: &str = env!("CARGO_BIN_EXE_gguf-perplexity");
const BENCH: &str = env!("CARGO_BIN_EXE_gguf-bench");

/// A folder with a model and a text of some chunks of 32 tokens.
struct Work {
    folder: tempfile::TempDir,
}

impl Work {
    fn new(tiny: &Tiny) -> Self {
        let work = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        tiny.write(&work.path("tiny.gguf"));
        write(&work.path("text.txt"), text(400).as_bytes());
        work
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, program: &str, args: &[&str]) -> Output {
        Command::new(program)
            .args(args)
            .current_dir(self.folder.path())
            .output()
            .unwrap()
    }

    /// Runs `gguf-perplexity` on the model and the text, in chunks of 32 tokens unless `more` says otherwise.
    fn perplexity(&self, more: &[&str]) -> Output {
        let mut args = vec!["-m", "tiny.gguf", "-f", "text.txt"];
        for usual in [["-c", "32"], ["-t", "2"]] {
            if !more.contains(&usual[0]) {
                args.extend(usual);
            }
        }
        args.extend(more);
        self.run(PERPLEXITY, &args)
    }

    fn json(&self, more: &[&str]) -> serde_json::Value {
        serde_json::from_str(&ok(&self.perplexity(&[more, &["--json"]].concat()))).unwrap()
    }
}

fn text(n_words: usize) -> String {
    let words = [
        "the", "inn", "in", "Fenquin", "was", "low,", "and", "1842", "äther", "—",
    ];
    let mut r = Random(11);
    let chosen = (0..n_words).map(|_| words[(r.next().abs() * 9.99) as usize]);
    chosen.collect::<Vec<_>>().join(" ")
}

pub(crate) fn ok(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one line `error: ..` of a run that must fail with this code.
pub(crate) fn error(output: &Output, code: i32) -> String {
    let talk = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{talk}");
    let lines: Vec<&str> = talk.lines().filter(|l| l.starts_with("error: ")).collect();
    assert_eq!(lines.len(), 1, "{talk}");
    lines[0].to_owned()
}

#[test]
fn perplexity_prints_as_the_reference_does() {
    let work = Work::new(&Tiny::new());
    let out = ok(&work.perplexity(&["--chunks", "3"]));
    let (running, last) = out.split_once('\n').unwrap();
    let items: Vec<&str> = running.trim_end_matches(',').split(',').collect();
    assert_eq!(items.len(), 3);
    for (i, item) in items.iter().enumerate() {
        let number = item.strip_prefix(&format!("[{}]", i + 1)).unwrap();
        assert_eq!(number.split('.').nth(1).unwrap().len(), 4, "{item}");
    }
    let last = last.trim_end().strip_prefix("Final estimate: PPL = ").unwrap();
    let (ppl, error) = last.split_once(" +/- ").unwrap();
    assert_eq!(ppl, items[2].split(']').nth(1).unwrap());
    assert!(error.parse::<f64>().unwrap() > 0.0);
    let json = work.json(&["--chunks", "3"]);
    assert_eq!(format!("{:.4}", json["ppl"].as_f64().unwrap()), ppl);
    assert_eq!(format!("{:.5}", json["ppl_stderr"].as_f64().unwrap()), error);
    assert_eq!(json["count"], 3 * 15);
}

#[test]
fn results_depend_on_neither_threads_nor_batches() {
    let work = Work::new(&Tiny {
        matrix_type: "Q8_0",
        ..Tiny::new()
    });
    let expected = ok(&work.perplexity(&["-t", "1"]));
    let json = work.json(&[])["ppl"].as_f64().unwrap();
    for threads in ["2", "5"] {
        assert_eq!(ok(&work.perplexity(&["-t", threads])), expected);
    }
    for batch in [
        ["-b", "32", "-ub", "32"],
        ["-b", "12", "-ub", "5"],
        ["-b", "100", "-ub", "96"],
    ] {
        let ppl = work.json(&batch)["ppl"].as_f64().unwrap();
        assert!((ppl / json - 1.0).abs() < 1e-6, "{batch:?}: {ppl} is not {json}");
    }
}

#[test]
fn bos_takes_the_first_place_of_every_chunk() {
    let mut tiny = Tiny::new();
    let without = Work::new(&tiny).json(&[]);
    tiny.metadata
        .set("tokenizer.ggml.add_bos_token", Value::Bool(true));
    let with = Work::new(&tiny).json(&[]);
    assert_ne!(with["ppl"], without["ppl"]);
    tiny.metadata
        .set("tokenizer.ggml.add_eos_token", Value::Bool(true));
    let e = error(&Work::new(&tiny).perplexity(&[]), 1);
    assert!(e.contains("EOS"), "{e}");
}

#[test]
fn a_model_does_not_diverge_from_itself() {
    let work = Work::new(&Tiny::new());
    let plain = work.json(&[])["ppl"].as_f64().unwrap();
    let base = work.json(&["--kl-divergence-base", "base.kld"]);
    assert!((base["ppl"].as_f64().unwrap() / plain - 1.0).abs() < 1e-6);
    let args = ["--kl-divergence-base", "base.kld", "--kl-divergence"];
    let found = work.json(&args);
    assert!((found["ppl"].as_f64().unwrap() / plain - 1.0).abs() < 1e-6);
    assert!(
        (found["ratio"]["value"].as_f64().unwrap() - 1.0).abs() < 1e-4,
        "{found}"
    );
    assert!(found["kld"]["mean"].as_f64().unwrap().abs() < 1e-6, "{found}");
    assert_eq!(found["kld"]["mean"], found["mean_kld"]);
    assert!(found["same_top_percent"]["value"].as_f64().unwrap() > 99.0);
    // The text is in the base file.
    let tool = ["-m", "tiny.gguf", "-t", "1"];
    let out = ok(&work.run(PERPLEXITY, &[tool.as_slice(), &args].concat()));
    let n_chunks = found["chunks"].as_u64().unwrap() as usize;
    let rows = out
        .lines()
        .filter(|l| l.contains('±') && l.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    assert!(rows.count() >= n_chunks, "{out}");
    for part in [
        "====== KL divergence statistics ======",
        "Same top p",
        "Mean PPL(Q)/PPL(base)",
        "99.9%   Δp",
    ] {
        assert!(out.contains(part), "no {part} in {out}");
    }
}

#[test]
fn a_coarser_type_diverges() {
    let work = Work::new(&Tiny::new());
    work.json(&["--kl-divergence-base", "base.kld"]);
    Tiny {
        matrix_type: "Q4_0",
        ..Tiny::new()
    }
    .write(&work.path("tiny.gguf"));
    let found = work.json(&["--kl-divergence-base", "base.kld", "--kl-divergence"]);
    let kld = &found["kld"];
    let number = |key: &str| kld[key].as_f64().unwrap();
    assert!(
        number("mean") > 1e-4 && number("maximum") >= number("p99"),
        "{kld}"
    );
    assert!(
        number("p99") >= number("median") && number("median") >= number("minimum"),
        "{kld}"
    );
}

#[test]
fn damaged_base_files_are_refused() {
    let work = Work::new(&Tiny::new());
    work.json(&["--kl-divergence-base", "base.kld"]);
    let good = std::fs::read(work.path("base.kld")).unwrap();
    let refuse = |bytes: &[u8], part: &str| {
        write(&work.path("bad.kld"), bytes);
        let e = error(
            &work.perplexity(&["--kl-divergence-base", "bad.kld", "--kl-divergence"]),
            1,
        );
        assert!(e.contains("bad.kld") && e.contains(part), "{e}");
    };
    let changed = |at: usize, new: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    refuse(&good[..11], "head");
    refuse(&changed(0, b"_lodgits"), "_logits_");
    refuse(&good[..good.len() - 1], "incomplete");
    refuse(&[good.as_slice(), &[0; 8]].concat(), "incomplete");
    refuse(&changed(8, &0u32.to_le_bytes()), "contexts");
    refuse(&changed(8, &u32::MAX.to_le_bytes()), "incomplete");
    refuse(&changed(12, &5u32.to_le_bytes()), "vocabulary");
    refuse(&changed(16, &u32::MAX.to_le_bytes()), "incomplete");
    refuse(&changed(20, &[0xFF; 4]), "token 0");
    let n_tokens = u32::from_le_bytes(good[16..20].try_into().unwrap()) as usize * 32;
    let (scale, min) = (20 + 4 * n_tokens, 24 + 4 * n_tokens);
    let number = |at: usize| f32::from_le_bytes(good[at..][..4].try_into().unwrap());
    for (at, value, part) in [
        (scale, f32::NAN, "scale"),
        (scale, f32::INFINITY, "scale"),
        (scale, -number(scale), "scale"),
        (scale, 3e38, "scale"),
        (scale, 0.0, "add up to 1"),
        (min, f32::NAN, "smallest"),
        (min, f32::NEG_INFINITY, "smallest"),
        (min, -1e30, "add up to 1"),
        (min, number(min) + 1.0, "add up to 1"),
        (min, 3e38, "add up to 1"),
    ] {
        refuse(
            &changed(at, &value.to_le_bytes()),
            &format!(
                "chunk 1, position 16: expected {}",
                if part == "scale" { "a scale" } else { "" }
            ),
        );
        refuse(&changed(at, &value.to_le_bytes()), part);
    }
}

#[test]
fn what_is_given_beside_a_base_file_must_agree_with_it() {
    let work = Work::new(&Tiny::new());
    work.json(&["--kl-divergence-base", "base.kld", "--chunks", "2"]);
    let compare = |more: &[&str]| {
        let base = [
            "-m",
            "tiny.gguf",
            "--kl-divergence-base",
            "base.kld",
            "--kl-divergence",
            "-t",
            "1",
        ];
        work.run(PERPLEXITY, &[base.as_slice(), more].concat())
    };
    let alone = ok(&compare(&[]));
    assert_eq!(
        ok(&compare(&["-f", "text.txt", "-c", "32", "--chunks", "2"])),
        alone
    );
    let e = error(&compare(&["-c", "64"]), 2);
    assert!(e.contains("`-c 64`") && e.contains("chunks of 32"), "{e}");
    write(&work.path("other.txt"), b"Quite another text.");
    let e = error(&compare(&["-f", "other.txt"]), 1);
    assert!(
        e.contains("other.txt") && e.contains("token 0") && e.contains("base.kld"),
        "{e}"
    );
    let longer = compare(&["--chunks", "9"]);
    assert_eq!(ok(&longer), alone);
    let talk = String::from_utf8(longer.stderr).unwrap();
    assert!(
        talk.contains("warning: `--chunks 9`") && talk.contains("2 chunks"),
        "{talk}"
    );
    let short = ok(&compare(&["--chunks", "1"]));
    assert!(
        alone.starts_with(short.lines().take(2).collect::<Vec<_>>().join("\n").as_str()),
        "{short}"
    );
}

#[test]
fn a_perplexity_beyond_all_numbers_is_an_error() {
    let mut tiny = Tiny::new();
    for v in &mut tiny.tensor_mut("output.weight").2 {
        *v *= 1e6;
    }
    let e = error(&Work::new(&tiny).perplexity(&["--json"]), 1);
    assert!(e.contains("statistic `ppl`"), "{e}");
}

#[test]
fn base_files_do_not_overwrite() {
    let work = Work::new(&Tiny::new());
    let model = std::fs::read(work.path("tiny.gguf")).unwrap();
    let e = error(
        &work.perplexity(&["--kl-divergence-base", "tiny.gguf", "--force"]),
        2,
    );
    assert!(e.contains("tiny.gguf"), "{e}");
    assert_eq!(std::fs::read(work.path("tiny.gguf")).unwrap(), model);
    work.json(&["--kl-divergence-base", "base.kld"]);
    let before = std::fs::read(work.path("base.kld")).unwrap();
    error(
        &work.perplexity(&["--kl-divergence-base", "base.kld", "--chunks", "1"]),
        2,
    );
    assert_eq!(std::fs::read(work.path("base.kld")).unwrap(), before);
    ok(&work.perplexity(&["--kl-divergence-base", "base.kld", "--chunks", "1", "--force"]));
    assert!(std::fs::read(work.path("base.kld")).unwrap().len() < before.len());
}

#[test]
fn bad_input_gets_one_line() {
    let work = Work::new(&Tiny::new());
    let e = error(&work.perplexity(&["-c", "4096"]), 1);
    assert!(e.contains("too short") && e.contains("8192"), "{e}");
    let run = |args: &[&str], code| error(&work.run(PERPLEXITY, args), code);
    let e = run(&["-m", "none.gguf", "-f", "text.txt"], 2);
    assert!(e.contains("none.gguf"), "{e}");
    let e = run(&["-m", "tiny.gguf", "-f", "none.txt"], 2);
    assert!(e.contains("none.txt"), "{e}");
    run(&["-m", "text.txt", "-f", "text.txt"], 1);
    write(&work.path("latin1.txt"), b"caf\xE9");
    let e = run(&["-m", "tiny.gguf", "-f", "latin1.txt"], 1);
    assert!(e.contains("at byte 3"), "{e}");
    for args in [["-c", "3"], ["-b", "0"], ["-ub", "0"], ["--chunks", "0"]] {
        error(&work.perplexity(&args), 2);
    }
    let usage = work.run(PERPLEXITY, &["-m", "tiny.gguf"]);
    assert_eq!(usage.status.code(), Some(2));
    let half = work.run(PERPLEXITY, &["-m", "tiny.gguf", "--kl-divergence"]);
    assert_eq!(half.status.code(), Some(2));
}

#[test]
fn logits_that_are_no_numbers_stop_the_run() {
    let mut tiny = Tiny::new();
    tiny.tensor_mut("output.weight").2[64 * 7] = f32::INFINITY;
    let work = Work::new(&tiny);
    let e = error(&work.perplexity(&["--kl-divergence-base", "base.kld"]), 1);
    assert!(e.contains("chunk 1, position 16") && e.contains("token 7"), "{e}");
    assert!(!work.path("base.kld").exists());
}

#[test]
fn vocabularies_without_code_are_named() {
    let mut tiny = Tiny::new();
    tiny.metadata
        .set("tokenizer.ggml.model", Value::String("rwkv".into()));
    let e = error(&Work::new(&tiny).perplexity(&[]), 1);
    assert!(e.contains("rwkv"), "{e}");
    let mut twice = Tiny::new();
    let mut tokens = twice
        .metadata
        .strings("tokenizer.ggml.tokens")
        .unwrap()
        .unwrap()
        .to_vec();
    tokens[1] = tokens[0].clone();
    twice.metadata.set("tokenizer.ggml.tokens", Value::from(tokens));
    let e = error(&Work::new(&twice).perplexity(&[]), 1);
    assert!(e.contains("twice"), "{e}");
}

#[test]
fn bench_measures_both_tests() {
    let work = Work::new(&Tiny::new());
    let args = [
        "-m",
        "tiny.gguf",
        "-p",
        "40",
        "-n",
        "6",
        "-r",
        "3",
        "-t",
        "2",
        "-ub",
        "16",
    ];
    let table = ok(&work.run(BENCH, &args));
    for part in ["tiny (qwen3moe)", "pp40", "tg6", "t/s", "load average"] {
        assert!(table.contains(part), "no {part} in {table}");
    }
    let json = ok(&work.run(BENCH, &[args.as_slice(), &["--json"]].concat()));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    for (kind, test) in ["pp", "tg"].iter().zip(json["tests"].as_array().unwrap()) {
        let rates: Vec<f64> = test["tokens_per_second"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r.as_f64().unwrap())
            .collect();
        assert_eq!(rates.len(), 3);
        assert!(rates.iter().all(|r| *r > 0.0));
        assert_eq!(json[kind], test["median"]);
        assert!(test["min"].as_f64() <= test["median"].as_f64());
        assert!(test["median"].as_f64() <= test["max"].as_f64());
    }
    assert_eq!(json["threads"], 2);
    let only = ok(&work.run(
        BENCH,
        &["-m", "tiny.gguf", "-p", "0", "-n", "2", "-r", "1", "--json"],
    ));
    let only: serde_json::Value = serde_json::from_str(&only).unwrap();
    assert!(only["pp"].is_null() && only["tests"].as_array().unwrap().len() == 1);
    let e = error(&work.run(BENCH, &["-m", "tiny.gguf", "-p", "0", "-n", "0"]), 2);
    assert!(e.contains("nothing to measure"), "{e}");
    assert_eq!(
        work.run(BENCH, &["-m", "tiny.gguf", "-r", "0"]).status.code(),
        Some(2)
    );
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let work = Work::new(&Tiny::new());
    let mut child = Command::new(PERPLEXITY)
        .args(["-m", "tiny.gguf", "-f", "text.txt", "-c", "16", "-b", "16"])
        .current_dir(work.folder.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_trained_model_s_perplexity_is_the_reference_s() {
    let Some(model) = shared("golden/quantize/qwen3moe-bf16.gguf") else {
        return;
    };
    let text = data("evaluation.txt");
    let name = |p: &Path| p.to_str().unwrap().to_owned();
    let args = [
        "-m",
        &name(&model),
        "-f",
        &name(&text),
        "-c",
        "256",
        "-b",
        "256",
        "-q",
        "--json",
    ];
    let output = Command::new(PERPLEXITY).args(args).output().unwrap();
    let json: serde_json::Value = serde_json::from_str(&ok(&output)).unwrap();
    let golden = std::fs::read_to_string(data("golden/perplexity.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&golden).unwrap();
    for (key, within) in [("ppl", 0.0005), ("ppl_stderr", 0.005)] {
        let expected = golden["results"]["BF16"][key].as_f64().unwrap();
        let found = json[key].as_f64().unwrap();
        assert!(
            (found / expected - 1.0).abs() < within,
            "{key}: {found} is not {expected}"
        );
    }
}

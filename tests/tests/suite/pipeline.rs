//! The programs one after the other on the model of `tests/data`, against the reference's numbers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use gguf::GgufFile;
use gguf_runtime::{KvType, Model, Session, Settings};
use serde_json::Value;
use sha2::{Digest, Sha256};
use suite_tests::{data, program, run, run_json, run_ok};

/// The folder that the tests of this file share: the converted model, the importance matrix of the
/// reference, and the file of log probabilities. Made once.
struct Work {
    folder: tempfile::TempDir,
}

impl Work {
    fn get() -> &'static Self {
        static WORK: OnceLock<Work> = OnceLock::new();
        WORK.get_or_init(|| {
            let work = Work {
                folder: tempfile::tempdir().expect("a temporary folder can be made"),
            };
            let model = data("qwen3moe");
            run_ok(
                "gguf-convert",
                &[s(&model), "-o", s(&work.bf16()), "--outtype", "bf16", "--quiet"],
            );
            work
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn bf16(&self) -> PathBuf {
        self.path("bf16.gguf")
    }

    /// Quantizes and returns the output, which is made once: tests that run at the same time ask for the same.
    fn quantized(&self, file_type: &str, imatrix: bool) -> PathBuf {
        static MADE: Mutex<BTreeMap<PathBuf, Arc<OnceLock<()>>>> = Mutex::new(BTreeMap::new());
        let out = self.path(&format!(
            "{file_type}{}.gguf",
            if imatrix { "+imatrix" } else { "" }
        ));
        let mut made = MADE.lock().expect("no test panics with it");
        let once = made.entry(out.clone()).or_default().clone();
        drop(made);
        once.get_or_init(|| {
            let matrix = data("golden/qwen3moe.imatrix.gguf");
            let bf16 = self.bf16();
            let mut args = vec!["--quiet"];
            if imatrix {
                args.extend(["--imatrix", s(&matrix)]);
            }
            args.extend([s(&bf16), s(&out), file_type, "2"]);
            run_ok("gguf-quantize", &args);
        });
        out
    }

    /// The reference's base for KL divergence, made by ours from the BF16 file.
    fn base(&self) -> &'static Path {
        static BASE: OnceLock<PathBuf> = OnceLock::new();
        BASE.get_or_init(|| {
            let base = self.path("base.kld");
            let stats = perplexity(&self.bf16(), &["--kl-divergence-base", s(&base)]);
            within(stats["ppl"].as_f64(), 1.9062, 0.0005, "perplexity of BF16");
            base
        })
    }
}

fn s(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

fn perplexity(model: &Path, more: &[&str]) -> Value {
    let text = data("evaluation.txt");
    let mut args = vec![
        "-m",
        s(model),
        "-f",
        s(&text),
        "-c",
        "256",
        "-b",
        "256",
        "-t",
        "2",
        "--quiet",
    ];
    args.extend(more);
    run_json("gguf-perplexity", &args)
}

fn within(found: Option<f64>, expected: f64, relative: f64, what: &str) {
    let found = found.unwrap_or_else(|| panic!("{what}: no number in the output"));
    let error = (found / expected - 1.0).abs();
    assert!(
        error <= relative,
        "{what}: expected {expected} within {relative}, found {found}"
    );
}

fn golden_quantize() -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(data("golden/quantize-qwen3moe.json")).expect("golden data is here");
    serde_json::from_str(&text).expect("golden data is JSON")
}

fn digests(path: &Path) -> BTreeMap<String, (String, String)> {
    let file = GgufFile::open(path).expect("an output opens");
    file.tensors
        .iter()
        .map(|t| {
            let bytes = file.tensor_bytes(t).expect("an output's tensors can be read");
            let digest = Sha256::digest(&bytes)
                .iter()
                .fold(String::new(), |a, b| a + &format!("{b:02x}"));
            (t.name.clone(), (t.type_name(), digest))
        })
        .collect()
}

#[test]
fn every_file_type_has_the_reference_s_bits() {
    let work = Work::get();
    let golden = golden_quantize();
    assert!(
        golden.len() >= 26,
        "the golden file lists every file type with and without imatrix"
    );
    for (case, expected) in &golden {
        let (file_type, imatrix) = match case.strip_suffix("+imatrix") {
            Some(t) => (t, true),
            None => (case.as_str(), false),
        };
        let found = digests(&work.quantized(file_type, imatrix));
        let tensors = expected["tensors"].as_array().expect("golden tensors");
        assert_eq!(found.len(), tensors.len(), "{case}: number of tensors");
        for t in tensors {
            let name = t[0].as_str().expect("a name");
            let (type_name, digest) = &found[name];
            assert_eq!(
                type_name,
                t[2].as_str().expect("a type"),
                "{case}: type of {name}"
            );
            assert_eq!(digest, t[3].as_str().expect("a digest"), "{case}: bits of {name}");
        }
    }
}

#[test]
fn bf16_to_bf16_is_a_copy() {
    let work = Work::get();
    let source = digests(&work.bf16());
    assert_eq!(source, digests(&work.quantized("BF16", false)));
}

#[test]
fn perplexity_and_divergence_are_the_reference_s() {
    let work = Work::get();
    let text = std::fs::read_to_string(data("golden/perplexity.json")).expect("golden data is here");
    let golden: Value = serde_json::from_str(&text).expect("golden data is JSON");
    let known = golden_quantize();
    let mut n = 0;
    for (case, expected) in golden["results"].as_object().expect("golden results") {
        let (file_type, imatrix) = match case.strip_suffix("+imatrix") {
            Some(t) => (t, true),
            None => (case.as_str(), false),
        };
        if !known.contains_key(file_type) {
            continue;
        }
        let model = work.quantized(file_type, imatrix);
        let stats = perplexity(
            &model,
            &["--kl-divergence-base", s(work.base()), "--kl-divergence"],
        );
        within(
            stats["ppl"].as_f64(),
            expected["ppl"].as_f64().expect("ppl"),
            0.002,
            case,
        );
        // One token whose routing is a near tie can weigh more than all others together.
        let number = |key: &str| stats["kld"][key].as_f64().expect("a number");
        let n_tokens = stats["count"].as_f64().expect("tokens");
        let kld = (number("mean") * n_tokens - number("maximum")) / (n_tokens - 1.0);
        let wanted = expected["kld"].as_f64().expect("kld");
        let error = (kld - wanted).abs();
        assert!(
            error <= 2e-5 || error <= 0.25 * wanted,
            "{case}: divergence {kld}, expected {wanted}"
        );
        n += 1;
    }
    assert!(n >= 9, "only {n} file types were compared");
}

#[test]
fn the_importance_matrix_is_the_reference_s() {
    let work = Work::get();
    let out = work.path("imatrix.gguf");
    let (bf16, text) = (work.bf16(), data("calibration.txt"));
    let args = [
        "-m",
        s(&bf16),
        "-f",
        s(&text),
        "-o",
        s(&out),
        "-c",
        "256",
        "-b",
        "256",
        "-t",
        "2",
        "--quiet",
    ];
    run_ok("gguf-imatrix", &args);
    let found = gguf_imatrix_format::Imatrix::read(&out).expect("our matrix opens");
    let golden =
        gguf_imatrix_format::Imatrix::read(&data("golden/qwen3moe.imatrix.gguf")).expect("golden opens");
    assert!(found.entries.keys().eq(golden.entries.keys()), "the same weights");
    for (name, g) in &golden.entries {
        let f = &found.entries[name];
        let total = |c: &[u64]| c.iter().sum::<u64>();
        assert_eq!(total(&f.counts), total(&g.counts), "{name}: total count");
        for (a, b) in f.counts.iter().zip(&g.counts) {
            assert!(
                a.abs_diff(*b) <= 4,
                "{name}: counts {:?}, expected {:?}",
                f.counts,
                g.counts
            );
        }
        let diff: f64 = f
            .sums
            .iter()
            .zip(&g.sums)
            .map(|(a, b)| f64::from(a - b).powi(2))
            .sum();
        let norm: f64 = g.sums.iter().map(|b| f64::from(*b).powi(2)).sum();
        let error = (diff / norm).sqrt();
        assert!(error <= 5e-3, "{name}: relative L2 error {error}");
    }
    // It knows its model, also in another type; another tool's matrix says nothing.
    let origin = found.origin.expect("the matrix says what it was made of");
    assert_eq!(origin.texts.len(), 1);
    assert!(golden.origin.is_none());
    let eight = work.quantized("Q8_0", true);
    for model in [&bf16, &eight] {
        let args = [
            "--dry-run",
            "--strict",
            "--allow-requantize",
            "--imatrix",
            s(&out),
            s(model),
        ];
        run_ok(
            "gguf-quantize",
            &[&args[..], &[s(&work.path("none.gguf")), "Q4_K_M"]].concat(),
        );
    }
    let other = work.path("other.gguf");
    let key = "qwen3moe.expert_used_count=int:3";
    run_ok(
        "gguf-quantize",
        &["--override-kv", key, s(&bf16), s(&other), "COPY"],
    );
    let refused = run(
        "gguf-quantize",
        &["--dry-run", "--strict", "--imatrix", s(&out), s(&other), "Q4_K_M"],
    );
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        text.contains("key `qwen3moe.expert_used_count` was 2 and is 3"),
        "{text}"
    );
}

#[test]
fn outputs_are_sound_and_private() {
    let work = Work::get();
    let out = work.quantized("Q4_K_M", true);
    run_ok("gguf-inspect", &["check", s(&out)]);
    let bytes = std::fs::read(&out).expect("an output can be read");
    for secret in [
        s(work.folder.path()),
        s(data("").parent().expect("data lies in a folder")),
    ] {
        let found = bytes.windows(secret.len()).any(|w| w == secret.as_bytes());
        assert!(!found, "the path {secret} stands in an output");
    }
}

#[test]
fn greedy_text_is_the_reference_s() {
    let text = std::fs::read_to_string(data("golden/greedy.json")).expect("golden data is here");
    let golden: Value = serde_json::from_str(&text).expect("golden data is JSON");
    let bf16 = Work::get().bf16();
    for case in golden.as_array().expect("a list of prompts") {
        let prompt = case["prompt"].as_str().expect("a prompt");
        let line = [
            "-m",
            s(&bf16),
            "-p",
            prompt,
            "-n",
            "32",
            "--temp",
            "0",
            "--ignore-eos",
        ];
        let found = run_json("gguf-run", &line);
        assert_eq!(found["text"], case["text"], "{prompt}");
        assert_eq!(found["n_generated"], 32, "{prompt}");
    }
}

#[test]
fn programs_say_what_is_wrong_in_one_line_and_write_nothing() {
    let work = Work::get();
    let (bf16, none, out) = (work.bf16(), work.path("none"), work.path("not-written.gguf"));
    let short = work.path("short.txt");
    #[expect(
        clippy::disallowed_methods,
        reason = "the text is an input of the test, not an output of the suite"
    )]
    std::fs::write(&short, "too short").expect("a text can be written");
    let cut = work.path("cut.gguf");
    std::fs::copy(&bf16, &cut).expect("a model can be copied");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&cut)
        .expect("a copy can be opened");
    file.set_len(9_000_000).expect("a copy can be cut");
    let text = data("evaluation.txt");
    let cases: &[(&str, &[&str], i32)] = &[
        ("gguf-convert", &[s(&none), "-o", s(&out)], 2),
        ("gguf-quantize", &[s(&bf16), s(&out), "Q9_Z"], 2),
        ("gguf-quantize", &[s(&bf16), s(&bf16), "Q8_0"], 2),
        ("gguf-quantize", &[s(&none), s(&out), "Q8_0"], 2),
        (
            "gguf-imatrix",
            &["-m", s(&bf16), "-f", s(&short), "-o", s(&out)],
            1,
        ),
        ("gguf-perplexity", &["-m", s(&bf16), "-f", s(&short)], 1),
        ("gguf-perplexity", &["-m", s(&short), "-f", s(&short)], 1),
        ("gguf-perplexity", &["-m", s(&cut), "-f", s(&text)], 1),
        ("gguf-imatrix", &["-m", s(&cut), "-f", s(&text), "-o", s(&out)], 1),
        ("gguf-bench", &["-m", s(&cut)], 1),
        ("gguf-run", &["-m", s(&cut), "-p", "a text"], 1),
        ("gguf-bench", &["-m", s(&bf16), "-t", "100000"], 2),
        ("gguf-quantize", &[s(&cut), s(&out), "Q8_0"], 1),
        ("gguf-inspect", &["check", s(&cut)], 1),
        ("gguf-bench", &["-m", s(&none)], 2),
        ("gguf-inspect", &[s(&none)], 2),
        ("gguf-inspect", &["check", s(&short)], 1),
    ];
    for (name, args, code) in cases {
        let result = run(name, args);
        let talk = String::from_utf8_lossy(&result.stderr).into_owned();
        assert_eq!(result.status.code(), Some(*code), "{name} {args:?}: {talk}");
        let errors: Vec<&str> = talk.lines().filter(|l| l.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{name} {args:?} says: {talk}");
        assert!(!out.exists(), "{name} {args:?} wrote an output");
    }
    assert!(program("gguf-bench").exists());
}

#[test]
fn an_estimate_is_the_plan_of_a_session() {
    let path = Work::get().bf16();
    let args = [
        "estimate",
        s(&path),
        "-c",
        "1000",
        "-ctk",
        "q8_0",
        "-ctv",
        "f32",
        "-ub",
        "64",
    ];
    let estimate = run_json("gguf-inspect", &args);
    let settings = Settings {
        n_ctx: 1000,
        n_ubatch: 64,
        type_k: KvType::Q8_0,
        type_v: KvType::F32,
        ..Settings::default()
    };
    let model = Model::open(&path).expect("a sound model");
    let plan = Session::plan(&model, &settings).expect("settings of a session");
    let told = &estimate["this_suite"];
    assert_eq!(told["cache"].as_u64(), Some(plan.kv));
    assert_eq!(told["buffers"].as_u64(), Some(plan.scratch));
    assert_eq!(told["file"].as_u64(), Some(model.file().n_bytes()));
    // Not what the suite can do: nothing is told.
    let other = run_json("gguf-inspect", &["estimate", s(&path), "-ctk", "q5_0"]);
    assert!(other["this_suite"].is_null());
}

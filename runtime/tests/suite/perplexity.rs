//! `gguf-perplexity` on texts, as a user runs it.

use std::path::Path;
use std::process::Command;

use gguf::Value;

use crate::cli::{PERPLEXITY, Work, error, ok};
use crate::common::{Tiny, data, shared, write};

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
    let (last, bits) = last.split_once('\n').unwrap();
    let last = last.strip_prefix("Final estimate: PPL = ").unwrap();
    let (ppl, error) = last.split_once(" +/- ").unwrap();
    assert_eq!(ppl, items[2].split(']').nth(1).unwrap());
    assert!(error.parse::<f64>().unwrap() > 0.0);
    let json = work.json(&["--chunks", "3"]);
    assert_eq!(format!("{:.4}", json["ppl"].as_f64().unwrap()), ppl);
    assert_eq!(format!("{:.5}", json["ppl_stderr"].as_f64().unwrap()), error);
    assert_eq!(json["count"], 3 * 15);
    let number = |key: &str| json[key].as_f64().unwrap();
    assert!(bits.contains(&format!(
        "{:.4} +/- {:.5} (45 tokens",
        number("bits_per_byte"),
        number("bits_per_byte_stderr")
    )));
    let expected = number("mean_nll") * 45.0 / 2f64.ln() / number("bytes");
    assert!((number("bits_per_byte") / expected - 1.0).abs() < 1e-12);
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
fn a_perplexity_beyond_all_numbers_is_an_error() {
    let mut tiny = Tiny::new();
    for v in &mut tiny.tensor_mut("output.weight").2 {
        *v *= 1e6;
    }
    let e = error(&Work::new(&tiny).perplexity(&["--json"]), 1);
    assert!(e.contains("statistic `ppl`"), "{e}");
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

/// A model and a coarser one of the same weights, `tiny.gguf` and `q4.gguf`.
pub(crate) fn two_models() -> Work {
    let work = Work::new(&Tiny::new());
    Tiny {
        matrix_type: "Q4_0",
        ..Tiny::new()
    }
    .write(&work.path("q4.gguf"));
    work
}

#[test]
fn each_text_has_its_result_and_all_have_one() {
    let work = two_models();
    write(&work.path("short.txt"), crate::cli::text(90).as_bytes());
    let alone = |name: &str| {
        let args = ["-m", "tiny.gguf", "-f", name, "-c", "32", "--json"];
        serde_json::from_str::<serde_json::Value>(&ok(&work.run(PERPLEXITY, &args))).unwrap()
    };
    let found = work.json(&["-f", "short.txt"]);
    let [first, second] = found["texts"].as_array().unwrap().as_slice() else {
        panic!("{found}")
    };
    for (text, name) in [(first, "text.txt"), (second, "short.txt")] {
        let alone = alone(name);
        for key in [
            "text",
            "ppl",
            "ppl_stderr",
            "bits_per_byte",
            "count",
            "bytes",
            "chunks",
        ] {
            assert_eq!(text[key], alone[key], "{key} of {name}");
        }
    }
    let number = |v: &serde_json::Value, key: &str| v[key].as_f64().unwrap();
    let sum = |key: &str| number(first, key) + number(second, key);
    assert_eq!(number(&found, "count"), sum("count"));
    let nll = [first, second].map(|t| number(t, "mean_nll") * number(t, "count"));
    let mean = (nll[0] + nll[1]) / sum("count");
    assert!((number(&found, "mean_nll") / mean - 1.0).abs() < 1e-12);
    let mean_of_texts = number(&found["mean_of_texts"], "ppl");
    assert!(
        (mean_of_texts / (sum("ppl") / 2.0) - 1.0).abs() < 1e-12,
        "{found}"
    );
    let table = ok(&work.perplexity(&["-f", "short.txt"]));
    assert!(
        table.contains("text: short.txt") && table.contains("\nmean of texts"),
        "{table}"
    );
    let compared = work.json(&["-f", "short.txt", "--compare", "q4.gguf"]);
    assert_eq!(compared["compare"][0]["texts"].as_array().unwrap().len(), 2);
}

#[test]
fn texts_may_come_from_the_command_line() {
    let work = Work::new(&Tiny::new());
    let text = std::fs::read_to_string(work.path("text.txt")).unwrap();
    let tool = ["-m", "tiny.gguf", "-c", "32", "-t", "2"];
    let by_prompt = ok(&work.run(PERPLEXITY, &[tool.as_slice(), &["-p", &text]].concat()));
    assert_eq!(by_prompt, ok(&work.perplexity(&[])));
    let stdin = Command::new(PERPLEXITY)
        .args(tool)
        .args(["-f", "-"])
        .current_dir(work.folder.path())
        .stdin(std::fs::File::open(work.path("text.txt")).unwrap())
        .output()
        .unwrap();
    assert_eq!(ok(&stdin), by_prompt);
    write(&work.path("empty.txt"), b"");
    write(&work.path("few.txt"), b"in the inn in the inn");
    for name in ["empty.txt", "few.txt"] {
        let args = [tool.as_slice(), &["-f", name]].concat();
        let e = error(&work.run(PERPLEXITY, &args), 1);
        assert!(e.contains(name) && e.contains("two contexts of 32"), "{e}");
    }
}

#[test]
fn windows_and_detailed_lines() {
    let work = Work::new(&Tiny::new());
    let detailed = ok(&work.perplexity(&["--ppl-output-type", "1", "--chunks", "3"]));
    let json = work.json(&["--chunks", "3"]);
    let lines: Vec<Vec<&str>> = detailed
        .lines()
        .take(3)
        .map(|l| l.split_whitespace().collect())
        .collect();
    for (i, line) in lines.iter().enumerate() {
        assert_eq!(line[0], (i * 32).to_string());
        assert_eq!(
            line[1],
            format!("{:.4}", json["ppl_by_chunk"][i].as_f64().unwrap())
        );
    }
    assert_eq!(lines[2][2], format!("{:.6}", json["mean_nll"].as_f64().unwrap()));
    let strided = work.json(&["--ppl-stride", "100"]);
    assert_eq!(
        (strided["n_ctx"].as_u64(), strided["stride"].as_u64()),
        (Some(256), Some(100))
    );
    let n = strided["chunks"].as_u64().unwrap();
    assert!(n > 2 && strided["count"].as_u64() == Some(n * 100), "{n}");
    let one = work.json(&["--ppl-stride", "100", "-b", "100"])["ppl"]
        .as_f64()
        .unwrap();
    assert!((strided["ppl"].as_f64().unwrap() / one - 1.0).abs() < 1e-6);
    let e = error(&work.perplexity(&["--ppl-stride", "100", "-c", "9000"]), 1);
    assert!(e.contains("a window of"), "{e}");
    error(&work.perplexity(&["--ppl-stride", "300", "-c", "10"]), 2);
}

/// What the run says of a model with one bad value in a tensor.
fn with_bad(tensor: &str, at: usize, value: f32, matrix_type: &'static str) -> String {
    let mut tiny = Tiny {
        matrix_type,
        ..Tiny::new()
    };
    tiny.tensor_mut(tensor).2[at] = value;
    error(&Work::new(&tiny).perplexity(&[]), 1)
}

#[test]
fn weights_that_are_no_numbers_are_found() {
    for (tensor, at, matrix_type, parts) in [
        (
            "blk.1.attn_norm.weight",
            3,
            "F32",
            ["layer 1", "(F32)", "row 0, column 3"],
        ),
        (
            "blk.1.ffn_norm.weight",
            5,
            "Q8_0",
            ["layer 1", "(F32)", "row 0, column 5"],
        ),
        (
            "blk.0.attn_v.weight",
            64 * 2 + 1,
            "F16",
            ["layer 0", "(F16)", "row 2, column 1"],
        ),
        (
            "blk.0.attn_output.weight",
            7,
            "F32",
            ["layer 0", "(F32)", "row 0, column 7"],
        ),
        (
            "output_norm.weight",
            9,
            "F32",
            ["output", "(F32)", "row 0, column 9"],
        ),
        (
            "output.weight",
            64 * 7,
            "BF16",
            ["output", "(BF16)", "row 7, column 0"],
        ),
    ] {
        let e = with_bad(tensor, at, f32::NAN, matrix_type);
        assert!(e.contains("chunk 1, position 16: the logit"), "{e}");
        assert!(
            e.contains(&format!("tensor `{tensor}`")) && e.contains("NaN"),
            "{e}"
        );
        for part in parts {
            assert!(e.contains(part), "no {part} in {e}");
        }
    }
    // Experts are one stack; every second row of a token goes to this one at least once in a chunk.
    let mut tiny = Tiny::new();
    for v in &mut tiny.tensor_mut("blk.1.ffn_down_exps.weight").2 {
        *v = f32::INFINITY;
    }
    let e = error(&Work::new(&tiny).perplexity(&["--compare", "tiny.gguf"]), 1);
    assert!(
        e.contains("`blk.1.ffn_down_exps.weight`") && e.contains("row 0, column 0, is inf"),
        "{e}"
    );
}

#[test]
fn values_that_outgrow_their_type_are_told_from_bad_weights() {
    let mut tiny = Tiny::new();
    for v in &mut tiny.tensor_mut("blk.0.ffn_up_exps.weight").2 {
        *v = 3e38;
    }
    let e = error(&Work::new(&tiny).perplexity(&[]), 1);
    assert!(
        e.contains("all weights are finite") && e.contains("layer 0"),
        "{e}"
    );
    assert!(e.contains("`blk.0.ffn_down_exps.weight` (F32), expert"), "{e}");
}

#[test]
fn layer_by_layer_gives_the_same_results() {
    let work = Work::new(&Tiny {
        matrix_type: "Q8_0",
        ..Tiny::new()
    });
    Tiny::new().write(&work.path("other.gguf"));
    for more in [
        &["-b", "12", "-ub", "5"][..],
        &["--compare", "other.gguf"],
        &["--ppl-stride", "8"],
    ] {
        let usual = ok(&work.perplexity(more));
        for order in [
            &["--layer-major"][..],
            &["--max-memory", "40M", "--layer-major"],
            &["--max-memory", "1K"],
        ] {
            let found = work.perplexity(&[more, order].concat());
            if order == ["--max-memory", "1K"] {
                // Less than any layer: chosen by itself, and refused with what is needed.
                let e = error(&found, 2);
                assert!(e.contains("--max-memory") && e.contains("MiB"), "{e}");
                continue;
            }
            assert_eq!(ok(&found), usual, "{more:?} {order:?}");
        }
    }
    let e = error(&work.perplexity(&["--hellaswag", "--layer-major"]), 2);
    assert!(e.contains("--layer-major"), "{e}");
}

#[test]
fn a_layer_that_gives_no_number_is_named() {
    let mut tiny = Tiny::new();
    tiny.tensor_mut("blk.1.attn_q.weight").2[3] = f32::INFINITY;
    let e = error(&Work::new(&tiny).perplexity(&["--layer-major"]), 1);
    assert!(
        e.contains("chunk 1, position 16: layer 1 gives")
            && e.contains("tensor `blk.1.attn_q.weight` (F32), row 0, column 3, is inf"),
        "{e}"
    );
}

//! `gguf-perplexity` as a user runs it.

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
fn two_models() -> Work {
    let work = Work::new(&Tiny::new());
    Tiny {
        matrix_type: "Q4_0",
        ..Tiny::new()
    }
    .write(&work.path("q4.gguf"));
    work
}

#[test]
fn models_are_compared_side_by_side_without_a_file() {
    let work = two_models();
    write(
        &work.path("copy.gguf"),
        &std::fs::read(work.path("tiny.gguf")).unwrap(),
    );
    work.json(&["--kl-divergence-base", "base.kld"]);
    let by_file = {
        let args = [
            "-m",
            "q4.gguf",
            "-t",
            "2",
            "--kl-divergence-base",
            "base.kld",
            "--kl-divergence",
            "--json",
        ];
        let out = ok(&work.run(PERPLEXITY, &args));
        serde_json::from_str::<serde_json::Value>(&out).unwrap()
    };
    let compare = ["--compare", "q4.gguf", "--compare", "copy.gguf"];
    let found = work.json(&compare);
    let plain = work.json(&[]);
    assert_eq!(found["ppl"], plain["ppl"]);
    let [q4, copy] = found["compare"].as_array().unwrap().as_slice() else {
        panic!("{found}")
    };
    let of = |v: &serde_json::Value, keys: [&str; 2]| v[keys[0]][keys[1]].as_f64().unwrap();
    for (keys, within) in [
        (["kld", "mean"], 1e-3),
        (["kld", "median"], 1e-2),
        (["ppl_base", "value"], 1e-5),
        (["rms_dp_percent", "value"], 1e-3),
    ] {
        let (a, b) = (of(q4, keys), of(&by_file, keys));
        assert!((a / b - 1.0).abs() < within, "{keys:?}: {a} is not {b}");
    }
    assert_eq!(
        q4["file_bytes"],
        std::fs::metadata(work.path("q4.gguf")).unwrap().len()
    );
    assert_eq!(
        (of(copy, ["kld", "mean"]), of(copy, ["kld", "maximum"])),
        (0.0, 0.0)
    );
    assert_eq!(of(copy, ["same_top_percent", "value"]), 100.0);
    // Every statistic of a comparison by file is there.
    for key in by_file.as_object().unwrap().keys() {
        let known = q4.get(key).or(found.get(key));
        assert!(known.is_some(), "no {key}");
    }
    let text = ok(&work.perplexity(&[&compare[..], &["--chunks", "7"]].concat()));
    let table: Vec<&str> = text.lines().rev().take(3).collect();
    assert!(
        table[2].starts_with("tiny.gguf") && table[1].starts_with("q4.gguf"),
        "{text}"
    );
    assert!(text.contains("\nq4.gguf\n====== Perplexity statistics"), "{text}");
}

#[test]
fn side_by_side_does_not_depend_on_batches() {
    let work = two_models();
    let of = |more: &[&str]| {
        let found = work.json(&[&["--compare", "q4.gguf", "--chunks", "4"], more].concat());
        found["compare"][0]["kld"]["mean"].as_f64().unwrap()
    };
    let expected = of(&[]);
    for batch in [["-b", "32"], ["-b", "11"], ["-b", "96"]] {
        let found = of(&batch);
        assert!(
            (found / expected - 1.0).abs() < 1e-4,
            "{batch:?}: {found} is not {expected}"
        );
    }
}

#[test]
fn models_of_another_vocabulary_are_refused_by_name() {
    let work = two_models();
    let mut tiny = Tiny::new();
    let tokens = tiny.metadata.strings("tokenizer.ggml.tokens").unwrap().unwrap();
    let mut tokens: Vec<String> = tokens.iter().map(|t| t.to_string()).collect();
    let last = tokens.len() - 1;
    tokens[last] = "<fool>".into();
    tiny.metadata.set("tokenizer.ggml.tokens", Value::from(tokens));
    tiny.write(&work.path("other.gguf"));
    let e = error(
        &work.perplexity(&["--compare", "q4.gguf", "--compare", "other.gguf"]),
        1,
    );
    for part in [
        "`other.gguf`",
        "`tiny.gguf`",
        &format!("token {last}"),
        "`<tool>`",
        "`<fool>`",
    ] {
        assert!(e.contains(part), "no {part} in {e}");
    }
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
    assert_eq!(found["mean_of_texts"]["ppl"].as_f64().unwrap(), sum("ppl") / 2.0);
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
            e.contains(&format!("weight `{tensor}`")) && e.contains("NaN"),
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
        e.contains("`blk.1.ffn_down_exps.weight`") && e.contains("inf at row 0"),
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

fn tasks(work: &Work, args: &[&str]) -> serde_json::Value {
    let tool = ["-m", "tiny.gguf", "-t", "2", "--json"];
    serde_json::from_str(&ok(&work.run(PERPLEXITY, &[&tool, args].concat()))).unwrap()
}

#[test]
fn tasks_choose_what_the_model_finds_likeliest() {
    let work = Work::new(&Tiny::new());
    let task = |i: usize| {
        format!(
            "the inn {i}\n{}\nwas low\nin Fenquin and\nthe\näther in the inn\n",
            i % 4
        )
    };
    write(
        &work.path("hs.txt"),
        (0..12).map(task).collect::<String>().as_bytes(),
    );
    let all = tasks(&work, &["-f", "hs.txt", "--hellaswag"]);
    assert_eq!(
        (all["tasks"].as_u64(), all["chance_percent"].as_f64()),
        (Some(12), Some(25.0))
    );
    let results = all["results"].as_array().unwrap();
    let mut correct = 0;
    for r in results {
        let scores: Vec<f64> = r["log_probs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s.as_f64().unwrap())
            .collect();
        let chosen = r["chosen"].as_u64().unwrap() as usize;
        assert!(scores.iter().all(|&s| s < 0.0 && s <= scores[chosen]), "{r}");
        correct += usize::from(r["right"][0].as_u64() == Some(chosen as u64));
    }
    assert_eq!(all["correct"].as_f64(), Some(correct as f64));
    // Sequences on their own give the same scores, and the choice of some tasks is the same every time.
    let single = tasks(
        &work,
        &[
            "-f",
            "hs.txt",
            "--hellaswag",
            "-b",
            "1",
            "-ub",
            "3",
            "--hellaswag-tasks",
            "5",
        ],
    );
    for r in single["results"].as_array().unwrap() {
        let same = results.iter().find(|a| a["task"] == r["task"]).unwrap();
        for (a, b) in r["log_probs"]
            .as_array()
            .unwrap()
            .iter()
            .zip(same["log_probs"].as_array().unwrap())
        {
            assert!(
                (a.as_f64().unwrap() / b.as_f64().unwrap() - 1.0).abs() < 1e-5,
                "{r} {same}"
            );
        }
    }
    let lines = ok(&work.run(PERPLEXITY, &["-m", "tiny.gguf", "-f", "hs.txt", "--hellaswag"]));
    assert!(
        lines.starts_with("task\tacc_norm\t") && lines.lines().count() == 13,
        "{lines}"
    );
    assert!(lines.lines().nth(1).unwrap().ends_with("%]"), "{lines}");
}

#[test]
fn winogrande_and_multiple_choice_have_final_lines() {
    let work = Work::new(&Tiny::new());
    let line = |i: usize| {
        format!(
            "{i},the _ was low and the inn was in Fenquin.,inn,äther,{}\n",
            i % 2 + 1
        )
    };
    write(
        &work.path("wg.csv"),
        (0..101).map(line).collect::<String>().as_bytes(),
    );
    let run = |args: &[&str]| ok(&work.run(PERPLEXITY, &[&["-m", "tiny.gguf"], args].concat()));
    let out = run(&["-f", "wg.csv", "--winogrande"]);
    assert!(out.contains("\nFinal Winogrande score(101 tasks): "), "{out}");
    assert_eq!(
        tasks(
            &work,
            &["-f", "wg.csv", "--winogrande", "--winogrande-tasks", "3"]
        )["tasks"],
        3
    );

    let text = |s: &str| [&(s.len() as u32).to_le_bytes(), s.as_bytes()].concat();
    let number = |n: u32| n.to_le_bytes().to_vec();
    let set = [
        number(3),
        text("was"),
        text("in the inn"),
        text("and"),
        number(0),
        number(1),
        number(0),
    ]
    .concat();
    let one = [text("the inn"), set.clone(), set].concat();
    let offsets: Vec<u8> = (0..100u32)
        .flat_map(|i| (404 + i * one.len() as u32).to_le_bytes())
        .collect();
    write(
        &work.path("mc.bin"),
        &[number(100), offsets, one.repeat(100)].concat(),
    );
    let out = run(&["-f", "mc.bin", "--multiple-choice"]);
    assert!(out.contains("Random chance: 33.3333 +/- 4.7"), "{out}");

    for (name, bytes, kind) in [
        ("hs.txt", b"a\n1\nb".as_slice(), "--hellaswag"),
        ("bad.csv", b"1,two", "--winogrande"),
        ("bad.bin", b"\xFF\xFF\xFF\xFF", "--multiple-choice"),
        ("none.txt", b"", "--hellaswag"),
        ("none.csv", b"\n", "--winogrande"),
        ("none.bin", b"\0\0\0\0", "--multiple-choice"),
    ] {
        write(&work.path(name), bytes);
        let e = error(&work.run(PERPLEXITY, &["-m", "tiny.gguf", "-f", name, kind]), 1);
        assert!(e.contains(name), "{e}");
    }
    let e = error(
        &work.run(
            PERPLEXITY,
            &["-m", "tiny.gguf", "-f", "wg.csv", "--winogrande", "-c", "4"],
        ),
        2,
    );
    assert!(e.contains("task 1 needs"), "{e}");
}

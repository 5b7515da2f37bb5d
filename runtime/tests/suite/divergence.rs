//! `gguf-perplexity` with a base: by file and side by side.

use gguf::Value;

use crate::cli::{PERPLEXITY, Work, error, ok};
use crate::common::{Tiny, data, in_type, shared, write};
use crate::perplexity::two_models;

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
fn compact_base_files_are_a_tenth_and_nearly_as_good() {
    let work = two_models();
    work.json(&["--kl-divergence-base", "full.kld"]);
    work.json(&["--kl-divergence-base", "small.kld", "--kl-compact"]);
    let read = |name: &str| std::fs::read(work.path(name)).unwrap();
    let tokens = 20 + 4 * 32 * u32::from_le_bytes(read("full.kld")[16..20].try_into().unwrap()) as usize;
    // Tokens are the same in both; records are a tenth, give or take the head of one.
    let records = [read("full.kld").len() - tokens, read("small.kld").len() - tokens];
    assert!(records[1] * 9 <= records[0], "{records:?}");
    let compare = |name: &str, code: i32| {
        let args = [
            "-m",
            "q4.gguf",
            "-t",
            "2",
            "--kl-divergence-base",
            name,
            "--kl-divergence",
            "--json",
        ];
        let output = work.run(PERPLEXITY, &args);
        assert_eq!(output.status.code(), Some(code));
        output
    };
    let json = |name: &str| serde_json::from_str::<serde_json::Value>(&ok(&compare(name, 0))).unwrap();
    let (full, small) = (json("full.kld"), json("small.kld"));
    let number = |v: &serde_json::Value, a: &str, b: &str| v[a][b].as_f64().unwrap();
    let missing = number(&full, "kld", "mean") - number(&small, "kld", "mean");
    let bound = number(&small, "compact_base", "kld_error_bound");
    // A random model spreads its probability: much is left out, and the bound says so.
    assert!(missing > -1e-6 && missing <= bound, "{missing} {bound}");
    assert!((number(&full, "ppl_base", "value") / number(&small, "ppl_base", "value") - 1.0).abs() < 1e-4);
    assert_eq!(full["same_top_percent"], small["same_top_percent"]);
    let bytes = read("small.kld");
    write(&work.path("cut.kld"), &bytes[..bytes.len() - 1]);
    assert!(error(&compare("cut.kld", 1), 1).contains("incomplete"));
    let mut bad = bytes.clone();
    bad[tokens + 8..tokens + 12].copy_from_slice(&2f32.to_le_bytes());
    write(&work.path("bad.kld"), &bad);
    assert!(error(&compare("bad.kld", 1), 1).contains("position 16: expected a probability left out"));
}

#[test]
fn a_compact_base_of_real_predictions_is_close() {
    let Some(model) = shared("golden/quantize/qwen3moe-bf16.gguf") else {
        return;
    };
    let work = Work::new(&Tiny::new());
    write(&work.path("q4.gguf"), &in_type(&model, "Q4_0"));
    let (model, text) = (model.to_str().unwrap().to_owned(), data("evaluation.txt"));
    let run = |args: &[&str]| -> serde_json::Value {
        let usual = ["-c", "256", "--chunks", "3", "-q", "--json"];
        serde_json::from_str(&ok(&work.run(PERPLEXITY, &[args, &usual].concat()))).unwrap()
    };
    let kld = |file: &str, more: &[&str]| {
        let make = [
            "-m",
            &model,
            "-f",
            text.to_str().unwrap(),
            "--kl-divergence-base",
            file,
        ];
        run(&[&make, more].concat());
        let compare = ["-m", "q4.gguf", "--kl-divergence-base", file, "--kl-divergence"];
        run(&compare)["mean_kld"].as_f64().unwrap()
    };
    let (full, small) = (kld("full.kld", &[]), kld("small.kld", &["--kl-compact"]));
    assert!(full > 2e-4 && (full - small).abs() < 1e-4, "{full} {small}");
    let size = |name: &str| std::fs::metadata(work.path(name)).unwrap().len() - 20 - 3 * 256 * 4;
    assert!(size("small.kld") * 10 <= size("full.kld"));
}

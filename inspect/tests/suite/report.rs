//! The page about a model.

use std::process::{Command, Output};

use crate::common::{F32, Q4_0, Raw, save};

fn report(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gguf-inspect"))
        .arg("report")
        .args(args)
        .output()
        .expect("the program starts")
}

/// Two layers; the second tensor's type and the scale of the blocks are the caller's.
fn model(kind: u32, n_bytes: usize) -> Raw {
    Raw::new()
        .string("general.architecture", "test")
        .string("general.name", "<script>alert('x')</script>")
        .u32("test.block_count", 2)
        .tensor("token_embd.weight", &[32, 4], F32, 0)
        .tensor("blk.0.attn_q.weight", &[32, 2], F32, 512)
        .tensor("blk.1.ffn_up.weight", &[32, 2], kind, 768)
        .data(768 + n_bytes)
}

#[test]
fn a_page_holds_the_model_and_nothing_that_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    save(path("a.gguf").as_ref(), &model(F32, 256).build());
    save(path("b.gguf").as_ref(), &model(Q4_0, 64).build());
    let (a, b, page) = (path("a.gguf"), path("b.gguf"), path("page.html"));
    let run = report(&[&b, "-o", &page, "--compare", &a]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let html = std::fs::read_to_string(&page).expect("a page");
    for words in [
        "<!DOCTYPE html>",
        "prefers-color-scheme: dark",
        "&lt;script&gt;alert(&#39;x&#39;)",
        "layer 1, dense FFN",
        ">Q4_0<",
        "Error against the other model",
        ">same<",
    ] {
        assert!(html.contains(words), "`{words}` not in the page");
    }
    for words in [
        "<script",
        "http:",
        "https:",
        "url(",
        folder.path().to_str().expect("UTF-8"),
    ] {
        assert!(!html.contains(words), "`{words}` in the page");
    }
    // The same page again is refused, and made again the same.
    assert_eq!(report(&[&b, "-o", &page]).status.code(), Some(2));
    assert!(
        report(&[&b, "-o", &page, "--compare", &a, "--force"])
            .status
            .success()
    );
    assert_eq!(std::fs::read_to_string(&page).expect("a page"), html);
}

#[test]
fn inputs_are_never_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.gguf");
    let bytes = model(F32, 256).build();
    save(&path, &bytes);
    let a = path.to_str().expect("UTF-8");
    assert!(!report(&[a, "-o", a, "--force"]).status.success());
    assert_eq!(std::fs::read(&path).expect("still there"), bytes);
}

#[test]
fn errors_of_the_quantizer_are_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    save(path("a.gguf").as_ref(), &model(Q4_0, 64).build());
    let losses = |kinds: &[&str]| {
        let output = |kind: &&str| {
            format!(
                r#"{{"file_type":"{kind}","roles":[],"tensors":[{{"name":"blk.1.ffn_up.weight","role":"dense FFN",
                "type":"{kind}","rows":2,"sampled_rows":2,"weighted_error":0.0004,"error":0.0009}}]}}"#
            )
        };
        let outputs: Vec<_> = kinds.iter().map(output).collect();
        format!(r#"{{"tool":"x","input":"y","outputs":[{}]}}"#, outputs.join(","))
    };
    let (a, page, errors) = (path("a.gguf"), path("page.html"), path("errors.json"));
    save(errors.as_ref(), losses(&["Q4_0"]).as_bytes());
    let run = report(&[&a, "-o", &page, "--errors", &errors]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let html = std::fs::read_to_string(&page).expect("a page");
    for words in ["Error of quantization", "2.00 %", "Q4_0, 3.00 % without weights"] {
        assert!(html.contains(words), "`{words}` not in the page");
    }
    // Of several outputs the one of the model's file type, which this model does not say.
    let several = losses(&["Q4_0", "Q8_0"]);
    let (other_type, other_name) = (losses(&["Q8_0"]), losses(&["Q4_0"]).replace("ffn_up", "ffn_down"));
    for (name, text, part) in [
        ("1", several.as_str(), "found none"),
        ("2", "{}", "--report"),
        ("3", &other_type, "of type Q8_0, found Q4_0"),
        (
            "4",
            &other_name,
            "`blk.1.ffn_down.weight` of type Q4_0, found no such tensor",
        ),
    ] {
        save(path(name).as_ref(), text.as_bytes());
        let run = report(&[&a, "-o", &path("other.html"), "--errors", &path(name)]);
        let text = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.status.code() == Some(1) && text.contains(part), "{text}");
    }
}

#[test]
fn what_is_of_another_model_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    save(path("a.gguf").as_ref(), &model(F32, 256).build());
    let other = Raw::new()
        .string("general.architecture", "test")
        .tensor("output.weight", &[32, 4], F32, 0)
        .data(512);
    save(path("other.gguf").as_ref(), &other.build());
    // The old form: entries with a name, chunks and values.
    let matrix = |name: &str, n_values: u32| {
        let number = |n: u32| n.to_le_bytes().to_vec();
        let values = 1_f32.to_le_bytes().repeat(n_values as usize);
        let head = [
            number(1),
            number(name.len() as u32),
            name.into(),
            number(1),
            number(n_values),
        ];
        [head.concat(), values].concat()
    };
    save(path("no-tensor.dat").as_ref(), &matrix("blk.9.x.weight", 32));
    save(path("columns.dat").as_ref(), &matrix("blk.0.attn_q.weight", 48));
    save(path("right.dat").as_ref(), &matrix("blk.0.attn_q.weight", 32));
    for (option, file, expected) in [
        ("--compare", "other.gguf", Some("no tensor of the same name")),
        ("--imatrix", "no-tensor.dat", Some("none of its tensors")),
        (
            "--imatrix",
            "columns.dat",
            Some("a multiple of 32 columns, found 48"),
        ),
        ("--imatrix", "right.dat", None),
    ] {
        let run = report(&[&path("a.gguf"), "-o", &path("page.html"), option, &path(file)]);
        let told = String::from_utf8_lossy(&run.stderr);
        match expected {
            Some(words) => assert!(
                run.status.code() == Some(1) && told.contains(words),
                "{file}: {told}"
            ),
            None => assert!(run.status.success(), "{file}: {told}"),
        }
    }
}

//! The program as a user meets it: sound files, damaged files, wrong command lines.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::{ARRAY, F32, INT32, Q4_0, Raw, STRING, save, shared, sound};
use crate::models::{Run, inspect};
use serde_json::Value;
use tempfile::TempDir;

/// A folder with one file in it.
fn file(bytes: &[u8]) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path: PathBuf = folder.path().join("model.gguf");
    save(&path, bytes);
    let path = path.to_str().expect("UTF-8").to_owned();
    (folder, path)
}

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.out).expect("JSON on stdout")
}

/// The file is refused by `show` and `check`: exit 1, one line that holds all of `words`, nothing on stdout.
fn assert_refused(bytes: &[u8], words: &[&str]) {
    let (_folder, path) = file(bytes);
    for args in [&["show", &path][..], &["check", &path], &["--json", &path]] {
        let run = inspect(args);
        assert_eq!((run.code, run.out.as_str()), (1, ""), "{args:?}: {}", run.err);
        assert_one_line(&run.err, words);
    }
    let run = inspect(&["check", &path, "--json"]);
    let finding = &json(&run)["findings"][0];
    assert!(
        run.code == 1 && finding["severity"] == "error" && finding["what"].is_string(),
        "{}",
        run.out
    );
}

fn assert_one_line(err: &str, words: &[&str]) {
    assert!(
        err.starts_with("error: ") && err.ends_with('\n') && err.lines().count() == 1,
        "{err}"
    );
    for word in words {
        assert!(err.contains(word), "`{word}` not in {err}");
    }
}

/// The file is shown, and its check fails with findings that hold all of `words`.
fn assert_fails_check(raw: &Raw, words: &[&str]) {
    let (_folder, path) = file(&raw.build());
    let run = inspect(&["show", &path]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(
        run.err.contains("warning: ") && run.err.contains("gguf-inspect check"),
        "{}",
        run.err
    );
    let run = inspect(&["check", &path]);
    assert_eq!(run.code, 1, "{}", run.out);
    assert_one_line(&run.err, &["failed the check"]);
    for word in words {
        assert!(run.out.contains(word), "`{word}` not in {}", run.out);
    }
}

#[test]
fn a_sound_file_is_shown_and_passes() {
    let raw = sound().u32("general.quantization_version", 2);
    let (_folder, path) = file(&raw.build());
    let run = inspect(&[&path]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    for line in [
        "parameters: 76",
        "size: 448 B (448 bytes), 8.842 bits/weight",
        "vocabulary: 3 tokens",
        "format: GGUF version 3, little-endian, alignment 32 bytes, tensor data from byte 320",
        "general.architecture: string = \"test\"",
        "tokenizer.ggml.tokens: array of string = [\"a\", \"b\", \"\"]",
        "all         2          76     84  100.0 %        8.842",
    ] {
        assert!(run.out.contains(line), "`{line}` not in\n{}", run.out);
    }
    assert_eq!(
        inspect(&["show", &path]).out,
        run.out,
        "`show` is the usual subcommand"
    );

    let run = inspect(&["check", &path]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert_eq!(
        run.out,
        "proved: 2 of 2 tensors lie inside the file, aligned and without overlap\n"
    );
}

#[test]
fn json_holds_everything() {
    let many: Vec<String> = (0..100).map(|i| i.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let raw = sound()
        .strings("many", &many)
        .pair("nan", 6, &f32::NAN.to_le_bytes());
    let (_folder, path) = file(&raw.build());
    let run = inspect(&[&path, "--json"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let all = json(&run);
    assert_eq!(all["version"], 3);
    assert_eq!(all["summary"]["parameters"], 76);
    assert_eq!(all["metadata"][3]["value"].as_array().map(Vec::len), Some(100));
    assert_eq!(all["metadata"][4]["value"], "NaN");
    assert_eq!(all["tensors"][1]["bits_per_weight"], 4.5);
    assert_eq!(
        all["tensors"][1]["offset"],
        all["data_offset"].as_u64().expect("a number") + 64
    );
    assert_eq!(all["totals"]["by_type"][0]["type"], "F32");

    let only = json(&inspect(&["--json", "--tensors", &path]));
    assert_eq!(
        only.as_object().map(|o| o.keys().cloned().collect()),
        Some(vec!["tensors".to_owned()])
    );
    let check = json(&inspect(&["check", "--json", &path]));
    assert_eq!(
        (&check["sound"], &check["proved"]),
        (&Value::Bool(true), &Value::from(2))
    );
}

#[test]
fn single_parts_can_be_asked_for() {
    let (_folder, path) = file(&sound().build());
    assert_eq!(inspect(&["--key", "general.architecture", &path]).out, "test\n");
    assert_eq!(
        inspect(&[&path, "--key", "tokenizer.ggml.tokens"]).out,
        "a\nb\n\n"
    );
    assert_eq!(inspect(&["--json", &path, "--key=test.block_count"]).out, "1\n");
    let run = inspect(&["--key", "absent", &path]);
    assert_eq!(run.code, 1);
    assert_one_line(&run.err, &["has no metadata key `absent`"]);
    let run = inspect(&["--metadata", &path]);
    assert!(
        run.out.starts_with("general.architecture: ") && !run.out.contains("second"),
        "{}",
        run.out
    );
    let run = inspect(&["--tensors", &path]);
    assert!(
        run.out.starts_with("name ") && !run.out.contains("general."),
        "{}",
        run.out
    );
}

#[test]
fn wrong_command_lines_and_missing_files_are_exit_2() {
    let (folder, path) = file(&sound().build());
    let absent = folder.path().join("absent");
    for (args, word) in [
        (&[][..], "required arguments were not provided: <FILE>"),
        (&["--frob", &path], "unexpected argument '--frob'"),
        (&["check"], "<FILE>"),
        (&[&path, &path], "unexpected argument"),
        (&["--key", "a", "--tensors", &path], "cannot be used with"),
        (&[absent.to_str().expect("UTF-8")], "cannot open"),
        (&["/proc/self"], "the folder has no GGUF file"),
        (&["/dev/null"], "not a regular file"),
    ] {
        let run = inspect(args);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{args:?}: {}", run.err);
        assert_one_line(&run.err, &[word]);
    }
    let run = inspect(&["--help"]);
    assert!(run.code == 0 && run.out.contains("check"), "{}", run.out);
}

#[test]
fn alignments_that_hide_the_data_are_refused() {
    for (n, word) in [(0_u32, "found 0"), (3, "found 3"), (1 << 30, "unreasonable")] {
        assert_refused(
            &Raw::new().u32("general.alignment", n).build(),
            &["general.alignment", word],
        );
    }
    assert_refused(
        &Raw::new().string("general.alignment", "32").build(),
        &["found string"],
    );
    let raw = Raw::new().pair("general.alignment", INT32, &32_i32.to_le_bytes());
    assert_fails_check(
        &raw,
        &["error: key `general.alignment`: expected type u32, found i32"],
    );
}

#[test]
fn shapes_that_make_no_sense_are_refused() {
    for dims in [&[(1 << 63) + 1, 2, 1, 1][..], &[1 << 22, (1 << 42) + 1]] {
        let bytes = sound().tensor("huge", dims, F32, 128).build();
        assert_refused(&bytes, &["tensor `huge`", "overflows"]);
    }
    for n in [5, 9, u32::MAX] {
        let bytes = sound().tensor_claiming_dims("flat", n).build();
        assert_refused(&bytes, &["tensor `flat`", "expected at most 4"]);
    }
}

#[test]
fn claims_that_the_file_cannot_back_are_refused() {
    let mut nested = Vec::new();
    for _ in 0..10_000 {
        nested.extend(ARRAY.to_le_bytes());
        nested.extend(1_u64.to_le_bytes());
    }
    assert_refused(&Raw::new().counts(0, 1 << 40).build(), &["metadata count"]);
    assert_refused(
        &Raw::new().pair("s", STRING, &(1_u64 << 30).to_le_bytes()).build(),
        &["key `s`"],
    );
    assert_refused(&Raw::new().array("a", STRING, 1 << 30, &[]).build(), &["key `a`"]);
    assert_refused(
        &Raw::new().array("n", ARRAY, 1, &nested).build(),
        &["key `n`", "nested deeper"],
    );
}

#[test]
fn damaged_layouts_fail_the_check_and_name_the_tensors() {
    let beyond = sound().tensor("last", &[1 << 20], F32, 128);
    assert_fails_check(
        &beyond,
        &[
            "file is truncated: needs",
            "1 of 3 tensors are cut, the first is `last`",
        ],
    );
    let wraps = sound().tensor("wrap", &[4], F32, u64::MAX - 8);
    assert_fails_check(&wraps, &["error: tensor `wrap` at byte", "beyond the file's"]);
    let overlap = sound().tensor("third", &[8], F32, 96).data(64);
    assert_fails_check(
        &overlap,
        &["tensor `second`", "run into tensor `third`", "proved: 1 of 3"],
    );
    let short = Raw::new()
        .tensor("a", &[32, 9], Q4_0, 0)
        .tensor("b", &[8], F32, 128)
        .data(160);
    assert_fails_check(&short, &["tensor `a`", "tensor `b`"]);
    let twice = sound()
        .u32("test.block_count", 2)
        .tensor("first", &[8], F32, 128)
        .data(32);
    assert_fails_check(
        &twice,
        &[
            "key `test.block_count`",
            "tensor `first`",
            "two tensors have this name",
        ],
    );
}

#[test]
fn an_unknown_type_is_a_warning_and_hides_nothing() {
    let tokens: Vec<String> = (0..256_000).map(|i| format!("t{i}")).collect();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let raw = sound()
        .strings("vocabulary", &tokens)
        .tensor("odd", &[100], 4242, 128)
        .data(100);
    let (_folder, path) = file(&raw.build());
    let run = inspect(&[&path]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(
        run.err.starts_with("warning: ") && run.err.contains("type 4242"),
        "{}",
        run.err
    );
    assert!(run.out.contains("type 4242"), "{}", run.out);
    assert!(
        run.out
            .contains("[\"t0\", \"t1\", \"t2\", \"t3\", \"t4\", \"t5\", .. 256000 in all]"),
        "{}",
        run.out
    );
    let run = inspect(&[&path, "--tensors"]);
    assert!(run.out.contains("odd     type 4242  [100]"), "{}", run.out);
    let run = inspect(&["check", &path]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(
        run.out.contains("warning: tensor `odd` at byte") && run.out.contains("100 bytes"),
        "{}",
        run.out
    );
    assert_eq!(inspect(&["check", &path, "--strict"]).code, 1);
}

#[test]
fn files_that_are_no_gguf_are_named() {
    let mut safetensors = 20_u64.to_le_bytes().to_vec();
    safetensors.extend(b"{\"__metadata__\": {} }    ");
    let cases: [(&[u8], &str); 6] = [
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            "git lfs pull",
        ),
        (b"<!DOCTYPE html><html><body>404</body></html>", "web page"),
        (b"", "empty"),
        (b"tjgg\x03\0\0\0\0\0\0\0", "GGJT"),
        (b"lmgg\0\0\0\0", "GGML"),
        (&safetensors, "safetensors"),
    ];
    for (bytes, word) in cases {
        assert_refused(bytes, &[word]);
    }
    assert_refused(&sound().version(1).build(), &["version 1 is no longer read"]);
    assert_refused(&sound().version(9).build(), &["version 9 is newer"]);
}

#[test]
fn big_endian_files_are_shown() {
    let big = Raw::new()
        .big_endian()
        .string("general.architecture", "test")
        .u32("test.block_count", 7);
    let (_folder, path) = file(&big.tensor("t", &[4, 2], F32, 0).data(32).build());
    let run = inspect(&[&path]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    for line in ["version 3, big-endian", "test.block_count: u32 = 7"] {
        assert!(run.out.contains(line), "`{line}` not in\n{}", run.out);
    }
    let run = inspect(&["check", &path]);
    assert!(
        run.code == 0
            && run
                .out
                .contains("warning: file at byte 4: the file is big-endian"),
        "{}",
        run.out
    );
}

#[test]
fn truncation_is_told_in_numbers() {
    let whole = sound().build();
    let (_folder, path) = file(&whole[..whole.len() - 60]);
    let run = inspect(&["check", &path]);
    assert_eq!(run.code, 1);
    let needs = format!("needs {} bytes, has {}", whole.len() - 28, whole.len() - 60);
    assert!(run.out.contains(&needs), "{}", run.out);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let tokens: Vec<String> = (0..100_000).map(|i| format!("token {i}")).collect();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let (_folder, path) = file(&sound().strings("many", &tokens).build());
    let mut command = Command::new(env!("CARGO_BIN_EXE_gguf-inspect"));
    command
        .args(["--key", "many", &path])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
}

#[test]
fn real_files_pass() {
    let Some(path) = shared("golden/quantize/qwen3moe-bf16.gguf") else {
        return;
    };
    let run = inspect(&["check", path.to_str().expect("UTF-8")]);
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{}", run.out);
    assert_eq!(
        run.out,
        "proved: 39 of 39 tensors lie inside the file, aligned and without overlap\n"
    );
    let Some(folder) = shared("vocabs") else { return };
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension() == Some("gguf".as_ref()) {
            let run = inspect(&["check", path.to_str().expect("UTF-8")]);
            assert_eq!(run.code, 0, "{}: {}", path.display(), run.out);
        }
    }
}

//! What every program does with its environment.

use std::process::{Command, Output};

use suite_tests::{data, program};

/// A command line of each program that reads input and would compute.
fn command_lines() -> Vec<(&'static str, Vec<String>)> {
    let model = data("qwen3moe").display().to_string();
    let line = |args: &[&str]| args.iter().map(|a| (*a).to_owned()).collect();
    vec![
        ("gguf-convert", vec![model, "--dry-run".to_owned()]),
        ("gguf-inspect", line(&["absent.gguf"])),
        ("gguf-quantize", line(&["absent.gguf", "Q4_K_M"])),
        ("gguf-imatrix", line(&["-m", "absent.gguf", "-f", "absent.txt"])),
        (
            "gguf-perplexity",
            line(&["-m", "absent.gguf", "-f", "absent.txt"]),
        ),
        ("gguf-bench", line(&["-m", "absent.gguf"])),
        ("gguf-run", line(&["-m", "absent.gguf", "-p", "a text"])),
    ]
}

#[test]
fn an_unknown_cpu_level_is_refused_first_by_all() {
    for (name, args) in command_lines() {
        let run = |level: &str| {
            Command::new(program(name))
                .args(&args)
                .env("GGUF_CPU", level)
                .output()
                .expect("a built program starts")
        };
        let out = run("foo");
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{name}: {text}");
        assert_eq!(
            text.trim_end(),
            "error: `GGUF_CPU`: expected `portable`, `neon`, `avx2`, `avxvnni`, `avx512` or nothing, found `foo`",
            "{name}"
        );
        for level in ["portable", ""] {
            let text = String::from_utf8_lossy(&run(level).stderr).into_owned();
            assert!(!text.contains("GGUF_CPU"), "{name}: {text}");
        }
    }
}

/// A program that must end with code 2 and one line, and print nothing; the line.
fn refusal(name: &str, out: &Output) -> String {
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{name}: {text}");
    assert!(
        out.stdout.is_empty() && text.lines().count() == 1,
        "{name}: {text}"
    );
    text
}

#[test]
fn options_of_llama_cpp_are_answered_by_all() {
    for (name, args) in command_lines() {
        for option in ["-ngl", "-fa", "-hf", "--log-disable"] {
            let mut command = Command::new(program(name));
            command.arg(option).args(&args);
            let line = refusal(name, &command.output().expect("a built program starts"));
            assert!(
                line.starts_with(&format!("error: `{option}`: ")),
                "{name}: {line}"
            );
        }
    }
    // A text is not an option, whatever it looks like.
    let args = ["-m", "absent.gguf", "-p", "-ngl"];
    let out = suite_tests::run("gguf-run", &args);
    assert!(refusal("gguf-run", &out).contains("absent.gguf"));
}

#[cfg(target_os = "linux")]
#[test]
fn help_that_cannot_be_written_is_an_error() {
    for (name, _) in command_lines() {
        for option in ["--help", "--version"] {
            let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
            let mut command = Command::new(program(name));
            let out = command.arg(option).stdout(full.expect("a device")).output();
            let line = refusal(name, &out.expect("a built program starts"));
            assert!(
                line.contains("cannot write to the standard output"),
                "{name}: {line}"
            );
        }
    }
}

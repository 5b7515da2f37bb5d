//! What every program does with its environment.

use std::process::Command;

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

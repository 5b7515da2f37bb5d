//! Threads and memory in their places: the options, and that results are the same.

use gguf_runtime::pool::{CpuSet, Numa, Placement, Pool, PoolOptions};
use gguf_runtime::{Model, Session, Settings, Token};

use crate::cli::{Work, error, ok};
use crate::common::Tiny;

/// A processor that the test may use.
pub(crate) fn own_cpu() -> usize {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX).find(|&cpu| set.is_set(cpu)).unwrap()
}

#[test]
fn options_change_no_result() {
    let work = Work::new(&Tiny::new());
    let expected = work.json(&[]);
    let cpu = own_cpu();
    let range = format!("{cpu}-{cpu}");
    let mask = format!("{}{}", 1 << (cpu % 4), "0".repeat(cpu / 4));
    for options in [
        &["--cpu-range", &range][..],
        &["-Cr", &range, "-C", &mask],
        &[&format!("-Cr{range}")],
        &[&format!("-Cr={range}"), &format!("-C{mask}")],
        &["--cpu-mask", &mask, "-t", "1", "--cpu-strict", "1"],
        &["--numa", "distribute", "--prefetch"],
        &["--numa", "isolate", "--no-mmap", "--huge-pages"],
        &["--numa", "numactl", "--huge-pages"],
        &["--numa", "distribute", "--huge-pages", "-ctk", "f16"],
    ] {
        let mut found = work.json(options);
        // One of the lines has other threads.
        found["threads"] = expected["threads"].clone();
        assert_eq!(found, expected, "{options:?}");
    }
}

/// Of a machine with several nodes, each processor has one.
#[test]
fn spreading_over_one_node_is_said_to_have_no_effect() {
    let work = Work::new(&Tiny::new());
    let cpu = own_cpu().to_string();
    let talk = |options: &[&str]| {
        let out = work.perplexity(options);
        ok(&out);
        String::from_utf8(out.stderr).unwrap()
    };
    let line = "warning: `--numa distribute` has no effect: the processors are on one node of memory, as far as the \
                system tells";
    let spread = talk(&["-Cr", &cpu, "--numa", "distribute"]);
    assert_eq!(spread.lines().filter(|l| *l == line).count(), 1, "{spread}");
    assert!(!talk(&["-Cr", &cpu, "--numa", "isolate"]).contains("no effect"));
}

#[test]
fn what_cannot_be_had_is_refused() {
    let work = Work::new(&Tiny::new());
    let cpu = own_cpu().to_string();
    for (options, words) in [
        (
            &["--cpu-mask", "xyz"][..],
            "expected a hexadecimal mask such as `f0`, found `xyz`",
        ),
        (&["-C", "0"], "expected a hexadecimal mask"),
        (&["--cpu-range", "3-1"], "`3-1`: expected the lower number first"),
        (&["-Cr", "0-1024"], "expected processors below 1024, found 1024"),
        (
            &["-Cr", "1023"],
            "processors 1023 were asked for, but the program may use",
        ),
        (&["--cpu-strict", "2"], "2 is not in 0..=1"),
        (
            &["--numa", "mirror"],
            "expected distribute, isolate or numactl, found `mirror`",
        ),
        (
            &["-Cr", &cpu, "--cpu-strict", "1", "-t", "2"],
            "expected at most 1, one for each of the processors",
        ),
    ] {
        let line = error(&work.perplexity(options), 2);
        assert!(line.contains(words), "{options:?}: {line}");
    }
}

/// Large enough a context that pages of the cache are placed.
#[test]
fn logits_have_the_same_bits_wherever_threads_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    Tiny::new().write(&path);
    let logits = |placement| {
        let options = PoolOptions {
            placement,
            ..PoolOptions::default()
        };
        let model = Model::open(&path).unwrap();
        Pool::new(&options).unwrap().enter(|| {
            let settings = Settings {
                n_ctx: 20_000,
                ..Settings::default()
            };
            let token = |pos| Token {
                id: pos * 3 % 200,
                seq: 0,
                pos,
                logits: true,
            };
            let batch: Vec<_> = (0..40).map(token).collect();
            let logits = Session::new(&model, settings).unwrap().decode(&batch).unwrap();
            logits.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        })
    };
    let expected = logits(Placement::default());
    for numa in [
        None,
        Some(Numa::Distribute),
        Some(Numa::Isolate),
        Some(Numa::Numactl),
    ] {
        for strict in [false, true] {
            let placement = Placement {
                strict,
                numa,
                huge_pages: strict,
                ..Placement::default()
            };
            assert_eq!(logits(placement), expected, "{placement:?}");
        }
    }
}

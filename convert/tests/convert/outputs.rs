//! Shards, parts, little memory, stopped runs, and reads of any bytes of the file that a checkpoint would become.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gguf::GgufFile;
use gguf::split::{self, Limits};

use crate::checkpoint::Checkpoint;
use crate::{carried, convert, convert_ok, stderr, text};

/// Files of a folder by name, with their bytes.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut files: Vec<_> = entries
        .map(|e| {
            let path = e.expect("readable").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read(&path).expect("a file"))
        })
        .collect();
    files.sort();
    files
}

fn folder(parent: &Path, name: &str) -> PathBuf {
    let path = parent.join(name);
    fs::create_dir(&path).expect("a folder");
    path
}

#[test]
fn shards_are_those_of_a_split() {
    let temp = tempfile::tempdir().expect("a folder");
    let whole = temp.path().join("whole.gguf");
    convert_ok(&carried(), &whole, &[]);
    let file = GgufFile::open(&whole).expect("readable");
    for (i, (option, value, limits)) in [
        ("--split-max-tensors", "7", Limits::Tensors(7)),
        ("--split-max-size", "1M", Limits::Bytes(1_000_000)),
    ]
    .into_iter()
    .enumerate()
    {
        let (ours, theirs) = (
            folder(temp.path(), &format!("ours{i}")),
            folder(temp.path(), &format!("theirs{i}")),
        );
        convert_ok(&carried(), &ours.join("m.gguf"), &[option, value]);
        let shards = split::plan(&file, limits, false).expect("a plan");
        split::write(&file, &shards, &theirs.join("m"), false, &mut |_| Ok(())).expect("written");
        let (ours, theirs) = (files(&ours), files(&theirs));
        assert!(ours.len() > 2 && ours == theirs, "{option}: the shards differ");
    }
}

#[test]
fn parts_make_one_set() {
    let temp = tempfile::tempdir().expect("a folder");
    for kind in ["bf16", "q4_k_m"] {
        let (together, alone) = (
            folder(temp.path(), &format!("{kind}-together")),
            folder(temp.path(), &format!("{kind}-alone")),
        );
        let run = |dir: &Path, part: &str| {
            convert_ok(
                &carried(),
                &dir.join("m.gguf"),
                &["--outtype", kind, "--part", part],
            );
        };
        run(&together, "1-3/3");
        for part in ["3/3", "1/3", "2/3"] {
            run(&alone, part);
        }
        assert!(files(&together) == files(&alone), "{kind}: the shards differ");
        assert_eq!(files(&alone).len(), 3);
    }
}

#[test]
fn little_memory_gives_the_same_bytes() {
    let temp = tempfile::tempdir().expect("a folder");
    let (plain, tight) = (temp.path().join("plain.gguf"), temp.path().join("tight.gguf"));
    convert_ok(&carried(), &plain, &["--outtype", "f16"]);
    convert_ok(&carried(), &tight, &["--outtype", "f16", "--max-memory", "64K"]);
    assert!(fs::read(&plain).expect("there") == fs::read(&tight).expect("there"));
    let run = convert(&[
        text(&carried()),
        "-o",
        text(&tight),
        "--force",
        "--max-memory",
        "1K",
    ]);
    assert!(
        run.status.code() == Some(2) && stderr(&run).contains("--max-memory"),
        "{}",
        stderr(&run)
    );
}

#[test]
fn killed_runs_are_resumed() {
    let temp = tempfile::tempdir().expect("a folder");
    let whole = temp.path().join("whole.gguf");
    let model = carried();
    // A slow type, so that there is time to stop a run.
    let options = ["--outtype", "IQ3_S", "-t", "1"];
    let start = Instant::now();
    convert_ok(&model, &whole, &options);
    let (time, whole) = (start.elapsed(), fs::read(&whole).expect("there"));
    // The same name, so the same metadata.
    let out = temp.path().join("out.gguf");
    let mut unfinished = 0;
    for share in [4, 7, 9] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_gguf-convert"))
            .args([&[text(&model), "-o", text(&out), "-q"][..], &options].concat())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        std::thread::sleep(time * share / 10);
        child.kill().expect("killed, or at its end");
        child.wait().expect("ended");
        unfinished += usize::from(!out.exists());
        convert_ok(&model, &out, &[&options[..], &["--resume"]].concat());
        assert!(fs::read(&out).expect("there") == whole);
        let left = fs::read_dir(temp.path()).expect("a folder").count();
        assert_eq!(left, 2, "nothing else is left");
        fs::remove_file(&out).expect("removed");
    }
    assert!(
        unfinished > 0 || time < Duration::from_millis(50),
        "no run was stopped midway"
    );
}

#[test]
fn a_checkpoint_that_changed_is_not_resumed() {
    let temp = tempfile::tempdir().expect("a folder");
    let dir = Checkpoint::tiny("F32").write(&temp.path().join("tiny"));
    let out = temp.path().join("out.gguf");
    let resume = |expected: Option<&str>| {
        let run = convert(&[text(&dir), "-o", text(&out), "--resume"]);
        let said = stderr(&run);
        match expected {
            None => assert!(run.status.success(), "{said}"),
            Some(word) => assert!(run.status.code() == Some(2) && said.contains(word), "{said}"),
        }
    };
    resume(None);
    let made = fs::metadata(&out).expect("there").modified().expect("a time");
    resume(None);
    assert_eq!(
        made,
        fs::metadata(&out).expect("there").modified().expect("a time")
    );
    // The weights are others since.
    Checkpoint::tiny("F32").write(&dir);
    resume(Some("exists already"));
}

#[test]
fn any_bytes_of_the_virtual_file_are_those_of_the_real_one() {
    let temp = tempfile::tempdir().expect("a folder");
    let mut fused = Checkpoint::tiny("F32");
    fused.fuse();
    let dirs = [
        fused.write(&temp.path().join("a/tiny")),
        Checkpoint::tiny("BF16").write(&temp.path().join("b/tiny")),
    ];
    for (dir, outtype) in dirs
        .iter()
        .zip(["q8_0", "bf16"])
        .chain(dirs.iter().zip(["f16", "f32"]))
    {
        let out = temp.path().join("out.gguf");
        convert_ok(dir, &out, &["--outtype", outtype, "--force"]);
        let real = fs::read(&out).expect("there");
        let options = gguf_convert::Options {
            outtype: outtype.to_owned(),
            ..Default::default()
        };
        let opened = gguf_convert::open_checkpoint(dir, &options)
            .expect("a checkpoint")
            .file;
        let source = opened.first().source();
        assert_eq!(source.len(), real.len() as u64);
        let mut state = 1_u64;
        let mut below = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % n
        };
        for _ in 0..300 {
            let at = below(real.len());
            let len = below((real.len() - at).min(20_000) + 1);
            let mut buf = vec![1; len];
            source.read_at(at as u64, &mut buf).expect("inside the file");
            assert!(buf == real[at..at + len], "{outtype}: {len} bytes from {at}");
        }
        source
            .read_at(real.len() as u64, &mut [0])
            .expect_err("behind the end");
    }
}

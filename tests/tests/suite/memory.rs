//! Memory under a limit of the address space (`ulimit -v`), in which everything counts: what is mapped, asked for or
//! reserved, whether it was touched or not. `MEMORY_LAYERS` sets how large the files are (`tests/memory/run` does).

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use suite_tests::{data, program, run_ok};

/// Layers of the large model, of 3.5 MB each.
const N_LAYERS: usize = 90;
/// Of what is given as `--max-memory`, bytes for each layer: a tenth of it.
const LIMIT_OF_LAYER: u64 = 354_444;
/// Address space of a program beside its own file: libraries, the first thread's stack, two threads and two helpers of
/// 2 MiB each, tables.
const BESIDE: u64 = 16 << 20;
/// For programs that hang with [`N_LAYERS`].
const TIME_LIMIT: Duration = Duration::from_mins(2);

fn n_layers() -> usize {
    std::env::var("MEMORY_LAYERS").map_or(N_LAYERS, |n| n.parse().expect("a number of layers"))
}

/// What is given as `--max-memory`: a tenth of the large model.
fn limit() -> u64 {
    n_layers() as u64 * LIMIT_OF_LAYER
}

fn s(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// Bytes of address space that a program has of its own.
pub(crate) fn base(name: &str) -> u64 {
    program(name).metadata().expect("it is built").len() + BESIDE
}

/// Runs a program in an address space of `limit` bytes.
pub(crate) fn limited(limit: u64, name: &str, args: &[&str]) -> Output {
    // Files take whatever is printed while nobody reads it.
    let file = || tempfile::tempfile().expect("a temporary file");
    let (mut out, mut talk) = (file(), file());
    let copy = |file: &File| Stdio::from(file.try_clone().expect("the same file"));
    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -v {}; exec \"$0\" \"$@\"", limit / 1024)])
        .arg(program(name))
        .args(args)
        .stdin(Stdio::null())
        .stdout(copy(&out))
        .stderr(copy(&talk))
        .spawn()
        .expect("a shell starts");
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if begin.elapsed() > TIME_LIMIT * n_layers().div_ceil(N_LAYERS) as u32 {
            child.kill().expect("it runs");
            panic!("{name} {args:?} does not end with {limit} bytes");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let text = |file: &mut File| {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0)).expect("the front");
        file.read_to_end(&mut bytes).expect("what was printed");
        bytes
    };
    Output {
        status,
        stdout: text(&mut out),
        stderr: text(&mut talk),
    }
}

/// Runs a program that must succeed in the limit that the issue states: `--max-memory` and a tenth, and its base.
fn fits(name: &str, args: &[&str]) -> String {
    let (limit, begin) = (limit() / 10 * 11 + base(name), Instant::now());
    let done = limited(limit, name, args);
    let talk = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{name} {args:?}: {}: {talk}", done.status);
    let words = args
        .iter()
        .filter(|word| !word.contains('/'))
        .map(|word| gguf::short(word));
    eprintln!(
        "{name} {}: {} KiB of address space, {:.0} s",
        words.collect::<Vec<_>>().join(" "),
        limit / 1024,
        begin.elapsed().as_secs_f64()
    );
    String::from_utf8(done.stdout).expect("UTF-8")
}

/// The checkpoint of `tests/data` with its layers repeated. Returns the bytes of its weights.
fn checkpoint(folder: &Path) -> u64 {
    let from = data("qwen3moe");
    std::fs::create_dir(folder).expect("a new folder");
    for name in [
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
    ] {
        std::fs::copy(from.join(name), folder.join(name)).expect(name);
    }
    let text = std::fs::read(from.join("config.json")).expect("a config");
    let mut config: Value = serde_json::from_slice(&text).expect("JSON");
    config["num_hidden_layers"] = n_layers().into();
    let mut out = File::create_new(folder.join("config.json")).expect("a file");
    out.write_all(config.to_string().as_bytes()).expect("room");

    let mut header = Map::new();
    let mut places = Vec::new();
    let mut end = 0;
    let shards: Vec<Vec<u8>> = (1..=3)
        .map(|no| from.join(format!("model-{no:05}-of-00003.safetensors")))
        .map(|path| std::fs::read(path).expect("a shard"))
        .collect();
    for bytes in &shards {
        let n = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
        let (head, values) = bytes[8..].split_at(n);
        let tensors: Map<String, Value> = serde_json::from_slice(head).expect("JSON");
        for (name, info) in tensors.into_iter().filter(|(name, _)| name != "__metadata__") {
            let at = |i: usize| info["data_offsets"][i].as_u64().expect("an offset") as usize;
            let bytes = &values[at(0)..at(1)];
            let layer = name.strip_prefix("model.layers.").and_then(|n| n.split_once('.'));
            let names: Vec<String> = match layer {
                None => vec![name.clone()],
                Some((no, rest)) => (no.parse().expect("a number")..n_layers())
                    .step_by(3)
                    .map(|no: usize| format!("model.layers.{no}.{rest}"))
                    .collect(),
            };
            for name in names {
                let mut info = info.clone();
                info["data_offsets"] = vec![end, end + bytes.len()].into();
                end += bytes.len();
                header.insert(name, info);
                places.push(bytes);
            }
        }
    }
    let header = Value::Object(header).to_string();
    let mut out = BufWriter::new(File::create_new(folder.join("model.safetensors")).expect("a file"));
    let n = (header.len() as u64).to_le_bytes();
    let parts = [&n[..], header.as_bytes()];
    let all = parts.into_iter().chain(places);
    all.for_each(|part| out.write_all(part).expect("room on the disk"));
    end as u64
}

/// Whether two files have the same bytes. In pieces: a child counts its parent's memory as its own at first.
fn same(a: &Path, b: &Path) -> bool {
    let open = |path: &Path| File::open(path).expect("a file").take(u64::MAX);
    let (mut a, mut b) = (open(a), open(b));
    let (mut x, mut y) = (Vec::new(), Vec::new());
    loop {
        x.clear();
        y.clear();
        a.by_ref().take(1 << 20).read_to_end(&mut x).expect("bytes");
        b.by_ref().take(1 << 20).read_to_end(&mut y).expect("bytes");
        if x != y || x.is_empty() {
            return x == y;
        }
    }
}

/// A folder, and a text.
struct Work {
    folder: tempfile::TempDir,
    text: String,
}

impl Work {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            text: s(&data("evaluation.txt")).to_owned(),
        }
    }

    fn path(&self, name: &str) -> String {
        s(&self.folder.path().join(name)).to_owned()
    }

    /// Runs `args`, which write the file `out`, with and without limits; the bytes must be the same.
    fn same_bytes(&self, name: &str, args: &str, out: &str) {
        let done = |out: &str, more: &[&str], run: &dyn Fn(&str, &[&str])| {
            let out = self.path(out);
            let words = args.split(' ').map(|w| match w {
                "OUT" => out.clone(),
                "TEXT" => self.text.clone(),
                w => w.strip_prefix('@').map_or(w.to_owned(), |file| self.path(file)),
            });
            let words: Vec<String> = words.collect();
            let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
            words.extend(more);
            run(name, &words);
        };
        let memory = limit().to_string();
        let limits: &[&str] = if name == "gguf-inspect" {
            &[]
        } else {
            &["--max-memory", &memory]
        };
        done(out, &[], &|name, args| drop(run_ok(name, args)));
        done("limited", limits, &|name, args| drop(fits(name, args)));
        let (usual, limited) = (self.path(out), self.path("limited"));
        assert!(
            same(usual.as_ref(), limited.as_ref()),
            "{name} {args}: other bytes"
        );
        std::fs::remove_file(limited).expect("it is there");
    }
}

#[test]
fn files_of_ten_times_the_memory_take_no_more() {
    let w = Work::new();
    let n_bytes = checkpoint(&w.folder.path().join("checkpoint"));
    assert!(n_bytes >= 10 * limit(), "{n_bytes} bytes");
    let memory = limit().to_string();
    eprintln!("file: {n_bytes} bytes; --max-memory {memory}");
    w.same_bytes(
        "gguf-convert",
        "--quiet -t 2 @checkpoint --outtype bf16 -o OUT",
        "m.gguf",
    );
    let matrix = "--quiet -t 2 -f TEXT -c 32 --chunks 1 -o OUT";
    w.same_bytes("gguf-imatrix", &format!("{matrix} -m @m.gguf"), "imatrix.gguf");
    w.same_bytes(
        "gguf-imatrix",
        &format!("{matrix} -m @checkpoint"),
        "of-checkpoint.gguf",
    );
    w.same_bytes(
        "gguf-quantize",
        "--quiet --force --imatrix @imatrix.gguf @m.gguf OUT Q8_0 2",
        "q.gguf",
    );
    let (m, q) = (w.path("m.gguf"), w.path("q.gguf"));
    let line = [
        "-m", &m, "-f", &w.text, "-c", "32", "--chunks", "2", "--quiet", "-t", "2",
    ];
    let usual = run_ok("gguf-perplexity", &line);
    let line = [&line[..], &["--max-memory", &memory]].concat();
    assert_eq!(fits("gguf-perplexity", &line), usual);

    // What has no `--max-memory` takes the same however large the file is: these have the limit of one for a tenth of it.
    for args in [
        &["hash", "-t", "2", &m][..],
        &["check", "--data", "-t", "2", &m],
        &["show", "--tensors", &m],
    ] {
        assert_eq!(
            fits("gguf-inspect", args),
            run_ok("gguf-inspect", args),
            "{args:?}"
        );
    }
    let diff = limited(
        limit() / 10 * 11 + base("gguf-inspect"),
        "gguf-inspect",
        &["diff", "--data", "-t", "2", &m, &q],
    );
    assert_eq!(diff.status.code(), Some(1), "{diff:?}");
    assert!(String::from_utf8_lossy(&diff.stdout).contains("rmse"));
    let shards = w.path("shards");
    std::fs::create_dir(&shards).expect("a new folder");
    // About half of it, in Q8_0.
    let size = format!("{}K", 3 * limit() / 1000);
    let prefix = w.path("shards/shard");
    fits("gguf-inspect", &["split", "--max-size", &size, &q, &prefix]);
    let n_shards = std::fs::read_dir(&shards).expect("the folder").count();
    assert!(n_shards > 1, "{n_shards} shards");
    let merged = w.path("merged.gguf");
    fits("gguf-inspect", &["merge", &shards, &merged]);
    assert!(same(merged.as_ref(), q.as_ref()), "merged: other bytes");
    let long = format!("general.description={}", "x".repeat(100_000));
    w.same_bytes(
        "gguf-inspect",
        &format!("set @merged.gguf {long} -o OUT"),
        "set.gguf",
    );
}

/// A limit with which a program begins at all: below it the loader gives up. Its file does not tell: what it has for
/// debuggers is not loaded.
fn least_start(name: &str) -> u64 {
    const STEP: u64 = 256 << 10;
    let (mut too_small, mut enough) = (0, base(name));
    while enough - too_small > STEP {
        let limit = u64::midpoint(too_small, enough);
        if limited(limit, name, &["--version"]).status.success() {
            enough = limit;
        } else {
            too_small = limit;
        }
    }
    enough
}

#[test]
fn a_limit_that_is_too_small_is_an_error_and_no_abort() {
    let w = Work::new();
    let small = w.path("small.gguf");
    let model = data("qwen3moe");
    run_ok(
        "gguf-convert",
        &["--quiet", s(&model), "--outtype", "bf16", "-o", &small],
    );
    let out = w.path("out");
    let text = &*w.text;
    let lines = [
        (
            "gguf-convert",
            format!("{} --force -o {out} -t 2 --outtype f16", s(&model)),
        ),
        ("gguf-quantize", format!("--force {small} {out} Q4_0 2")),
        (
            "gguf-imatrix",
            format!("-m {small} -f {text} --force -o {out} -c 32 --chunks 1 -t 2"),
        ),
        (
            "gguf-perplexity",
            format!("-m {small} -f {text} -c 32 --chunks 1 -t 2"),
        ),
        ("gguf-run", format!("-m {small} -p a -n 1 -c 32 -t 2")),
        (
            "gguf-bench",
            format!("-m {small} -p 8 -n 1 -r 1 -t 2 --no-bandwidth"),
        ),
        ("gguf-inspect", format!("hash {small} -t 2")),
        ("gguf-inspect", format!("check --data {small} -t 2")),
        ("gguf-inspect", format!("split {small} {out}")),
    ];
    let mut n_refused = 0;
    for (name, line) in &lines {
        let args: Vec<&str> = line.split(' ').collect();
        let start = least_start(name);
        let mut limit = start;
        loop {
            let done = limited(limit, name, &args);
            let talk = String::from_utf8_lossy(&done.stderr);
            let place = format!("{name} {line} with {} KiB: {}: {talk}", limit / 1024, done.status);
            if done.status.success() {
                break;
            }
            assert_eq!(done.status.code(), Some(2), "{place}");
            assert!(talk.contains("error: ") && !talk.contains("panicked"), "{place}");
            let told = ["ulimit -v", "Cannot allocate memory", "--max-memory"];
            assert!(told.iter().any(|word| talk.contains(word)), "{place}");
            n_refused += 1;
            limit += 1536 << 10;
            assert!(limit < start + (200 << 20), "{place}");
        }
        println!(
            "{name} {line}: starts with {} KiB, fits {} KiB",
            start / 1024,
            limit / 1024
        );
    }
    assert!(n_refused > lines.len(), "{n_refused} runs were refused");
}

/// A program must refuse what it is given, in an address space that has 44 MiB for it besides its base.
fn refuses(name: &str, args: &[&str], place: &str) {
    let done = limited(base(name) + (44 << 20), name, args);
    let talk = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{place}: {name} {args:?}: {talk}");
    assert!(!talk.contains("panicked"), "{place}: {talk}");
}

#[expect(clippy::disallowed_methods, reason = "an input of the test")]
fn put(path: &str, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("room on the disk");
}

#[test]
fn counts_that_the_file_does_not_back_take_no_memory() {
    let w = Work::new();
    let (small, out, bad) = (w.path("small.gguf"), w.path("out"), w.path("bad"));
    let model = data("qwen3moe");
    run_ok(
        "gguf-convert",
        &["--quiet", s(&model), "--outtype", "bf16", "-o", &small],
    );

    // The length of a safetensors header.
    let folder = PathBuf::from(w.path("checkpoint"));
    std::fs::create_dir(&folder).expect("a new folder");
    for entry in std::fs::read_dir(&model).expect("the checkpoint") {
        let path = entry.expect("an entry").path();
        std::fs::copy(&path, folder.join(path.file_name().expect("a name"))).expect("a copy");
    }
    let shard = folder.join("model-00001-of-00003.safetensors");
    let mut bytes = std::fs::read(&shard).expect("a shard");
    for n in [u64::MAX, 1 << 63, 99_999_999, 10_000_000] {
        bytes[..8].copy_from_slice(&n.to_le_bytes());
        put(s(&shard), &bytes);
        refuses(
            "gguf-convert",
            &[s(&folder), "-o", &out],
            &format!("header of {n}"),
        );
    }

    // Counts of an importance matrix of the old form.
    let max = i32::MAX.to_le_bytes();
    let one = 1_i32.to_le_bytes();
    let name = [&one[..], b"a"].concat();
    for (place, bytes) in [
        ("entries", max.to_vec()),
        ("length of a name", [one, max].concat()),
        ("values", [&one[..], &name, &one, &max].concat()),
    ] {
        put(&bad, &bytes);
        refuses("gguf-imatrix", &["stats", &bad], place);
        refuses("gguf-quantize", &["--imatrix", &bad, &small, &out, "Q4_0"], place);
    }

    // Counts of a log-probability base.
    for (n_ctx, n_vocab, n_chunk) in [
        (512_u32, 768, i32::MAX),
        (u32::MAX, 768, i32::MAX),
        (i32::MAX as u32, 768, 1),
        (4, i32::MAX, 1),
    ] {
        let head = [n_ctx.to_le_bytes(), n_vocab.to_le_bytes(), n_chunk.to_le_bytes()].concat();
        put(&bad, &[&b"_logits_"[..], &head, &[0; 1000]].concat());
        let args = ["-m", &small, "--kl-divergence-base", &bad, "--kl-divergence"];
        refuses(
            "gguf-perplexity",
            &args,
            &format!("base of {n_ctx} {n_vocab} {n_chunk}"),
        );
    }

    // Each number in the front of a prompt cache.
    let line = |cache| {
        [
            "-m",
            &*small,
            "-p",
            "a text",
            "-n",
            "1",
            "-c",
            "64",
            "--quiet",
            "--prompt-cache",
            cache,
        ]
    };
    let cache = w.path("cache");
    run_ok("gguf-run", &line(&cache));
    let bytes = std::fs::read(&cache).expect("a cache");
    for at in (8..80).step_by(4) {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&max);
        put(&bad, &bytes);
        let done = limited(base("gguf-run") + (44 << 20), "gguf-run", &line(&bad));
        let talk = String::from_utf8_lossy(&done.stderr);
        assert!(
            matches!(done.status.code(), Some(0 | 1)),
            "prompt cache at {at}: {talk}"
        );
    }

    // Settings of a model at the largest that is taken at all.
    for sets in [
        &["block_count:u32=4096", "expert_count:u32=65536"][..],
        &[
            "attention.head_count:u32=65536",
            "attention.key_length:u32=16777216",
        ],
        &["block_count:u32=4294967295"],
    ] {
        let sets: Vec<String> = sets.iter().map(|set| format!("qwen3moe.{set}")).collect();
        let mut args = vec!["set", &*small, "-o", &*bad, "--force"];
        args.extend(sets.iter().map(String::as_str));
        run_ok("gguf-inspect", &args);
        let place = format!("{sets:?}");
        refuses("gguf-inspect", &["check", &bad], &place);
        refuses("gguf-perplexity", &["-m", &bad, "-f", &w.text], &place);
        refuses("gguf-imatrix", &["-m", &bad, "-f", &w.text, "-o", &out], &place);
        refuses("gguf-run", &["-m", &bad, "-p", "a"], &place);
    }
}

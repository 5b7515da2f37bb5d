//! What stands under the names of outputs and beside them: inputs, symbolic links, pipes. Every program leaves it as it
//! is, whatever `--force` says.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::common::save;
use suite_tests::{data, program, run_ok};

/// A program that waits for the other end of a pipe is ended.
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// A folder with a file of each kind that a program reads.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        static FIRST: OnceLock<Folder> = OnceLock::new();
        let first = FIRST.get_or_init(Self::make);
        let folder = Self(tempfile::tempdir().expect("a folder"));
        std::fs::create_dir(folder.path("ck")).expect("a folder");
        for path in first.files().into_keys() {
            let name = path.strip_prefix(first.0.path()).expect("inside");
            std::fs::copy(&path, folder.0.path().join(name)).expect("a copy");
        }
        folder
    }

    fn make() -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        std::fs::create_dir(folder.path("ck")).expect("a folder");
        for entry in std::fs::read_dir(data("qwen3moe")).expect("a checkpoint") {
            let from = entry.expect("an entry").path();
            let name = from.file_name().expect("a name");
            std::fs::copy(&from, folder.path("ck").join(name)).expect("a copy");
        }
        let text = std::fs::read(data("calibration.txt")).expect("a text");
        for (name, bytes) in [
            ("t.txt", &text[..4000]),
            ("tpl.jinja", b"{{ messages[0].content }}"),
            ("ids.json", b"[1, 2, 3]"),
            ("meta.json", b"{}"),
            ("types.txt", b"attn_q=Q8_0"),
        ] {
            save(&folder.path(name), bytes);
        }
        let matrix = data("golden/qwen3moe.imatrix.gguf");
        std::fs::copy(matrix, folder.path("im.gguf")).expect("a copy");
        folder.ok("gguf-convert ck -o a.gguf --quiet");
        folder.ok("gguf-inspect split --split-max-tensors 20 a.gguf sh");
        folder.ok("gguf-quantize --quiet --report losses.json a.gguf q.gguf Q8_0");
        std::fs::remove_file(folder.path("q.gguf")).expect("removed");
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, line: &str) -> Command {
        let mut words = line.split(' ').filter(|w| !w.is_empty());
        let mut command = Command::new(program(words.next().expect("a program")));
        command.args(words).current_dir(self.0.path());
        command
    }

    fn ok(&self, line: &str) {
        let out = self.command(line).output().expect("a program starts");
        assert!(out.status.success(), "{line}: {}", said(&out));
    }

    /// Runs a program that must come to an end by itself.
    fn ends(&self, line: &str) -> Output {
        let mut command = self.command(line);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("a program starts");
        let begin = Instant::now();
        while child.try_wait().expect("a child").is_none() {
            if begin.elapsed() > TIME_LIMIT {
                child.kill().expect("a child");
                panic!("{line}: does not end");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        child.wait_with_output().expect("a child")
    }

    /// All files with what is in them.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let list = |folder: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(folder).expect("a folder");
            entries.map(|e| e.expect("an entry").path()).collect()
        };
        let all = list(self.0.path()).into_iter().chain(list(&self.path("ck")));
        all.filter(|path| path.is_file())
            .map(|path| (path.clone(), std::fs::read(&path).expect("a file")))
            .collect()
    }

    /// All files from before are as they were; others, which a program has left or made, go.
    fn keeps(&self, before: &BTreeMap<PathBuf, Vec<u8>>, line: &str) {
        let after = self.files();
        for (path, bytes) in before {
            assert!(
                after.get(path) == Some(bytes),
                "{line}: {} changed",
                path.display()
            );
        }
        for path in after.keys().filter(|path| !before.contains_key(*path)) {
            std::fs::remove_file(path).expect("removed");
        }
    }
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// Command lines with the inputs that `OUT` must not be; `ck` and `sh` stand for all their files.
const LINES: &[(&str, &str)] = &[
    ("gguf-convert ck --metadata meta.json -o OUT", "ck meta.json"),
    (
        "gguf-convert ck --outtype Q4_K_M --imatrix im.gguf --tensor-type-file types.txt -o OUT",
        "ck/tokenizer.json im.gguf types.txt",
    ),
    (
        "gguf-convert ck --outtype Q4_K_M --report OUT -o x.gguf",
        "ck/model.safetensors.index.json",
    ),
    (
        "gguf-quantize --imatrix im.gguf --tensor-type-file types.txt a.gguf OUT Q4_K_M",
        "a.gguf im.gguf types.txt",
    ),
    ("gguf-quantize sh-00002-of-00002.gguf OUT Q8_0", "sh"),
    ("gguf-quantize --report OUT a.gguf x.gguf Q8_0", "a.gguf"),
    (
        "gguf-imatrix -m a.gguf -f t.txt -c 32 --in-file im.gguf -o OUT",
        "a.gguf t.txt im.gguf",
    ),
    ("gguf-imatrix -m ck -f t.txt -c 32 -o OUT", "ck"),
    (
        "gguf-imatrix -m sh-00001-of-00002.gguf -f t.txt -c 32 -o OUT",
        "sh",
    ),
    ("gguf-imatrix --in-file im.gguf -o OUT", "im.gguf"),
    ("gguf-imatrix convert im.gguf OUT", "im.gguf"),
    (
        "gguf-perplexity -m a.gguf -f t.txt -c 32 --kl-divergence-base OUT",
        "a.gguf t.txt",
    ),
    (
        "gguf-run -m a.gguf -f t.txt -n 1 --prompt-cache OUT",
        "a.gguf t.txt",
    ),
    (
        "gguf-run -m a.gguf -p x -n 1 --chat-template-file tpl.jinja --prompt-cache OUT",
        "tpl.jinja",
    ),
    (
        "gguf-run -m sh-00002-of-00002.gguf --ids ids.json --logits-out OUT",
        "ids.json sh",
    ),
    (
        "gguf-bench -m sh-00001-of-00002.gguf -p 1 -n 0 -r 1 --plot OUT",
        "sh",
    ),
    (
        "gguf-bench -m ck -p 1 -n 0 -r 1 --plot OUT",
        "ck/chat_template.jinja",
    ),
    ("gguf-inspect hash sh-00002-of-00002.gguf -o OUT", "sh"),
    (
        "gguf-inspect report sh-00001-of-00002.gguf --imatrix im.gguf --compare a.gguf -o OUT",
        "sh im.gguf a.gguf",
    ),
    (
        "gguf-inspect report a.gguf --errors losses.json -o OUT",
        "losses.json",
    ),
    ("gguf-inspect merge sh-00001-of-00002.gguf -o OUT", "sh"),
    (
        "gguf-inspect set a.gguf general.name=x --from-file general.url=t.txt -o OUT",
        "a.gguf t.txt",
    ),
    ("gguf-inspect unset a.gguf general.name -o OUT", "a.gguf"),
    (
        "gguf-inspect rename-key a.gguf general.name general.x -o OUT",
        "a.gguf",
    ),
];

#[test]
fn no_input_is_an_output() {
    let folder = Folder::new();
    let before = folder.files();
    for (line, inputs) in LINES {
        for input in inputs.split(' ') {
            let named = |path: &&PathBuf| {
                let name = path.strip_prefix(folder.0.path()).expect("inside");
                match input {
                    "ck" => name.starts_with("ck"),
                    "sh" => name.to_string_lossy().starts_with("sh-"),
                    _ => name == Path::new(input),
                }
            };
            let paths: Vec<&PathBuf> = before.keys().filter(named).collect();
            assert!(!paths.is_empty(), "{line}: no {input}");
            for (i, path) in paths.into_iter().enumerate() {
                std::fs::hard_link(path, folder.path("hard.gguf")).expect("a link");
                // By its name, and by another one.
                let names = [path.to_str().expect("UTF-8"), "hard.gguf"];
                for name in names.iter().take(if i == 0 { 2 } else { 1 }) {
                    let line = format!("{} --force", line.replace("OUT", name));
                    let out = folder.ends(&line);
                    let text = said(&out);
                    assert_eq!(out.status.code(), Some(2), "{line}: {text}");
                    assert!(text.contains("input") || text.contains("shard"), "{line}: {text}");
                }
                std::fs::remove_file(folder.path("hard.gguf")).expect("removed");
            }
        }
        folder.keeps(&before, line);
    }
}

/// An input with the name of a file that a run makes beside its output.
#[test]
fn no_input_is_a_file_beside_an_output() {
    let folder = Folder::new();
    std::fs::copy(folder.path("a.gguf"), folder.path("b.gguf")).expect("a copy");
    let before = folder.files();
    let more: &[(&str, &str, &str)] = &[
        (
            "gguf-imatrix -m a.gguf -f t.txt -c 32 --chunks 2 --output-frequency 1 --save-frequency 1 -o o",
            "a.gguf t.txt",
            ".o.checkpoint.new .o.at_1.new",
        ),
        (
            "gguf-inspect set b.gguf --from-file general.url=t.txt",
            "t.txt",
            ".b.gguf.new .b.gguf.edit .b.gguf.edit.part",
        ),
        (
            "gguf-inspect split a.gguf s --split-max-tensors 20",
            "a.gguf",
            ".s-00001-of-00002.gguf.new .s-00002-of-00002.gguf.new",
        ),
    ];
    let kinds = ".o.new .o.part .o.journal .o.journal.part";
    let lines = LINES.iter().map(|(line, inputs)| (*line, *inputs, kinds));
    for (line, inputs, names) in lines.chain(more.iter().copied()) {
        // Shards and checkpoints have names of their own.
        for input in inputs.split(' ').filter(|i| !i.starts_with("ck") && *i != "sh") {
            for name in names.split(' ') {
                let path = folder.path(name);
                std::fs::copy(folder.path(input), &path).expect("a copy");
                let line = line.replace(input, name).replace("OUT", "o") + " --force";
                let out = folder.ends(&line);
                let text = said(&out);
                assert_eq!(out.status.code(), Some(2), "{line}: {text}");
                assert!(text.contains(&format!("the input `{name}`")), "{line}: {text}");
                let kept = std::fs::read(&path).expect("the input is there");
                assert!(kept == before[&folder.path(input)], "{line}: changed");
                std::fs::remove_file(&path).expect("removed");
                folder.keeps(&before, &line);
            }
        }
    }
}

/// Command lines, and the names of the files that a run has beside its output.
const BESIDE: &[(&str, &str)] = &[
    ("gguf-convert ck -o c.gguf", ".c.gguf.part"),
    (
        "gguf-convert ck -o c.gguf --resume",
        ".c.gguf.part .c.gguf.journal",
    ),
    ("gguf-quantize a.gguf b.gguf Q8_0", ".b.gguf.part"),
    (
        "gguf-quantize a.gguf b.gguf Q8_0 --resume",
        ".b.gguf.part .b.gguf.journal",
    ),
    ("gguf-quantize --report r.json a.gguf b.gguf Q8_0", ".r.json.new"),
    (
        "gguf-imatrix -m a.gguf -f t.txt -c 32 --chunks 2 --output-frequency 1 --save-frequency 1 -o i.gguf",
        "i.gguf.checkpoint i.gguf.at_1 .i.gguf.new .i.gguf.checkpoint.new .i.gguf.at_1.new",
    ),
    (
        "gguf-imatrix -m a.gguf -f t.txt -c 32 --chunks 2 --output-frequency 1 -o i.gguf --resume",
        "i.gguf.checkpoint",
    ),
    (
        "gguf-perplexity -m a.gguf -f t.txt -c 32 --chunks 1 --kl-divergence-base b.kld",
        ".b.kld.new",
    ),
    ("gguf-run -m a.gguf --ids ids.json --logits-out l.st", ".l.st.new"),
    (
        "gguf-run -m a.gguf -p x -n 1 --no-chat --prompt-cache p",
        "p .p.new",
    ),
    ("gguf-bench -m a.gguf -p 1 -n 0 -r 1 --plot p.svg", ".p.svg.new"),
    ("gguf-inspect hash a.gguf -o h.txt", ".h.txt.new"),
    ("gguf-inspect report a.gguf -o r.html", ".r.html.new"),
    (
        "gguf-inspect split a.gguf s --split-max-tensors 20",
        ".s-00001-of-00002.gguf.new",
    ),
    ("gguf-inspect merge sh-00001-of-00002.gguf m.gguf", ".m.gguf.new"),
    (
        "gguf-inspect merge --in-place-safe sh-00001-of-00002.gguf m.gguf",
        ".m.gguf.merge-part .m.gguf.merge-journal .m.gguf.merge-journal.part",
    ),
    ("gguf-inspect set a.gguf general.name=x -o s.gguf", ".s.gguf.new"),
    ("gguf-inspect set a.gguf general.name=x", ".a.gguf.edit"),
];

#[test]
fn no_program_waits_for_a_pipe() {
    let folder = Folder::new();
    let before = folder.files();
    for (line, names) in BESIDE {
        for name in names.split(' ') {
            let path = folder.path(name);
            let made = Command::new("mkfifo").arg(&path).status();
            assert!(made.expect("a program of every system").success(), "{name}");
            let out = folder.ends(line);
            let text = said(&out);
            assert!(matches!(out.status.code(), Some(1 | 2)), "{line}: {name}: {text}");
            assert!(text.contains(name), "{line}: {name}: {text}");
            let meta = path.symlink_metadata();
            assert!(
                meta.is_ok_and(|m| m.file_type().is_fifo()),
                "{line}: {name} is gone"
            );
            std::fs::remove_file(path).expect("removed");
            folder.keeps(&before, line);
        }
    }
}

#[test]
fn nothing_is_written_through_a_link_that_nobody_named() {
    let folder = Folder::new();
    save(&folder.path("victim"), b"of somebody else");
    let before = folder.files();
    let more: &[(&str, &str)] = &[
        ("gguf-convert ck -o ck --outtype bf16", "ck/Ck-8x1.6M-BF16.gguf"),
        (
            "gguf-convert ck -o s.gguf --split-max-tensors 20",
            "s-00002-of-00002.gguf",
        ),
        ("gguf-quantize a.gguf Q8_0", "ggml-model-Q8_0.gguf"),
        ("gguf-quantize -o ck a.gguf Q8_0", "ck/a-Q8_0.gguf"),
        (
            "gguf-quantize a.gguf s.gguf Q8_0 --split-max-tensors 20",
            "s-00001-of-00002.gguf",
        ),
        (
            "gguf-inspect split a.gguf s --split-max-tensors 20",
            "s-00002-of-00002.gguf",
        ),
    ];
    for (line, names) in BESIDE.iter().chain(more) {
        for name in names.split(' ').filter(|name| *name != "p") {
            let path = folder.path(name);
            symlink(folder.path("victim"), &path).expect("a link");
            // A merge that consumes its shards replaces nothing.
            let force = if line.contains("--in-place-safe") {
                ""
            } else {
                "--force"
            };
            let line = format!("{line} {force}");
            let out = folder.ends(&line);
            let text = said(&out);
            assert!(matches!(out.status.code(), Some(1 | 2)), "{line}: {name}: {text}");
            assert!(text.contains(name), "{line}: {name}: {text}");
            std::fs::remove_file(&path).expect("the link");
            folder.keeps(&before, &line);
        }
    }
}

/// A name that the user gave may be a link to a file, which then gets what was asked for.
#[test]
fn a_link_that_was_named_is_followed() {
    let folder = Folder::new();
    save(&folder.path("behind"), b"old");
    symlink("behind", folder.path("h.txt")).expect("a link");
    folder.ok("gguf-inspect hash a.gguf -o h.txt --force");
    let text = std::fs::read_to_string(folder.path("behind")).expect("a manifest");
    assert!(text.starts_with("# gguf-inspect hash"), "{text}");
    // Beside a checkpoint's own files there may be others, which are replaced as everywhere.
    folder.ok("gguf-convert ck -o ck/m.gguf --quiet");
    folder.ok("gguf-convert ck -o ck/m.gguf --quiet --force");
    folder.ok("gguf-run -m ck -p a -n 0 --no-chat --prompt-cache ck/part.bin");
    folder.ok("gguf-run -m ck -p a -n 0 --no-chat --prompt-cache ck/part.bin");
    // For those who read GGUF files, the one in the folder is the input.
    let out = folder.ends("gguf-inspect report ck -o ck/m.gguf --force");
    assert_eq!(out.status.code(), Some(2), "{}", said(&out));
    assert!(
        said(&out).contains("the same file as the input"),
        "{}",
        said(&out)
    );
    let list = run_ok(
        "gguf-inspect",
        &["hash", folder.path("ck").to_str().expect("UTF-8")],
    );
    assert!(list.contains("  m.gguf\n"), "{list}");
}

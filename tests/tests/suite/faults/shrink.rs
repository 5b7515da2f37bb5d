//! Files that are shortened while a program reads them.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::job::{Inputs, all};
use super::world::{Random, command, end, files, moments, names, put, start, wait_until, words};
use crate::common::{F32, Raw};
use suite_tests::data;

/// A copy of the model that can be shortened.
fn copy(folder: &Path) -> PathBuf {
    let model = folder.join("m.gguf");
    std::fs::copy(Inputs::get().model(), &model).expect("room");
    model
}

fn cut(path: &Path, n_bytes: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(path);
    file.and_then(|f| f.set_len(n_bytes)).expect("shortened");
}

/// Waits until a program has printed something: then it is at work.
fn wait_for_output(child: &mut Child) {
    let mut byte = [0];
    let stdout = child.stdout.as_mut().expect("piped");
    stdout.read_exact(&mut byte).expect("a program at work prints");
    // What follows must not wait for this test.
    let mut stdout = child.stdout.take().expect("piped");
    std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
}

/// Waits until a program has mapped a file.
fn wait_for_map(child: &mut Child, path: &Path) {
    let maps = format!("/proc/{}/maps", child.id());
    let name = path.display().to_string();
    let is_mapped = || std::fs::read_to_string(&maps).is_ok_and(|text| text.contains(&name));
    assert!(
        wait_until(child, is_mapped),
        "a run ended before it had mapped `{name}`"
    );
}

fn started(folder: &Path, line: &str) -> Child {
    start(command(folder, &words(line)).stdout(Stdio::piped()))
}

/// Long work on a mapped model, which prints as it goes.
fn on_maps() -> [String; 3] {
    let text = data("evaluation.txt");
    let text = text.display();
    [
        format!("gguf-perplexity -m m.gguf -f {text} -c 32 -b 32 -t 2"),
        format!("gguf-imatrix -m m.gguf -f {text} -c 32 -b 32 -t 2 -o out.gguf"),
        "gguf-run -m m.gguf -p a -n 100000 -c 120000 --ignore-eos --no-chat -t 2".to_owned(),
    ]
}

#[test]
fn a_mapped_file_that_is_shortened_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = Random::new("shrink");
    for line in on_maps() {
        let model = copy(folder.path());
        let mut child = started(folder.path(), &line);
        wait_for_output(&mut child);
        // Of the weights nothing may be left: those of a few experts may not be read again for long.
        let n_bytes = random.up_to(8 << 10);
        cut(&model, n_bytes);
        let end = end(child);
        assert!(
            end.is_error(
                &[1],
                &[
                    "`m.gguf` at byte ",
                    "shortened while it was in use",
                    &format!("now {n_bytes};")
                ]
            ),
            "{line}: {end:?}"
        );
        assert!(!folder.path().join("out.gguf").exists());
    }
}

/// At any moment from the first, so that it may be any read that meets it.
#[test]
fn a_file_that_is_shortened_at_any_moment_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = "gguf-bench -m m.gguf -p 64 -n 64 -r 1000 --no-bandwidth -t 2";
    let mut random = Random::new("bench");
    for _ in 0..moments(2) {
        let model = copy(folder.path());
        let mut child = started(folder.path(), line);
        wait_for_map(&mut child, Path::new("m.gguf"));
        std::thread::sleep(std::time::Duration::from_micros(random.up_to(50_000)));
        cut(&model, random.up_to(8 << 10));
        let end = end(child);
        assert!(end.is_error(&[1], &["m.gguf"]), "{end:?}");
    }
}

/// Programs that read by position get fewer bytes than there were.
#[test]
fn a_file_that_is_shortened_between_open_and_read_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("m.gguf");
    let dims = [1 << 14, 1 << 15];
    let head = Raw::new().tensor("zeros", &dims, F32, 0).build();
    put(&model, &head);
    // Zeros that take no room on disk, and a while to read.
    cut(&model, head.len() as u64 + 4 * dims[0] * dims[1]);
    let mut child = started(folder.path(), "gguf-inspect hash m.gguf -q");
    let open = format!("/proc/{}/fd", child.id());
    let is_open = || {
        let mut files = std::fs::read_dir(&open).into_iter().flatten().flatten();
        files.any(|f| std::fs::read_link(f.path()).is_ok_and(|to| to == model))
    };
    assert!(
        wait_until(&mut child, is_open),
        "the run ended before it had opened the file"
    );
    std::thread::sleep(std::time::Duration::from_millis(30));
    cut(&model, 1 << 20);
    let end = end(child);
    let words = [
        "`m.gguf` at byte 1048576",
        "changed while it was in use",
        "now 1048576;",
    ];
    assert!(end.is_error(&[1], &words), "{end:?}");
}

/// At random moments of runs that write: the right bytes, or an error and none.
#[test]
fn outputs_are_not_made_of_a_file_that_is_shortened() {
    let (mut fine, mut failed) = (0, 0);
    for trial in all().iter().filter(|t| t.job.has_output()) {
        let mut random = Random::new(trial.job.name);
        for i in 0..moments(2) {
            let folder = trial.folder();
            let sources = tempfile::tempdir().expect("a folder");
            let (line, source) = with_copies(&trial.job.line, sources.path());
            let child = start(&mut command(folder.path(), &line));
            let micros = u64::try_from(trial.time.as_micros()).expect("short");
            std::thread::sleep(std::time::Duration::from_micros(random.up_to(micros) * i.min(1)));
            cut(&source, random.up_to(100 << 10));
            let end = end(child);
            let found = files(folder.path());
            if end.is_fine() {
                // An edit copies what is there: a file that was short already as it was opened is no fault.
                let n_bytes = |path: &Path| path.metadata().map_or(0, |m| m.len());
                let is_copy = trial.job.name == "set -o"
                    && n_bytes(&folder.path().join("out.gguf")) == n_bytes(&source);
                assert!(found == trial.after || is_copy, "{line:?}: {found:?}");
                fine += 1;
            } else {
                // The file, or the checkpoint that it belongs to.
                let folder_of_source = source.parent().expect("a folder");
                let named = [&*source, folder_of_source].map(|path| path.file_name().expect("a name"));
                let named = named.map(|name| end.is_error(&[1, 2], &[&name.to_string_lossy()]));
                assert!(named.contains(&true), "{line:?}: {end:?}");
                // A mapped file ends a run at once, as a kill does.
                trial.check_killed(folder.path());
                failed += 1;
            }
        }
    }
    eprintln!("shortened source: {fine} runs had read it, {failed} ended with an error");
    assert!(failed > 0);
}

/// A command line with copies of what it reads, and one of them.
fn with_copies(line: &[String], folder: &Path) -> (Vec<String>, PathBuf) {
    let mut source = PathBuf::new();
    let line = line.iter().map(|word| {
        let path = Path::new(word);
        if path.is_dir() {
            // Its name is in the output.
            let copy = folder.join(path.file_name().expect("a name"));
            std::fs::create_dir(&copy).expect("room");
            for name in names(path) {
                std::fs::copy(path.join(&name), copy.join(name)).expect("room");
            }
            source = copy.join("model-00002-of-00003.safetensors");
            return copy.display().to_string();
        }
        if path.extension().is_some_and(|e| e == "gguf") && path.is_absolute() {
            for from in [Inputs::get().model()].into_iter().chain(Inputs::get().shards()) {
                std::fs::copy(&from, folder.join(from.file_name().expect("a file"))).expect("room");
            }
            source = folder.join(path.file_name().expect("a file"));
            return source.display().to_string();
        }
        word.clone()
    });
    let line = line.collect();
    (line, source)
}

/// A real bus error, and one that somebody sends, still end a program.
#[test]
fn other_signals_are_what_they_were() {
    let folder = tempfile::tempdir().expect("a folder");
    copy(folder.path());
    let line = &on_maps()[0];
    let mut child = started(folder.path(), line);
    wait_for_output(&mut child);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::BUS,
    )
    .expect("sent");
    let end = end(child);
    assert_eq!(end.signal, Some(7), "{end:?}");
}

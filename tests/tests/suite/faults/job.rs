//! Command lines that write, what they leave, and how one goes on where they were stopped.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::world::{End, Files, command, end, files, names, start, wait_until, words};
use suite_tests::data;

/// What all jobs read: a checkpoint of the tree, and what was made of it once.
pub(super) struct Inputs {
    folder: tempfile::TempDir,
    digests: Files,
    checkpoint: Files,
}

const N_SHARDS: u32 = 4;

fn shard(no: u32) -> String {
    format!("s-{no:05}-of-{N_SHARDS:05}.gguf")
}

impl Inputs {
    pub(super) fn get() -> &'static Self {
        static INPUTS: OnceLock<Inputs> = OnceLock::new();
        INPUTS.get_or_init(|| {
            let folder = tempfile::tempdir().expect("a folder");
            let checkpoint = data("qwen3moe");
            for line in [
                &format!("gguf-convert {} -o m.gguf -q", checkpoint.display()),
                "gguf-inspect split m.gguf s --max-tensors 12 -q",
            ] {
                let end = run(folder.path(), &words(line));
                assert!(end.is_fine(), "{line}: {end:?}");
            }
            Self {
                digests: files(folder.path()),
                checkpoint: files(&checkpoint),
                folder,
            }
        })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn model(&self) -> PathBuf {
        self.path("m.gguf")
    }

    pub(super) fn shards(&self) -> Vec<PathBuf> {
        (1..=N_SHARDS).map(|no| self.path(&shard(no))).collect()
    }

    /// Nothing that is only read may have changed.
    pub(super) fn check(&self) {
        assert_eq!(files(self.folder.path()), self.digests, "an input changed");
        assert_eq!(
            files(&data("qwen3moe")),
            self.checkpoint,
            "the checkpoint changed"
        );
    }
}

/// Runs a command line in a folder.
pub(super) fn run(folder: &Path, line: &[String]) -> End {
    end(start(&mut command(folder, line)))
}

/// How one goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The same command with `--resume`, if it had not.
    Resume,
    /// That, and `--force` where the output is there and only its checkpoint was not removed.
    Checkpoint,
    /// The same command, with `--force` where a part of its outputs has their names.
    Again,
    /// `gguf-inspect set FILE`, which restores the old head, then the same command.
    Restore,
    /// `merge --in-place-safe --resume OUT`.
    Consume,
}

/// A command that writes.
pub(super) struct Job {
    pub(super) name: &'static str,
    pub(super) line: Vec<String>,
    /// What its folder has before it.
    before: Vec<PathBuf>,
    /// Names that a run which is killed may leave, as the README lists them.
    left: &'static [&'static str],
    /// The same for one that ends with an error.
    left_by_errors: &'static [&'static str],
    next: Next,
}

const RESUMABLE: &[&str] = &[".out.gguf.part", ".out.gguf.journal", ".out.gguf.journal.part"];
const RESUMABLE_SET: &[&str] = &[
    ".out-00001-of-00004.gguf.part",
    ".out-00002-of-00004.gguf.part",
    ".out-00003-of-00004.gguf.part",
    ".out-00004-of-00004.gguf.part",
    ".out-00001-of-00004.gguf.journal",
    ".out-00001-of-00004.gguf.journal.part",
];
const EDIT: &[&str] = &[".e.gguf.edit", ".e.gguf.edit.part"];
const CONSUME: &[&str] = &[
    ".out.gguf.merge-part",
    ".out.gguf.merge-journal",
    ".out.gguf.merge-journal.part",
];
const SPLIT: &[&str] = &[
    ".t-00001-of-00004.gguf.new",
    ".t-00002-of-00004.gguf.new",
    ".t-00003-of-00004.gguf.new",
    ".t-00004-of-00004.gguf.new",
];

/// All jobs, with what they leave where nothing goes wrong.
pub(super) fn all() -> &'static [Trial] {
    static TRIALS: OnceLock<Vec<Trial>> = OnceLock::new();
    TRIALS.get_or_init(|| jobs().into_iter().map(Trial::new).collect())
}

fn jobs() -> Vec<Job> {
    let inputs = Inputs::get();
    let model = inputs.model().display().to_string();
    let first = inputs.path(&shard(1)).display().to_string();
    let (checkpoint, text) = (data("qwen3moe"), data("calibration.txt"));
    let job = |name, line: String, next, left, left_by_errors| Job {
        name,
        line: words(&line),
        before: Vec::new(),
        left,
        left_by_errors,
        next,
    };
    let edit = |name, change: &str| {
        let line = format!("gguf-inspect {change} -q");
        let mut job = job(name, line, Next::Restore, EDIT, EDIT);
        job.before = vec![inputs.path("m.gguf")];
        job
    };
    let new: &[&str] = &[".out.gguf.new"];
    let convert = format!("gguf-convert {} -o out.gguf -q -t 2", checkpoint.display());
    let imatrix = format!(
        "gguf-imatrix -m {model} -f {} -o out.gguf -c 64 -b 64 --chunks 6 --output-frequency 1 --quiet -t 2",
        text.display()
    );
    let checkpointed = &[".out.gguf.new", "out.gguf.checkpoint", ".out.gguf.checkpoint.new"];
    let mut consume = job(
        "merge --in-place-safe",
        format!("gguf-inspect merge --in-place-safe {} out.gguf -q", shard(1)),
        Next::Consume,
        CONSUME,
        CONSUME,
    );
    consume.before = inputs.shards();
    vec![
        job("convert", convert, Next::Resume, RESUMABLE, &[]),
        job(
            "quantize",
            format!("gguf-quantize {model} out.gguf Q4_K_M 2 --quiet"),
            Next::Resume,
            RESUMABLE,
            &[],
        ),
        job(
            "quantize --resume",
            format!("gguf-quantize {model} out.gguf Q4_K_M 2 --quiet --split-max-tensors 12 --resume"),
            Next::Resume,
            RESUMABLE_SET,
            RESUMABLE_SET,
        ),
        job(
            "imatrix",
            imatrix,
            Next::Checkpoint,
            checkpointed,
            &["out.gguf.checkpoint"],
        ),
        job(
            "merge",
            format!("gguf-inspect merge {first} out.gguf -q"),
            Next::Again,
            new,
            &[],
        ),
        consume,
        job(
            "split",
            format!("gguf-inspect split {model} t --max-tensors 12 -q"),
            Next::Again,
            SPLIT,
            &[],
        ),
        job(
            "set -o",
            format!("gguf-inspect set {model} general.name=x -o out.gguf -q"),
            Next::Again,
            new,
            &[],
        ),
        edit("set", "set e.gguf general.name=x"),
        edit("unset", "unset e.gguf general.name"),
        edit("rename-key", "rename-key e.gguf general.name general.title"),
    ]
}

impl Job {
    /// Puts into a folder what the job works on.
    pub(super) fn set_up(&self, folder: &Path) {
        for path in &self.before {
            let name = match path.file_name().expect("a file") {
                name if name == "m.gguf" => "e.gguf".as_ref(),
                name => name,
            };
            std::fs::copy(path, folder.join(name)).expect("room");
        }
    }

    /// Whether the output is a file of its own, which can be anywhere.
    pub(super) fn has_output(&self) -> bool {
        self.before.is_empty()
    }

    /// The command with its outputs in another folder.
    pub(super) fn line_into(&self, folder: &Path) -> Vec<String> {
        let words = self.line.iter().map(|word| match word.as_str() {
            "out.gguf" | "t" => folder.join(word).display().to_string(),
            _ => word.clone(),
        });
        words.collect()
    }

    /// The command that leads on from what is there, or `None` where all is done.
    fn next(&self, folder: &Path, after: &Files) -> Option<Vec<String>> {
        let found = files(folder);
        if found == *after {
            return None;
        }
        let with = |options: &[&str]| {
            let options = options.iter().map(|&o| o.to_owned());
            Some(self.line.iter().cloned().chain(options).collect())
        };
        let has = |name: &str| found.contains_key(name);
        match self.next {
            Next::Checkpoint if has("out.gguf") => with(&["--resume", "--force"]),
            Next::Resume if self.line.iter().any(|word| word == "--resume") => with(&[]),
            Next::Resume | Next::Checkpoint => with(&["--resume"]),
            Next::Again if found.keys().any(|name| after.contains_key(name)) => with(&["--force"]),
            Next::Restore if has(EDIT[0]) => Some(words("gguf-inspect set e.gguf -q")),
            Next::Consume if has(".out.gguf.merge-journal") => {
                Some(words("gguf-inspect merge --in-place-safe --resume out.gguf -q"))
            }
            Next::Again | Next::Restore | Next::Consume => with(&[]),
        }
    }
}

/// A job and what an undisturbed run of it leaves.
pub(super) struct Trial {
    pub(super) job: Job,
    before: Files,
    pub(super) after: Files,
    /// Of an undisturbed run, the shorter of two.
    pub(super) time: Duration,
    /// How often the names in the folder change meanwhile.
    pub(super) n_steps: u64,
    /// Bytes that it writes.
    pub(super) n_bytes: u64,
}

impl Trial {
    fn new(job: Job) -> Self {
        let mut trial = Self {
            job,
            before: Files::new(),
            after: Files::new(),
            time: Duration::MAX,
            n_steps: 0,
            n_bytes: 0,
        };
        for i in 0..2 {
            let folder = trial.folder();
            trial.before = files(folder.path());
            let begin = Instant::now();
            let mut child = start(&mut command(folder.path(), &trial.job.line));
            let (mut steps, mut last) = (0, names(folder.path()));
            wait_until(&mut child, || {
                let now = names(folder.path());
                steps += u64::from(now != last);
                last = now;
                false
            });
            let end = end(child);
            assert!(end.is_fine(), "{}: {end:?}", trial.job.name);
            trial.time = trial.time.min(begin.elapsed());
            trial.n_steps = trial.n_steps.max(steps);
            let after = files(folder.path());
            assert!(i == 0 || after == trial.after, "{}: other bytes", trial.job.name);
            trial.after = after;
            trial.n_bytes = written(folder.path(), &trial.before);
        }
        trial
    }

    /// A new folder that the job can begin in.
    pub(super) fn folder(&self) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        self.job.set_up(folder.path());
        folder
    }

    /// Checks what a run that was killed has left. Returns the names that are neither inputs nor outputs.
    pub(super) fn check_killed(&self, folder: &Path) -> Vec<String> {
        self.check(folder, self.job.left)
    }

    /// The same behind an error.
    pub(super) fn check_failed(&self, folder: &Path) -> Vec<String> {
        self.check(folder, self.job.left_by_errors)
    }

    fn check(&self, folder: &Path, may_be_left: &[&str]) -> Vec<String> {
        let name = self.job.name;
        let found = files(folder);
        // Programs refuse a file whose edit was interrupted.
        let is_edited = found.contains_key(EDIT[0]);
        let mut left = Vec::new();
        for (file, digest) in &found {
            if may_be_left.contains(&file.as_str()) {
                left.push(file.clone());
                continue;
            }
            let is_whole = self.before.get(file) == Some(digest) || self.after.get(file) == Some(digest);
            assert!(
                is_whole || is_edited,
                "{name}: `{file}` is neither as before nor as after nor a name of what is left; there are {:?}",
                found.keys()
            );
        }
        left
    }

    /// The command that leads on, if one is needed.
    pub(super) fn next(&self, folder: &Path) -> Option<Vec<String>> {
        self.job.next(folder, &self.after)
    }

    /// Gives the commands that lead to what an undisturbed run leaves.
    pub(super) fn complete(&self, folder: &Path) {
        Inputs::get().check();
        for _ in 0..3 {
            let Some(line) = self.next(folder) else {
                return;
            };
            let there = names(folder);
            let end = run(folder, &line);
            assert!(
                end.is_fine(),
                "{}: {line:?} with {there:?}: {end:?}",
                self.job.name
            );
        }
        assert_eq!(
            files(folder),
            self.after,
            "{}: not as an undisturbed run",
            self.job.name
        );
    }

    /// Bytes of all files that the job has made so far, also those that are left.
    pub(super) fn written(&self, folder: &Path) -> u64 {
        written(folder, &self.before)
    }
}

fn written(folder: &Path, before: &Files) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|e| !before.contains_key(&*e.file_name().to_string_lossy()))
        .filter_map(|e| Some(e.metadata().ok()?.len()))
        .sum()
}

//! Disks that become full, and limits to the size of files, at random points.

use std::path::Path;
use std::process::{Child, Command};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::job::{Inputs, Trial, all};
use super::world::{
    Disk, End, Random, command, end, files, in_shell, meets_each, moments, names, start, wait_until, words,
};
use suite_tests::data;

/// What runs have come to: those that ended with an error by whether anything of their output was seen before.
#[derive(Default)]
struct Ends {
    fine: u64,
    refused: u64,
    midway: u64,
    /// Jobs whose first run, which has the least room, found enough.
    fine_at_first: Vec<&'static str>,
}

impl Ends {
    /// Checks the end of a trial's run and what it has left in the folder, and counts it.
    fn count(&mut self, trial: &Trial, folder: &Path, end: &End, (i, had_written): (u64, bool)) {
        if end.is_fine() {
            self.fine += 1;
            if i == 0 {
                self.fine_at_first.push(trial.job.name);
            }
            return;
        }
        trial.check_failed(folder);
        let name = trial.job.name;
        assert!(end.is_error(&[2], &[]), "{name}: {end:?}");
        let said = &end.said;
        assert!(
            ["full", "free", "may write", "space", "too large"]
                .iter()
                .any(|w| said.contains(w)),
            "{name}: {said}"
        );
        if had_written {
            self.midway += 1;
        } else {
            self.refused += 1;
        }
    }

    fn tell(&self, fault: &str) {
        let Self {
            fine,
            refused,
            midway,
            ..
        } = self;
        eprintln!(
            "{fault}: {fine} runs had room, {refused} ended before a byte of theirs was seen, {midway} behind it"
        );
    }
}

/// Waits until a run has written so much, or has ended. Whether anything was seen of it.
fn wait_for(child: &mut Child, n_bytes: u64, folder: &Path, trial: &Trial) -> bool {
    let mut had_written = false;
    wait_until(child, || {
        let n = trial.written(folder);
        had_written |= n > 0;
        n >= n_bytes
    });
    had_written
}

/// A run that may write files of so many times 512 bytes.
fn limited(folder: &Path, limit: u64, line: &[String]) -> Command {
    let shell = ["sh", "-c", "ulimit -f \"$0\" && exec \"$@\"", &limit.to_string()];
    in_shell(folder, &shell, line)
}

/// `ulimit -f` in front of a run: what can be told at its start is.
#[test]
fn a_limit_to_files_is_an_error() {
    let mut ends = Ends::default();
    for trial in all() {
        let mut random = Random::new(trial.job.name);
        for i in 0..moments(2) {
            let folder = trial.folder();
            // In units of 512 bytes; none at first.
            let limit = random.up_to(trial.n_bytes.max(64 << 10) / 512 * 5 / 4) * i.min(1);
            let mut child = start(&mut limited(folder.path(), limit, &trial.job.line));
            let had_written = wait_for(&mut child, 1, folder.path(), trial);
            ends.count(trial, folder.path(), &end(child), (i, had_written));
            trial.complete(folder.path());
        }
    }
    ends.tell("limit from the start");
    assert!(
        ends.fine_at_first.is_empty(),
        "ran within nothing: {:?}",
        ends.fine_at_first
    );
}

/// What programs write that no run continues: their size is known only when they are written, or not worth a look before.
#[test]
fn a_limit_to_other_outputs_is_an_error() {
    let model = Inputs::get().model().display().to_string();
    let text = data("evaluation.txt").display().to_string();
    for line in [
        format!(
            "gguf-run -m {model} -p {} -n 1 -t 2 --no-chat --prompt-cache out",
            "text".repeat(100)
        ),
        format!("gguf-perplexity -m {model} -f {text} -c 64 --chunks 2 -t 2 --kl-divergence-base out"),
        format!("gguf-bench -m {model} -p 8 -n 1 -r 1 --no-bandwidth -t 2 --plot out"),
        format!("gguf-inspect report {model} -o out"),
        format!("gguf-inspect hash {model} -o out"),
    ] {
        let line = words(&line);
        let folder = tempfile::tempdir().expect("a folder");
        let undisturbed = end(start(&mut command(folder.path(), &line)));
        assert!(undisturbed.is_fine(), "{line:?}: {undisturbed:?}");
        let n_bytes = folder.path().join("out").metadata().expect("an output").len();
        let mut random = Random::new(&line[0]);
        for i in 0..moments(4) {
            let folder = tempfile::tempdir().expect("a folder");
            // In units of 512 bytes, of which not all that it takes.
            let limit = random.up_to((n_bytes - 1) / 512) * i.min(1);
            let end = end(start(&mut limited(folder.path(), limit, &line)));
            assert!(end.is_error(&[2], &["may write"]), "{line:?}: {limit}: {end:?}");
            assert_eq!(files(folder.path()).len(), 0, "{line:?}: left something");
        }
    }
}

/// The same limit in the middle of a run, where no check in front can have seen it.
#[test]
fn a_limit_that_comes_midway_is_an_error() {
    let mut ends = Ends::default();
    for trial in all() {
        let mut random = Random::new(trial.job.name);
        for i in 0..moments(2) {
            let folder = trial.folder();
            let mut child = start(&mut command(folder.path(), &trial.job.line));
            let had_written = wait_for(&mut child, random.up_to(trial.n_bytes), folder.path(), trial);
            let pid = Pid::from_child(&child);
            let limit = Rlimit {
                current: Some(random.up_to(64 << 10)),
                maximum: None,
            };
            // A run that has ended has no limits.
            let _ = prlimit(Some(pid), Resource::Fsize, limit);
            let end = end(child);
            ends.count(trial, folder.path(), &end, (i, had_written));
            trial.complete(folder.path());
        }
    }
    ends.tell("limit midway");
    assert!(ends.midway > 0, "no run met the limit behind its first byte");
}

/// A disk in memory: too small from the start, or filled by somebody else while a run writes.
#[test]
fn a_full_disk_is_an_error() {
    let mut ends = Ends::default();
    for trial in all() {
        let mut random = Random::new(trial.job.name);
        for i in 0..moments(2) {
            let kept = trial.folder();
            let before: u64 = std::fs::read_dir(kept.path())
                .expect("a folder")
                .map(|e| e.expect("an entry").metadata().expect("a file").len())
                .sum();
            let is_filled = i % 2 == 1;
            let room = if is_filled {
                2 * trial.n_bytes + (4 << 20)
            } else {
                random.up_to(trial.n_bytes * 5 / 4) * i.min(1)
            };
            // Pages that the folder and the ends of files take.
            let Some(disk) = Disk::new(before + room + (64 << 10)) else {
                return;
            };
            let folder = disk.outside();
            trial.job.set_up(&folder);
            let mut child = start(&mut disk.run(&trial.job.line));
            // A disk that is too small from the start is met by a run of itself.
            let until = if is_filled {
                random.up_to(trial.n_bytes)
            } else {
                u64::MAX
            };
            let had_written = wait_for(&mut child, until, &folder, trial);
            let ballast = is_filled.then(|| fill(&folder));
            let end = end(child);
            drop(ballast.map(std::fs::remove_file));
            ends.count(trial, &folder, &end, (i, had_written));
            // On a disk with room.
            disk.shell("mount -o remount,size=100m none \"$0\"");
            for name in names(&folder) {
                std::fs::copy(folder.join(&name), kept.path().join(&name)).expect("room");
            }
            for name in names(kept.path()) {
                if !folder.join(&name).exists() {
                    std::fs::remove_file(kept.path().join(name)).expect("a copy of what the run has removed");
                }
            }
            trial.complete(kept.path());
        }
    }
    ends.tell("small disk");
    // Edits in place need next to nothing.
    let in_place = ["set", "unset", "rename-key"];
    assert_eq!(
        ends.fine_at_first, in_place,
        "jobs that a disk without room is enough for"
    );
    assert!(
        ends.midway > 0 || !meets_each(),
        "no disk was full behind a run's first byte"
    );
}

/// Takes all that is free.
fn fill(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("ballast");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .expect("a name");
    let zeros = vec![0; 64 << 10];
    let mut at = 0;
    // What is written takes pages, which a promise of space need not.
    while let Ok(n) = std::os::unix::fs::FileExt::write_at(&file, &zeros, at) {
        if n == 0 {
            break;
        }
        at += n as u64;
    }
    path
}

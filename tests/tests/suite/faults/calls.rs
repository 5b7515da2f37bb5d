//! Calls of the system that fail as those of a bad disk do: a filter on the calls of a thread (seccomp), which a program that
//! it starts gets with it.

use std::path::Path;
use std::process::Child;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::job::{Inputs, all};
use super::world::{self, Random, command, end, files, moments, words};
use suite_tests::data;

/// A call that fails; of the second, those of which an argument is as large or larger.
enum Failing {
    Always(libc::c_long),
    From(libc::c_long, u8, u64),
}

use Failing::{Always, From};

/// What comes of a call as a bad disk would have it.
const FAILS: SeccompAction = SeccompAction::Errno(libc::EIO as u32);

/// The filter with which this comes of these calls; `None` where there is none.
fn filter(calls: &[Failing], action: SeccompAction) -> Option<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).ok()?;
    // A call without rules always fails.
    let rules = calls.iter().map(|call| match *call {
        Always(call) => (call, Vec::new()),
        From(call, argument, value) => {
            let condition = SeccompCondition::new(argument, Len::Qword, Op::Ge, value);
            let rule = SeccompRule::new(vec![condition.expect("a condition")]);
            (call, vec![rule.expect("a rule")])
        }
    });
    let filter = SeccompFilter::new(rules.collect(), SeccompAction::Allow, action, arch);
    Some(BpfProgram::try_from(filter.expect("a filter")).expect("a program of it"))
}

/// Starts a command where this comes of these calls. Prints a notice and returns `None` where that cannot be had.
fn start(folder: &Path, line: &[String], calls: &[Failing], action: SeccompAction) -> Option<Child> {
    let filter = filter(calls, action);
    let mut command = command(folder, line);
    let start = || {
        seccompiler::apply_filter(&filter?).ok()?;
        Some(world::start(&mut command))
    };
    // The filter is that of a thread, and goes with it.
    let child = std::thread::scope(|s| s.spawn(start).join().expect("no panic"));
    if child.is_none() {
        suite_tests::skip("calls of the system cannot be filtered here");
    }
    child
}

/// Runs every job `n` times with the calls failing that `calls` gives for it: an error of a line that tells of the disk,
/// nothing lost, and the bytes of an undisturbed run afterwards. The first run must fail, except that of the jobs
/// `without`, which make no such call.
fn each(fault: &str, n: u64, without: &[&str], calls: impl Fn(u64, &mut Random) -> Vec<Failing>) {
    let (mut fine, mut failed) = (0, 0);
    let mut did_without: Vec<&str> = Vec::new();
    for trial in all() {
        let name = trial.job.name;
        let mut random = Random::new(&format!("{fault} {name}"));
        for i in 0..n {
            let folder = trial.folder();
            let calls = calls(i, &mut random);
            let Some(child) = start(folder.path(), &trial.job.line, &calls, FAILS) else {
                return;
            };
            let end = end(child);
            if end.is_fine() {
                fine += 1;
                if i == 0 {
                    did_without.push(name);
                }
            } else {
                failed += 1;
                assert!(end.is_error(&[1, 2], &["os error 5"]), "{fault}: {name}: {end:?}");
                trial.check_failed(folder.path());
            }
            trial.complete(folder.path());
        }
    }
    assert_eq!(did_without, without, "jobs that do without what {fault}");
    eprintln!("{fault}: {failed} runs ended with an error, {fine} did without");
}

/// A number for the `i`th run: `least` in the first, then small ones as often as large ones.
fn spread(i: u64, random: &mut Random, least: u64, most: u64) -> u64 {
    let shift = random.up_to(12);
    least.max(random.up_to(most >> shift) * i.min(1))
}

/// A place of a file from which on nothing can be read. Programs themselves are read within their first page.
#[test]
fn what_cannot_be_read_is_an_error() {
    let n_bytes = Inputs::get().model().metadata().expect("a file").len();
    let mapped = ["imatrix", "set", "unset", "rename-key"];
    each("cannot be read", moments(2), &mapped, |i, random| {
        let from = spread(i, random, 4096, n_bytes);
        vec![
            From(libc::SYS_pread64, 3, from),
            Always(libc::SYS_copy_file_range),
        ]
    });
}

/// The same of programs that only read, or write what is of no use without all of it.
#[test]
fn who_only_reads_tells_what_cannot_be_read() {
    let model = Inputs::get().model();
    let n_bytes = model.metadata().expect("a file").len();
    let (model, shard, text) = (
        model.display().to_string(),
        Inputs::get().shards()[0].display().to_string(),
        data("evaluation.txt").display().to_string(),
    );
    let (mut fine, mut failed) = (0, 0);
    for line in [
        format!("gguf-inspect check {model} --data -q"),
        format!("gguf-inspect hash {model} -q"),
        format!("gguf-inspect diff {model} {shard} --data -q"),
        format!(
            "gguf-perplexity -m {model} -f {text} -c 64 --chunks 1 -t 2 --no-mmap --kl-divergence-base base"
        ),
        format!("gguf-run -m {model} -p text -n 1 -t 2 --no-mmap --prompt-cache cache"),
        format!("gguf-bench -m {model} -p 8 -n 1 -r 1 --no-bandwidth -t 2 --no-mmap"),
    ] {
        let mut random = Random::new(&line);
        for i in 0..moments(2) {
            let folder = tempfile::tempdir().expect("a folder");
            let reads = [From(libc::SYS_pread64, 3, spread(i, &mut random, 4096, n_bytes))];
            let Some(child) = start(folder.path(), &words(&line), &reads, FAILS) else {
                return;
            };
            let end = end(child);
            if end.is_fine() {
                assert!(i > 0, "{line}: did without");
                fine += 1;
                continue;
            }
            failed += 1;
            assert!(end.is_error(&[1, 2], &["os error 5"]), "{line}: {end:?}");
            assert_eq!(files(folder.path()).len(), 0, "{line}: left something");
        }
    }
    Inputs::get().check();
    eprintln!("cannot be read by those that read: {failed} runs ended with an error, {fine} did without");
}

/// Writes at the end of a file, of so many bytes or more.
#[test]
fn what_cannot_be_written_is_an_error() {
    let by_place = [
        "convert",
        "quantize",
        "quantize --resume",
        "merge --in-place-safe",
    ];
    each("cannot be written", moments(2), &by_place, |i, random| {
        // One line of an error must still get out.
        vec![From(libc::SYS_write, 2, spread(i, random, 400, 1 << 20))]
    });
}

/// The same at a place of a file.
#[test]
fn a_place_that_cannot_be_written_is_an_error() {
    let n_bytes = Inputs::get().model().metadata().expect("a file").len();
    let in_order = ["imatrix", "merge", "split", "set -o"];
    each("cannot be written there", moments(2), &in_order, |i, random| {
        vec![From(libc::SYS_pwrite64, 3, spread(i, random, 0, n_bytes))]
    });
}

/// Sizes that files are given before they are written.
#[test]
fn a_file_that_cannot_have_its_size_is_an_error() {
    let n_bytes = Inputs::get().model().metadata().expect("a file").len();
    let grow = [
        "imatrix",
        "merge",
        "split",
        "set -o",
        "set",
        "unset",
        "rename-key",
    ];
    each("cannot have their size", moments(2), &grow, |i, random| {
        let least = spread(i, random, 1, n_bytes);
        vec![
            From(libc::SYS_ftruncate, 1, least),
            From(libc::SYS_fallocate, 3, least),
        ]
    });
}

/// Files with low numbers are opened first.
#[test]
fn what_does_not_reach_the_disk_is_an_error() {
    each("does not reach the disk", moments(2), &[], |i, random| {
        let file = spread(i, random, 0, 12);
        vec![From(libc::SYS_fsync, 0, file), From(libc::SYS_fdatasync, 0, file)]
    });
}

#[test]
fn a_name_that_cannot_be_given_is_an_error() {
    each("cannot be named", 1, &[], |_, _| {
        let calls = [libc::SYS_renameat2, libc::SYS_linkat];
        #[cfg(target_arch = "x86_64")]
        let old = [libc::SYS_rename, libc::SYS_renameat, libc::SYS_link];
        #[cfg(not(target_arch = "x86_64"))]
        let old = [libc::SYS_renameat];
        calls.into_iter().chain(old).map(Always).collect()
    });
}

/// No program asks for a socket, of whatever kind, unless it is given an address: such a call would end it with a signal.
#[test]
fn nothing_goes_to_the_network_unasked() {
    let socket = [Always(libc::SYS_socket)];
    let run = |folder: &Path, line: &[String]| {
        let child = start(folder, line, &socket, SeccompAction::KillProcess);
        child.map(end)
    };
    for trial in all() {
        let folder = trial.folder();
        let Some(end) = run(folder.path(), &trial.job.line) else {
            return;
        };
        assert!(end.is_fine(), "{}: {end:?}", trial.job.name);
        assert_eq!(files(folder.path()), trial.after, "{}", trial.job.name);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (model, text) = (
        Inputs::get().model().display().to_string(),
        data("evaluation.txt"),
    );
    let text = text.display();
    for line in [
        format!("gguf-perplexity -m {model} -f {text} -c 64 --chunks 1 -t 2"),
        format!("gguf-run -m {model} -p text -n 1 -t 2"),
        format!("gguf-bench -m {model} -p 8 -n 1 -r 1 --no-bandwidth -t 2"),
        format!("gguf-inspect check {model} --data"),
        format!("gguf-inspect hash {model}"),
        format!("gguf-inspect report {model} -o report.html"),
    ] {
        let end = run(folder.path(), &words(&line)).expect("as before");
        assert!(end.is_fine(), "{line}: {end:?}");
    }
    // That the filter is one.
    let line = words("gguf-inspect show http://127.0.0.1:9/m.gguf");
    let end = run(folder.path(), &line).expect("as before");
    assert_eq!(end.signal, Some(libc::SIGSYS), "{end:?}");
}

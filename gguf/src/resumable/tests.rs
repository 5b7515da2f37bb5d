#![expect(clippy::disallowed_methods, reason = "files that a test puts in the way")]

use std::fs;

use super::*;
use crate::atomic::beside;

/// Outputs `a` of 100 bytes and `b` of 10 in a folder.
struct Run {
    dir: tempfile::TempDir,
    outputs: Vec<(PathBuf, u64)>,
}

impl Run {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let outputs = vec![(dir.path().join("a"), 100), (dir.path().join("b"), 10)];
        Self { dir, outputs }
    }

    fn start(&self, resume: bool, force: bool, plan: &str) -> Result<(Outputs, Start)> {
        Outputs::start(&Request {
            outputs: &self.outputs,
            derived: false,
            inputs: &[],
            force,
            resume,
            plan: Digest::of(plan.as_bytes()),
        })
    }

    fn files(&self) -> Vec<String> {
        let names = fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> = names
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Leaves what a killed run leaves.
    fn killed(&self, done: u64) {
        let (mut outputs, _) = self.start(false, true, "plan").unwrap();
        outputs.write_at(0, 50, &[7; 50]).unwrap();
        outputs.write_at(1, 0, &[9]).unwrap();
        outputs.checkpoint(done, &|i| i == 1).unwrap();
        outputs.keep = true;
    }
}

#[test]
fn outputs_appear_complete_or_not_at_all() {
    let run = Run::new();
    let (outputs, start) = run.start(false, false, "plan").unwrap();
    assert_eq!(start, Start::New);
    outputs.write_at(0, 97, b"end").unwrap();
    assert!(outputs.write_at(0, 98, b"end").is_err());
    assert_eq!(run.files(), [".a.journal", ".a.part"]);
    drop(outputs);
    assert_eq!(run.files(), [""; 0]);

    let (outputs, _) = run.start(false, false, "plan").unwrap();
    outputs.write_at(0, 97, b"end").unwrap();
    outputs.publish().unwrap();
    assert_eq!(run.files(), ["a", "b"]);
    let a = fs::read(&run.outputs[0].0).unwrap();
    assert_eq!((a.len(), &a[..97], &a[97..]), (100, &[0; 97][..], &b"end"[..]));
    assert_eq!(fs::read(&run.outputs[1].0).unwrap(), [0; 10]);
    assert!(
        run.start(false, false, "plan")
            .unwrap_err()
            .to_string()
            .contains("it exists already")
    );
}

#[test]
fn a_killed_run_is_continued_on_request_only() {
    let run = Run::new();
    run.killed(42);
    let left = [".a.journal", ".a.part", ".b.part"];
    assert_eq!(run.files(), left);
    let text = run.start(false, false, "plan").unwrap_err().to_string();
    assert!(text.contains("pass `--resume` to continue it"), "{text}");
    let text = run.start(true, false, "other").unwrap_err().to_string();
    assert!(text.contains("with another source"), "{text}");
    assert_eq!(run.files(), left);

    let (outputs, start) = run.start(true, false, "plan").unwrap();
    assert_eq!(start, Start::At(42));
    let text = run.start(true, false, "plan").unwrap_err().to_string();
    assert!(text.contains("another run is writing it"), "{text}");
    let mut byte = [0];
    outputs.read_at(0, 50, &mut byte).unwrap();
    assert_eq!(byte, [7]);
    outputs.publish().unwrap();
    assert_eq!(run.files(), ["a", "b"]);
    assert_eq!(fs::read(&run.outputs[0].0).unwrap()[50..], [7; 50]);
}

#[test]
fn what_is_left_is_discarded_by_force() {
    let run = Run::new();
    run.killed(42);
    let (outputs, start) = run.start(false, true, "other").unwrap();
    assert_eq!(start, Start::New);
    outputs.publish().unwrap();
    assert_eq!(fs::read(&run.outputs[0].0).unwrap(), [0; 100]);
    assert_eq!(fs::read(&run.outputs[1].0).unwrap(), [0; 10]);
}

#[test]
fn a_resumable_run_leaves_what_it_did_after_an_error() {
    let run = Run::new();
    let (outputs, _) = run.start(true, false, "plan").unwrap();
    outputs.checkpoint(3, &|_| false).unwrap();
    drop(outputs);
    assert_eq!(run.files(), [".a.journal", ".a.part"]);
    assert_eq!(run.start(true, false, "plan").unwrap().1, Start::At(3));
}

/// Stopped between the names of two outputs.
#[test]
fn a_run_stopped_while_it_renames_is_completed() {
    for published in [&[1][..], &[1, 0]] {
        let run = Run::new();
        let (mut outputs, _) = run.start(false, false, "plan").unwrap();
        outputs.write_at(0, 0, b"a").unwrap();
        outputs.write_at(1, 0, b"b").unwrap();
        outputs.note(Done::Complete, outputs.made()).unwrap();
        outputs.keep = true;
        drop(outputs);
        for &i in published {
            fs::rename(beside(&run.outputs[i].0, "part"), &run.outputs[i].0).unwrap();
        }
        let request = Request {
            outputs: &run.outputs,
            derived: false,
            inputs: &[],
            force: false,
            resume: true,
            plan: Digest::of(b"plan"),
        };
        assert!(Outputs::is_left(&request));
        let (outputs, start) = Outputs::start(&request).unwrap();
        assert_eq!(start, Start::Complete);
        outputs.publish().unwrap();
        assert_eq!(run.files(), ["a", "b"]);
        assert_eq!(fs::read(&run.outputs[0].0).unwrap()[0], b'a');
        assert_eq!(fs::read(&run.outputs[1].0).unwrap()[0], b'b');
    }
}

/// A second run makes the part file, works and is killed, between the moment in which a first one finds none and that in
/// which it has the lock.
#[test]
fn a_part_that_another_run_made_meanwhile_is_not_new() {
    let run = Run::new();
    let first = Output::new(&run.outputs[0]);
    run.killed(42);
    let (lock, is_new) = try_lock(&first).unwrap().unwrap();
    assert!(!is_new);
    drop(lock);
    assert_eq!(run.start(true, false, "plan").unwrap().1, Start::At(42));
}

/// Two runs at once: one finds the file that the other has made and not locked yet, or was killed before it did.
#[test]
fn an_empty_part_is_of_no_run() {
    let run = Run::new();
    fs::write(run.dir.path().join(".a.part"), b"").unwrap();
    assert_eq!(run.start(false, false, "plan").unwrap().1, Start::New);
}

#[test]
fn strange_leftovers_are_refused() {
    let run = Run::new();
    let other = run.dir.path().join("other");
    fs::File::create(&other).unwrap();
    let part = run.dir.path().join(".a.part");
    fs::hard_link(&other, &part).unwrap();
    assert!(
        run.start(true, true, "plan")
            .unwrap_err()
            .to_string()
            .contains("no other name")
    );
    fs::remove_file(&part).unwrap();
    std::os::unix::fs::symlink(&other, &part).unwrap();
    assert!(run.start(true, true, "plan").is_err());
    fs::remove_file(&part).unwrap();
    // The name under which the journal is written.
    let (outputs, _) = run.start(true, true, "plan").unwrap();
    let part = run.dir.path().join(".a.journal.part");
    for symbolic in [false, true] {
        fs::write(&other, b"kept").unwrap();
        let linked = if symbolic {
            std::os::unix::fs::symlink(&other, &part)
        } else {
            fs::hard_link(&other, &part)
        };
        linked.unwrap();
        let text = outputs.checkpoint(1, &|_| false).unwrap_err().to_string();
        assert!(
            text.contains("symbolic") || text.contains("no other name"),
            "{text}"
        );
        assert_eq!(fs::read(&other).unwrap(), b"kept");
        assert!(part.symlink_metadata().is_ok(), "left where it is");
        fs::remove_file(&part).unwrap();
    }
}

#[test]
fn long_names_leave_room_for_the_names_beside() {
    use std::os::unix::ffi::OsStrExt as _;
    let name = |end: &str| beside(Path::new(&("x".repeat(240) + end)), "part");
    assert!(name("a").as_os_str().len() < 240);
    assert_ne!(name("a"), name("b"));
    let no_text = |byte: u8| beside(Path::new(std::ffi::OsStr::from_bytes(&[byte])), "part");
    assert_ne!(no_text(0xfe), no_text(0xff));
}

/// What a journal says must be there, whole; nothing is made up for what is not.
#[test]
fn files_that_are_gone_or_short_are_not_resumed() {
    let cut = |path: &Path| {
        fs::OpenOptions::new()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(7)
            .unwrap();
    };
    let gone = |path: &Path| fs::remove_file(path).unwrap();
    for harm in [&cut as &dyn Fn(&Path), &gone] {
        for part in [".a.part", ".b.part"] {
            let run = Run::new();
            run.killed(42);
            harm(&run.dir.path().join(part));
            let text = run.start(true, false, "plan").unwrap_err().to_string();
            assert!(text.contains("files that are not there any more"), "{text}");
            assert_eq!(run.start(false, true, "plan").unwrap().1, Start::New);
        }
        // Published, but for the removal of the journal.
        let run = Run::new();
        let (mut outputs, _) = run.start(false, false, "plan").unwrap();
        outputs.checkpoint(1, &|_| false).unwrap();
        outputs.files.iter().for_each(|o| drop(o.open().unwrap()));
        outputs.note(Done::Complete, outputs.made()).unwrap();
        outputs.keep = true;
        drop(outputs);
        for (path, _) in &run.outputs {
            fs::rename(beside(path, "part"), path).unwrap();
        }
        harm(&run.outputs[1].0);
        let text = run.start(true, false, "plan").unwrap_err().to_string();
        assert!(text.contains("files that are not there any more"), "{text}");
        assert!(!run.outputs[1].0.exists() || fs::read(&run.outputs[1].0).unwrap().len() == 7);
    }
}

/// A part file of an older run, with other bytes, is no part of this one.
#[test]
fn a_part_that_the_journal_does_not_know_is_emptied() {
    let run = Run::new();
    let (mut outputs, _) = run.start(false, false, "plan").unwrap();
    outputs.checkpoint(1, &|_| false).unwrap();
    outputs.keep = true;
    drop(outputs);
    fs::write(run.dir.path().join(".b.part"), [9; 10]).unwrap();
    let (outputs, start) = run.start(true, false, "plan").unwrap();
    assert_eq!(start, Start::At(1));
    outputs.publish().unwrap();
    assert_eq!(fs::read(&run.outputs[1].0).unwrap(), [0; 10]);
}

#[test]
fn what_stands_beside_an_output_is_known_as_its_own() {
    let run = Run::new();
    let request = Request {
        outputs: &run.outputs,
        derived: false,
        inputs: &[],
        force: true,
        resume: false,
        plan: Digest::of(b""),
    };
    let path = |name: &str| run.dir.path().join(".").join(name);
    for name in ["a", "b", ".a.part", ".b.part", ".a.journal"] {
        assert!(Outputs::uses(&request, &path(name)), "{name}");
    }
    assert!(!Outputs::uses(&request, &path("c")));
}

/// A run that was stopped before its first unit was done begins anew, and may be stopped again at once.
#[test]
fn a_run_that_has_done_nothing_yet_begins_anew() {
    let run = Run::new();
    run.killed(0);
    for _ in 0..2 {
        let (mut outputs, start) = run.start(true, false, "plan").unwrap();
        assert_eq!(start, Start::New);
        outputs.keep = true;
    }
    let (outputs, _) = run.start(true, false, "plan").unwrap();
    outputs.write_at(1, 0, &[9]).unwrap();
    outputs.publish().unwrap();
    assert_eq!(
        fs::read(&run.outputs[1].0).unwrap(),
        [9, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
}

/// A person may remove the part files of a run that is at work; then another run may begin.
#[test]
fn part_files_that_were_removed_by_hand_are_an_error_and_the_next_ones_stay() {
    let run = Run::new();
    let parts = || [0, 1].map(|i| beside(&run.outputs[i].0, "part"));
    let begin = || {
        let (outputs, _) = run.start(false, true, "plan").unwrap();
        outputs.write_at(0, 0, &[1]).unwrap();
        outputs.write_at(1, 0, &[2]).unwrap();
        outputs.close(1).unwrap();
        outputs
    };
    for gone in [0, 1] {
        let outputs = begin();
        fs::remove_file(&parts()[gone]).unwrap();
        if gone == 1 {
            assert!(outputs.write_at(1, 1, &[2]).is_err());
        }
        let text = outputs.publish().unwrap_err().to_string();
        assert!(text.contains(".part`, which somebody has removed"), "{text}");
        assert!(!run.outputs[gone].0.exists());
        run.files()
            .iter()
            .for_each(|name| fs::remove_file(run.dir.path().join(name)).unwrap());
    }
    // Another file in the place of one that is closed, and all gone when nothing but the names is left to do.
    let outputs = begin();
    fs::remove_file(&parts()[1]).unwrap();
    fs::write(&parts()[1], [3; 10]).unwrap();
    assert!(outputs.publish().is_err());
    assert!(!run.outputs[1].0.exists());
    let outputs = begin();
    outputs.note(Done::Complete, outputs.made()).unwrap();
    for part in parts() {
        fs::remove_file(part).unwrap();
    }
    assert!(outputs.publish().is_err());
    for name in run.files() {
        fs::remove_file(run.dir.path().join(name)).unwrap();
    }
    for is_published in [false, true] {
        let first = begin();
        for part in parts() {
            fs::remove_file(part).unwrap();
        }
        let second = begin();
        // Also where the first has not begun with an output.
        first.files[1].set_made(false);
        assert!(first.write_at(1, 0, &[4]).is_err());
        assert!(first.checkpoint(1, &|_| false).is_err());
        if is_published {
            assert!(first.publish().is_err());
        } else {
            drop(first);
        }
        second.publish().unwrap();
        assert_eq!(run.files(), ["a", "b"]);
    }
}

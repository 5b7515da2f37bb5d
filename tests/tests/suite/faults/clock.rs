//! A clock that goes back, or forth by years.
//!
//! The programs ask for the time of day for a seed and for the date in a chat template alone; all else that they know of
//! it are the times of files. So the clock is moved by setting those: the source is of a time to come and what is left
//! of a run is old, or the other way round.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::job::{Inputs, all, run};
use super::world::{command, files, names, start, wait_until};

/// 1971 and 2100.
const TIMES: [Duration; 2] = [
    Duration::from_hours(365 * 24),
    Duration::from_hours(130 * 365 * 24),
];

fn set_times(folder: &Path, time: Duration) {
    for name in names(folder) {
        let file = std::fs::File::open(folder.join(name)).expect("there");
        file.set_modified(SystemTime::UNIX_EPOCH + time).expect("our own");
    }
}

#[test]
fn runs_go_on_whatever_the_clock_does() {
    let (mut inside, mut all_jobs) = (0, 0);
    for trial in all() {
        for (time, later) in [(TIMES[0], TIMES[1]), (TIMES[1], TIMES[0])] {
            let folder = trial.folder();
            set_times(folder.path(), time);
            let before = names(folder.path());
            let mut child = start(&mut command(folder.path(), &trial.job.line));
            wait_until(&mut child, || names(folder.path()) != before);
            std::thread::sleep(trial.time / 3);
            child.kill().expect("killed, or at its end");
            child.wait().expect("ended");
            let left = trial.check_killed(folder.path());
            inside += usize::from(!left.is_empty());
            all_jobs += 1;
            // All that is there is older, or newer, than the program can have made it.
            set_times(folder.path(), later);
            trial.complete(folder.path());
        }
    }
    eprintln!("clock moved: {inside} of {all_jobs} runs had left something, all were completed");
}

/// The source is newer than the clock says: what is made of it is older than it.
#[test]
fn a_source_of_a_time_to_come_is_read_as_any_other() {
    for trial in all().iter().filter(|t| t.job.name == "quantize") {
        let sources = tempfile::tempdir().expect("a folder");
        let source = sources.path().join("m.gguf");
        std::fs::copy(Inputs::get().model(), &source).expect("room");
        let mut line = trial.job.line.clone();
        line[1] = source.display().to_string();
        line.push("--resume".to_owned());
        for time in TIMES {
            let folder = trial.folder();
            set_times(sources.path(), time);
            let mut child = start(&mut command(folder.path(), &line));
            let journal = folder.path().join(".out.gguf.journal");
            wait_until(&mut child, || journal.exists());
            child.kill().expect("killed, or at its end");
            child.wait().expect("ended");
            let end = run(folder.path(), &line);
            // A run that was through before it was killed has made an output that is older than its source.
            let is_through = time == TIMES[1] && end.is_error(&[2], &["it exists already"]);
            assert!(end.is_fine() || is_through, "{end:?}");
            assert_eq!(files(folder.path()), trial.after);
        }
    }
}

//! SIGKILL at random moments.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::job::{Trial, all};
use super::world::{Random, command, end, meets_each, n_kills, names, start, wait_until};

/// When a run is killed.
#[derive(Debug)]
enum Moment {
    /// So long after its start.
    Time(Duration),
    /// When it has written so many bytes.
    Bytes(u64),
    /// When the names in its folder have changed so many times: between files, renames and removals.
    Steps(u64),
}

impl Moment {
    fn choose(random: &mut Random, trial: &Trial) -> Self {
        let micros = u64::try_from(trial.time.as_micros()).expect("short");
        match random.up_to(3) {
            0 => Self::Bytes(random.up_to(trial.n_bytes)),
            1 => Self::Steps(1 + random.up_to(trial.n_steps)),
            _ => Self::Time(Duration::from_micros(random.up_to(micros))),
        }
    }

    /// Whether it has come. Called again and again.
    fn has_come(&self, start: Instant, steps: u64, folder: &Path, trial: &Trial) -> bool {
        match self {
            Self::Time(time) => start.elapsed() >= *time,
            Self::Bytes(n) => trial.written(folder) >= *n,
            Self::Steps(n) => steps >= *n,
        }
    }
}

/// Starts a command and kills it at a moment. Whether it died of that.
fn kill(folder: &Path, line: &[String], moment: &Moment, trial: &Trial) -> bool {
    let mut child = start(&mut command(folder, line));
    let begin = Instant::now();
    let (mut steps, mut last) = (0, names(folder));
    wait_until(&mut child, || {
        if matches!(moment, Moment::Steps(_)) {
            let now = names(folder);
            steps += u64::from(now != last);
            last = now;
        }
        moment.has_come(begin, steps, folder, trial)
    });
    child.kill().expect("killed, or at its end");
    let status = child.wait().expect("ended");
    if status.signal() == Some(9) {
        return true;
    }
    let end = end(child);
    assert!(end.is_fine(), "{line:?} ended by itself: {end:?}");
    false
}

#[test]
fn runs_that_are_killed_lose_nothing() {
    eprintln!(
        "{:<22} {:>6} {:>11} {:>8} {:>10} {:>10} {:>10}",
        "killed", "kills", "died inside", "finished", "left files", "most files", "completed"
    );
    let mut inside_of_all = 0;
    for trial in all() {
        let mut random = Random::new(trial.job.name);
        let (mut kills, mut inside, mut with_left, mut most_left, mut completed) = (0, 0, 0, 0, 0);
        let n = n_kills();
        while kills < n {
            let folder = trial.folder();
            // What is left of one killed run is there when the next is killed.
            for _ in 0..=random.up_to(2) {
                let Some(line) = trial.next(folder.path()).filter(|_| kills < n) else {
                    break;
                };
                let moment = Moment::choose(&mut random, trial);
                inside += u64::from(kill(folder.path(), &line, &moment, trial));
                kills += 1;
                let left = trial.check_killed(folder.path());
                with_left += u64::from(!left.is_empty());
                most_left = most_left.max(left.len());
            }
            trial.complete(folder.path());
            completed += 1;
        }
        eprintln!(
            "{:<22} {kills:>6} {inside:>11} {:>8} {with_left:>10} {most_left:>10} {completed:>10}",
            trial.job.name,
            kills - inside
        );
        assert!(
            inside > 0 || !meets_each(),
            "{}: no run was killed before its end",
            trial.job.name
        );
        inside_of_all += inside;
    }
    assert!(inside_of_all > 0, "no run was killed before its end");
}

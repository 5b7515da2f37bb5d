//! Two runs with the same output at once.

use std::time::Duration;

use super::job::{Inputs, all};
use super::world::{Random, command, end, files, moments, start};

/// What the one that comes second says.
const LOSES: &[&str] = &[
    "another run is writing it",
    "it exists already",
    "another edit is at work",
    "changed while the edit was planned",
    "changed while its head was read",
    "edit was interrupted",
    "an edit of this file",
    "another merge",
    "is missing",
    "No such file",
    "does not have it",
    "not the shard",
];

#[test]
fn of_two_runs_with_one_output_one_wins_and_nothing_is_mixed() {
    let (mut both, mut one) = (0, 0);
    for trial in all() {
        let mut random = Random::new(trial.job.name);
        for _ in 0..moments(2) {
            let folder = trial.folder();
            let start = || start(&mut command(folder.path(), &trial.job.line));
            let first = start();
            let micros = u64::try_from(trial.time.as_micros()).expect("short");
            // At once, or while the first is at work.
            std::thread::sleep(Duration::from_micros(random.up_to(micros) * random.up_to(1)));
            let ends = [start(), first].map(end);
            let name = trial.job.name;
            let n_fine = ends.iter().filter(|e| e.is_fine()).count();
            for end in ends.iter().filter(|e| !e.is_fine()) {
                assert!(
                    end.is_error(&[1, 2], &[]) && LOSES.iter().any(|words| end.said.contains(words)),
                    "{name}: {end:?}"
                );
            }
            assert!(n_fine > 0, "{name}: {ends:?}");
            assert_eq!(files(folder.path()), trial.after, "{name}: {ends:?}");
            both += u64::from(n_fine == 2);
            one += u64::from(n_fine == 1);
        }
        Inputs::get().check();
    }
    eprintln!(
        "two runs at once: of {} pairs, one won in {one}, both made the same bytes in {both}",
        one + both
    );
}

//! The processors of the machine.

use std::collections::BTreeSet;
use std::path::Path;

/// Where Linux tells which processors share a core.
const CPUS: &str = "/sys/devices/system/cpu";

/// Processors that the program may use: of its affinity, and no more than a control group grants.
pub(super) fn n_usable() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The usual number of threads: one for each core that the program may use. Processors that share a core share its
/// units of arithmetic, which kernels keep busy.
pub fn default_threads() -> usize {
    let n = n_usable();
    match n_cores(Path::new(CPUS)) {
        // All of the machine is the program's.
        Some((n_cpus, n_cores)) if n == n_cpus => n_cores,
        _ => n,
    }
}

/// Processors and cores of the machine, where it tells.
fn n_cores(cpus: &Path) -> Option<(usize, usize)> {
    let (mut n, mut cores) = (0, BTreeSet::new());
    for entry in std::fs::read_dir(cpus).ok()?.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("cpu"));
        if number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())) {
            let siblings = entry.path().join("topology/thread_siblings_list");
            // Processors that are off have none.
            if let Ok(siblings) = std::fs::read_to_string(siblings) {
                n += 1;
                cores.insert(siblings);
            }
        }
    }
    (n > 0).then_some((n, cores.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "what the system would say")]
    fn processors_that_share_a_core_are_counted_once() {
        let dir = tempfile::tempdir().expect("a folder");
        for (cpu, siblings) in [
            ("cpu0", "0,2\n"),
            ("cpu1", "1,3\n"),
            ("cpu2", "0,2\n"),
            ("cpu3", "1,3\n"),
        ] {
            let topology = dir.path().join(cpu).join("topology");
            std::fs::create_dir_all(&topology).expect("a folder");
            std::fs::write(topology.join("thread_siblings_list"), siblings).expect("a file");
        }
        std::fs::create_dir(dir.path().join("cpufreq")).expect("a folder");
        std::fs::create_dir(dir.path().join("cpu4")).expect("a folder");
        assert_eq!(n_cores(dir.path()), Some((4, 2)));
        assert_eq!(n_cores(&dir.path().join("none")), None);
        assert!(default_threads() >= 1 && default_threads() <= n_usable());
    }
}

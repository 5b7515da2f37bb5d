//! What else runs on the machine, from Linux' `/proc`.

use std::time::Instant;

/// Units of processor time in `/proc`: `USER_HZ`, which is 100 on every architecture in use.
const TICKS_PER_SECOND: f64 = 100.0;
/// Shorter intervals hold too few ticks to judge by.
const MIN_SECONDS: f64 = 0.2;
/// Cores of others that do not count where they leave the program's own threads theirs.
const QUIET_CORES: f64 = 0.5;
/// Cores of others that do not count at all: the noise of a machine at rest.
const NOISE_CORES: f64 = 0.1;
/// Share of a core's time that a hypervisor may take.
const STEAL: f64 = 0.03;
/// Times a second that a thread may be put aside for another.
const SWITCHES: f64 = 50.0;

/// The load average of the last minute; `None` where the system does not say.
pub(super) fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Cores that the system has.
pub(super) fn n_cores() -> usize {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let cores = text
        .lines()
        .filter(|l| l.starts_with("cpu") && !l.starts_with("cpu "))
        .count();
    if cores > 0 {
        return cores;
    }
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Bytes that this process has had read from disks.
pub(super) fn disk_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("read_bytes: "))?;
    line.parse().ok()
}

/// Counters at one moment, in seconds since the system's or the process's start.
#[derive(Clone, Copy, Debug)]
struct Counters {
    /// Of all processors: neither idle nor waiting.
    busy: f64,
    /// Taken by a hypervisor.
    steal: f64,
    /// Of this process.
    own: f64,
    /// Times that a thread of this process was put aside for another.
    switches: f64,
}

impl Counters {
    fn now() -> Option<Self> {
        let (busy, steal) = machine(&std::fs::read_to_string("/proc/stat").ok()?)?;
        let own = process(&std::fs::read_to_string("/proc/self/stat").ok()?)?;
        Some(Self {
            busy,
            steal,
            own,
            switches: switches(),
        })
    }
}

/// Busy and stolen time of all processors, in seconds.
fn machine(stat: &str) -> Option<(f64, f64)> {
    let line = stat.lines().find_map(|l| l.strip_prefix("cpu "))?;
    let ticks: Vec<f64> = line.split_whitespace().map_while(|n| n.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let [user, nice, system, _, _, irq, softirq, steal, ..] = ticks[..] else {
        return None;
    };
    let busy = user + nice + system + irq + softirq;
    Some((busy / TICKS_PER_SECOND, steal / TICKS_PER_SECOND))
}

/// Time of a process in user mode and in the kernel, in seconds.
fn process(stat: &str) -> Option<f64> {
    // The name, in parentheses, may hold anything.
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

/// Of all threads; of those that have ended they are forgotten, and ours do not end.
fn switches() -> f64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return 0.0;
    };
    let of = |path: std::path::PathBuf| -> Option<f64> {
        let text = std::fs::read_to_string(path.join("status")).ok()?;
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix("nonvoluntary_ctxt_switches:"))?;
        line.trim().parse().ok()
    };
    threads.flatten().filter_map(|t| of(t.path())).sum()
}

/// A time in which something is measured.
#[derive(Debug)]
pub(super) struct Watch {
    start: Option<Counters>,
    since: Instant,
}

impl Watch {
    pub(super) fn start() -> Self {
        Self {
            start: Counters::now(),
            since: Instant::now(),
        }
    }

    /// What happened meanwhile.
    pub(super) fn stop(&self) -> Option<Interval> {
        let (start, end) = (self.start?, Counters::now()?);
        let seconds = self.since.elapsed().as_secs_f64();
        let rate = |from: f64, to: f64| (to - from).max(0.0) / seconds.max(1e-9);
        let own = rate(start.own, end.own);
        Some(Interval {
            seconds,
            own,
            others: (rate(start.busy, end.busy) - own).max(0.0),
            steal: rate(start.steal, end.steal),
            switches: rate(start.switches, end.switches),
        })
    }
}

/// Processor time in some interval, as cores in use on the average.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) seconds: f64,
    pub(super) own: f64,
    pub(super) others: f64,
    pub(super) steal: f64,
    /// Of all threads, a second.
    pub(super) switches: f64,
}

impl Interval {
    /// Two intervals as one, without what was in between.
    pub(super) fn both(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        let (Some(a), Some(b)) = (a, b) else {
            return a.or(b);
        };
        let seconds = a.seconds + b.seconds;
        let mean = |of: fn(&Self) -> f64| (of(&a) * a.seconds + of(&b) * b.seconds) / seconds.max(1e-9);
        Some(Self {
            seconds,
            own: mean(|i| i.own),
            others: mean(|i| i.others),
            steal: mean(|i| i.steal),
            switches: mean(|i| i.switches),
        })
    }

    /// Why the interval is no measurement of a machine at rest, in words; empty where it is one, or is too short to
    /// tell.
    pub(super) fn contention(&self, n_threads: usize, n_cores: usize) -> Vec<String> {
        let mut why = Vec::new();
        if self.seconds < MIN_SECONDS {
            return why;
        }
        let crowded = n_threads as f64 + self.others > n_cores as f64 + NOISE_CORES;
        if self.others > QUIET_CORES || (self.others > NOISE_CORES && crowded) {
            why.push(format!(
                "other processes used {:.1} of {n_cores} cores beside {n_threads} threads",
                self.others
            ));
        }
        if self.steal > STEAL * n_cores as f64 {
            let percent = self.steal / n_cores as f64 * 100.0;
            why.push(format!(
                "the hypervisor took {percent:.0} % of the processors' time"
            ));
        }
        let switches = self.switches / n_threads.max(1) as f64;
        if switches > SWITCHES {
            why.push(format!(
                "each thread was put aside for another {switches:.0} times a second"
            ));
        }
        why
    }
}

/// Why a machine is not at rest before anything was measured.
pub(super) fn busy_at_start(load: Option<f64>, n_cores: usize) -> Option<String> {
    let load = load.filter(|&l| l > n_cores as f64)?;
    Some(format!("load average {load:.2} on {n_cores} cores at the start"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_as_the_kernel_writes_them() {
        let stat = "cpu  100 20 30 4000 500 6 7 80 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(machine(stat), Some((1.63, 0.8)));
        assert_eq!(machine("cpu  1 2 3\n"), None);
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20";
        assert_eq!(process(stat), Some(3.0));
        assert_eq!(process("7 (a) S 1"), None);
    }

    #[test]
    fn contention_is_told_in_words() {
        let quiet = Interval {
            seconds: 2.0,
            own: 2.0,
            others: 0.05,
            steal: 0.0,
            switches: 20.0,
        };
        assert!(quiet.contention(2, 2).is_empty());
        let others = Interval { others: 0.4, ..quiet };
        assert!(others.contention(2, 8).is_empty(), "there are cores left");
        assert_eq!(
            others.contention(2, 2),
            ["other processes used 0.4 of 2 cores beside 2 threads"]
        );
        assert_eq!(Interval { others: 3.0, ..quiet }.contention(2, 64).len(), 1);
        assert_eq!(Interval { steal: 0.2, ..quiet }.contention(2, 2).len(), 1);
        let switches = Interval {
            switches: 400.0,
            ..quiet
        };
        assert!(switches.contention(2, 2)[0].contains("200 times a second"));
        let short = Interval {
            seconds: 0.1,
            ..others
        };
        assert!(short.contention(2, 2).is_empty());
        assert_eq!(busy_at_start(Some(1.5), 2), None);
        assert!(busy_at_start(Some(5.25), 2).is_some_and(|w| w.contains("5.25 on 2 cores")));
    }
}

//! Which processors threads run on, and where memory lies.
//!
//! Each thread of a pool has a seat: the processors that it may run on. Threads inherit where they may run from the
//! thread that starts them, so a pool takes one seat after the other while it starts its threads; the one that enters
//! takes the first seat meanwhile. Threads that enter beside it run anywhere on the pool's processors.
//!
//! The system puts a page of memory on the node of the thread that touches it first. Scratch memory of a thread is its
//! own and needs no more. What all threads use is touched in stretches of a huge page, by a thread that goes from node to
//! node.

use std::path::Path;

use super::cpus::{CpuSet, Topology};
use crate::memory::HUGE_PAGE;

/// Bytes of the smallest pages there are.
const PAGE: usize = 4096;
/// Where Linux tells whether there are huge pages for those who ask.
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// What is asked for. By default the system decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The only processors to use, of those that the program may use.
    pub cpus: Option<CpuSet>,
    /// Whether each thread stays on one processor.
    pub strict: bool,
    /// What is done where memory is nearer to some processors than to others.
    pub numa: Option<Numa>,
    /// Whether memory for activations, caches and states is to be in huge pages.
    pub huge_pages: bool,
}

/// What is done where memory is nearer to some processors than to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numa {
    /// Threads and memory are spread evenly over the nodes; each thread stays on its node.
    Distribute,
    /// Only the node that the program started on is used.
    Isolate,
    /// The processors that `numactl`, or `taskset`, gave are used, and its memory policy is left as it is.
    Numactl,
}

impl Numa {
    const ALL: [Self; 3] = [Self::Distribute, Self::Isolate, Self::Numactl];

    /// The name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Distribute => "distribute",
            Self::Isolate => "isolate",
            Self::Numactl => "numactl",
        }
    }
}

impl std::str::FromStr for Numa {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|numa| numa.name() == text);
        found.ok_or_else(|| format!("expected distribute, isolate or numactl, found `{text}`"))
    }
}

impl Placement {
    /// Whether threads are placed at all.
    fn seats_threads(&self) -> bool {
        self.cpus.is_some() || self.strict || self.numa.is_some()
    }

    /// The seats on this machine; none where the system decides.
    pub(super) fn seats(&self) -> Result<Option<Seats>, String> {
        if !cfg!(target_os = "linux") && *self != Self::default() {
            return Err("expected Linux: threads and memory cannot be placed on this system".to_owned());
        }
        if !self.seats_threads() {
            return Ok(None);
        }
        let allowed = affinity::get().map_err(|e| {
            format!(
                "the processors of the program (numbers below {} can be told): {e}",
                CpuSet::MAX
            )
        })?;
        self.seats_on(&Topology::of_machine(), &allowed, affinity::current_cpu())
            .map(Some)
    }

    /// The seats on a machine where the program may use some processors, and is on one now.
    pub(super) fn seats_on(
        &self,
        machine: &Topology,
        allowed: &CpuSet,
        current: usize,
    ) -> Result<Seats, String> {
        let mut all = self.cpus.unwrap_or(*allowed);
        if all.is_empty() {
            return Err("expected at least one processor to run on, found none".to_owned());
        }
        let missing = all.without(allowed);
        if !missing.is_empty() {
            return Err(format!(
                "processors {missing} were asked for, but the program may use {allowed}"
            ));
        }
        if self.numa == Some(Numa::Isolate) {
            // A machine that does not tell of nodes has one.
            let node = machine.nodes.iter().find(|node| node.contains(current));
            let node = node.unwrap_or(allowed);
            let both = all.intersection(node);
            if both.is_empty() {
                return Err(format!(
                    "the program started on the node of processors {node}, but {all} were asked for"
                ));
            }
            all = both;
        }
        let nodes = machine.nodes.iter().map(|node| node.intersection(&all));
        let mut nodes: Vec<CpuSet> = nodes.filter(|node| !node.is_empty()).collect();
        let told = nodes.iter().fold(CpuSet::default(), |all, node| all.union(node));
        if self.numa != Some(Numa::Distribute) || told != all {
            nodes = vec![all];
        }
        let order = in_turn(
            &nodes
                .iter()
                .map(|node| by_core(machine, node))
                .collect::<Vec<_>>(),
        );
        let seat = |&cpu: &usize| {
            if self.strict {
                return CpuSet::from_iter([cpu]);
            }
            let node = nodes.iter().find(|node| node.contains(cpu));
            *node.expect("the order is of the nodes")
        };
        Ok(Seats {
            of_threads: order.iter().map(seat).collect(),
            all,
            nodes,
            n_cores: machine.n_cores_of(&all),
            strict: self.strict,
        })
    }

    /// Why there will be no huge pages, if they are asked for and that is known.
    pub fn lack_of_huge_pages(&self) -> Option<&'static str> {
        (self.huge_pages && !has_huge_pages(Path::new(HUGE_PAGES)))
            .then_some("the system gives no huge pages (`/sys/kernel/mm/transparent_hugepage/enabled`)")
    }
}

fn has_huge_pages(enabled: &Path) -> bool {
    std::fs::read_to_string(enabled).is_ok_and(|text| !text.contains("[never]"))
}

/// The processors of a set: first one of each core, then the others.
fn by_core(machine: &Topology, set: &CpuSet) -> Vec<usize> {
    let rank = |cpu: usize| {
        let core = machine.cores.iter().find(|core| core.contains(cpu));
        core.map_or(0, |core| {
            core.intersection(set).iter().take_while(|&c| c < cpu).count()
        })
    };
    let mut cpus: Vec<usize> = set.iter().collect();
    cpus.sort_by_key(|&cpu| (rank(cpu), cpu));
    cpus
}

/// One of each list, then the next one of each, until all are taken.
fn in_turn(lists: &[Vec<usize>]) -> Vec<usize> {
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest)
        .flat_map(|i| lists.iter().filter_map(move |list| list.get(i).copied()))
        .collect()
}

/// Where the threads of a pool run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seats {
    /// Of the threads, one after the other; they begin again where there are more threads.
    of_threads: Vec<CpuSet>,
    /// All processors of the pool.
    pub(super) all: CpuSet,
    /// Those of each node that memory is spread over: one if it is not.
    nodes: Vec<CpuSet>,
    /// Cores of the pool.
    pub(super) n_cores: usize,
    strict: bool,
}

impl Seats {
    /// Refuses more threads than there are seats, where each is to have its own.
    pub(super) fn check(&self, n_threads: usize) -> Result<(), String> {
        if self.strict && n_threads > self.of_threads.len() {
            return Err(format!(
                "expected at most {}, one for each of the processors {}, found {n_threads}",
                self.of_threads.len(),
                self.all
            ));
        }
        Ok(())
    }

    /// Has the calling thread, and those that it starts, take the seat of a thread of the pool.
    pub(super) fn take(&self, thread: usize) -> std::io::Result<()> {
        affinity::set(&self.of_threads[thread % self.of_threads.len()])
    }

    /// Has the calling thread run anywhere on the pool's processors.
    pub(super) fn take_any(&self) -> std::io::Result<()> {
        affinity::set(&self.all)
    }

    /// Nodes that threads and memory are spread over; 1 where they are not.
    pub(super) fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// How threads beside those of the pool are to run.
    pub(super) fn beside(&self) -> Beside {
        Beside {
            all: Some(self.all),
            nodes: if self.nodes.len() > 1 {
                self.nodes.clone()
            } else {
                Vec::new()
            },
        }
    }
}

/// How threads beside those of a pool run: anywhere on its processors, or on one node after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside {
    /// None where nothing was asked for.
    all: Option<CpuSet>,
    /// None where memory is not spread.
    nodes: Vec<CpuSet>,
}

impl Beside {
    /// Leaves the seat of the thread that started this one.
    pub(crate) fn leave_seat(&self) {
        if let Some(all) = &self.all {
            // A thread that cannot leave works where it is.
            let _ = affinity::set(all);
        }
    }

    /// Whether threads have seats at all.
    pub(crate) fn has_seats(&self) -> bool {
        self.all.is_some()
    }

    /// Whether memory is spread over nodes.
    pub(crate) fn spreads(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Goes to the node of stretch or piece `i`, if memory is spread: what is touched now lies there.
    pub(crate) fn go(&self, i: usize) {
        if self.spreads() {
            let _ = affinity::set(&self.nodes[i % self.nodes.len()]);
        }
    }

    /// Touches fresh memory, which is all zero, for the first time, so that it is spread.
    pub(super) fn spread<T: Copy + Default>(&self, fresh: &mut [T]) {
        if !self.spreads() {
            return;
        }
        let of = |bytes: usize| bytes / size_of::<T>().max(1);
        let _back = KeptAffinity::new();
        for node in 0..self.nodes.len() {
            self.go(node);
            for stretch in fresh
                .chunks_mut(of(HUGE_PAGE))
                .skip(node)
                .step_by(self.nodes.len())
            {
                for element in stretch.iter_mut().step_by(of(PAGE)) {
                    *element = std::hint::black_box(T::default());
                }
            }
        }
    }
}

/// Puts back where a thread could run.
pub(crate) struct KeptAffinity(Option<CpuSet>);

impl KeptAffinity {
    pub(crate) fn new() -> Self {
        Self(affinity::get().ok())
    }
}

impl Drop for KeptAffinity {
    fn drop(&mut self) {
        if let Some(set) = &self.0 {
            let _ = affinity::set(set);
        }
    }
}

/// Where the calling thread may run.
#[cfg(target_os = "linux")]
pub(super) mod affinity {
    use std::io;

    use rustix::thread::{self, sched_getaffinity, sched_getcpu, sched_setaffinity};

    use super::CpuSet;

    pub(in super::super) fn get() -> io::Result<CpuSet> {
        let set = sched_getaffinity(None)?;
        Ok((0..CpuSet::MAX.min(thread::CpuSet::MAX_CPU))
            .filter(|&cpu| set.is_set(cpu))
            .collect())
    }

    pub(in super::super) fn set(cpus: &CpuSet) -> io::Result<()> {
        let mut set = thread::CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(cpu));
        Ok(sched_setaffinity(None, &set)?)
    }

    pub(in super::super) fn current_cpu() -> usize {
        sched_getcpu()
    }
}

/// Other systems place threads themselves.
#[cfg(not(target_os = "linux"))]
pub(super) mod affinity {
    use std::io;

    use super::CpuSet;

    pub(in super::super) fn get() -> io::Result<CpuSet> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in super::super) fn set(_: &CpuSet) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in super::super) fn current_cpu() -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::super::cpus::tests::{made_machine, set};
    use super::*;

    fn machine() -> Topology {
        let dir = tempfile::tempdir().expect("a folder");
        made_machine(dir.path());
        Topology::read(dir.path())
    }

    fn seats(placement: Placement, current: usize) -> Result<Vec<String>, String> {
        let seats = placement.seats_on(&machine(), &set("0-7"), current)?;
        Ok(seats.of_threads.iter().map(CpuSet::to_string).collect())
    }

    fn on(cpus: &str) -> Placement {
        Placement {
            cpus: (!cpus.is_empty()).then(|| set(cpus)),
            ..Placement::default()
        }
    }

    #[test]
    fn strict_seats_fill_cores_before_their_second_processors() {
        let strict = Placement {
            strict: true,
            ..on("0-1,4-5")
        };
        assert_eq!(seats(strict, 0).expect("seats"), ["0", "1", "4", "5"]);
        assert_eq!(seats(on("0-1"), 0).expect("seats"), ["0-1", "0-1"]);
        let strict = strict.seats_on(&machine(), &set("0-7"), 0).expect("seats");
        assert_eq!((strict.n_cores, strict.check(4)), (2, Ok(())));
        let text = "expected at most 4, one for each of the processors 0-1,4-5, found 5";
        assert_eq!(strict.check(5), Err(text.to_owned()));
    }

    #[test]
    fn nodes_take_threads_in_turn() {
        let spread = |cpus, strict| Placement {
            numa: Some(Numa::Distribute),
            strict,
            ..on(cpus)
        };
        let found = seats(spread("", true), 0).expect("seats");
        assert_eq!(found, ["0", "2", "1", "3", "4", "6", "5", "7"]);
        let found = seats(spread("", false), 0).expect("seats");
        assert_eq!(found[..3], ["0-1,4-5", "2-3,6-7", "0-1,4-5"]);
        // One node has more of the processors.
        let found = seats(spread("0,2-3", false), 0).expect("seats");
        assert_eq!(found, ["0", "2-3", "2-3"]);
        let beside = |p: Placement| {
            let seats = p.seats_on(&machine(), &set("0-7"), 0).expect("seats");
            seats.beside().spreads()
        };
        assert!(beside(spread("", false)) && !beside(spread("0-1", false)) && !beside(on("")));
        // A machine that tells nothing has one node.
        let untold = spread("", true).seats_on(&Topology::default(), &set("0-1"), 0);
        let untold = untold.expect("seats");
        assert_eq!((untold.of_threads.len(), untold.beside().spreads()), (2, false));
    }

    #[test]
    fn isolation_keeps_to_the_node_of_the_start() {
        let isolate = |cpus| Placement {
            numa: Some(Numa::Isolate),
            ..on(cpus)
        };
        assert_eq!(seats(isolate(""), 6).expect("seats")[0], "2-3,6-7");
        assert_eq!(seats(isolate("0-3"), 1).expect("seats"), ["0-1", "0-1"]);
        let text = "the program started on the node of processors 0-1,4-5, but 2-3 were asked for";
        assert_eq!(seats(isolate("2-3"), 1), Err(text.to_owned()));
        let all = Placement {
            numa: Some(Numa::Numactl),
            ..on("")
        };
        let given = all.seats_on(&machine(), &set("1-2"), 1).expect("seats");
        assert_eq!((given.all, given.beside().spreads()), (set("1-2"), false));
    }

    #[test]
    fn what_cannot_be_had_is_told() {
        let text = "processors 8-9 were asked for, but the program may use 0-7";
        assert_eq!(seats(on("6-9"), 0), Err(text.to_owned()));
        let text = "expected distribute, isolate or numactl, found `mirror`";
        assert_eq!("mirror".parse::<Numa>(), Err(text.to_owned()));
        for numa in Numa::ALL {
            assert_eq!(numa.name().parse(), Ok(numa));
        }
        assert_eq!(Placement::default().seats(), Ok(None));
        assert!(on("1023").seats().is_err());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "what the system would say")]
    fn a_system_without_huge_pages_is_known() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("enabled");
        assert!(!has_huge_pages(&file));
        for (text, expected) in [
            ("always [madvise] never\n", true),
            ("[always] madvise never\n", true),
            ("always madvise [never]\n", false),
        ] {
            std::fs::write(&file, text).expect("a file");
            assert_eq!(has_huge_pages(&file), expected, "{text}");
        }
        assert_eq!(Placement::default().lack_of_huge_pages(), None);
    }
}

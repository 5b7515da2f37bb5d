//! The processors of the machine.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// Where Linux describes processors and nodes.
const SYSTEM: &str = "/sys/devices/system";

/// Processors by number.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuSet([u64; CpuSet::MAX / 64]);

impl CpuSet {
    /// Processors have lower numbers than this.
    pub const MAX: usize = 1024;

    /// Adds a processor, whose number is below [`CpuSet::MAX`].
    pub fn insert(&mut self, cpu: usize) {
        self.0[cpu / 64] |= 1 << (cpu % 64);
    }

    /// Whether a processor is one of them.
    pub fn contains(&self, cpu: usize) -> bool {
        cpu < Self::MAX && self.0[cpu / 64] >> (cpu % 64) & 1 == 1
    }

    /// The processors in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let set = *self;
        (0..Self::MAX).filter(move |&cpu| set.contains(cpu))
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those of either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// Those of both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Those that `other` has not.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// Reads a hexadecimal mask, whose lowest bit is processor 0.
    ///
    /// # Errors
    /// What is no such number, or names no processor.
    pub fn from_mask(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let digits = digits.unwrap_or(text);
        let wrong = || format!("expected a hexadecimal mask such as `f0`, found `{text}`");
        let mut set = Self::default();
        for (i, digit) in digits.chars().rev().enumerate() {
            let bits = digit.to_digit(16).ok_or_else(wrong)?;
            for bit in (0..4).filter(|bit| bits >> bit & 1 == 1) {
                set.insert(checked(4 * i + bit)?);
            }
        }
        if set.is_empty() {
            return Err(wrong());
        }
        Ok(set)
    }

    /// As [`CpuSet::from_mask`] reads it: `0xf0`, and `0x0` for none.
    pub fn to_mask(&self) -> String {
        let digits = self.0.iter().rev().fold(String::new(), |mut text, word| {
            // Hexadecimal digits of all words, the highest first.
            let _ = write!(text, "{word:016x}");
            text
        });
        match digits.trim_start_matches('0') {
            "" => "0x0".to_owned(),
            digits => format!("0x{digits}"),
        }
    }

    /// Reads ranges and numbers apart by commas, such as `0-7,16-23`: also the form of Linux.
    ///
    /// # Errors
    /// Anything else.
    pub fn from_ranges(text: &str) -> Result<Self, String> {
        let mut set = Self::default();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| {
                let wrong = || format!("expected processors such as `0-7`, found `{part}`");
                checked(text.parse().map_err(|_| wrong())?)
            };
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("`{part}`: expected the lower number first"));
            }
            (first..=last).for_each(|cpu| set.insert(cpu));
        }
        Ok(set)
    }
}

fn checked(cpu: usize) -> Result<usize, String> {
    if cpu < CpuSet::MAX {
        return Ok(cpu);
    }
    Err(format!("expected processors below {}, found {cpu}", CpuSet::MAX))
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<T: IntoIterator<Item = usize>>(cpus: T) -> Self {
        let mut set = Self::default();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

/// As ranges.
impl std::fmt::Display for CpuSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut comma = "";
        for first in self.iter().filter(|&cpu| cpu == 0 || !self.contains(cpu - 1)) {
            let last = (first..Self::MAX).take_while(|&cpu| self.contains(cpu)).last();
            write!(f, "{comma}{first}")?;
            if let Some(last) = last.filter(|&last| last > first) {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl std::fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

/// Which processors belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Topology {
    /// Processors that share a core, core after core; none where the machine does not tell.
    pub(super) cores: Vec<CpuSet>,
    /// Processors of each node that has some; none where the machine does not tell.
    pub(super) nodes: Vec<CpuSet>,
}

impl Topology {
    /// This machine's.
    pub(super) fn of_machine() -> Self {
        Self::read(Path::new(SYSTEM))
    }

    /// What a folder like `/sys/devices/system` says. Processors that are off are in no core and no node.
    pub(super) fn read(system: &Path) -> Self {
        let sets = |folder, name, file| {
            let texts = numbered(&system.join(folder), name).into_iter();
            let texts = texts.filter_map(|entry| std::fs::read_to_string(entry.join(file)).ok());
            let sets = texts.filter_map(|text| CpuSet::from_ranges(text.trim()).ok());
            sets.filter(|set| !set.is_empty()).collect::<Vec<_>>()
        };
        let mut cores = sets("cpu", "cpu", "topology/thread_siblings_list");
        // Every processor of a core told of it.
        cores.sort_by_key(|core| core.iter().next());
        cores.dedup();
        Self {
            cores,
            nodes: sets("node", "node", "cpulist"),
        }
    }

    /// Processors of the machine, as far as it tells.
    fn n_cpus(&self) -> usize {
        self.cores.iter().map(CpuSet::len).sum()
    }

    /// Cores that have a processor of the set; as many as these where the machine does not tell.
    pub(super) fn n_cores_of(&self, set: &CpuSet) -> usize {
        let told = self
            .cores
            .iter()
            .fold(CpuSet::default(), |all, core| all.union(core));
        let cores = self.cores.iter();
        let cores = cores.filter(|core| !core.intersection(set).is_empty()).count();
        cores + set.without(&told).len()
    }
}

/// Entries of a folder that are `name` and a number, in order of that.
fn numbered(folder: &Path, name: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| {
        let file = entry.file_name();
        let digits = file.to_str()?.strip_prefix(name)?;
        // Not what only begins alike, such as `cpufreq`, and no sign.
        let is_number = digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse::<usize>().ok().filter(|_| is_number)
    });
    let numbers: BTreeSet<usize> = numbers.collect();
    numbers
        .iter()
        .map(|n| folder.join(format!("{name}{n}")))
        .collect()
}

/// Processors that the program may use: of its affinity, and no more than a control group grants.
pub(super) fn n_usable() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The usual number of threads: one for each core that the program may use. Processors that share a core share its
/// units of arithmetic, which kernels keep busy.
pub fn default_threads() -> usize {
    let n = n_usable();
    let machine = Topology::of_machine();
    // Else some of the machine is the program's, or it does not tell.
    if n == machine.n_cpus() {
        machine.cores.len()
    } else {
        n
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn set(text: &str) -> CpuSet {
        CpuSet::from_ranges(text).expect(text)
    }

    #[test]
    fn masks_and_ranges_are_read_and_shown() {
        let mask = |text: &str| CpuSet::from_mask(text).map(|set| set.to_string());
        let ranges = |text: &str| CpuSet::from_ranges(text).map(|set| set.to_string());
        for (text, expected) in [
            ("f", "0-3"),
            ("0xF0", "4-7"),
            ("0X5", "0,2"),
            ("80000000000000001", "0,67"),
            ("1", "0"),
        ] {
            assert_eq!(mask(text).as_deref(), Ok(expected), "{text}");
        }
        let long = format!("8{}", "0".repeat(255));
        assert_eq!(mask(&long).as_deref(), Ok("1023"));
        for (text, expected) in [
            ("0-3", "0xf".to_owned()),
            ("4-7,64", "0x100000000000000f0".to_owned()),
            ("1023", format!("0x{long}")),
        ] {
            assert_eq!(set(text).to_mask(), expected);
            assert_eq!(CpuSet::from_mask(&expected), Ok(set(text)));
        }
        assert_eq!(CpuSet::default().to_mask(), "0x0");
        for (text, expected) in [
            ("0-3", "0-3"),
            ("5", "5"),
            ("0-1,8-9,2", "0-2,8-9"),
            ("1023", "1023"),
        ] {
            assert_eq!(ranges(text).as_deref(), Ok(expected), "{text}");
        }
        for text in ["", "0x", "0", "000", "xyz", "-1", "f,1", "1 "] {
            let wrong = format!("expected a hexadecimal mask such as `f0`, found `{text}`");
            assert_eq!(mask(text), Err(wrong));
        }
        let beyond = Err("expected processors below 1024, found 1024".to_owned());
        assert_eq!(mask(&format!("1{}", "0".repeat(256))), beyond);
        assert_eq!(ranges("0-1024"), beyond);
        for text in ["", "-", "3-", "-3", "a-b", "1-2-3", "-1", "1.5"] {
            let wrong = format!("expected processors such as `0-7`, found `{text}`");
            assert_eq!(ranges(text), Err(wrong));
        }
        let wrong = Err("`3-2`: expected the lower number first".to_owned());
        assert_eq!(ranges("3-2"), wrong);
    }

    /// A machine of two nodes with two cores each, numbered as machines do: the second processors of all cores come
    /// behind the first ones.
    #[expect(clippy::disallowed_methods, reason = "what the system would say")]
    pub(crate) fn made_machine(system: &Path) {
        let say = |place: String, text: &str| {
            let file = system.join(place);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            std::fs::write(file, format!("{text}\n")).expect("a file");
        };
        for cpu in 0..8 {
            let siblings = format!("{},{}", cpu % 4, cpu % 4 + 4);
            say(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), &siblings);
        }
        say("node/node0/cpulist".to_owned(), "0-1,4-5");
        say("node/node1/cpulist".to_owned(), "2-3,6-7");
        // Memory without processors, and things that are neither.
        say("node/node2/cpulist".to_owned(), "");
        say("node/online".to_owned(), "0-2");
        say("node/nodes/cpulist".to_owned(), "0-7");
        say("cpu/cpufreq/topology/thread_siblings_list".to_owned(), "0-7");
        std::fs::create_dir(system.join("cpu/cpu8")).expect("a folder");
    }

    #[test]
    fn cores_and_nodes_are_read() {
        let dir = tempfile::tempdir().expect("a folder");
        made_machine(dir.path());
        let made = Topology::read(dir.path());
        assert_eq!(made.nodes, [set("0-1,4-5"), set("2-3,6-7")]);
        assert_eq!(made.cores, [set("0,4"), set("1,5"), set("2,6"), set("3,7")]);
        assert_eq!((made.n_cpus(), made.n_cores_of(&set("0-7"))), (8, 4));
        assert_eq!(
            (made.n_cores_of(&set("0,4,1")), made.n_cores_of(&set("3,9-10"))),
            (2, 3)
        );
        let none = Topology::read(&dir.path().join("none"));
        assert_eq!(none, Topology::default());
        assert_eq!(none.n_cores_of(&set("0-2")), 3);
        assert!(default_threads() >= 1 && default_threads() <= n_usable());
    }
}

//! What the machine has left.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use crate::human_bytes;

/// Where groups of processes have their limits.
const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes of memory that this process could take without swapping, where Linux tells: what is free or can be freed, or
/// the limit of a group that the process is in (a container, a service) or its own (`ulimit -v`) if that is less.
pub fn available_memory() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let free = mem_available(&read("/proc/meminfo")?)?;
    let group = read("/proc/self/cgroup").and_then(|groups| group_limit(&groups, Path::new(GROUPS)));
    let own = AddressSpace::now().map(AddressSpace::left);
    Some(free.min(group.unwrap_or(free)).min(own.unwrap_or(free)))
}

/// The addresses that this process may have, where their number is limited (`ulimit -v`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressSpace {
    /// Bytes at most.
    pub limit: u64,
    /// Bytes that it has: the program and its libraries, stacks, what is mapped and what was asked for.
    pub used: u64,
}

/// Address space that a thread takes: its stack, and what goes with it.
pub const THREAD_BYTES: u64 = (2 << 20) + (64 << 10);

/// Address space that stays free when threads are started: they ask for some as they begin.
const SPARE: u64 = 1 << 20;

impl AddressSpace {
    /// As it is now; `None` where there is no limit or the system does not tell.
    pub fn now() -> Option<Self> {
        let limit = getrlimit(Resource::As).current?;
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let used = kib(&status, "VmSize:")?;
        Some(Self { limit, used })
    }

    /// Bytes that may still be had.
    pub fn left(self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// What is said where `needed` bytes for `what` are more than is left.
    fn refusal(self, what: &str, needed: u64) -> Option<String> {
        let short = needed > self.left();
        short.then(|| {
            format!(
                "{what} needs {} of address space, found {} left of {} (`ulimit -v`); raise the limit",
                human_bytes(needed),
                human_bytes(self.left()),
                human_bytes(self.limit)
            )
        })
    }
}

/// Whether `n` more threads can be started; a thread that finds no memory as it begins would end the program.
///
/// # Errors
/// A limit of the address space that leaves no room for them, in words.
pub fn room_for_threads(n: usize) -> Result<(), String> {
    let Some(space) = AddressSpace::now() else {
        return Ok(());
    };
    let needed = (n as u64).saturating_mul(THREAD_BYTES).saturating_add(SPARE);
    let what = format!("starting {}", crate::count(n as u64, "thread"));
    match space.refusal(&what, needed) {
        Some(refusal) => Err(format!("{refusal} or ask for fewer with `-t`")),
        None => Ok(()),
    }
}

/// The line `MemAvailable` of `/proc/meminfo`, in bytes.
fn mem_available(text: &str) -> Option<u64> {
    kib(text, "MemAvailable:")
}

/// The number of bytes in the line of a file of `/proc` that begins with `name` and counts KiB.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The least limit of the groups in `/proc/self/cgroup`, of both versions, and of those that they are in.
fn group_limit(groups: &str, root: &Path) -> Option<u64> {
    let limit = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (root, file) = match controllers {
            "" => (root.to_path_buf(), "memory.max"),
            list if list.split(',').any(|c| c == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let group: PathBuf = root.join(path.trim_start_matches('/'));
        let above = group.ancestors().take_while(|p| p.starts_with(&root));
        above.filter_map(|p| read_number(&p.join(file))).min()
    };
    groups.lines().filter_map(limit).min()
}

/// A file with a number; `max` is none.
fn read_number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "an input of the test, no output of a program"
    )]
    fn the_least_limit_of_all_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let limit = |groups: &str| group_limit(groups, root.path());
        assert_eq!(limit("0::/a/b\n"), None);
        put("a/b/memory.max", "max\n");
        assert_eq!(limit("0::/a/b\n"), None);
        put("a/memory.max", "5000\n");
        assert_eq!(limit("0::/a/b\n"), Some(5000));
        assert_eq!(limit("0::/\n"), None);
        put("memory/box/memory.limit_in_bytes", "3000\n");
        let both = "9:cpu,cpuacct:/box\n4:memory:/box\n0::/a/b\n";
        assert_eq!(limit(both), Some(3000));
        assert_eq!(limit("nonsense\n::\n"), None);
    }

    #[test]
    fn free_memory_is_read_in_bytes() {
        let text = "MemTotal:       24 kB\nMemAvailable:   17 kB\n";
        assert_eq!(mem_available(text), Some(17 * 1024));
        assert_eq!(mem_available("MemTotal: 24 kB"), None);
    }

    #[test]
    fn what_is_left_of_the_address_space_is_told() {
        let space = AddressSpace {
            limit: 50 << 20,
            used: 46 << 20,
        };
        assert_eq!(space.left(), 4 << 20);
        assert_eq!(space.refusal("x", 4 << 20), None);
        let text = space.refusal("a thing", (4 << 20) + 1).expect("too much");
        for word in [
            "a thing needs 4.00 MiB",
            "found 4.00 MiB left of 50.0 MiB",
            "ulimit -v",
        ] {
            assert!(text.contains(word), "{text}");
        }
        let over = AddressSpace { limit: 1, used: 2 };
        assert_eq!(over.left(), 0);
        assert!(room_for_threads(2).is_ok());
    }
}

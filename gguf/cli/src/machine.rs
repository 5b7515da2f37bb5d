//! What the machine has left.

use std::path::{Path, PathBuf};

/// Where groups of processes have their limits.
const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes of memory that this process could take without swapping, where Linux tells: what is free or can be freed, or
/// the limit of a group that the process is in (a container, a service) or its own (`ulimit -v`) if that is less.
pub fn available_memory() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let free = mem_available(&read("/proc/meminfo")?)?;
    let group = read("/proc/self/cgroup").and_then(|groups| group_limit(&groups, Path::new(GROUPS)));
    let own = read("/proc/self/limits").and_then(|limits| address_space(&limits));
    Some(free.min(group.unwrap_or(free)).min(own.unwrap_or(free)))
}

/// The soft limit in the line `Max address space` of `/proc/self/limits`, if there is one.
fn address_space(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The line `MemAvailable` of `/proc/meminfo`, in bytes.
fn mem_available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
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
        let limits = |soft: &str| {
            address_space(&format!(
                "Max stack size 8 8 bytes\nMax address space    {soft}    7000  bytes\n"
            ))
        };
        assert_eq!((limits("5000"), limits("unlimited")), (Some(5000), None));
    }
}

//! What the tests of faults share: random numbers, folders, programs, a disk of a certain size.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use gguf::digest::Digest;
use suite_tests::{program, skip};

/// A number of the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("`{name}`: expected a number, found `{text}`")),
    )
}

/// Kills of each job: two in the ordinary tests, `FAULTS_N` where that is set.
pub(super) fn n_kills() -> u64 {
    number("FAULTS_N").unwrap_or(2)
}

/// Whether each job must have met a fault: where there are moments enough.
pub(super) fn meets_each() -> bool {
    number("FAULTS_N").is_some_and(|n| n >= 16)
}

/// Moments of each other fault: `ordinary`, or an eighth of `FAULTS_N` where that is more.
pub(super) fn moments(ordinary: u64) -> u64 {
    number("FAULTS_N").map_or(ordinary, |n| ordinary.max(n / 8))
}

/// Lets others have the processor between two looks at what a run has done.
fn look_away() {
    std::thread::sleep(Duration::from_micros(50));
}

/// Random numbers (`SplitMix64`), the same for the same seed and label.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(label: &str) -> Self {
        let digest = Digest::of(label.as_bytes());
        let (start, _) = digest.0.split_first_chunk().expect("32 bytes");
        Self(u64::from_le_bytes(*start) ^ number("FAULTS_SEED").unwrap_or(1))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `end`, that included.
    pub(super) fn up_to(&mut self, end: u64) -> u64 {
        self.next() % (end + 1)
    }
}

/// The files of a folder, by name.
pub(super) type Files = BTreeMap<String, Digest>;

/// What a folder has. Files that go or are renamed meanwhile are passed over.
pub(super) fn files(folder: &Path) -> Files {
    let names = std::fs::read_dir(folder).expect("a folder").flatten();
    names
        .filter_map(|entry| {
            let name = entry
                .file_name()
                .into_string()
                .expect("names of the test are UTF-8");
            Some((name, Digest::of(&std::fs::read(entry.path()).ok()?)))
        })
        .collect()
}

/// The names in a folder.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// How a run ended, and what it said.
#[derive(Debug)]
pub(super) struct End {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) said: String,
}

impl End {
    pub(super) fn is_fine(&self) -> bool {
        self.code == Some(0)
    }

    /// An error of a line, as programs report it, with these words in it.
    pub(super) fn is_error(&self, codes: &[i32], words: &[&str]) -> bool {
        let line = self.said.lines().last().unwrap_or_default();
        self.code.is_some_and(|code| codes.contains(&code))
            && line.starts_with("error: ")
            && words.iter().all(|w| line.contains(w))
    }
}

/// The last error line of a child that has ended, and how that was.
pub(super) fn end(mut child: Child) -> End {
    let status = child.wait().expect("a child ends");
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        drop(stderr.read_to_string(&mut said));
    }
    End {
        code: status.code(),
        signal: status.signal(),
        said,
    }
}

/// A program of the suite, to be run in a folder, with nothing on its stdin.
pub(super) fn command(folder: &Path, line: &[String]) -> Command {
    in_shell(folder, &[], line)
}

/// Starts what [`command`] and the like have prepared.
pub(super) fn start(command: &mut Command) -> Child {
    command.spawn().expect("a built program starts")
}

/// Waits until something has come that a run does. Whether it has: a run may end first.
pub(super) fn wait_until(child: &mut Child, mut has_come: impl FnMut() -> bool) -> bool {
    loop {
        // Asked for in this order: what a run did before its end has come.
        let has_ended = child.try_wait().expect("a child").is_some();
        if has_come() {
            return true;
        }
        if has_ended {
            return false;
        }
        look_away();
    }
}

/// The same behind other programs.
pub(super) fn in_shell(folder: &Path, front: &[&str], line: &[String]) -> Command {
    let program = program(&line[0]);
    let mut command = match front.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.args(&line[1..]).current_dir(folder);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Words of a command line.
pub(super) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// A file that a test makes.
#[expect(clippy::disallowed_methods, reason = "no output of a program")]
pub(super) fn put(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("room");
}

/// A file system in memory in a mount namespace of its own, which goes with the process that holds it.
pub(super) struct Disk {
    holder: Child,
    _stdin: ChildStdin,
    folder: tempfile::TempDir,
    is_root: bool,
}

impl Disk {
    /// Mounts one of so many bytes. Prints a notice and returns `None` where that is not permitted.
    pub(super) fn new(n_bytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "mount -t tmpfs -o size=$0,mode=777 none \"$1\" && echo ready && exec cat";
        let is_root = nix::unistd::geteuid().is_root();
        let flags = if is_root { "-m" } else { "-Urm" };
        let holder = Command::new("unshare")
            .args([flags, "sh", "-c", script, &n_bytes.to_string()])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut holder) = holder else {
            skip("`unshare` cannot be run, so that there is no small disk");
            return None;
        };
        let stdin = holder.stdin.take().expect("piped");
        let mut word = [0; 5];
        let out = holder.stdout.as_mut().expect("piped");
        if out.read_exact(&mut word).is_err() {
            skip("a file system cannot be mounted here, so that there is no small disk");
            drop(stdin);
            holder.wait().expect("a child ends");
            return None;
        }
        Some(Self {
            holder,
            _stdin: stdin,
            folder,
            is_root,
        })
    }

    /// The folder as programs see it that are run there.
    pub(super) fn inside(&self) -> &Path {
        self.folder.path()
    }

    /// The folder as this process sees it.
    pub(super) fn outside(&self) -> PathBuf {
        let path = self.folder.path().strip_prefix("/").expect("an absolute path");
        Path::new("/proc")
            .join(self.holder.id().to_string())
            .join("root")
            .join(path)
    }

    /// A program of the suite, to be run in the disk's folder.
    pub(super) fn run(&self, line: &[String]) -> Command {
        let holder = self.holder.id().to_string();
        let folder = self.inside().display().to_string();
        let mut front = vec!["nsenter", "-t", &holder, "-m"];
        if !self.is_root {
            front.extend(["-U", "--preserve-credentials"]);
        }
        // Only in there the path is that of the disk.
        front.extend(["--", "sh", "-c", "cd \"$0\" && exec \"$@\"", &folder]);
        in_shell(Path::new("/"), &front, line)
    }

    /// Runs a shell command that sees the disk, with its folder as `$0`.
    pub(super) fn shell(&self, script: &str) {
        let holder = self.holder.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["-t", &holder, "-m"]);
        if !self.is_root {
            command.args(["-U", "--preserve-credentials"]);
        }
        let status = command
            .args(["--", "sh", "-c", script])
            .arg(self.inside())
            .status();
        assert!(status.expect("it starts").success(), "{script}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.holder.kill());
        drop(self.holder.wait());
    }
}

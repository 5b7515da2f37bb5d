//! Folders that cannot be written, files that cannot be read, outputs on other file systems.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use super::job::{Inputs, all, run};
use super::world::{Disk, End, end, files, in_shell, put, start, words};

/// A user that is nobody, where this process may become one. Root may do everything.
fn as_nobody() -> Option<&'static [&'static str]> {
    if !nix::unistd::geteuid().is_root() {
        return Some(&[]);
    }
    let front: &[&str] = &[
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--",
    ];
    // The programs may lie where nobody else can go.
    let program = suite_tests::program("gguf-inspect");
    let runs = Command::new(front[0])
        .args(&front[1..])
        .arg(program)
        .arg("--version")
        .output();
    if runs.is_ok_and(|out| out.status.success()) {
        return Some(front);
    }
    suite_tests::skip("the programs cannot be run as another user than root here");
    None
}

fn as_user(front: &[&str], folder: &Path, line: &[String]) -> End {
    end(start(&mut in_shell(folder, front, line)))
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("our own");
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_first() {
    let Some(user) = as_nobody() else { return };
    for trial in all() {
        let folder = trial.folder();
        set_mode(folder.path(), 0o555);
        let before = files(folder.path());
        let end = as_user(user, folder.path(), &trial.job.line);
        set_mode(folder.path(), 0o755);
        let name = trial.job.name;
        assert!(end.is_error(&[2], &["ermission denied"]), "{name}: {end:?}");
        assert_eq!(files(folder.path()), before, "{name}");
        trial.complete(folder.path());
    }
}

/// An edit in place needs the file, not only its folder.
#[test]
fn a_file_that_cannot_be_written_or_read_is_refused() {
    let Some(user) = as_nobody() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.gguf");
    std::fs::copy(Inputs::get().model(), &path).expect("room");
    // Whoever the programs run as may write into the folder.
    set_mode(folder.path(), 0o777);
    for (mode, lines) in [
        (
            0o444,
            &[
                "gguf-inspect set m.gguf general.name=x",
                "gguf-inspect unset m.gguf general.name",
            ][..],
        ),
        (
            0o000,
            &[
                "gguf-inspect show m.gguf",
                "gguf-inspect set m.gguf general.name=x -o out.gguf",
                "gguf-inspect split m.gguf t",
                "gguf-quantize m.gguf out.gguf Q4_0",
                "gguf-imatrix -m m.gguf -f m.gguf -o out.gguf",
                "gguf-perplexity -m m.gguf -p text",
                "gguf-run -m m.gguf -p text -n 1",
                "gguf-bench -m m.gguf",
            ],
        ),
    ] {
        set_mode(&path, mode);
        for line in lines {
            let end = as_user(user, folder.path(), &words(line));
            assert!(
                end.is_error(&[2], &["m.gguf", "ermission denied"]),
                "{line}: {end:?}"
            );
        }
        set_mode(&path, 0o644);
        assert_eq!(files(folder.path()).len(), 1, "nothing else is there");
    }
    assert!(std::fs::read(&path).expect("there") == std::fs::read(Inputs::get().model()).expect("there"));
}

#[test]
fn a_file_system_that_is_read_only_is_refused() {
    for trial in all() {
        let Some(disk) = Disk::new(64 << 20) else { return };
        trial.job.set_up(&disk.outside());
        let before = files(&disk.outside());
        disk.shell("mount -o remount,ro none \"$0\"");
        let end = end(start(&mut disk.run(&trial.job.line)));
        let name = trial.job.name;
        assert!(end.is_error(&[2], &["ead-only file system"]), "{name}: {end:?}");
        assert_eq!(files(&disk.outside()), before, "{name}");
    }
}

/// Names are given on the file system of the output, whatever the input's is.
#[test]
fn an_output_on_another_file_system_has_the_same_bytes() {
    use std::os::unix::fs::MetadataExt as _;
    let device = |path: &Path| path.metadata().expect("a folder").dev();
    let memory = Path::new("/dev/shm");
    for trial in all() {
        let name = trial.job.name;
        // The folder is where the other file system is mounted.
        if let Some(disk) = Disk::new(64 << 20) {
            trial.job.set_up(&disk.outside());
            assert_ne!(device(&disk.outside()), device(&Inputs::get().path(".")));
            let end = end(start(&mut disk.run(&trial.job.line)));
            assert!(end.is_fine(), "{name}: {end:?}");
            assert_eq!(files(&disk.outside()), trial.after, "{name}");
        }
        if !trial.job.has_output() {
            continue;
        }
        let Ok(out) = tempfile::tempdir_in(memory) else {
            suite_tests::skip("nothing can be written in `/dev/shm`");
            continue;
        };
        let folder = trial.folder();
        let end = run(folder.path(), &trial.job.line_into(out.path()));
        assert!(end.is_fine(), "{name}: {end:?}");
        assert_eq!(files(out.path()), trial.after, "{name}");
        assert!(files(folder.path()).is_empty(), "{name}");
    }
}

/// What stands in the way of the names beside an output is not written through or deleted.
#[test]
fn what_stands_in_the_way_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let (model, part) = (folder.path().join("m.gguf"), folder.path().join(".out.gguf.new"));
    std::fs::copy(Inputs::get().model(), &model).expect("room");
    let other = folder.path().join("other");
    put(&other, b"other");
    let line = words("gguf-inspect set m.gguf general.name=x -o out.gguf -q");
    let refused = || {
        let end = run(folder.path(), &line);
        assert!(end.is_error(&[2], &[".out.gguf.new", "remove"]), "{end:?}");
        assert!(
            std::fs::read(&other).expect("there") == b"other" && !folder.path().join("out.gguf").exists()
        );
    };
    std::os::unix::fs::symlink(&other, &part).expect("a name");
    refused();
    std::fs::remove_file(&part).expect("there");
    std::fs::hard_link(&other, &part).expect("a name");
    refused();
    std::fs::remove_file(&part).expect("there");
    std::fs::create_dir(&part).expect("a name");
    refused();
    std::fs::remove_dir(&part).expect("there");
    // One that is left over goes.
    put(&part, b"some bytes");
    assert!(run(folder.path(), &line).is_fine());
    assert!(!part.exists() && folder.path().join("out.gguf").exists());
}

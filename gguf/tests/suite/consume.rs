//! Merges that delete their shards as they go: stopped at every moment, they lose nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::{F32, Raw, replace, save};
use gguf::atomic::AtomicFile;
use gguf::split::{self, Consume, Limits, Step};
use gguf::{Error, GgufFile};
use tempfile::TempDir;

/// Bytes of each file of a folder.
fn files(folder: &Path) -> BTreeMap<String, u64> {
    std::fs::read_dir(folder)
        .expect("a folder")
        .map(|e| {
            let e = e.expect("an entry");
            let name = e.file_name().to_string_lossy().into_owned();
            (name, e.metadata().expect("is there").len())
        })
        .collect()
}

/// The same with the bytes themselves.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |name: &String| std::fs::read(folder.join(name)).expect("readable");
    files(folder)
        .into_keys()
        .map(|name| (name.clone(), read(&name)))
        .collect()
}

fn model() -> Vec<u8> {
    let mut raw = Raw::new().string("general.architecture", "test").u32("test.n", 7);
    for (i, name) in ["a", "b", "c", "d"].iter().enumerate() {
        let kind = if i == 3 { 4242 } else { F32 };
        raw = raw.tensor(name, &[4096], kind, i as u64 * 4 * 4096);
    }
    raw.data(4 * 4 * 4096).build()
}

/// A folder with the shards of a model, one a tensor behind a first one with metadata only.
fn set() -> (TempDir, PathBuf, Vec<PathBuf>) {
    let other = tempfile::tempdir().expect("a folder");
    let whole = other.path().join("whole.gguf");
    save(&whole, &model());
    let file = GgufFile::open(&whole).expect("sound");
    let shards = split::plan(&file, Limits::Tensors(1), true).expect("a plan");
    let folder = tempfile::tempdir().expect("a folder");
    let paths = split::write(&file, &shards, &folder.path().join("s"), false, &mut |_| Ok(()));
    let out = folder.path().join("out.gguf");
    (folder, out, paths.expect("room"))
}

fn start(out: &Path, shards: &[PathBuf]) -> gguf::Result<Consume> {
    if split::is_unfinished(out) {
        return Consume::resume(out, out.parent().expect("a folder"));
    }
    let any = shards.iter().find(|p| p.exists()).expect("shards are left");
    Consume::plan(&GgufFile::open(any)?, out)
}

fn stopped() -> gguf::Result<()> {
    Err(Error::Output("stopped".into()))
}

/// Stops at call `n` of the callback; whether it came that far.
fn run_to(consume: Consume, n: usize) -> bool {
    let mut calls = 0;
    let result = consume.run(&mut |_| {
        calls += 1;
        if calls > n { stopped() } else { Ok(()) }
    });
    assert!(result.as_ref().is_ok() || result.is_err_and(|e| e.to_string() == "stopped"));
    calls > n
}

#[test]
fn a_merge_that_stops_at_any_moment_goes_on() {
    let mut n = 0;
    loop {
        let (folder, out, shards) = set();
        let came = run_to(start(&out, &shards).expect("a plan"), n);
        // A second stop soon after the start, then the rest.
        if came {
            run_to(start(&out, &shards).expect("a plan"), 2);
        }
        if split::is_unfinished(&out) || !out.exists() {
            start(&out, &shards)
                .expect("a plan")
                .run(&mut |_| Ok(()))
                .expect("finished");
        }
        assert!(
            std::fs::read(&out).expect("readable") == model(),
            "stopped at {n}"
        );
        assert_eq!(files(folder.path()).len(), 1, "{:?}", files(folder.path()));
        if !came {
            break;
        }
        n += 1;
    }
    assert!(n > 20, "{n} moments were tried");
}

/// A second merge begins, deletes shards and is killed between the plan and the start of a first one.
#[test]
fn a_merge_that_another_one_overtook_changes_nothing() {
    for stop in [Step::Started, Step::Deleted(1), Step::Deleted(3), Step::Renamed] {
        let (folder, out, shards) = set();
        let (first, second) = (start(&out, &shards), start(&out, &shards));
        let result = second.expect("a plan").run(&mut |step| {
            if step == stop { stopped() } else { Ok(()) }
        });
        assert!(result.is_err());
        let before = contents(folder.path());
        let text = first.expect("a plan").run(&mut |_| Ok(())).expect_err("refused");
        assert!(text.to_string().contains("another merge has"), "{text}");
        assert_eq!(contents(folder.path()), before, "{stop:?}");

        // Of two that go on, the slower one does not fall back behind the other.
        let (slow, fast) = (start(&out, &shards), start(&out, &shards));
        let result = fast.expect("a journal").run(&mut |step| match step {
            Step::Deleted(4) => stopped(),
            _ => Ok(()),
        });
        assert_eq!(result.is_err(), stop != Step::Renamed);
        match slow.expect("a journal").run(&mut |_| Ok(())) {
            Ok(()) => assert!(stop != Step::Renamed),
            Err(e) => assert!(stop == Step::Renamed, "{e}"),
        }
        assert!(std::fs::read(&out).expect("readable") == model());
        assert_eq!(files(folder.path()).len(), 1, "{:?}", files(folder.path()));
    }
}

#[test]
fn a_part_without_a_journal_is_begun_again_and_strange_files_are_not_written_to() {
    let (folder, out, shards) = set();
    let part = folder.path().join(".out.gguf.merge-part");
    let journal = folder.path().join(".out.gguf.merge-journal.part");
    let other = folder.path().join("other");
    save(&other, b"kept");
    for strange in [&part, &journal] {
        for symbolic in [false, true] {
            let linked = if symbolic {
                std::os::unix::fs::symlink(&other, strange)
            } else {
                std::fs::hard_link(&other, strange)
            };
            linked.expect("a link");
            let result = start(&out, &shards).expect("a plan").run(&mut |_| Ok(()));
            assert!(result.is_err());
            assert_eq!(std::fs::read(&other).expect("readable"), b"kept");
            std::fs::remove_file(strange).expect("is left there");
        }
    }
    replace(&part, b"of a merge that was killed before it had a journal");
    start(&out, &shards)
        .expect("a plan")
        .run(&mut |_| Ok(()))
        .expect("merged");
    assert!(std::fs::read(&out).expect("readable") == model());
}

#[test]
fn a_name_that_no_file_can_have_is_refused_first() {
    let (folder, _, shards) = set();
    let before = files(folder.path());
    for name in ["new/", "new/.", "absent/out.gguf", "..", &"n".repeat(300)] {
        let told = start(&folder.path().join(name), &shards)
            .expect_err(name)
            .to_string();
        assert!(told.starts_with("cannot write"), "{told}");
    }
    assert_eq!(files(folder.path()), before);
}

/// Another file gets the output's name while a merge is stopped: no shard goes any more, and it is named what to do.
#[test]
fn a_merge_whose_name_was_taken_deletes_nothing() {
    for stop in [Step::Started, Step::Deleted(2)] {
        let (folder, out, shards) = set();
        let stopped_at = start(&out, &shards).expect("a plan").run(&mut |step| {
            if step == stop { stopped() } else { Ok(()) }
        });
        stopped_at.expect_err("stopped");
        // Whoever writes by the rules is refused.
        let taken = AtomicFile::create(&out, true, &[], None).expect_err("a merge is unfinished");
        assert!(taken.to_string().contains("--resume"), "{taken}");
        let left = GgufFile::open(&shards[shards.len() - 1]);
        if stop == Step::Started {
            left.expect("all shards are there");
        } else {
            let told = left.expect_err("shards are missing").to_string();
            assert!(
                told.contains("a merge of the set") && told.contains("--resume"),
                "{told}"
            );
        }
        save(&out, b"another file");
        let before = files(folder.path());
        let told = start(&out, &shards).expect_err("the name is taken").to_string();
        assert!(told.contains("move it away"), "{told}");
        std::fs::remove_file(&out).expect("it is there");
        for name in ["out.gguf/", "out.gguf/."] {
            let told = start(&folder.path().join(name), &shards)
                .expect_err(name)
                .to_string();
            assert!(told.contains("it names a folder"), "{told}");
        }
        // It is taken between the plan and the run.
        let planned = start(&out, &shards).expect("a plan");
        save(&out, b"another file");
        let told = planned
            .run(&mut |_| Ok(()))
            .expect_err("the name is taken")
            .to_string();
        assert!(told.contains("move it away"), "{told}");
        assert_eq!(files(folder.path()), before);
        std::fs::remove_file(&out).expect("it is there");
        // A shard that it has not taken is lost.
        let last = &shards[shards.len() - 1];
        let bytes = std::fs::read(last).expect("readable");
        std::fs::remove_file(last).expect("it is there");
        let told = GgufFile::open(&shards[shards.len() - 2])
            .expect_err("missing")
            .to_string();
        assert!(told.contains("download them"), "{told}");
        save(last, &bytes);
        let all = start(&out, &shards).expect("a plan").run(&mut |_| Ok(()));
        all.expect("finished");
        assert!(std::fs::read(&out).expect("readable") == model());
    }
}

#[test]
fn the_space_it_needs_is_what_it_says() {
    let (folder, out, shards) = set();
    let before: u64 = files(folder.path()).values().sum();
    let largest = shards.iter().map(|p| p.metadata().expect("is there").len()).max();
    let consume = start(&out, &shards).expect("a plan");
    assert!(consume.extra_bytes() < largest.expect("shards") + (2 << 20));
    let (extra, mut peak) = (consume.extra_bytes(), 0);
    consume
        .run(&mut |_| {
            peak = peak.max(files(folder.path()).values().sum::<u64>());
            Ok(())
        })
        .expect("merged");
    assert!(peak > before && peak - before < extra, "{peak} {before} {extra}");
}

#[test]
fn a_shard_is_deleted_only_when_its_own_bytes_are_in_the_merged_file() {
    // Recorded, not deleted yet, and then another file under its name.
    let (_folder, out, shards) = set();
    let result = start(&out, &shards).expect("a plan").run(&mut |step| match step {
        Step::Recorded(3) => stopped(),
        _ => Ok(()),
    });
    assert!(result.is_err() && shards[2].exists() && !shards[1].exists());
    let good = std::fs::read(&shards[2]).expect("readable");
    let mut other = good.clone();
    *other.last_mut().expect("bytes") ^= 1;
    replace(&shards[2], &other);
    let again = start(&out, &shards).expect("a journal").run(&mut |_| Ok(()));
    assert!(again.is_err_and(|e| e.to_string().contains("nothing more is deleted")));
    assert!(std::fs::read(&shards[2]).expect("still there") == other);
    replace(&shards[2], &good);
    start(&out, &shards)
        .expect("a journal")
        .run(&mut |_| Ok(()))
        .expect("finished");
    assert!(std::fs::read(&out).expect("readable") == model());
}

#[test]
fn damage_between_two_runs_is_seen() {
    for victim in [".out.gguf.merge-journal", ".out.gguf.merge-part"] {
        let (folder, out, shards) = set();
        let result = start(&out, &shards).expect("a plan").run(&mut |step| match step {
            Step::Deleted(2) => stopped(),
            _ => Ok(()),
        });
        assert!(result.is_err());
        let path = folder.path().join(victim);
        let mut bytes = std::fs::read(&path).expect("readable");
        bytes[30] ^= 1;
        replace(&path, &bytes);
        let before = files(folder.path());
        let again = start(&out, &shards).and_then(|c| c.run(&mut |_| Ok(())));
        assert!(again.is_err(), "{victim}");
        assert_eq!(files(folder.path()), before);
    }
}

#[test]
fn a_disk_that_loses_bytes_costs_no_shard() {
    use std::os::unix::fs::FileExt;
    let (folder, out, shards) = set();
    let part = folder.path().join(".out.gguf.merge-part");
    let mut n = 0;
    let result = start(&out, &shards).expect("a plan").run(&mut |step| {
        // The first piece that is read back of the second shard: by then it was written.
        if let Step::Bytes(_) = step {
            n += 1;
            if n == 2 {
                let file = std::fs::File::options()
                    .write(true)
                    .open(&part)
                    .expect("writable");
                let at = part.metadata().expect("is there").len() - 5;
                file.write_all_at(&[0xee], at).expect("written");
            }
        }
        Ok(())
    });
    let text = result.expect_err("a difference").to_string();
    assert!(text.contains("check the disk"), "{text}");
    assert!(shards[1].exists());
}

#[test]
fn sets_that_cannot_be_merged_so_are_refused() {
    let (folder, out, shards) = set();
    save(&out, b"something");
    let refused = |out: &Path| {
        let set = GgufFile::open(&shards[0]).expect("a set");
        Consume::plan(&set, out).expect_err("refused").to_string()
    };
    assert!(refused(&out).contains("exists already"));
    std::fs::remove_file(&out).expect("was there");
    assert!(refused(&folder.path().join("no/out.gguf")).contains("does not exist"));
    let link = folder.path().join("link");
    std::fs::hard_link(&shards[1], &link).expect("a link");
    assert!(refused(&out).contains("is a link"));
    std::fs::remove_file(&link).expect("was there");
    let busy = start(&out, &shards).expect("a plan");
    let second = start(&out, &shards).expect("a plan");
    let mut second = Some(second);
    busy.run(&mut |step| {
        if step == Step::Started {
            let refused = second.take().expect("once").run(&mut |_| Ok(()));
            assert!(refused.is_err_and(|e| e.to_string().contains("another merge")));
        }
        Ok(())
    })
    .expect("merged");
}

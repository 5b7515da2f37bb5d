//! Edits of metadata: in place, by copies, interrupted, refused.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::common::{F32, Raw, STRING, replace, save, sound};
use gguf::edit::{self, Change, Plan, Room, Step};
use gguf::{Error, GgufFile, OpenOptions, Value, key};
use tempfile::TempDir;

fn file(raw: &Raw) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.gguf");
    save(&path, &raw.build());
    (folder, path)
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("readable")
}

fn set(key: &str, value: impl Into<Value>) -> Change {
    Change::Set {
        key: key.to_owned(),
        value: value.into(),
    }
}

fn plan(path: &Path, changes: &[Change]) -> gguf::Result<Plan> {
    let file = OpenOptions::new().alone().open(path)?;
    edit::plan(&file, changes, Room::Keep)
}

fn apply(path: &Path, changes: &[Change]) -> bool {
    let plan = plan(path, changes).expect("a plan");
    if plan.is_in_place() {
        plan.apply_in_place(&mut |_| Ok(())).expect("applied");
    } else {
        plan.replace(&mut |_| Ok(())).expect("copied");
    }
    GgufFile::open(path)
        .expect("readable")
        .require_sound()
        .expect("sound");
    plan.is_in_place()
}

fn keys(path: &Path) -> Vec<String> {
    let file = GgufFile::open(path).expect("readable");
    file.metadata.iter().map(|(key, _)| key.to_owned()).collect()
}

fn padded(n: u64) -> Raw {
    sound().pair_before_tensors(n)
}

/// Room for edits, in the tests' own words.
trait Pad {
    fn pair_before_tensors(self, n: u64) -> Self;
}

impl Pad for Raw {
    fn pair_before_tensors(self, n: u64) -> Self {
        let zeros = vec![0; usize::try_from(n).expect("little")];
        self.array(key::PAD, 0, n, &zeros)
    }
}

#[test]
fn a_pad_takes_what_grows_and_gives_it_back() {
    let (_folder, path) = file(&padded(200));
    let before = read(&path);
    let data = before.len() - 128;
    assert!(apply(&path, &[set("general.name", "a name that is new here")]));
    let after = read(&path);
    assert_eq!(after.len(), before.len());
    assert_eq!(after[data..], before[data..], "the data stays where it is");
    assert_eq!(
        keys(&path)[3..],
        ["general.name", key::PAD],
        "new keys stand before the pad"
    );
    assert!(apply(&path, &[set("general.architecture", "a longer word")]));
    assert_eq!(keys(&path)[0], "general.architecture", "a key keeps its place");
    assert!(apply(&path, &[set("general.architecture", "test")]));
    assert!(apply(&path, &[Change::Unset("general.name".to_owned())]));
    assert!(read(&path) == before);

    // More than the pad has: it goes, and the file is copied.
    let long = "x".repeat(400);
    assert!(!apply(&path, &[set("general.name", long.as_str())]));
    assert!(!keys(&path).contains(&key::PAD.to_owned()));
    assert!(read(&path).ends_with(&before[data..]));
}

#[test]
fn the_padding_alone_is_room_and_a_head_that_shrinks_gets_a_pad() {
    let (_folder, path) = file(&sound().string("test.note", &"x".repeat(100)));
    let before = read(&path);
    let note = |n: usize| set("test.note", "x".repeat(n).as_str());
    for n in (0..100).rev() {
        assert!(apply(&path, &[note(n)]), "{n}");
        assert_eq!(read(&path).len(), before.len(), "{n}");
        assert!(apply(&path, &[note(100)]), "{n}");
        assert!(read(&path) == before, "{n}");
    }
    assert!(apply(&path, &[Change::Unset("test.note".to_owned())]));
    assert!(keys(&path).contains(&key::PAD.to_owned()));
    assert!(apply(&path, &[note(100)]));
    assert!(read(&path) == before);
}

#[test]
fn copies_that_undo_each_other_give_the_same_file() {
    let odd = Raw::new()
        .version(2)
        .pair("test.text", STRING, &[3, 0, 0, 0, 0, 0, 0, 0, b'a', 0xff, b'b'])
        .pair("test.flag", 7, &[2])
        .tensor("a", &[5], F32, 0)
        .tensor("b", &[7], 4242, 32)
        .data(77);
    let (folder, path) = file(&odd);
    let (long, back) = (folder.path().join("long.gguf"), folder.path().join("back.gguf"));
    let grow = [set("test.long", "x".repeat(1000).as_str())];
    let grown = plan(&path, &grow).expect("a plan");
    assert!(!grown.is_in_place());
    grown.copy_to(&long, false, &[], &mut |_| Ok(())).expect("copied");
    assert_eq!(long.metadata().expect("is there").len(), grown.copy_bytes());
    let undo = plan(&long, &[Change::Unset("test.long".to_owned())]).expect("a plan");
    undo.copy_to(&back, false, &[], &mut |_| Ok(())).expect("copied");
    assert!(read(&back) == odd.build());
    assert!(read(&path) == odd.build(), "the input is as it was");
}

#[test]
fn room_is_made_and_taken_away_by_copies() {
    let (folder, path) = file(&sound());
    let before = read(&path);
    let (with, without) = (
        folder.path().join("with.gguf"),
        folder.path().join("without.gguf"),
    );
    for (from, room, to) in [(&path, 4096, &with), (&with, 0, &without)] {
        let file = OpenOptions::new().alone().open(from).expect("readable");
        let plan = edit::plan(&file, &[], Room::Exactly(room)).expect("a plan");
        assert!(!plan.is_in_place() && !plan.is_nothing());
        plan.copy_to(to, false, &[], &mut |_| Ok(())).expect("copied");
    }
    assert!(apply(&with, &[set("general.name", "x".repeat(4000).as_str())]));
    assert!(read(&without) == before);
}

#[test]
fn an_edit_that_stops_at_any_step_can_be_taken_back() {
    for last in [Step::Locked, Step::Journalled, Step::Written, Step::Synced] {
        for torn in [false, true] {
            let (folder, path) = file(&padded(200));
            let before = read(&path);
            let plan = plan(&path, &[set("general.name", "new")]).expect("a plan");
            let stopped = plan.apply_in_place(&mut |step| {
                if step == last {
                    return Err(Error::Output("stopped".into()));
                }
                Ok(())
            });
            assert!(stopped.is_err());
            if torn && last == Step::Journalled {
                // Half of the new bytes arrive.
                plan_half(&path, &plan);
            }
            if last == Step::Locked {
                assert!(GgufFile::open(&path).is_ok());
                assert_eq!(edit::recover(&path, &[]).expect("nothing to do"), None);
            } else {
                let refused = GgufFile::open(&path).expect_err("half new").to_string();
                assert!(refused.contains("gguf-inspect set"), "{refused}");
                assert!(edit::recover(&path, &[]).expect("restored").is_some());
            }
            assert!(read(&path) == before);
            let left = std::fs::read_dir(folder.path()).expect("a folder").count();
            assert_eq!(left, 1, "nothing is left beside the file");
        }
    }
}

/// Writes the first half of what an edit in place would change.
fn plan_half(path: &Path, plan: &Plan) {
    use std::os::unix::fs::FileExt;
    let copy = path.with_extension("copy");
    plan.copy_to(&copy, false, &[], &mut |_| Ok(())).expect("copied");
    let new = read(&copy);
    std::fs::remove_file(copy).expect("was there");
    let old = read(path);
    let start = old.iter().zip(&new).position(|(a, b)| a != b).expect("a change");
    let file = std::fs::File::options().write(true).open(path).expect("writable");
    file.write_all_at(&new[start..start + 9], start as u64)
        .expect("written");
    assert_ne!(read(path), old);
}

#[test]
fn journals_that_are_not_sound_restore_nothing() {
    let (_folder, path) = file(&padded(200));
    let edit = plan(&path, &[set("general.name", "new")]).expect("a plan");
    drop(edit.apply_in_place(&mut |step| match step {
        Step::Written => Err(Error::Output("stopped".into())),
        _ => Ok(()),
    }));
    let journal = edit::journal_path(&path).expect("a name");
    let (good, half) = (read(&journal), read(&path));
    let forged = |bytes: &[u8]| {
        replace(&journal, bytes);
        let refused = edit::recover(&path, &[]).expect_err("refused").to_string();
        assert!(refused.contains("nothing was restored"), "{refused}");
        assert!(read(&path) == half && read(&journal) == bytes);
    };
    forged(b"");
    forged(&good[..good.len() - 1]);
    for i in (0..good.len()).step_by(7) {
        let mut bytes = good.clone();
        bytes[i] ^= 1;
        forged(&bytes);
    }
    // A sound journal of another file.
    let (_other_folder, other) = file(&padded(232));
    let other_plan = plan(&other, &[set("general.name", "new")]).expect("a plan");
    drop(other_plan.apply_in_place(&mut |step| match step {
        Step::Written => Err(Error::Output("stopped".into())),
        _ => Ok(()),
    }));
    forged(&read(&edit::journal_path(&other).expect("a name")));
    replace(&journal, &good);
    assert!(edit::recover(&path, &[]).expect("restored").is_some());
}

#[test]
fn two_edits_at_once_do_not_mix() {
    let (_folder, path) = file(&padded(200));
    let (one, two) = (
        plan(&path, &[set("general.name", "one")]).expect("a plan"),
        plan(&path, &[set("general.name", "two")]).expect("a plan"),
    );
    one.apply_in_place(&mut |step| {
        if step == Step::Locked {
            let refused = two
                .apply_in_place(&mut |_| Ok(()))
                .expect_err("locked")
                .to_string();
            assert!(refused.contains("another edit is at work"), "{refused}");
        }
        Ok(())
    })
    .expect("applied");
    let refused = two
        .apply_in_place(&mut |_| Ok(()))
        .expect_err("changed")
        .to_string();
    assert!(refused.contains("changed while"), "{refused}");
}

#[test]
fn links_and_permissions_stay() {
    let (folder, path) = file(&padded(200));
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).expect("mine");
    let link = folder.path().join("link.gguf");
    symlink(&path, &link).expect("a link");
    drop(
        plan(&link, &[set("general.name", "new")])
            .expect("a plan")
            .apply_in_place(&mut |step| match step {
                Step::Journalled => Err(Error::Output("stopped".into())),
                _ => Ok(()),
            }),
    );
    assert!(GgufFile::open(&path).is_err() && GgufFile::open(&link).is_err());
    edit::recover(&link, &[]).expect("restored");
    assert!(!apply(&link, &[set("general.name", "x".repeat(900).as_str())]));
    assert!(link.symlink_metadata().expect("is there").is_symlink());
    let mode = path.metadata().expect("is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn changes_that_would_harm_are_refused() {
    let unset = |key: &str| Change::Unset(key.to_owned());
    let rename = |from: &str, to: &str| Change::Rename {
        from: from.to_owned(),
        to: to.to_owned(),
    };
    let (_folder, path) = file(&padded(64));
    let before = read(&path);
    for (change, word) in [
        (set("general.alignment", 64_u32), "gguf-quantize"),
        (set("split.no", 1_u16), "gguf-inspect split"),
        (set("gguf.pad", vec![0_u8]), "--reserve-metadata"),
        (set("", 1_u32), "expected 1 to"),
        (unset("no.such.key"), "does not have it"),
        (unset("gguf.pad"), "--reserve-metadata"),
        (rename("general.architecture", "test.block_count"), "already"),
        (rename("general.architecture", ""), "expected 1 to"),
        (rename("no.such.key", "x"), "does not have it"),
        (set("x", vec![gguf::Array::U8(vec![1])]), "flatten"),
    ] {
        let refused = plan(&path, &[change]).expect_err(word).to_string();
        assert!(refused.contains(word), "`{word}` not in {refused}");
    }
    assert!(read(&path) == before);

    for (key, right, wrong) in [
        ("general.alignment", Value::U32(32), Value::I32(32)),
        ("split.no", Value::U16(0), Value::U32(0)),
        ("split.count", Value::U16(1), Value::I32(1)),
        ("split.tensors.count", Value::I32(1), Value::I64(1)),
    ] {
        let with = |value: &Value| {
            let (kind, bytes) = match *value {
                Value::U16(n) => (2, n.to_le_bytes().to_vec()),
                Value::U32(n) => (4, n.to_le_bytes().to_vec()),
                Value::I32(n) => (5, n.to_le_bytes().to_vec()),
                Value::I64(n) => (11, n.to_le_bytes().to_vec()),
                ref other => panic!("{other:?}"),
            };
            file(&sound().pair(key, kind, &bytes))
        };
        let (_folder, path) = with(&wrong);
        plan(&path, &[set(key, right.clone())]).expect("its type may be put right");
        let (_folder, path) = with(&right);
        let refused = plan(&path, &[set(key, wrong)])
            .expect_err("made wrong")
            .to_string();
        let expected = format!("expected type {}", right.type_name());
        assert!(refused.contains(key) && refused.contains(&expected), "{refused}");
    }

    let twice = sound().u32("test.block_count", 2);
    let (_folder, path) = file(&twice);
    let refused = plan(&path, &[set("a", 1_u32)]).expect_err("twice").to_string();
    assert!(refused.contains("twice"), "{refused}");
}

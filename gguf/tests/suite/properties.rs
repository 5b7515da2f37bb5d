//! Any valid file: written again, split and merged, edited and undone, it is the same bytes.

use std::path::Path;

use crate::common::save;
use gguf::edit::{self, Change, Room};
use gguf::split::{self, Limits};
use gguf::{GgufFile, Layout, Metadata, OpenOptions, Shape, TensorSpec, Value, Writer, key};
use gguf_blocks::TypeId;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

/// A scalar, a text or an array of any type that is read everywhere.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        any::<u16>().prop_map(Value::from),
        any::<i16>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        vec(".{0,9}", 0..5).prop_map(Value::from),
        vec(any::<u8>(), 0..70).prop_map(Value::from),
        vec(any::<i32>(), 0..9).prop_map(Value::from),
        vec(any::<bool>(), 0..9).prop_map(Value::from),
    ]
}

/// Numbers of a type, elements of its blocks and bytes of one; 4242 is known to nobody.
const TYPES: [(u32, u64, u64); 5] = [(0, 1, 4), (1, 1, 2), (2, 32, 18), (14, 256, 210), (4242, 32, 32)];

fn tensor() -> impl Strategy<Value = (usize, u64, u64)> {
    (0..TYPES.len(), 1..4_u64, 1..4_u64)
}

/// A file as bytes, with alignment 32 or 64 and, if asked for, room for edits.
fn file() -> impl Strategy<Value = Vec<u8>> {
    let keys = btree_map("[a-z]{1,8}[.][a-z_]{1,9}", value(), 0..6);
    let pad = prop_oneof![Just(None), (0..300_usize).prop_map(Some)];
    (keys, vec(tensor(), 0..9), any::<bool>(), pad).prop_map(|(keys, tensors, wide, pad)| {
        let mut metadata = Metadata::new();
        let free = keys
            .into_iter()
            .filter(|(k, _)| !k.starts_with("split.") && !k.starts_with("general."));
        metadata.extend(free);
        let alignment: u32 = if wide { 64 } else { 32 };
        if wide {
            metadata.set(key::ALIGNMENT, alignment.into());
        }
        if let Some(n) = pad {
            metadata.set(key::PAD, vec![0_u8; n].into());
        }
        let specs = tensors.iter().enumerate().map(|(i, &(kind, blocks, rows))| {
            let (id, elems, bytes) = TYPES[kind];
            let shape = Shape::new(&[blocks * elems, rows]).expect("little");
            let n_bytes = blocks * bytes * rows;
            // Of an unknown type nobody knows where the padding begins.
            let room = n_bytes.next_multiple_of(alignment.into());
            TensorSpec {
                n_bytes: (id == 4242).then_some(room),
                ..TensorSpec::new(format!("t{i}"), shape, TypeId(id))
            }
        });
        let layout = Layout::plan(&metadata, specs.collect()).expect("a sound plan");
        let mut writer = Writer::new(Vec::new(), &layout).expect("memory");
        for (i, tensor) in layout.tensors.iter().enumerate() {
            let bytes: Vec<u8> = (0..tensor.n_bytes).map(|j| (j * 7 + i as u64) as u8).collect();
            writer.write(&bytes).expect("as planned");
        }
        writer.finish().expect("as planned")
    })
}

fn limits() -> impl Strategy<Value = (Limits, bool)> {
    let limits = prop_oneof![
        (1..5_u64).prop_map(Limits::Tensors),
        (1..2000_u64).prop_map(Limits::Bytes)
    ];
    (limits, any::<bool>())
}

fn change() -> impl Strategy<Value = (String, Value)> {
    let size = prop_oneof![
        value(),
        (0..600_usize).prop_map(|n| "x".repeat(n).as_str().into())
    ];
    ("[a-z]{1,8}[.][a-z_]{1,9}", size)
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("readable")
}

fn open(path: &Path) -> GgufFile {
    let file = OpenOptions::new().alone().open(path).expect("readable");
    file.require_sound().expect("sound");
    file
}

/// What takes a change back.
fn undo(file: &GgufFile, key: &str) -> Change {
    match file.metadata.get(key) {
        Some(value) => Change::Set {
            key: key.to_owned(),
            value: value.clone(),
        },
        None => Change::Unset(key.to_owned()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn split_then_merge_is_the_same_file(bytes in file(), (limits, no_tensor_first) in limits()) {
        let folder = tempfile::tempdir().expect("a folder");
        let whole = folder.path().join("m.gguf");
        save(&whole, &bytes);
        let file = open(&whole);
        let shards = split::plan(&file, limits, no_tensor_first).expect("a plan");
        let paths = split::write(&file, &shards, &folder.path().join("s"), false, &mut |_| Ok(())).expect("room");
        for (path, shard) in paths.iter().zip(&shards) {
            prop_assert_eq!(path.metadata().expect("is there").len(), shard.layout.total_bytes);
        }
        let set = GgufFile::open(&paths[paths.len() - 1]).expect("a set");
        set.require_sound().expect("a sound set");
        let out = folder.path().join("out.gguf");
        split::merge(&set, &split::merged(&set).expect("a plan"), &out, false, &mut |_| Ok(())).expect("room");
        prop_assert!(read(&out) == bytes);
        if paths.len() > 1 {
            std::fs::remove_file(&out).expect("was there");
            split::Consume::plan(&set, &out).expect("a plan").run(&mut |_| Ok(())).expect("merged");
            prop_assert!(read(&out) == bytes);
            prop_assert!(paths.iter().all(|p| !p.exists()));
        }
    }

    #[test]
    fn an_edit_and_its_undoing_are_the_same_file(bytes in file(), pick in any::<prop::sample::Index>(), (key, value) in change(), there in any::<bool>()) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("m.gguf");
        save(&path, &bytes);
        let file = open(&path);
        let keys: Vec<&str> = file.metadata.iter().map(|(k, _)| k).filter(|k| *k != key::PAD && *k != key::ALIGNMENT).collect();
        let key = if there && !keys.is_empty() { pick.get(&keys).to_string() } else { key };
        prop_assume!(!key.starts_with("split.") && !key.starts_with("general.") && key != "gguf.pad");
        let back = undo(&file, &key);
        // A pad gives what the change takes, as long as it can; beyond that the padding behind it gives the rest, and
        // nothing tells later how much of each there was.
        let before = file.metadata.get(&key).map_or(-8 - key.len() as i64, |v| v.to_bytes().len() as i64);
        let growth = value.to_bytes().len() as i64 - before;
        let pad = file.metadata.array(key::PAD).expect("an array").map(gguf::Array::len);
        let kept = pad.is_none_or(|n| growth <= n as i64);
        let plan = edit::plan(&file, &[Change::Set { key: key.clone(), value }], Room::Keep).expect("a plan");
        let data = file.first().data_offset as usize;
        let old_pad = file.metadata.contains(key::PAD);
        if plan.is_in_place() {
            plan.apply_in_place(&mut |_| Ok(())).expect("applied");
            let after = read(&path);
            prop_assert!(after.len() == bytes.len() && after[data..] == bytes[data..]);
            let undone = edit::plan(&open(&path), &[back], Room::Keep).expect("a plan");
            prop_assert!(undone.is_in_place());
            undone.apply_in_place(&mut |_| Ok(())).expect("applied");
            prop_assert!(!kept || read(&path) == bytes);
        } else {
            let (there, here) = (folder.path().join("there.gguf"), folder.path().join("here.gguf"));
            plan.copy_to(&there, false, &[], &mut |_| Ok(())).expect("copied");
            prop_assert_eq!(there.metadata().expect("is there").len(), plan.copy_bytes());
            let undone = edit::plan(&open(&there), &[back], Room::Keep).expect("a plan");
            undone.copy_to(&here, false, &[], &mut |_| Ok(())).expect("copied");
            prop_assert!(old_pad || read(&here) == bytes);
            prop_assert!(read(&path) == bytes);
        }
    }
}

//! Edits of the head of a file.

use std::collections::BTreeMap;

use gguf::edit::{self, Change, Room};
use gguf::{GgufFile, Value, key};

use super::parse;
use super::same::{same_tensors, same_value};

/// Changes keys that the last bytes of the input pick. An edit that is not refused leaves all other pairs, and the tensors.
pub(super) fn edit(file: &GgufFile, data: &[u8]) {
    let pick: [u8; 4] = data.last_chunk().copied().unwrap_or_default();
    let pick = u32::from_le_bytes(pick).wrapping_add(data.len() as u32);
    let changes = changes(file, pick);
    let room = if pick & 0x100 == 0 {
        Room::Keep
    } else {
        Room::Exactly(u64::from(pick % 64))
    };
    let Ok(plan) = edit::plan(file, &changes, room) else {
        return;
    };
    let head = plan.head().expect("it was parsed before");
    // Repeated keys are refused, so that each counts.
    let mut expected: BTreeMap<&str, &Value> = file.metadata.iter().collect();
    for change in &changes {
        match change {
            Change::Set { key, value } => drop(expected.insert(key, value)),
            Change::Unset(key) => drop(expected.remove(&**key)),
            Change::Rename { from, to } => {
                let value = expected.remove(&**from).expect("a key that is there");
                expected.insert(to, value);
            }
        }
    }
    let mut found: BTreeMap<&str, &Value> = head.metadata.iter().collect();
    // The room for edits is what it must be.
    expected.remove(key::PAD);
    found.remove(key::PAD);
    assert!(expected.keys().eq(found.keys()), "{changes:?}: {found:?}");
    for (key, value) in expected {
        assert!(
            same_value(value, found[key]),
            "`{key}`: {value:?} became {:?}",
            found[key]
        );
    }
    let part = file.first();
    let source = part.source();
    let start = part.data_offset.min(source.len());
    let rest = source
        .slice(start, (source.len() - start) as usize)
        .expect("it is in memory");
    let new = head.first().source().bytes().expect("it is in memory");
    if plan.is_in_place() {
        assert_eq!(new.len() as u64, part.data_offset, "{changes:?}");
    }
    let edited = parse([new, &rest].concat()).expect("what was edited can be read");
    edited.require_sound().expect("what was edited is sound");
    same_tensors(file, &edited);
}

/// One change or two, of keys that are there or are not.
fn changes(file: &GgufFile, pick: u32) -> Vec<Change> {
    let n = file.metadata.len().max(1);
    let nth = |i: u32| file.metadata.iter().nth(i as usize % n);
    let key = |i: u32| nth(i).map_or("fuzz.none".to_owned(), |(key, _)| key.to_owned());
    let new = || "fuzz.".to_owned() + &"x".repeat((pick >> 16) as usize % 300);
    let change = |i: u32| match i % 6 {
        0 => Change::Unset(key(i / 6)),
        1 => Change::Rename {
            from: key(i / 6),
            to: new(),
        },
        2 => Change::Rename {
            from: key(i / 6),
            to: key(i / 7),
        },
        3 => Change::Set {
            key: new(),
            value: Value::String("x".repeat(i as usize % 200)),
        },
        4 => Change::Set {
            key: key(i / 6),
            value: nth(i / 7).map_or(Value::U8(1), |(_, v)| v.clone()),
        },
        _ => Change::Set {
            key: key(i / 6),
            value: Value::Bool(true),
        },
    };
    let both = [change(pick & 0xFF), change(pick >> 8 & 0xFF)];
    both[..=(pick >> 24 & 1) as usize].to_vec()
}

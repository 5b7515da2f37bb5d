//! Whether the shards of a split set belong together.

use super::Finding;
use crate::split::{ShardName, SplitKeys};
use crate::{GgufFile, key};

const WRONG_NAME: &str = "rename the files, or download the set again";
const OTHER_SET: &str = "replace the shard by the one of this set";

/// Compares the shards' keys with their names and with each other.
pub(super) fn check(file: &GgufFile, findings: &mut Vec<Finding>) {
    let parts = file.parts();
    for path in file.missing() {
        let name = ShardName::parse(path).map_or(0, |n| n.no);
        let what = format!("shard {name} is missing: expected `{}`", path.display());
        findings.push(Finding::severe(
            "set",
            None,
            what,
            "download it into the same folder",
        ));
    }
    for e in file.unreadable() {
        let name = ShardName::parse(&e.file).map_or(0, |n| n.no);
        let what = format!("shard {name} cannot be read: {e}");
        findings.push(Finding::severe("set", None, what, "download it again"));
    }
    check_types(file, findings);
    let is_set = parts.len() > 1 || !file.is_complete();
    for (i, part) in parts.iter().enumerate() {
        let start = findings.len();
        let name = ShardName::parse(part.path());
        match name {
            Some(name) if is_set || part.split.is_shard() => check_shard(&name, part.split, findings),
            Some(name) if part.split.count.is_none() && name.count > 1 => {
                let what = format!(
                    "the name says shard {} of {}, but the file has no `{}`: a piece that was cut out of a \
                     larger file, or a whole model under a shard's name",
                    name.no,
                    name.count,
                    key::SPLIT_COUNT
                );
                findings.push(Finding::unusual(
                    "file",
                    None,
                    what,
                    "rename the file, if it is whole",
                ));
            }
            _ => {}
        }
        let n_split = [part.split.no, part.split.count, part.split.tensors]
            .iter()
            .flatten()
            .count();
        if i > 0 && part.n_keys > n_split + 1 {
            let what = format!(
                "{} metadata keys besides those of the split: readers ignore them, only the first shard's count",
                part.n_keys - n_split
            );
            findings.push(Finding::unusual(
                "metadata",
                None,
                what,
                "nothing, unless the shard is of another set",
            ));
        }
        findings[start..].iter_mut().for_each(|f| f.part = i);
    }
    if is_set {
        check_counts(file, findings);
    }
}

fn key_object(key: &str) -> String {
    format!("key `{key}`")
}

/// llama.cpp reads these keys in one type only.
fn check_types(file: &GgufFile, findings: &mut Vec<Finding>) {
    for (key, expected) in [
        (key::SPLIT_NO, "u16"),
        (key::SPLIT_COUNT, "u16"),
        (key::SPLIT_TENSORS, "i32"),
    ] {
        if let Some(value) = file.metadata.get(key)
            && value.type_name() != expected
        {
            let what = format!(
                "expected type {expected}, found {}: llama.cpp refuses the file",
                value.type_name()
            );
            findings.push(Finding::severe(
                key_object(key),
                None,
                what,
                "set the key again in that type",
            ));
        }
    }
}

/// One shard's keys against its name.
fn check_shard(name: &ShardName, split: SplitKeys, findings: &mut Vec<Finding>) {
    let no = split.no.map(|no| no.saturating_add(1));
    if no != Some(u64::from(name.no)) {
        let found = no.map_or("nothing".to_owned(), |no| format!("shard {no}"));
        let what = format!(
            "the name says shard {}, the key says {found}: shards were swapped, doubled or renamed",
            name.no
        );
        findings.push(Finding::severe(key_object(key::SPLIT_NO), None, what, WRONG_NAME));
    }
    if split.count != Some(u64::from(name.count)) {
        let found = split.count.map_or("nothing".to_owned(), |n| n.to_string());
        let what = format!("the name says {} shards, the key says {found}", name.count);
        findings.push(Finding::severe(
            key_object(key::SPLIT_COUNT),
            None,
            what,
            OTHER_SET,
        ));
    }
}

/// The number of tensors that each shard claims against the set's.
fn check_counts(file: &GgufFile, findings: &mut Vec<Finding>) {
    let n = file.tensors.len() as u64;
    for (i, part) in file.parts().iter().enumerate() {
        let claimed = part.split.tensors;
        let first = file.first().split.tensors;
        let what = match claimed {
            _ if claimed != first => format!(
                "expected {} tensors in the set as in the first shard, found {}",
                text(first),
                text(claimed)
            ),
            Some(claimed) if file.is_complete() && i == 0 && claimed != n => {
                format!("expected {claimed} tensors in the set, found {n} in all shards together")
            }
            _ => continue,
        };
        let finding = Finding::severe(key_object(key::SPLIT_TENSORS), None, what, OTHER_SET);
        findings.push(finding.of_part(i));
    }
}

fn text(n: Option<u64>) -> String {
    n.map_or("nothing".to_owned(), |n| n.to_string())
}

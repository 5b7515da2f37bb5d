//! Whether the shards of a split set belong together.

use super::{Finding, Findings};
use crate::split::{self, ShardName, SplitKeys};
use crate::{GgufFile, key};

const WRONG_NAME: &str = "rename the files, or download the set again";
const OTHER_SET: &str = "replace the shard by the one of this set";

/// Compares the shards' keys with their names and with each other.
pub(super) fn check(file: &GgufFile, findings: &mut Findings) {
    let parts = file.parts();
    let remedy = split::remedy(file.missing());
    for path in file.missing() {
        findings.push("shards that are missing", || {
            let name = ShardName::parse(path).map_or(0, |n| n.no);
            let what = format!("shard {name} is missing: expected `{}`", path.display());
            Finding::severe("set", None, what, remedy)
        });
    }
    for e in file.unreadable() {
        findings.push("shards that cannot be read", || {
            let name = ShardName::parse(&e.file).map_or(0, |n| n.no);
            let what = format!("shard {name} cannot be read: {e}");
            Finding::severe("set", None, what, "download it again")
        });
    }
    check_types(file, findings);
    let is_set = parts.len() > 1 || !file.is_complete();
    for (i, part) in parts.iter().enumerate() {
        findings.set_part(i);
        let name = ShardName::parse(part.path());
        match name {
            Some(name) if is_set || part.split.is_shard() => check_shard(&name, part.split, findings),
            Some(name) if part.split.count.is_none() && name.count > 1 => {
                findings.push("files with a shard's name", || {
                    let what = format!(
                        "the name says shard {} of {}, but the file has no `{}`: a piece that was cut out of a \
                         larger file, or a whole model under a shard's name",
                        name.no,
                        name.count,
                        key::SPLIT_COUNT
                    );
                    Finding::unusual("file", None, what, "rename the file, if it is whole")
                });
            }
            _ => {}
        }
        let n_split = [part.split.no, part.split.count, part.split.tensors]
            .iter()
            .flatten()
            .count();
        if i > 0 && part.n_keys > n_split + 1 {
            findings.push("shards with metadata of their own", || {
                let what = format!(
                    "{} metadata keys besides those of the split: readers ignore them, only the first shard's count",
                    part.n_keys - n_split
                );
                Finding::unusual(
                    "metadata",
                    None,
                    what,
                    "nothing, unless the shard is of another set",
                )
            });
        }
    }
    findings.set_part(0);
    if is_set {
        check_counts(file, findings);
    }
}

/// llama.cpp reads these keys in one type only.
fn check_types(file: &GgufFile, findings: &mut Findings) {
    for key in key::SPLIT {
        if let (Some(value), Some(expected)) = (file.metadata.get(key), key::type_of_place(key))
            && value.value_type() != expected
        {
            let what = format!(
                "expected type {expected}, found {}: llama.cpp refuses the file",
                value.type_name()
            );
            findings.one(Finding::severe(
                Finding::key(key),
                None,
                what,
                "set the key again in that type",
            ));
        }
    }
}

/// One shard's keys against its name.
fn check_shard(name: &ShardName, split: SplitKeys, findings: &mut Findings) {
    let no = split.no.map(|no| no.saturating_add(1));
    if no != Some(u64::from(name.no)) {
        let found = no.map_or("nothing".to_owned(), |no| format!("shard {no}"));
        let what = format!(
            "the name says shard {}, the key says {found}: shards were swapped, doubled or renamed",
            name.no
        );
        findings.push("shards with another number than their name's", || {
            Finding::severe(Finding::key(key::SPLIT_NO), None, what, WRONG_NAME)
        });
    }
    if split.count != Some(u64::from(name.count)) {
        let found = split.count.map_or("nothing".to_owned(), |n| n.to_string());
        let what = format!("the name says {} shards, the key says {found}", name.count);
        findings.push("shards with another count than their name's", || {
            Finding::severe(Finding::key(key::SPLIT_COUNT), None, what, OTHER_SET)
        });
    }
}

/// The number of tensors that each shard claims against the set's.
fn check_counts(file: &GgufFile, findings: &mut Findings) {
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
        findings.push("shards with another count of tensors", || {
            Finding::severe(Finding::key(key::SPLIT_TENSORS), None, what, OTHER_SET).of_part(i)
        });
    }
}

fn text(n: Option<u64>) -> String {
    n.map_or("nothing".to_owned(), |n| n.to_string())
}

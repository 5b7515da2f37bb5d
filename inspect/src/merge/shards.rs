//! Which files a command line means.

use std::path::{Path, PathBuf};

use gguf::split::{ShardName, SplitKeys};
use gguf::{GgufFile, OpenOptions, source};
use gguf_cli::{Failure, Result};

use super::{same_set, warn_of_oddities};

/// The inputs and the output: the last path is the output, unless another one is named. A single path is both unknown.
pub(super) fn take_apart<'a>(
    paths: &'a [PathBuf],
    output: Option<&'a Path>,
) -> (&'a [PathBuf], Option<&'a Path>) {
    match (paths, output) {
        (paths, Some(out)) => (paths, Some(out)),
        ([inputs @ .., out], None) => (inputs, Some(out)),
        ([], None) => (paths, None),
    }
}

/// Where a shell put shards in the place of the output, the last one is taken for it.
pub(super) fn refuse_shard_as_output(out: &Path, inputs: &[PathBuf]) -> Result<()> {
    let listed = inputs.iter().any(|input| is_same(input, out));
    if ShardName::parse(out).is_none() && !listed {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "the output `{}` is itself a shard: nothing was written; name the merged file behind the shards, or with `-o`",
        out.display()
    )))
}

fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Opens the set that the shards are of.
pub(super) fn open(inputs: &[PathBuf]) -> Result<GgufFile> {
    for (i, input) in inputs.iter().enumerate() {
        if let Some(twice) = inputs[..i].iter().find(|other| is_same(input, other)) {
            return Err(Failure::Usage(format!("`{}` is named twice", twice.display())));
        }
    }
    let set = match inputs {
        [one] => GgufFile::open(one)?,
        several => {
            let names: Option<Vec<ShardName>> = several.iter().map(|path| ShardName::parse(path)).collect();
            match names {
                Some(names) => open_named(several, &names)?,
                None => open_renamed(several)?,
            }
        }
    };
    set.require_sound()?;
    if set.first().split.count.is_none() {
        return Err(Failure::Input(format!(
            "`{}` is a whole model, no shard: there is nothing to merge",
            set.path().display()
        )));
    }
    warn_of_oddities(&set);
    Ok(set)
}

/// Shards under the usual names: those of the set that are not listed belong to it too.
fn open_named(paths: &[PathBuf], names: &[ShardName]) -> Result<GgufFile> {
    let strays: Vec<&PathBuf> = paths
        .iter()
        .zip(names)
        .filter(|(_, name)| !same_set(&names[0], name))
        .map(|(path, _)| path)
        .collect();
    if !strays.is_empty() {
        return Err(not_of(&paths[0], &strays));
    }
    Ok(GgufFile::open(&paths[0])?)
}

fn not_of(first: &Path, strays: &[&PathBuf]) -> Failure {
    let list: Vec<String> = strays.iter().map(|p| format!("`{}`", p.display())).collect();
    Failure::Input(format!(
        "not of the set of `{}`: {}; name the shards of one set",
        first.display(),
        list.join(", ")
    ))
}

/// Shards under any names: their keys say which is which, and all must be there.
fn open_renamed(paths: &[PathBuf]) -> Result<GgufFile> {
    let mut shards = Vec::new();
    for path in paths {
        let keys = OpenOptions::new().alone().outline(path, 0)?.file().first().split;
        shards.push((keys, path));
    }
    let first = shards[0].0;
    let of_set = |keys: &SplitKeys| keys.no.is_some() && keys.count.is_some() && keys.count == first.count;
    let strays: Vec<&PathBuf> = shards
        .iter()
        .filter(|(k, _)| !of_set(k))
        .map(|&(_, path)| path)
        .collect();
    if !strays.is_empty() {
        return Err(not_of(&paths[0], &strays));
    }
    shards.sort_by_key(|(keys, _)| keys.no);
    for two in shards.windows(2) {
        if two[0].0.no == two[1].0.no {
            return Err(Failure::Input(format!(
                "`{}` and `{}` are both shard {} of the set",
                two[0].1.display(),
                two[1].1.display(),
                two[0].0.no.map_or(0, |no| no.saturating_add(1))
            )));
        }
    }
    let found = shards.len() as u64;
    let complete =
        first.count == Some(found) && (0..).zip(&shards).all(|(no, (keys, _))| keys.no == Some(no));
    if !complete {
        return Err(Failure::Input(format!(
            "the set of `{}` has {} shards, {found} are named: name all of them",
            paths[0].display(),
            first.count.unwrap_or(0)
        )));
    }
    let sources: gguf::Result<Vec<_>> = shards.iter().map(|(_, path)| source::open(path)).collect();
    Ok(GgufFile::from_sources(sources?)?)
}

//! Writes shards and merged models.

use std::path::{Path, PathBuf};

use crate::atomic::{AtomicFile, Complete};
use crate::{GgufFile, Layout, Part, Result, copy};

use super::{Shard, ShardName};

/// The names and sizes of the shards for a prefix like `folder/model`.
pub fn outputs(shards: &[Shard], prefix: &Path) -> Vec<(PathBuf, u64)> {
    let count = u32::try_from(shards.len()).expect("at most MAX_SHARDS");
    let names = (1..=count).map(|no| ShardName::new(prefix, no, count).path(no));
    names.zip(shards.iter().map(|s| s.layout.total_bytes)).collect()
}

/// Writes the shards of a plan. All are written beside their names and renamed when the last is complete. `on` hears
/// of the bytes as they are written; an error of its own ends the work.
///
/// # Errors
/// An output that exists (unless `force`), is a symbolic link or one of the model's files, too little space for all,
/// tensors that are not inside their files.
pub fn write(
    file: &GgufFile,
    shards: &[Shard],
    prefix: &Path,
    force: bool,
    on: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Vec<PathBuf>> {
    let inputs: Vec<&Path> = file.parts().iter().map(Part::path).collect();
    let outputs = outputs(shards, prefix);
    AtomicFile::check_derived(&outputs, force, &inputs)?;
    let mut complete = Vec::with_capacity(shards.len());
    for (shard, (path, n_bytes)) in shards.iter().zip(&outputs) {
        let mut out = AtomicFile::create_derived(path, force, &inputs, Some(*n_bytes))?;
        copy::write(file, shard.first_tensor, &shard.layout, &mut out, on)?;
        let mut out = out.complete()?;
        if !complete.is_empty() {
            out.close();
        }
        complete.push(out);
    }
    let paths: Vec<PathBuf> = outputs.into_iter().map(|(path, _)| path).collect();
    publish(complete, &paths, force)?;
    Ok(paths)
}

/// Renames all, or none where nothing was replaced. The first comes last: its lock is held for all, and without it
/// nobody takes the others for a set.
fn publish(mut complete: Vec<Complete>, paths: &[PathBuf], force: bool) -> Result<()> {
    let n_first = complete.len().min(1);
    complete.rotate_left(n_first);
    let order = paths.iter().cycle().skip(1);
    let mut done: Vec<&PathBuf> = Vec::with_capacity(paths.len());
    for (one, path) in complete.into_iter().zip(order) {
        if let Err(e) = one.publish() {
            if !force {
                // These are the shards that were renamed a moment ago; what cannot be removed is whole all the same.
                for path in done {
                    drop(std::fs::remove_file(path));
                }
            }
            return Err(e);
        }
        done.push(path);
    }
    Ok(())
}

/// Writes a split set as one file, by [`super::merged`]. `on` hears of the bytes as they are written.
///
/// # Errors
/// As of [`write`].
pub fn merge(
    file: &GgufFile,
    layout: &Layout,
    path: &Path,
    force: bool,
    on: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let inputs: Vec<&Path> = file.parts().iter().map(Part::path).collect();
    let mut out = AtomicFile::create(path, force, &inputs, Some(layout.total_bytes))?;
    copy::write(file, 0, layout, &mut out, on)?;
    out.commit()
}

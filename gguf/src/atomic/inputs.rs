//! Which file of a run's inputs an output is, whatever name it goes by.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::split::{self, ShardName};

/// Ends of the names of files that the folder of a checkpoint has.
const CHECKPOINT: [&str; 11] = [
    "bin",
    "jinja",
    "json",
    "md",
    "model",
    "pt",
    "pth",
    "py",
    "safetensors",
    "tiktoken",
    "txt",
];

/// The file of the inputs that an output with this metadata is. An input stands for all files that are read where it is
/// named: a shard for its set, a folder for the model or the checkpoint in it.
pub(super) fn input_of(output: &Metadata, inputs: &[&Path]) -> Option<PathBuf> {
    let is_output = |path: &Path| {
        path.metadata()
            .is_ok_and(|m| (m.dev(), m.ino()) == (output.dev(), output.ino()))
    };
    let mut sets = HashSet::new();
    for &input in inputs {
        if is_output(input) {
            return Some(input.to_owned());
        }
        let is_folder = input.is_dir();
        if is_folder && let Some(file) = of_checkpoint(input).find(|file| is_output(file)) {
            return Some(file);
        }
        // Where both are there, the checkpoint is what is read: a conversion's output may lie beside it.
        if is_folder && input.join("config.json").is_file() {
            continue;
        }
        let Ok(file) = split::in_folder(input) else {
            continue;
        };
        if is_folder && is_output(&file) {
            return Some(file.into_owned());
        }
        let set = ShardName::parse(&file).filter(|set| sets.insert((set.prefix().to_owned(), set.count)));
        let shard = set.and_then(|set| {
            (1..=set.count)
                .map(|no| set.path(no))
                .find(|path| is_output(path))
        });
        if shard.is_some() {
            return shard;
        }
    }
    None
}

fn of_checkpoint(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    files.filter(|file| {
        let end = file.extension().and_then(|end| end.to_str());
        end.is_some_and(|end| CHECKPOINT.contains(&end.to_ascii_lowercase().as_str()))
    })
}

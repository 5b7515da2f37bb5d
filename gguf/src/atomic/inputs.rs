//! Which file of a run's inputs an output is, whatever name it goes by.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::split::{self, ShardName};

/// The file that makes a folder a checkpoint.
const CONFIG: &str = "config.json";
/// Other files of a checkpoint, by name. Its weights, vocabularies and templates are known by the end of theirs.
const NAMES: [&str; 11] = [
    "added_tokens.json",
    "chat_template.json",
    "generation_config.json",
    "merges.txt",
    "params.json",
    "special_tokens_map.json",
    "tekken.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
];
const ENDS: [&str; 5] = [".safetensors", ".index.json", ".model", ".jinja", ".tiktoken"];

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

/// Files of the checkpoint that a folder is, whether a run reads them or not; none of any other folder. What else lies
/// there, such as a conversion's output or a report, is none of them.
pub fn of_checkpoint(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let is_checkpoint = folder.join(CONFIG).is_file();
    let entries = is_checkpoint.then(|| std::fs::read_dir(folder).ok()).flatten();
    let files = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    files.filter(|file| {
        let name = file
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        name == CONFIG || NAMES.contains(&name) || ENDS.iter().any(|end| name.ends_with(end))
    })
}

//! Which files hold the weights.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Component, Path};

use super::SourceTensor;
use super::files::read_json_if_there;
use crate::Result;
use crate::error::{Error, shortened};

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// How many names a message lists.
const N_SHOWN: usize = 3;

/// The files to read and, with an index file, what they must hold.
#[derive(Debug)]
pub(super) struct Index {
    /// Names inside the folder, in the order in which they are visited.
    pub(super) files: Vec<String>,
    /// Tensor to file, if there is an index file.
    map: Option<BTreeMap<String, String>>,
    /// What the user should know.
    pub(super) notes: Vec<String>,
}

#[derive(serde::Deserialize)]
#[serde(expecting = "an object with a `weight_map`")]
struct IndexFile {
    weight_map: BTreeMap<String, String>,
}

impl Index {
    /// The index file's list, else `model.safetensors`, else every `model*.safetensors`.
    pub(super) fn of(dir: &Path) -> Result<Self> {
        let map = read_json_if_there::<IndexFile>(&dir.join(INDEX))?.map(|f| f.weight_map);
        let there = weight_files(dir)?;
        let files: Vec<String> = match &map {
            Some(map) => map
                .values()
                .cloned()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            None if there.contains(SINGLE) => vec![SINGLE.to_owned()],
            None => there.iter().filter(|n| n.starts_with("model")).cloned().collect(),
        };
        check_names(dir, &files)?;
        check_presence(dir, &files, map.is_some())?;
        let rest: Vec<_> = there.into_iter().filter(|n| !files.contains(n)).collect();
        let notes = match rest.as_slice() {
            [] => Vec::new(),
            rest => vec![format!(
                "left out, as they are not part of the model: {}",
                rest.join(", ")
            )],
        };
        Ok(Self { files, map, notes })
    }

    /// Compares what the files hold with the index file, and looks for tensors that are there twice.
    pub(super) fn compare(&self, tensors: &[SourceTensor]) -> Result<()> {
        let mut seen = HashSet::new();
        for tensor in tensors {
            let file = &self.files[tensor.file];
            let listed = self.map.as_ref().map(|map| map.get(&tensor.name));
            match listed {
                Some(None) => {
                    let object = format!("tensor `{}` in `{file}`", tensor.name);
                    return Err(Error::mismatch(object, format!("an entry in `{INDEX}`"), "none"));
                }
                Some(Some(other)) if other != file => {
                    let object = format!("tensor `{}`", tensor.name);
                    return Err(Error::mismatch(
                        object,
                        format!("only in `{other}`"),
                        format!("also in `{file}`"),
                    ));
                }
                _ => {}
            }
            if !seen.insert(tensor.name.as_str()) {
                let first = tensors
                    .iter()
                    .find(|t| t.name == tensor.name)
                    .map_or(tensor.file, |t| t.file);
                let object = format!("tensor `{}`", tensor.name);
                let found = format!("it in `{}` and in `{file}`", self.files[first]);
                return Err(Error::mismatch(object, "one copy", found));
            }
        }
        let absent = |(name, file): (&String, &String)| {
            (!seen.contains(name.as_str())).then(|| format!("`{name}` in `{file}`"))
        };
        let missing: Vec<_> = self.map.iter().flatten().filter_map(absent).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::mismatch(
            format!("tensors of `{INDEX}`"),
            shortened(&missing, N_SHOWN, ", "),
            "none",
        ))
    }
}

/// Files of the folder that hold weights, by the names that checkpoints give them.
fn weight_files(dir: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(dir).map_err(|e| Error::io("read", dir, e))? {
        let entry = entry.map_err(|e| Error::io("read", dir, e))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let ending = Path::new(&name)
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or_default();
        let starts = ["model", "consolidated", "pytorch_model"]
            .iter()
            .any(|s| name.starts_with(s));
        if starts && matches!(ending, "safetensors" | "bin") {
            names.insert(name);
        }
    }
    Ok(names)
}

/// A file name of the index must stay inside the folder.
fn check_names(dir: &Path, files: &[String]) -> Result<()> {
    for name in files {
        let mut parts = Path::new(name).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            let object = format!("file name in `{}`", dir.join(INDEX).display());
            return Err(Error::mismatch(
                object,
                "a name without folders",
                format!("`{name}`"),
            ));
        }
    }
    Ok(())
}

fn check_presence(dir: &Path, files: &[String], indexed: bool) -> Result<()> {
    if files.is_empty() && indexed {
        return Err(Error::mismatch(
            format!("`{}`", dir.join(INDEX).display()),
            "tensors",
            "none",
        ));
    }
    if files.is_empty() {
        let why = format!("the folder has neither `{INDEX}` nor `{SINGLE}`");
        return Err(Error::io("convert", dir, why));
    }
    for name in files {
        let path = dir.join(name);
        if path.metadata().is_ok_and(|meta| !meta.is_file()) {
            return Err(Error::io("read", &path, "it is not a regular file"));
        }
    }
    let mut missing: Vec<_> = files
        .iter()
        .filter(|n| !dir.join(n).exists())
        .map(|n| format!("`{n}`"))
        .collect();
    if !indexed {
        missing.extend(missing_shards(files));
    }
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!("missing: {}", shortened(&missing, N_SHOWN, ", "));
    Err(Error::io("read all weights of", dir, what))
}

/// Without an index file, the files' own names tell how many there are: `model-00001-of-00003.safetensors`.
fn missing_shards(files: &[String]) -> Vec<String> {
    let count = files.iter().find_map(|name| {
        let (_, count) = name.strip_suffix(".safetensors")?.rsplit_once("-of-")?;
        count.parse::<usize>().ok()
    });
    match count {
        Some(count) if count != files.len() => {
            vec![format!(
                "{} of {}",
                count.abs_diff(files.len()),
                gguf_cli::count(count as u64, "file")
            )]
        }
        _ => Vec::new(),
    }
}

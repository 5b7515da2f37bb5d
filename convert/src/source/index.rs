//! Which files hold the weights.

use std::collections::hash_map::{Entry as Slot, HashMap};
use std::collections::{BTreeSet, HashSet};
use std::path::{Component, Path};

use super::files::read_json_if_there;
use super::safetensors::Entry;
use crate::Result;
use crate::error::{Error, shortened};
use crate::view::Files;

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
    map: Option<HashMap<String, usize>>,
    /// What the user should know.
    pub(super) notes: Vec<String>,
}

#[derive(serde::Deserialize)]
#[serde(expecting = "an object with a `weight_map`")]
struct IndexFile {
    weight_map: HashMap<String, String>,
}

impl Index {
    /// The index file's list, else `model.safetensors`, else every `model*.safetensors`, else those of Mistral's form.
    pub(super) fn of(dir: &Path) -> Result<Self> {
        let map = read_json_if_there::<IndexFile>(&dir.join(INDEX))?.map(|f| f.weight_map);
        let there = weight_files(dir)?;
        let starting = |with: &str| {
            let fits = |n: &&String| n.starts_with(with) && n.ends_with(".safetensors");
            there.iter().filter(fits).cloned().collect::<Vec<_>>()
        };
        let files: Vec<String> = match &map {
            Some(map) => {
                let names: BTreeSet<_> = map.values().collect();
                names.into_iter().cloned().collect()
            }
            None if there.contains(SINGLE) => vec![SINGLE.to_owned()],
            None => ["model", "consolidated"]
                .into_iter()
                .map(starting)
                .find(|files| !files.is_empty())
                .unwrap_or_default(),
        };
        check_names(dir, &files)?;
        check_presence(dir, &files, &there, map.is_some())?;
        let rest: Vec<_> = there
            .into_iter()
            .filter(|n| !files.contains(n))
            .map(|n| format!("`{n}`"))
            .collect();
        let notes = match rest.as_slice() {
            [] => Vec::new(),
            rest => {
                let shown = shortened(rest, N_SHOWN, ", ");
                vec![format!("left out, as they are not part of the model: {shown}")]
            }
        };
        let places: HashMap<&str, usize> = files.iter().enumerate().map(|(i, n)| (n.as_str(), i)).collect();
        let map = map.map(|map| {
            let place = |file: String| places.get(file.as_str()).copied().unwrap_or(usize::MAX);
            map.into_iter().map(|(name, file)| (name, place(file))).collect()
        });
        Ok(Self { files, map, notes })
    }

    /// Compares what the files hold with the index file. Of tensors that are there twice with the same bytes one is
    /// kept: that in the file that the index names, else the first.
    pub(super) fn compare(&self, entries: Vec<Entry>, files: &Files) -> Result<Vec<Entry>> {
        let mut kept: HashMap<&str, usize> = HashMap::with_capacity(entries.len());
        for (i, entry) in entries.iter().enumerate() {
            let listed = self.map.as_ref().map(|map| map.get(&entry.name));
            if listed == Some(None) {
                let object = format!("tensor `{}` in `{}`", entry.name, self.files[entry.data.file]);
                return Err(Error::mismatch(object, format!("an entry in `{INDEX}`"), "none"));
            }
            match kept.entry(&entry.name) {
                Slot::Vacant(slot) => drop(slot.insert(i)),
                Slot::Occupied(mut slot) => {
                    self.check_copies(&entries[*slot.get()], entry, files)?;
                    if listed.flatten() == Some(&entry.data.file) {
                        slot.insert(i);
                    }
                }
            }
        }
        if let Some(map) = &self.map {
            self.check_places(map, &kept, &entries)?;
        }
        if kept.len() == entries.len() {
            return Ok(entries);
        }
        let kept: HashSet<usize> = kept.into_values().collect();
        let entries = entries.into_iter().enumerate();
        Ok(entries
            .filter(|(i, _)| kept.contains(i))
            .map(|(_, e)| e)
            .collect())
    }

    /// Every tensor of the index must be in the file that the index names.
    fn check_places(
        &self,
        map: &HashMap<String, usize>,
        kept: &HashMap<&str, usize>,
        entries: &[Entry],
    ) -> Result<()> {
        let (mut missing, mut elsewhere) = (Vec::new(), Vec::new());
        for (name, &file) in map {
            match kept.get(name.as_str()).map(|&i| entries[i].data.file) {
                Some(found) if found == file => {}
                Some(found) => elsewhere.push((name, file, found)),
                None => missing.push(format!("`{name}` in `{}`", self.files[file])),
            }
        }
        // The first by name, as the map has no order.
        if let Some((name, file, found)) = elsewhere.into_iter().min() {
            return Err(Error::mismatch(
                format!("tensor `{name}`"),
                format!("it in `{}`, as `{INDEX}` says", self.files[file]),
                format!("it in `{}`", self.files[found]),
            ));
        }
        if missing.is_empty() {
            return Ok(());
        }
        missing.sort_unstable();
        Err(Error::mismatch(
            format!("tensors of `{INDEX}`"),
            shortened(&missing, N_SHOWN, ", "),
            "none",
        ))
    }

    /// Two tensors of one name must be the same.
    fn check_copies(&self, a: &Entry, b: &Entry, files: &Files) -> Result<()> {
        let object = format!("tensor `{}`", a.name);
        let [in_a, in_b] = [a, b].map(|e| &self.files[e.data.file]);
        if a.data.file == b.data.file {
            let found = format!("two in the header of `{in_a}`");
            return Err(Error::mismatch(object, "one copy", found));
        }
        let forms = [a, b].map(|e| format!("{} of shape {:?}", e.data.dtype.name, e.shape));
        if forms[0] != forms[1] {
            let found = format!("{} in `{in_a}` and {} in `{in_b}`", forms[0], forms[1]);
            return Err(Error::mismatch(object, "one copy", found));
        }
        if same_bytes(a, b, files)? {
            return Ok(());
        }
        let found = format!("other values in `{in_a}` than in `{in_b}`");
        Err(Error::mismatch(object, "copies with the same bytes", found))
    }
}

/// Whether two tensors of one format and shape have the same bytes.
fn same_bytes(a: &Entry, b: &Entry, files: &Files) -> Result<bool> {
    const STEP: u64 = 1 << 20;
    let n_bytes = a.n_bytes();
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for at in (0..n_bytes).step_by(STEP as usize) {
        for (entry, bytes) in [(a, &mut of_a), (b, &mut of_b)] {
            bytes.resize((n_bytes - at).min(STEP) as usize, 0);
            files[entry.data.file].read_at(entry.data.at + at, bytes)?;
        }
        if of_a != of_b {
            return Ok(false);
        }
    }
    Ok(true)
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
        let starts = ["consolidated", "pytorch_model"]
            .iter()
            .any(|s| name.starts_with(s));
        if ending == "safetensors" || starts && matches!(ending, "bin" | "pth") {
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

fn check_presence(dir: &Path, files: &[String], there: &BTreeSet<String>, indexed: bool) -> Result<()> {
    if files.is_empty() && indexed {
        return Err(Error::mismatch(
            format!("`{}`", dir.join(INDEX).display()),
            "tensors",
            "none",
        ));
    }
    if let (true, Some(name)) = (
        files.is_empty(),
        there.iter().find(|n| !n.ends_with(".safetensors")),
    ) {
        let hint = "save the checkpoint as safetensors, as `save_pretrained` of transformers does";
        return Err(Error::unsupported(format!("weights in `{name}`"), hint));
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

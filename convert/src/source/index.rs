//! Which files hold the weights.

use std::borrow::Cow;
use std::collections::hash_map::{Entry as Slot, HashMap};
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::path::{Component, Path};

use gguf::listed;
use serde::de::{MapAccess, Visitor};

use super::files::read_json_if_there;
use super::safetensors::Entry;
use crate::Result;
use crate::error::Error;
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
    /// Tensors and the files that they are in, if there is an index file.
    map: Option<Vec<(String, usize)>>,
    /// What the user should know.
    pub(super) notes: Vec<String>,
}

#[derive(serde::Deserialize)]
#[serde(expecting = "an object with a `weight_map`")]
struct IndexFile {
    weight_map: WeightMap,
}

/// Names of tensors, each with a place in the list of files.
#[derive(Default)]
struct WeightMap {
    tensors: Vec<(String, usize)>,
    /// In alphabetical order.
    files: Vec<String>,
}

impl<'de> serde::Deserialize<'de> for WeightMap {
    fn deserialize<D: serde::Deserializer<'de>>(json: D) -> std::result::Result<Self, D::Error> {
        json.deserialize_map(MapVisitor)
    }
}

struct MapVisitor;

impl<'de> Visitor<'de> for MapVisitor {
    type Value = WeightMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of file names by tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut json: A) -> std::result::Result<WeightMap, A::Error> {
        let mut tensors = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        while let Some((name, file)) = json.next_entry::<String, Cow<'_, str>>()? {
            let n = places.len();
            let place = match places.get(&*file) {
                Some(place) => *place,
                None => *places.entry(file.into_owned()).or_insert(n),
            };
            tensors.push((name, place));
        }
        let mut files: Vec<_> = places.into_iter().collect();
        files.sort_unstable();
        let mut sorted = vec![0; files.len()];
        for (to, (_, from)) in files.iter().enumerate() {
            sorted[*from] = to;
        }
        for (_, place) in &mut tensors {
            *place = sorted[*place];
        }
        let files = files.into_iter().map(|(name, _)| name).collect();
        Ok(WeightMap { tensors, files })
    }
}

/// The tensors that are there.
pub(super) struct Found<'a> {
    /// Names with places in the list of entries.
    pub(super) by_name: HashMap<&'a str, usize>,
    /// Which entries are copies of others.
    pub(super) copies: Vec<bool>,
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
            Some(map) => map.files.clone(),
            None if there.contains(SINGLE) => vec![SINGLE.to_owned()],
            None => ["model", "consolidated"]
                .into_iter()
                .map(starting)
                .find(|files| !files.is_empty())
                .unwrap_or_default(),
        };
        check_names(dir, &files)?;
        check_presence(dir, &files, &there, map.is_some())?;
        let read: HashSet<&String> = files.iter().collect();
        let rest: Vec<_> = there
            .iter()
            .filter(|n| !read.contains(n))
            .map(|n| format!("`{n}`"))
            .collect();
        let notes = match rest.as_slice() {
            [] => Vec::new(),
            rest => {
                let shown = listed(rest, N_SHOWN, ", ");
                vec![format!("left out, as they are not part of the model: {shown}")]
            }
        };
        let map = map.map(|map| map.tensors);
        Ok(Self { files, map, notes })
    }

    /// Compares what the files hold with the index file. Of tensors that are there twice with the same bytes one is
    /// kept: that in the file that the index names, else the first.
    pub(super) fn compare<'a>(&self, entries: &'a [Entry], files: &Files) -> Result<Found<'a>> {
        let mut by_name: HashMap<&str, usize> = HashMap::with_capacity(entries.len());
        let mut twice = Vec::new();
        for (i, entry) in entries.iter().enumerate() {
            match by_name.entry(&entry.name) {
                Slot::Vacant(slot) => drop(slot.insert(i)),
                Slot::Occupied(slot) => twice.push((*slot.get(), i)),
            }
        }
        let mut listed = self.files_of(&by_name, entries.len())?;
        let mut copies = vec![false; entries.len()];
        for (first, i) in twice {
            let name = entries[i].name.as_str();
            self.check_copies(&entries[first], &entries[i], files)?;
            // The index may name the file of a later copy.
            let is_listed = listed[first] == Some(entries[i].data.file);
            let kept = by_name.get_mut(name).filter(|_| is_listed);
            copies[kept.map_or(i, |kept| std::mem::replace(kept, i))] = true;
            listed[i] = listed[first];
        }
        if self.map.is_some() {
            for (i, entry) in entries.iter().enumerate().filter(|(i, _)| !copies[*i]) {
                self.check_place(entry, listed[i])?;
            }
        }
        Ok(Found { by_name, copies })
    }

    /// The file that the index names for each entry that is the first of its name.
    fn files_of(&self, by_name: &HashMap<&str, usize>, n: usize) -> Result<Vec<Option<usize>>> {
        let mut files = vec![None; n];
        let mut missing = Vec::new();
        for (name, file) in self.map.iter().flatten() {
            match by_name.get(name.as_str()) {
                Some(&i) => files[i] = Some(*file),
                None => missing.push(format!("`{name}` in `{}`", self.files[*file])),
            }
        }
        if missing.is_empty() {
            return Ok(files);
        }
        Err(Error::mismatch(
            format!("tensors of `{INDEX}`"),
            listed(&missing, N_SHOWN, ", "),
            "none",
        ))
    }

    /// A tensor must be in the file that the index names.
    fn check_place(&self, entry: &Entry, listed: Option<usize>) -> Result<()> {
        let (name, file) = (&entry.name, &self.files[entry.data.file]);
        match listed {
            Some(listed) if listed == entry.data.file => Ok(()),
            Some(listed) => Err(Error::mismatch(
                format!("tensor `{name}`"),
                format!("it in `{}`, as `{INDEX}` says", self.files[listed]),
                format!("it in `{file}`"),
            )),
            None => {
                let object = format!("tensor `{name}` in `{file}`");
                Err(Error::mismatch(object, format!("an entry in `{INDEX}`"), "none"))
            }
        }
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
    let folder = format!("`{}`", dir.display());
    let expected = "all files with weights (download those that are missing)";
    let found = format!("some missing: {}", listed(&missing, N_SHOWN, ", "));
    Err(Error::mismatch(folder, expected, found))
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

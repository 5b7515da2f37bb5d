//! Compares a model's digests with a manifest.

use std::collections::{HashMap, HashSet, VecDeque};

use gguf::GgufFile;
use gguf_cli::{Failure, Result, count, print_json, printable, write_report};
use serde::Serialize;

use super::digest::Digests;
use super::manifest::{Manifest, base_name};

/// Something that is not as the manifest says.
#[derive(Debug, Serialize)]
struct Difference {
    /// ``tensor `NAME` ``, ``key `NAME` `` or ``file `NAME` ``.
    object: String,
    what: String,
    /// The file of the model that it explains; `None` where it may be any.
    #[serde(skip)]
    part: Option<usize>,
}

/// How many of one kind are as the manifest says.
#[derive(Debug, Default, Serialize)]
struct Count {
    equal: usize,
    compared: usize,
}

#[derive(Debug, Serialize)]
struct Report {
    equal: bool,
    files: Count,
    metadata: Count,
    tensors: Count,
    differences: Vec<Difference>,
}

pub(super) fn run(file: &GgufFile, digests: &Digests, expected: &Manifest, json: bool) -> Result<()> {
    let path = file.path().display();
    let report = compare(file, digests, expected);
    if report.files.compared + report.metadata.compared + report.tensors.compared == 0 {
        return Err(Failure::Input(format!(
            "the manifest says nothing about `{path}`: expected a file, key or tensor of the same name"
        )));
    }
    if json {
        print_json(&report)?;
    } else {
        write_report(|out| {
            for d in &report.differences {
                writeln!(out, "{}: {}", printable(&d.object), printable(&d.what))?;
            }
            let of = |c: &Count, one: &str| format!("{} of {}", c.equal, count(c.compared as u64, one));
            writeln!(
                out,
                "as the manifest says: {}, {}, {}",
                of(&report.files, "file"),
                of(&report.metadata, "metadata key"),
                of(&report.tensors, "tensor")
            )
        })?;
    }
    match report.differences.as_slice() {
        [] => Ok(()),
        [first, ..] => Err(Failure::Input(format!(
            "`{path}` is not what the manifest says: {}, the first in {}",
            count(report.differences.len() as u64, "difference"),
            first.object
        ))),
    }
}

fn compare(file: &GgufFile, digests: &Digests, expected: &Manifest) -> Report {
    let mut differences = Vec::new();
    let metadata = compare_metadata(file, digests, expected, &mut differences);
    let tensors = compare_tensors(file, digests, expected, &mut differences);
    let files = compare_files(file, digests, expected, &mut differences);
    Report {
        equal: differences.is_empty(),
        files,
        metadata,
        tensors,
        differences,
    }
}

fn compare_metadata(
    file: &GgufFile,
    digests: &Digests,
    expected: &Manifest,
    out: &mut Vec<Difference>,
) -> Count {
    if expected.metadata.is_empty() {
        return Count::default();
    }
    let found = Manifest::of(file, digests).metadata;
    let mut found: HashMap<&str, _> = found.iter().map(|p| (p.key.as_str(), p)).collect();
    let mut count = Count::default();
    for pair in &expected.metadata {
        count.compared += 1;
        let what = match found.remove(pair.key.as_str()) {
            Some(f) if f.sha256 == pair.sha256 => {
                count.equal += 1;
                continue;
            }
            Some(f) if f.type_name != pair.type_name => {
                format!("expected type {}, found {}", pair.type_name, f.type_name)
            }
            Some(_) => "the value differs".to_owned(),
            None => "missing".to_owned(),
        };
        out.push(Difference {
            object: format!("key `{}`", pair.key),
            what,
            part: Some(0),
        });
    }
    let new = file.metadata.iter().filter(|(k, _)| found.contains_key(k));
    out.extend(new.map(|(key, _)| Difference {
        object: format!("key `{key}`"),
        what: "not in the manifest".to_owned(),
        part: Some(0),
    }));
    count
}

fn compare_tensors(
    file: &GgufFile,
    digests: &Digests,
    expected: &Manifest,
    out: &mut Vec<Difference>,
) -> Count {
    if expected.tensors.is_empty() {
        return Count::default();
    }
    // Of tensors with the same name, which only a faulty file has, each meets its own line.
    let mut found: HashMap<&str, VecDeque<usize>> = HashMap::with_capacity(file.tensors.len());
    for (i, tensor) in file.tensors.iter().enumerate() {
        found.entry(&tensor.name).or_default().push_back(i);
    }
    let mut count = Count::default();
    for line in &expected.tensors {
        count.compared += 1;
        let i = found.get_mut(line.name.as_str()).and_then(VecDeque::pop_front);
        let what = match i {
            None => "missing".to_owned(),
            Some(i) => {
                let tensor = &file.tensors[i];
                let (type_name, shape) = (tensor.type_name(), tensor.shape.to_string());
                if (&type_name, &shape) != (&line.type_name, &line.shape) {
                    format!(
                        "expected {} {}, found {type_name} {shape}",
                        line.type_name, line.shape
                    )
                } else if digests.tensors[i].is_none() {
                    "its bytes run beyond the end of the file or into another tensor".to_owned()
                } else if digests.tensors[i] != Some(line.sha256) {
                    let at = file.tensor_range(tensor).start;
                    let name = base_name(file.part(tensor).path());
                    format!(
                        "the data differs ({} bytes from byte {at} of `{name}`)",
                        tensor.n_bytes
                    )
                } else {
                    count.equal += 1;
                    continue;
                }
            }
        };
        out.push(Difference {
            object: format!("tensor `{}`", line.name),
            what,
            part: i.map(|i| file.tensors[i].part),
        });
    }
    let mut new: Vec<usize> = found.into_values().flatten().collect();
    new.sort_unstable();
    out.extend(new.into_iter().map(|i| Difference {
        object: format!("tensor `{}`", file.tensors[i].name),
        what: "not in the manifest".to_owned(),
        part: Some(file.tensors[i].part),
    }));
    count
}

/// Compares the files whose names the manifest has: a model that was split or merged since has others.
fn compare_files(
    file: &GgufFile,
    digests: &Digests,
    expected: &Manifest,
    out: &mut Vec<Difference>,
) -> Count {
    let mut count = Count::default();
    let explained: HashSet<Option<usize>> = out.iter().map(|d| d.part).collect();
    let listed: HashMap<&str, _> = expected
        .files
        .iter()
        .map(|f| (f.name.as_str(), f.sha256))
        .collect();
    for (i, (part, &sha)) in file
        .parts()
        .iter()
        .zip(digests.files.iter().flatten())
        .enumerate()
    {
        let name = base_name(part.path());
        let Some(&wanted) = listed.get(&*name) else {
            continue;
        };
        count.compared += 1;
        if wanted == sha {
            count.equal += 1;
        } else if ![None, Some(i)].iter().any(|part| explained.contains(part)) {
            let what = if expected.tensors.is_empty() {
                "the digest differs"
            } else {
                "bytes outside of tensors and metadata values differ: padding, order, or what follows the last tensor"
            };
            out.push(Difference {
                object: format!("file `{name}`"),
                what: what.to_owned(),
                part: Some(i),
            });
        }
    }
    count
}

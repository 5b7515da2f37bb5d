//! GGUF files, alone and in split sets.

mod edits;
mod same;

use std::path::{Path, PathBuf};

use gguf::split::{self, Limits, ShardName};
use gguf::{GgufFile, Layout, OpenOptions, TensorSpec, Writer, source, validate};

use super::folder::put;
use same::{same_metadata, same_outline, same_tensors};

/// Parses any bytes, whole and as an outline. What is sound must survive being edited, being written and parsed again, and
/// being split and merged.
pub(super) fn container(data: &[u8]) {
    let file = parse(data.to_vec());
    outline(data, file.as_ref().ok());
    let Ok(file) = file else {
        return;
    };
    validate::layout(&file);
    validate::metadata(&file);
    for tensor in &file.tensors {
        let bytes = file.tensor_bytes(tensor);
        assert!(bytes.is_err() || bytes.is_ok_and(|b| b.len() as u64 == tensor.n_bytes));
    }
    if file.require_sound().is_err() {
        return;
    }
    edits::edit(&file, data);
    let written = write(&file, &plan(&file));
    let again = parse(written.clone()).expect("what was written can be read");
    again.require_sound().expect("what was written is sound");
    same_metadata(&file.metadata, &again.metadata, &[]);
    same_tensors(&file, &again);
    assert_eq!(
        write(&again, &plan(&again)),
        written,
        "writing again changes nothing"
    );
    split_and_merge(&again);
}

/// An outline has what the whole file has, but for the ends of arrays.
fn outline(data: &[u8], file: Option<&GgufFile>) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("fuzz.gguf");
    put(&path, data);
    // Elements that are kept.
    let keep = data.len() % 5;
    let outline = OpenOptions::new().alone().outline(&path, keep);
    if let Some(file) = file {
        same_outline(
            file,
            &outline.expect("a file that can be read has an outline"),
            keep,
        );
    }
}

/// Parses any bytes as the shards of a set: each begins where the magic number stands. What is sound must survive being
/// merged and split again.
pub(super) fn split_set(data: &[u8]) {
    let shards = shards(data);
    let name = ShardName::new(Path::new("fuzz"), 1, shards.len() as u32);
    let sources = (1..)
        .zip(&shards)
        .map(|(no, bytes)| source::bytes(name.path(no), bytes.to_vec()));
    let set = GgufFile::from_sources(sources.collect());
    by_names(&shards, set.as_ref().ok());
    let Ok(set) = set else {
        return;
    };
    validate::layout(&set);
    validate::metadata(&set);
    if set.require_sound().is_err() {
        return;
    }
    for tensor in &set.tensors {
        let bytes = set.tensor_bytes(tensor).expect("the set is sound");
        assert_eq!(bytes.len() as u64, tensor.n_bytes);
    }
    let Ok(merged) = split::merged(&set) else {
        return;
    };
    let whole = parse(write(&set, &merged)).expect("what was merged can be read");
    whole.require_sound().expect("what was merged is sound");
    same_metadata(&set.metadata, &whole.metadata, &gguf::key::SPLIT);
    same_tensors(&set, &whole);
    split_and_merge(&whole);
}

/// Opens the shards by their names: all of them from the last one, and what is there where the first is missing. `set` are
/// the same shards, given one by one.
fn by_names(shards: &[&[u8]], set: Option<&GgufFile>) {
    let dir = tempfile::tempdir().expect("a folder");
    let count = shards.len() as u32;
    let name = ShardName::new(&dir.path().join("fuzz"), 1, count);
    for (no, bytes) in (1..).zip(shards) {
        put(&name.path(no), bytes);
    }
    let last = name.path(count);
    let whole = |file: &GgufFile| file.parts().len() == shards.len();
    if let Ok(opened) = GgufFile::open(&last)
        && whole(&opened)
    {
        let set = set.expect("each shard was read");
        assert_eq!(validate::layout(&opened).len(), validate::layout(set).len());
        same_metadata(&set.metadata, &opened.metadata, &[]);
        assert_eq!(set.tensors, opened.tensors);
    }
    if count > 1 {
        std::fs::remove_file(name.path(1)).expect("it was written");
        if let Ok(opened) = OpenOptions::new().incomplete().open(&last) {
            let findings = validate::layout(&opened);
            assert!(opened.is_complete() || !findings.is_empty());
        }
    }
}

/// The bytes from each magic number up to the next.
fn shards(data: &[u8]) -> Vec<&[u8]> {
    /// More only cost time.
    const MOST: usize = 8;
    let starts = data.windows(4).enumerate().filter(|(_, w)| w == b"GGUF");
    let mut ends: Vec<usize> = starts.map(|(at, _)| at).filter(|&at| at > 0).take(MOST).collect();
    ends.push(data.len());
    let mut from = 0;
    let cut = ends
        .into_iter()
        .map(|to| &data[std::mem::replace(&mut from, to)..to]);
    cut.collect()
}

pub(super) fn parse(data: Vec<u8>) -> gguf::Result<GgufFile> {
    GgufFile::from_source(source::bytes(PathBuf::from("fuzz.gguf"), data))
}

fn plan(file: &GgufFile) -> Layout {
    let specs = file.tensors.iter().map(TensorSpec::from).collect();
    Layout::plan(&file.metadata, specs).expect("a sound file can be written")
}

fn write(file: &GgufFile, layout: &Layout) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), layout).expect("memory takes all");
    for tensor in &file.tensors {
        let bytes = file.tensor_bytes(tensor).expect("the file is sound");
        writer.write(&bytes).expect("as many bytes as planned");
    }
    writer.finish().expect("all tensors are written")
}

/// Splits into shards of two tensors and merges them.
fn split_and_merge(file: &GgufFile) {
    // As we would write it: shards keep texts that are not UTF-8 as they stand, the metadata has them repaired.
    let file = &parse(write(file, &plan(file))).expect("what was written can be read");
    let Ok(shards) = split::plan(file, Limits::Tensors(2), false) else {
        return;
    };
    let name = ShardName::new(Path::new("shard"), 1, shards.len() as u32);
    let sources = (1..).zip(&shards).map(|(no, shard)| {
        let mut writer = Writer::new(Vec::new(), &shard.layout).expect("memory takes all");
        let tensors = &file.tensors[shard.first_tensor..][..shard.layout.tensors.len()];
        for tensor in tensors {
            let bytes = file.tensor_bytes(tensor).expect("the file is sound");
            writer.write(&bytes).expect("as many bytes as planned");
        }
        source::bytes(name.path(no), writer.finish().expect("all tensors are written"))
    });
    let set = GgufFile::from_sources(sources.collect()).expect("shards can be read");
    set.require_sound()
        .expect("shards are those that their names say");
    same_metadata(&file.metadata, &set.metadata, &gguf::key::SPLIT);
    same_tensors(file, &set);
    let merged = split::merged(&set).expect("a sound set can be merged");
    let mut whole = file.metadata.clone();
    for key in gguf::key::SPLIT {
        whole.remove(key);
    }
    let specs = file.tensors.iter().map(TensorSpec::from).collect();
    let expected = Layout::plan(&whole, specs).expect("a sound file can be written");
    assert_eq!(merged.head, expected.head, "a merge gives the head back");
}

//! GGUF files, alone and in split sets.

use std::path::PathBuf;

use gguf::split::{self, Limits};
use gguf::{GgufFile, Layout, TensorSpec, Writer, source, validate};

/// Parses any bytes. What is sound must survive being written and parsed again, and being split and merged.
pub(super) fn container(data: &[u8]) {
    let Ok(file) = parse(data.to_vec()) else {
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
    let written = write(&file, &plan(&file));
    let again = parse(written.clone()).expect("what was written can be read");
    again.require_sound().expect("what was written is sound");
    same_tensors(&file, &again);
    assert_eq!(
        write(&again, &plan(&again)),
        written,
        "writing again changes nothing"
    );
    split_and_merge(&again);
}

/// Parses any bytes as the shards of a set: each begins where the magic number stands. What is sound must survive being
/// merged and split again.
pub(super) fn split_set(data: &[u8]) {
    let shards = shards(data);
    let sources = || {
        let numbered = shards.iter().enumerate();
        let named =
            numbered.map(|(i, bytes)| source::bytes(format!("shard-{i}.gguf").into(), bytes.to_vec()));
        named.collect()
    };
    let Ok(set) = GgufFile::from_sources(sources()) else {
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
    same_tensors(&set, &whole);
    split_and_merge(&whole);
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

fn same_tensors(a: &GgufFile, b: &GgufFile) {
    assert_eq!(a.tensors.len(), b.tensors.len());
    for (a_info, b_info) in a.tensors.iter().zip(&b.tensors) {
        let same =
            (&a_info.name, a_info.shape, a_info.type_id) == (&b_info.name, b_info.shape, b_info.type_id);
        assert!(same, "{a_info:?} became {b_info:?}");
        let (a, b) = (a.tensor_bytes(a_info), b.tensor_bytes(b_info));
        let (a, mut b) = (a.expect("sound"), b.expect("sound"));
        if a_info.format().is_none() {
            // Nothing says where its data ends, so the padding that is written behind counts as data.
            b.to_mut().truncate(a.len());
        }
        assert_eq!(a, b, "bytes of {}", a_info.name);
    }
}

/// Splits into shards of two tensors and merges them.
fn split_and_merge(file: &GgufFile) {
    // As we would write it: shards keep texts that are not UTF-8 as they stand, the metadata has them repaired.
    let file = &parse(write(file, &plan(file))).expect("what was written can be read");
    let Ok(shards) = split::plan(file, Limits::Tensors(2), false) else {
        return;
    };
    let sources = shards.iter().map(|shard| {
        let mut writer = Writer::new(Vec::new(), &shard.layout).expect("memory takes all");
        let tensors = &file.tensors[shard.first_tensor..][..shard.layout.tensors.len()];
        for tensor in tensors {
            let bytes = file.tensor_bytes(tensor).expect("the file is sound");
            writer.write(&bytes).expect("as many bytes as planned");
        }
        source::bytes(
            "shard.gguf".into(),
            writer.finish().expect("all tensors are written"),
        )
    });
    let set = GgufFile::from_sources(sources.collect()).expect("shards can be read");
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

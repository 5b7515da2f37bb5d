//! A folder of files as one input.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use tempfile::TempDir;

/// What stands in front of each file's name. The name ends with the line.
const MARK: &[u8] = b"\n=== ";
/// Files of a folder, at most.
const MOST_FILES: usize = 16;
/// Bytes of numbers behind a header that is written as text, at most.
const MOST_DATA: u64 = 8 << 20;
/// The file of an input that has these numbers. It is not written.
pub(super) const NUMBERS: &str = "fuzz.numbers";

/// One file of an input.
pub(super) fn entry(name: &str, bytes: &[u8]) -> Vec<u8> {
    [MARK, name.as_bytes(), b"\n", bytes].concat()
}

/// The files of an input. Names that could lead out of the folder are left out.
pub(super) fn files(data: &[u8]) -> Vec<(&str, &[u8])> {
    let mut starts: Vec<usize> = data
        .windows(MARK.len())
        .enumerate()
        .filter(|(_, w)| *w == MARK)
        .map(|(at, _)| at)
        .take(MOST_FILES)
        .collect();
    starts.push(data.len());
    let files = starts.windows(2).filter_map(|ends| {
        let file = &data[ends[0] + MARK.len()..ends[1]];
        let end = file.iter().position(|&b| b == b'\n')?;
        let name = std::str::from_utf8(&file[..end]).ok()?;
        Some((name, &file[end + 1..])).filter(|_| is_plain(name))
    });
    files.collect()
}

fn is_plain(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    !name.is_empty() && name.len() < 80 && !name.starts_with('.') && name.bytes().all(plain)
}

/// The files of an input in a folder of their own, and the usual ones that it does not have. Of two files of a name, the
/// first stays.
pub(super) fn write(data: &[u8], usual: &[(&str, &[u8])]) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let files = files(data);
    let numbers = files.iter().find(|(name, _)| *name == NUMBERS);
    let numbers = numbers.map_or(&[][..], |(_, bytes)| bytes);
    let left_out = |name: &str| !files.iter().any(|(other, _)| *other == name);
    let usual = usual.iter().filter(|(name, _)| left_out(name));
    for (name, bytes) in files.iter().chain(usual) {
        if *name != NUMBERS {
            save(dir.path(), name, bytes, numbers);
        }
    }
    dir
}

/// What ends with `.safetensors.header` is the text of a header: its length goes in front, and the numbers that it tells
/// of behind: `numbers` again and again, or zeros if there are none.
fn save(dir: &Path, name: &str, bytes: &[u8], numbers: &[u8]) {
    let header = name
        .strip_suffix(".header")
        .filter(|n| n.ends_with(".safetensors"));
    let path = dir.join(header.unwrap_or(name));
    if path.exists() {
        return;
    }
    if header.is_some() {
        let length = (bytes.len() as u64).to_le_bytes();
        let numbers = super::cycled(numbers, data_bytes(bytes) as usize);
        put(&path, &[&length, bytes, &numbers].concat());
    } else {
        put(&path, bytes);
    }
}

/// A new file.
pub(super) fn put(path: &Path, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(bytes))
        .expect("a temporary folder has room");
}

/// Bytes of numbers that a header tells of.
fn data_bytes(header: &[u8]) -> u64 {
    let json: serde_json::Value = serde_json::from_slice(header).unwrap_or_default();
    let tensors = json.as_object().into_iter().flat_map(serde_json::Map::values);
    let ends = tensors.filter_map(|t| t["data_offsets"][1].as_u64());
    ends.max().unwrap_or(0).min(MOST_DATA)
}

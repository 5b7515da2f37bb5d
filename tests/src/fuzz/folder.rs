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

/// The files of an input in a folder of their own, and the usual ones that it does not have.
pub(super) fn write(data: &[u8], usual: &[(&str, &[u8])]) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let files = files(data);
    for (name, bytes) in &files {
        save(dir.path(), name, bytes);
    }
    for (name, bytes) in usual {
        if !files.iter().any(|(other, _)| other == name) {
            save(dir.path(), name, bytes);
        }
    }
    dir
}

/// What ends with `.safetensors.header` is the text of a header: its length goes in front, and the numbers that it tells
/// of behind, zeros. Of two files of a name, the first stays.
fn save(dir: &Path, name: &str, bytes: &[u8]) {
    let header = name
        .strip_suffix(".header")
        .filter(|n| n.ends_with(".safetensors"));
    let path = dir.join(header.unwrap_or(name));
    let Ok(mut file) = OpenOptions::new().write(true).create_new(true).open(path) else {
        return;
    };
    let room = "a temporary folder has room";
    if header.is_some() {
        file.write_all(&(bytes.len() as u64).to_le_bytes()).expect(room);
        file.write_all(bytes).expect(room);
        file.set_len(8 + bytes.len() as u64 + data_bytes(bytes))
            .expect(room);
    } else {
        file.write_all(bytes).expect(room);
    }
}

/// Bytes of numbers that a header tells of.
fn data_bytes(header: &[u8]) -> u64 {
    let json: serde_json::Value = serde_json::from_slice(header).unwrap_or_default();
    let tensors = json.as_object().into_iter().flat_map(serde_json::Map::values);
    let ends = tensors.filter_map(|t| t["data_offsets"][1].as_u64());
    ends.max().unwrap_or(0).min(MOST_DATA)
}

//! Everything that can be wrong with a file's layout and vocabulary, all findings at once.
//!
//! The rules are those of llama.cpp's reader, the strictest in use: the tensors stand in the order of their list,
//! each at the sum of the padded sizes before it, wholly inside the file.

mod metadata;

pub use metadata::metadata;

use std::ops::Range;

use crate::limits::NAME_BYTES;
use crate::{Endian, GgufFile, TensorInfo};

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether readers will refuse or misread the file (else it is merely unusual).
    pub severe: bool,
    /// The key or tensor.
    pub object: String,
    /// Byte position in the file, where there is one.
    pub at: Option<u64>,
    /// Expected and found, one sentence without full stop.
    pub what: String,
    /// What to do about it.
    pub remedy: &'static str,
}

impl Finding {
    pub(crate) fn severe(
        object: impl Into<String>,
        at: Option<u64>,
        what: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        Self {
            severe: true,
            object: object.into(),
            at,
            what: what.into(),
            remedy,
        }
    }

    pub(crate) fn unusual(
        object: impl Into<String>,
        at: Option<u64>,
        what: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        Self {
            severe: false,
            object: object.into(),
            at,
            what: what.into(),
            remedy,
        }
    }
}

/// What [`tensors`] found and proved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// All findings.
    pub findings: Vec<Finding>,
    /// Tensors that lie wholly inside the file, aligned, and share no byte with another.
    pub n_proved: usize,
}

const DOWNLOAD: &str = "download or make the file again";
const REWRITE: &str = "make the file again with a tool that places tensors one after the other";

/// Checks bounds, alignment, overlap, gaps, duplicates, name lengths and row lengths.
pub fn layout(file: &GgufFile) -> Vec<Finding> {
    tensors(file).findings
}

/// As [`layout`], and counts the tensors whose place is proved to be sound.
pub fn tensors(file: &GgufFile) -> Report {
    let mut findings = file.findings.clone();
    let mut sound = vec![true; file.tensors.len()];
    if file.header.endian == Endian::Big {
        let what = "the file is big-endian: it can be shown, but its tensor data is not converted";
        findings.push(Finding::unusual(
            "file",
            Some(4),
            what,
            "make the file again for this kind of machine",
        ));
    }
    check_names(file, &mut findings);
    check_types(file, &mut findings);
    check_places(file, &mut sound, &mut findings);
    check_end(file, &mut findings);
    Report {
        findings,
        n_proved: sound.iter().filter(|&&s| s).count(),
    }
}

fn object(tensor: &TensorInfo) -> String {
    format!("tensor `{}`", tensor.name)
}

fn check_names(file: &GgufFile, findings: &mut Vec<Finding>) {
    let mut previous: Option<&TensorInfo> = None;
    for tensor in file.by_name() {
        let at = Some(file.tensor_range(tensor).start);
        if previous.is_some_and(|p| p.name == tensor.name) {
            let what = "two tensors have this name: readers disagree on which one counts";
            findings.push(Finding::severe(
                object(tensor),
                at,
                what,
                "make the file again with unique names",
            ));
        }
        let n = tensor.name.len();
        if n == 0 || n > NAME_BYTES {
            let what = format!("the name has {n} bytes: expected 1 to {NAME_BYTES}");
            findings.push(Finding::severe(
                object(tensor),
                at,
                what,
                "make the file again with shorter names",
            ));
        }
        previous = Some(tensor);
    }
}

fn check_types(file: &GgufFile, findings: &mut Vec<Finding>) {
    for tensor in &file.tensors {
        let at = Some(file.tensor_range(tensor).start);
        let Some(format) = tensor.format() else {
            let what = format!(
                "{} is not known to this build: its size, {} bytes, is the room up to what comes next",
                tensor.type_name(),
                tensor.n_bytes
            );
            findings.push(Finding::unusual(
                object(tensor),
                at,
                what,
                "get a newer release to read its values",
            ));
            continue;
        };
        if tensor.shape.n_bytes(format).is_none() {
            let geometry = &format.geometry;
            let what = format!(
                "shape {} does not fit {}: expected a row length divisible by {} and rows divisible by {}",
                tensor.shape, format.name, geometry.block_elems, geometry.interleave
            );
            findings.push(Finding::severe(
                object(tensor),
                at,
                what,
                "quantize the tensor again",
            ));
        }
    }
}

/// Checks where each tensor stands: inside the file, aligned, behind the one before it, apart from all others.
fn check_places(file: &GgufFile, sound: &mut [bool], findings: &mut Vec<Finding>) {
    check_overlaps(file, sound, findings);
    let len = file.source().len();
    let mut cut: Vec<usize> = Vec::new();
    let mut next = 0;
    for (i, tensor) in file.tensors.iter().enumerate() {
        let range = file.tensor_range(tensor);
        let misaligned = !tensor.offset.is_multiple_of(file.alignment);
        if misaligned {
            let what = format!("offset {} is not a multiple of {}", tensor.offset, file.alignment);
            findings.push(Finding::severe(object(tensor), Some(range.start), what, REWRITE));
        }
        if tensor.offset > next {
            let what = format!(
                "offset {} leaves a hole of {} bytes: expected {next}, where the tensor before it ends",
                tensor.offset,
                tensor.offset - next
            );
            findings.push(Finding::severe(object(tensor), Some(range.start), what, REWRITE));
        } else if tensor.offset < next && sound[i] && !misaligned {
            let what = format!("offset {} is out of order: expected {next}", tensor.offset);
            findings.push(Finding::severe(object(tensor), Some(range.start), what, REWRITE));
        }
        if range.end > len {
            if tensor.offset == next {
                cut.push(i);
            } else {
                let what = format!("it ends at byte {}, beyond the file's {len}", range.end);
                findings.push(Finding::severe(object(tensor), Some(range.start), what, DOWNLOAD));
            }
            sound[i] = false;
        }
        sound[i] &= !misaligned;
        next = pad(tensor.offset.saturating_add(tensor.n_bytes), file.alignment);
    }
    if let Some(&first) = cut.first() {
        findings.push(truncation(file, first, cut.len()));
    }
}

/// One finding for all tensors that lie where they should in a file that is too short.
fn truncation(file: &GgufFile, first: usize, n_cut: usize) -> Finding {
    let needed = file
        .tensors
        .iter()
        .map(|t| file.tensor_range(t).end)
        .max()
        .unwrap_or(0);
    let tensor = &file.tensors[first];
    let what = format!(
        "the file is truncated: needs {needed} bytes, has {}; {n_cut} of {} tensors are cut, the first is `{}`",
        file.source().len(),
        file.tensors.len(),
        tensor.name
    );
    Finding::severe("file", Some(file.tensor_range(tensor).start), what, DOWNLOAD)
}

fn check_overlaps(file: &GgufFile, sound: &mut [bool], findings: &mut Vec<Finding>) {
    let mut spans: Vec<(Range<u64>, usize)> = file
        .tensors
        .iter()
        .enumerate()
        .map(|(i, t)| (file.tensor_range(t), i))
        .filter(|(r, _)| !r.is_empty())
        .collect();
    spans.sort_unstable_by_key(|(r, i)| (r.start, r.end, *i));
    let mut furthest: Option<(Range<u64>, usize)> = None;
    for (range, i) in spans {
        if let Some((before, j)) = &furthest
            && range.start < before.end
        {
            let what = format!(
                "its {} bytes from byte {} run into tensor `{}`, which begins at byte {}",
                before.end - before.start,
                before.start,
                file.tensors[i].name,
                range.start
            );
            findings.push(Finding::severe(
                object(&file.tensors[*j]),
                Some(before.start),
                what,
                REWRITE,
            ));
            sound[i] = false;
            sound[*j] = false;
        }
        if furthest.as_ref().is_none_or(|(before, _)| range.end > before.end) {
            furthest = Some((range, i));
        }
    }
}

/// What stands behind the last tensor.
fn check_end(file: &GgufFile, findings: &mut Vec<Finding>) {
    let len = file.source().len();
    let Some(end) = file.tensors.iter().map(|t| file.tensor_range(t).end).max() else {
        return;
    };
    let padded = pad(end, file.alignment);
    if end <= len && len < padded {
        let what = format!("the padding behind the last tensor is cut: expected {padded} bytes, found {len}");
        findings.push(Finding::unusual(
            "file",
            Some(end),
            what,
            "nothing: no reader needs it",
        ));
    }
    if len <= padded {
        return;
    }
    let mut magic = [0; 4];
    if file.source().read_at(padded, &mut magic).is_ok() && magic == *b"GGUF" {
        let what = "a second GGUF file begins behind the last tensor: files were joined end to end";
        findings.push(Finding::severe(
            "file",
            Some(padded),
            what,
            "split it here and merge the parts properly",
        ));
    } else {
        let what = format!("{} bytes follow the last tensor", len - padded);
        findings.push(Finding::unusual(
            "file",
            Some(padded),
            what,
            "nothing, unless the download went wrong",
        ));
    }
}

/// `n` rounded up to the alignment, as far as 64 bits go.
fn pad(n: u64, alignment: u64) -> u64 {
    n.checked_next_multiple_of(alignment).unwrap_or(u64::MAX)
}

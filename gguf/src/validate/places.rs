//! Where the tensors of one file stand.

use std::ops::Range;

use super::{DOWNLOAD, Finding, Findings, REWRITE, object};
use crate::{Part, TensorInfo, short};

/// Checks where each tensor stands: inside the file, aligned, behind the one before it, apart from all others.
pub(super) fn check(part: &Part, tensors: &[TensorInfo], sound: &mut [bool], findings: &mut Findings) {
    check_overlaps(part, tensors, sound, findings);
    let len = part.source().len();
    let (mut first_cut, mut n_cut) = (None, 0);
    let mut next = 0;
    for (i, tensor) in tensors.iter().enumerate() {
        let range = part.tensor_range(tensor);
        let misaligned = !tensor.offset.is_multiple_of(part.alignment);
        if misaligned {
            findings.push("tensors that are not aligned", || {
                let what = format!("offset {} is not a multiple of {}", tensor.offset, part.alignment);
                Finding::severe(object(tensor), Some(range.start), what, REWRITE)
            });
        }
        if tensor.offset > next {
            findings.push("holes in front of tensors", || {
                let what = format!(
                    "offset {} leaves a hole of {} bytes: expected {next}, where the tensor before it ends",
                    tensor.offset,
                    tensor.offset - next
                );
                Finding::severe(object(tensor), Some(range.start), what, REWRITE)
            });
        } else if tensor.offset < next && sound[i] && !misaligned {
            findings.push("tensors out of order", || {
                let what = format!("offset {} is out of order: expected {next}", tensor.offset);
                Finding::severe(object(tensor), Some(range.start), what, REWRITE)
            });
        }
        if range.end > len {
            if tensor.offset == next {
                first_cut.get_or_insert(i);
                n_cut += 1;
            } else {
                findings.push("tensors that end beyond the file", || {
                    let what = format!("it ends at byte {}, beyond the file's {len}", range.end);
                    Finding::severe(object(tensor), Some(range.start), what, DOWNLOAD)
                });
            }
            sound[i] = false;
        }
        sound[i] &= !misaligned;
        next = pad(tensor.offset.saturating_add(tensor.n_bytes), part.alignment);
    }
    if let Some(first) = first_cut {
        findings.one(truncation(part, tensors, first, n_cut));
    }
    check_end(part, tensors, findings);
}

/// One finding for all tensors that lie where they should in a file that is too short.
fn truncation(part: &Part, tensors: &[TensorInfo], first: usize, n_cut: usize) -> Finding {
    let needed = tensors
        .iter()
        .map(|t| part.tensor_range(t).end)
        .max()
        .unwrap_or(0);
    let tensor = &tensors[first];
    let what = format!(
        "the file is truncated: needs {needed} bytes, has {}; {n_cut} of {} tensors are cut, the first is `{}`",
        part.source().len(),
        tensors.len(),
        short(&tensor.name)
    );
    Finding::severe("file", Some(part.tensor_range(tensor).start), what, DOWNLOAD)
}

fn check_overlaps(part: &Part, tensors: &[TensorInfo], sound: &mut [bool], findings: &mut Findings) {
    let mut spans: Vec<(Range<u64>, usize)> = tensors
        .iter()
        .enumerate()
        .map(|(i, t)| (part.tensor_range(t), i))
        .filter(|(r, _)| !r.is_empty())
        .collect();
    spans.sort_unstable_by_key(|(r, i)| (r.start, r.end, *i));
    let mut furthest: Option<(Range<u64>, usize)> = None;
    for (range, i) in spans {
        if let Some((before, j)) = &furthest
            && range.start < before.end
        {
            findings.push("tensors that run into another", || {
                let what = format!(
                    "its {} bytes from byte {} run into tensor `{}`, which begins at byte {}",
                    before.end - before.start,
                    before.start,
                    short(&tensors[i].name),
                    range.start
                );
                Finding::severe(object(&tensors[*j]), Some(before.start), what, REWRITE)
            });
            sound[i] = false;
            sound[*j] = false;
        }
        if furthest.as_ref().is_none_or(|(before, _)| range.end > before.end) {
            furthest = Some((range, i));
        }
    }
}

/// What stands behind the last tensor.
fn check_end(part: &Part, tensors: &[TensorInfo], findings: &mut Findings) {
    let len = part.source().len();
    let Some(end) = tensors.iter().map(|t| part.tensor_range(t).end).max() else {
        return;
    };
    let padded = pad(end, part.alignment);
    if end <= len && len < padded {
        let what = format!("the padding behind the last tensor is cut: expected {padded} bytes, found {len}");
        findings.one(Finding::unusual(
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
    if part.source().read_at(padded, &mut magic).is_ok() && magic == *b"GGUF" {
        let what = "a second GGUF file begins behind the last tensor: files were joined end to end";
        findings.one(Finding::severe(
            "file",
            Some(padded),
            what,
            "split it here and merge the parts properly",
        ));
    } else {
        let what = format!("{} bytes follow the last tensor", len - padded);
        findings.one(Finding::unusual(
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

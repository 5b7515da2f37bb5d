//! Everything that can be wrong with a file's layout and vocabulary, all findings at once.
//!
//! The rules are those of llama.cpp's reader, the strictest in use: the tensors stand in the order of their list,
//! each at the sum of the padded sizes before it, wholly inside the file.

mod findings;
mod metadata;
mod places;
mod set;

pub use findings::Findings;
pub use metadata::metadata;

use crate::limits::NAME_BYTES;
use crate::{Endian, GgufFile, Part, TensorInfo, short};

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether readers will refuse or misread the file (else it is merely unusual).
    pub severe: bool,
    /// The file it is about: an index of [`GgufFile::parts`].
    pub part: usize,
    /// The key or tensor, its name cut by [`short`]; or the kind of those that are not listed.
    pub object: String,
    /// Byte position in the file, where there is one.
    pub at: Option<u64>,
    /// Expected and found, one sentence without full stop.
    pub what: String,
    /// What to do about it.
    pub remedy: &'static str,
}

impl Finding {
    /// What a finding about a key has as its object.
    pub fn key(key: &str) -> String {
        format!("key `{}`", short(key))
    }

    /// An error: readers will refuse or misread the file.
    pub fn severe(
        object: impl Into<String>,
        at: Option<u64>,
        what: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        Self {
            severe: true,
            part: 0,
            object: object.into(),
            at,
            what: what.into(),
            remedy,
        }
    }

    /// A warning.
    pub fn unusual(
        object: impl Into<String>,
        at: Option<u64>,
        what: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        Self {
            severe: false,
            part: 0,
            object: object.into(),
            at,
            what: what.into(),
            remedy,
        }
    }

    /// The finding, about this part.
    fn of_part(mut self, part: usize) -> Self {
        self.part = part;
        self
    }
}

/// What [`tensors`] found and proved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// All findings; of each kind at most [`Findings`] keeps.
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
    let mut findings = Findings::new();
    let mut sound = vec![true; file.tensors.len()];
    set::check(file, &mut findings);
    check_names(file, &mut findings);
    for (i, part) in file.parts().iter().enumerate() {
        findings.set_part(i);
        findings.extend(part.findings.iter().cloned());
        if part.header.endian == Endian::Big {
            let what = "the file is big-endian: it can be shown, but its tensor data is not converted";
            findings.one(Finding::unusual(
                "file",
                Some(4),
                what,
                "make the file again for this kind of machine",
            ));
        }
        let tensors = &file.tensors[part.tensors.clone()];
        check_types(part, tensors, &mut findings);
        places::check(part, tensors, &mut sound[part.tensors.clone()], &mut findings);
    }
    Report {
        findings: findings.into_vec(),
        n_proved: sound.iter().filter(|&&s| s).count(),
    }
}

fn object(tensor: &TensorInfo) -> String {
    format!("tensor `{}`", short(&tensor.name))
}

fn check_names(file: &GgufFile, findings: &mut Findings) {
    let mut previous: Option<&TensorInfo> = None;
    for tensor in file.by_name() {
        let at = Some(file.tensor_range(tensor).start);
        if previous.is_some_and(|p| p.name == tensor.name) {
            let what = "two tensors have this name: readers disagree on which one counts";
            findings.push("tensors with the name of another", || {
                Finding::severe(object(tensor), at, what, "make the file again with unique names")
                    .of_part(tensor.part)
            });
        }
        let n = tensor.name.len();
        if n == 0 || n > NAME_BYTES {
            findings.push("tensors with a name of another length", || {
                let what = format!("the name has {n} bytes: expected 1 to {NAME_BYTES}");
                Finding::severe(
                    object(tensor),
                    at,
                    what,
                    "make the file again with names of such lengths",
                )
                .of_part(tensor.part)
            });
        }
        previous = Some(tensor);
    }
}

fn check_types(part: &Part, tensors: &[TensorInfo], findings: &mut Findings) {
    for tensor in tensors {
        let at = Some(part.tensor_range(tensor).start);
        let Some(format) = tensor.format() else {
            findings.push("tensors of types that this build does not know", || {
                let what = format!(
                    "{} is not known to this build: its size, {} bytes, is the room up to what comes next",
                    tensor.type_name(),
                    tensor.n_bytes
                );
                Finding::unusual(object(tensor), at, what, "get a newer release to read its values")
            });
            continue;
        };
        if tensor.shape.n_bytes(format).is_none() {
            findings.push("tensors whose shape does not fit their type", || {
                let geometry = &format.geometry;
                let what = format!(
                    "shape {} does not fit {}: expected a row length divisible by {} and rows divisible by {}",
                    tensor.shape, format.name, geometry.block_elems, geometry.interleave
                );
                Finding::severe(object(tensor), at, what, "quantize the tensor again")
            });
        }
    }
}

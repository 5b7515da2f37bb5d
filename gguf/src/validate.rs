//! Everything that can be wrong with a file's layout, all findings at once.

use crate::GgufFile;

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
}

/// Checks bounds, alignment, overlap, gaps, duplicates, name lengths and row lengths.
pub fn layout(_file: &GgufFile) -> Vec<Finding> {
    todo!()
}

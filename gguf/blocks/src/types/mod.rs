//! One folder per tensor type. To add one: make the folder, add its `mod` line and its entry in [`FORMATS`].

use crate::Format;

/// The registry, in order of the types' numbers.
pub(crate) static FORMATS: &[&Format] = &[];

//! The ordered list of tensor types and look-ups in it.

use crate::types::FORMATS;
use crate::{Format, TypeId};

/// Every tensor type this build knows, in order of its number.
pub fn all() -> &'static [&'static Format] {
    FORMATS
}

/// The type with this number, if known.
pub fn by_id(id: TypeId) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|f| f.id == id)
}

/// The type with this name, in any case.
pub fn by_name(name: &str) -> Option<&'static Format> {
    FORMATS
        .iter()
        .copied()
        .find(|f| f.name.eq_ignore_ascii_case(name))
}

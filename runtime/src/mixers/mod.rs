//! How layers mix positions: one file a kind.

pub(crate) mod gqa;

//! Puts facts in words or JSON.

pub(crate) mod json;
pub(crate) mod text;

//! Ordered key-value pairs.

use crate::{Array, Result, Value};

/// Metadata in the file's order. Keys are unique.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    pairs: Vec<(String, Value)>,
}

impl Metadata {
    /// No pairs.
    pub fn new() -> Self {
        Self::default()
    }

    /// The pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.pairs.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The value of a key.
    pub fn get(&self, _key: &str) -> Option<&Value> {
        todo!()
    }

    /// Sets a key; as in the reference, one that was there moves to the end.
    pub fn set(&mut self, _key: impl Into<String>, _value: Value) {
        todo!()
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, _key: &str) -> Option<Value> {
        todo!()
    }

    /// An unsigned integer of any width (or a non-negative signed one). `Ok(None)` if the key is absent,
    /// an error that names the key if it is of another type.
    pub fn uint(&self, _key: &str) -> Result<Option<u64>> {
        todo!()
    }

    /// A float (f32 or f64).
    pub fn float(&self, _key: &str) -> Result<Option<f64>> {
        todo!()
    }

    /// A bool.
    pub fn bool(&self, _key: &str) -> Result<Option<bool>> {
        todo!()
    }

    /// A string.
    pub fn string(&self, _key: &str) -> Result<Option<&str>> {
        todo!()
    }

    /// An array.
    pub fn array(&self, _key: &str) -> Result<Option<&Array>> {
        todo!()
    }

    /// An array of strings.
    pub fn strings(&self, _key: &str) -> Result<Option<&[String]>> {
        todo!()
    }
}

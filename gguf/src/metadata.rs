//! Ordered key-value pairs.

use std::collections::HashSet;
use std::sync::OnceLock;

use crate::{Array, Error, Result, Strings, Value};

/// Pairs that are looked through one after the other. Models have some fifty, hostile files 65,536.
const FEW: usize = 128;

/// Metadata in the file's order. Keys are unique.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    pairs: Vec<(String, Value)>,
    /// Places of more than [`FEW`] pairs by their keys, made when one is first looked for.
    sorted: OnceLock<Vec<usize>>,
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.pairs == other.pairs
    }
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
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.position(key).map(|i| &self.pairs[i].1)
    }

    fn position(&self, key: &str) -> Option<usize> {
        if self.pairs.len() <= FEW {
            return self.pairs.iter().position(|(k, _)| k == key);
        }
        let key_of = |i: usize| self.pairs[i].0.as_str();
        let sorted = self.sorted.get_or_init(|| {
            let mut places: Vec<usize> = (0..self.pairs.len()).collect();
            places.sort_unstable_by(|&a, &b| key_of(a).cmp(key_of(b)));
            places
        });
        let i = sorted.binary_search_by(|&i| key_of(i).cmp(key)).ok()?;
        Some(sorted[i])
    }

    /// The pairs for a change, after which places are others.
    fn pairs_mut(&mut self) -> &mut Vec<(String, Value)> {
        self.sorted.take();
        &mut self.pairs
    }

    /// Whether a key is there.
    pub fn contains(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Sets a key; as in the reference, one that was there moves to the end.
    pub fn set(&mut self, key: impl Into<String>, value: Value) {
        let key = key.into();
        self.remove(&key);
        self.push_new(key, value);
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        // Not by the sorted places, which would be made anew for each.
        let i = self.pairs.iter().position(|(k, _)| k == key)?;
        Some(self.pairs_mut().remove(i).1)
    }

    /// Appends a pair whose key is known to be new.
    pub(crate) fn push_new(&mut self, key: String, value: Value) {
        self.pairs_mut().push((key, value));
    }

    /// An unsigned integer of any width (or a non-negative signed one). `Ok(None)` if the key is absent,
    /// an error that names the key if it is of another type.
    pub fn uint(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "an unsigned integer", Value::to_uint)
    }

    /// A float (f32 or f64).
    pub fn float(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a float", |v| match *v {
            Value::F32(x) => Some(x.into()),
            Value::F64(x) => Some(x),
            _ => None,
        })
    }

    /// A bool.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a bool", |v| match *v {
            Value::Bool(x) => Some(x),
            _ => None,
        })
    }

    /// A string.
    pub fn string(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", |v| match v {
            Value::String(x) => Some(x.as_str()),
            _ => None,
        })
    }

    /// An array.
    pub fn array(&self, key: &str) -> Result<Option<&Array>> {
        self.typed(key, "an array", |v| match v {
            Value::Array(x) => Some(x),
            _ => None,
        })
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&Strings>> {
        self.typed(key, "an array of strings", |v| match v {
            Value::Array(Array::String(x)) => Some(x),
            _ => None,
        })
    }

    /// The value of a key through `pick`, which says whether it is of the type needed.
    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        pick: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match pick(value) {
            Some(x) => Ok(Some(x)),
            None => Err(Error::Key {
                key: key.into(),
                expected: expected.into(),
                found: describe(value).into(),
            }),
        }
    }
}

/// The found side of a message: the type, and the value where it is a short one.
fn describe(value: &Value) -> String {
    let name = value.type_name();
    match value {
        Value::I8(x) => format!("{name} {x}"),
        Value::I16(x) => format!("{name} {x}"),
        Value::I32(x) => format!("{name} {x}"),
        Value::I64(x) => format!("{name} {x}"),
        _ => name,
    }
}

impl IntoIterator for Metadata {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.pairs.into_iter()
    }
}

impl<K: Into<String>, V: Into<Value>> FromIterator<(K, V)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut metadata = Self::new();
        metadata.extend(pairs);
        metadata
    }
}

impl<K: Into<String>, V: Into<Value>> Extend<(K, V)> for Metadata {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        let new = pairs.into_iter().map(|(key, value)| (key.into(), value.into()));
        self.pairs_mut().extend(new);
        // As if each was set after the other: of those with the same key the last one stays.
        let mut seen = HashSet::with_capacity(self.pairs.len());
        let mut stays: Vec<bool> = self
            .pairs
            .iter()
            .rev()
            .map(|(k, _)| seen.insert(k.as_str()))
            .collect();
        self.pairs.retain(|_| stays.pop() == Some(true));
    }
}

#[cfg(test)]
mod tests {
    use super::Metadata;
    use crate::{Strings, Value};

    #[test]
    fn a_key_that_is_set_again_moves_to_the_end() {
        let mut m: Metadata = [("a", 1_u32), ("b", 2), ("c", 3)].into_iter().collect();
        m.set("a", 4_u32.into());
        assert_eq!(m.iter().map(|(k, _)| k).collect::<Vec<_>>(), ["b", "c", "a"]);
        m.extend([("d", 5_u32), ("b", 6), ("d", 7), ("b", 2)]);
        assert_eq!(m.iter().map(|(k, _)| k).collect::<Vec<_>>(), ["c", "a", "d", "b"]);
        assert_eq!(m.get("d"), Some(&Value::U32(7)));
        assert_eq!(m.remove("b"), Some(Value::U32(2)));
        assert_eq!(m.len(), 3);
    }

    #[test]
    fn of_many_keys_each_is_found_after_every_change() {
        let key = |i: u32| format!("k{}", i.wrapping_mul(0x9E37_79B1));
        let mut m: Metadata = (0..1000).map(|i| (key(i), i)).collect();
        let same = m.clone();
        for i in 0..1000 {
            assert_eq!(m.get(&key(i)), Some(&Value::U32(i)));
        }
        assert_eq!(m, same, "what was looked for makes no difference");
        assert!(!m.contains("k") && !m.contains(&key(1000)));
        m.remove(&key(500));
        m.set(key(3), Value::U32(7));
        m.extend([(key(2000), 9_u32)]);
        assert_eq!(m.get(&key(500)), None);
        assert_eq!(m.get(&key(3)), Some(&Value::U32(7)));
        assert_eq!(m.get(&key(2000)), Some(&Value::U32(9)));
        assert_eq!(m.get(&key(999)), Some(&Value::U32(999)));
    }

    #[test]
    fn getters_are_lenient_on_width_and_strict_on_kind() {
        let mut m = Metadata::new();
        m.set("u", 7_u16.into());
        m.set("i", 7_i64.into());
        m.set("n", Value::I32(-7));
        m.set("s", "text".into());
        m.set("l", vec!["x".to_owned()].into());
        assert_eq!(m.uint("u").expect("u16"), Some(7));
        assert_eq!(m.uint("i").expect("i64"), Some(7));
        assert_eq!(m.uint("absent").expect("absent"), None);
        let text = m.uint("n").expect_err("negative").to_string();
        assert_eq!(
            text,
            "metadata key `n`: expected an unsigned integer, found i32 -7"
        );
        assert_eq!(m.string("s").expect("string"), Some("text"));
        assert_eq!(m.strings("l").expect("strings").map(Strings::len), Some(1));
        let text = m.float("l").expect_err("array").to_string();
        assert!(
            text.ends_with("expected a float, found array of string"),
            "{text}"
        );
    }
}

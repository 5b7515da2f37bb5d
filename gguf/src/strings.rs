//! An array of strings in one buffer.

use std::borrow::Cow;

/// An array of strings: one buffer of bytes and the end of each string. A vocabulary has hundreds of thousands of
/// short strings, and a hostile file millions of empty ones; neither costs an allocation each.
///
/// Strings are UTF-8 by convention only, and kept as they stand in the file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
    /// Where each string ends in `bytes`; it begins where the one before it ends.
    ends: Vec<usize>,
}

impl Strings {
    /// No strings, with room for `n` if memory allows; `None` if it does not.
    pub(crate) fn with_room(n: usize) -> Option<Self> {
        let mut ends = Vec::new();
        ends.try_reserve_exact(n).ok()?;
        Some(Self {
            bytes: Vec::new(),
            ends,
        })
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Appends a string.
    pub fn push(&mut self, s: impl AsRef<[u8]>) {
        self.bytes.extend_from_slice(s.as_ref());
        self.ends.push(self.bytes.len());
    }

    /// The bytes of string `i`, `None` beyond the last.
    pub fn bytes(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends.get(i)?;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        Some(&self.bytes[start..end])
    }

    /// String `i` as text, bytes that are not UTF-8 as U+FFFD; `None` beyond the last.
    pub fn get(&self, i: usize) -> Option<Cow<'_, str>> {
        self.bytes(i).map(String::from_utf8_lossy)
    }

    /// The bytes of each string in order.
    pub fn iter_bytes(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|i| self.bytes(i).expect("an index below the number of strings"))
    }

    /// Each string in order as text, bytes that are not UTF-8 as U+FFFD.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Cow<'_, str>> {
        self.iter_bytes().map(String::from_utf8_lossy)
    }

    /// The first string that is not UTF-8.
    pub fn first_not_utf8(&self) -> Option<usize> {
        // The whole buffer at once is many times faster, and nearly always enough.
        if let Ok(text) = std::str::from_utf8(&self.bytes)
            && self.ends.iter().all(|&end| text.is_char_boundary(end))
        {
            return None;
        }
        self.iter_bytes().position(|s| std::str::from_utf8(s).is_err())
    }

    /// Each string as text in a vector of its own.
    pub fn to_vec(&self) -> Vec<String> {
        self.iter().map(Cow::into_owned).collect()
    }
}

impl std::fmt::Debug for Strings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut all = Self::default();
        strings.into_iter().for_each(|s| all.push(s));
        all
    }
}

impl From<Vec<String>> for Strings {
    fn from(strings: Vec<String>) -> Self {
        strings.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Strings;

    #[test]
    fn strings_come_back_as_they_were() {
        let strings: Strings = ["a", "", "ä", "long enough"].into_iter().collect();
        assert_eq!(strings.to_vec(), ["a", "", "ä", "long enough"]);
        assert_eq!(strings.get(4), None);
        assert_eq!(strings.first_not_utf8(), None);
    }

    #[test]
    fn a_character_cut_in_two_is_found() {
        // Together the two halves are UTF-8, each alone is not.
        let halves: Strings = [&b"\xc3"[..], &b"\xa4"[..]].into_iter().collect();
        assert_eq!(halves.first_not_utf8(), Some(0));
        assert_eq!(halves.bytes(1), Some(&b"\xa4"[..]));
        assert_eq!(halves.get(1).as_deref(), Some("\u{fffd}"));
    }
}

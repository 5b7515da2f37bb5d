//! Names from files, and lists of them, in messages.

use std::borrow::Cow;

/// Bytes of a name that a message shows: more than any name that every reader accepts, and than any usual key.
const SHOWN_BYTES: usize = 80;

/// A name as a message shows it: cut, with its length behind, if it is long. Names may have 64 KiB, and one file has
/// room for many messages about one name.
pub fn short(name: &str) -> Cow<'_, str> {
    cut(name, SHOWN_BYTES)
}

/// At most `most` bytes of a text, with its length behind if it has more.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let end = text.floor_char_boundary(most);
    format!("{}.. ({} bytes)", &text[..end], text.len()).into()
}

/// At most `n` of many things for one line: `a, b and 3 more`.
pub fn listed(items: &[impl AsRef<str>], n: usize, separator: &str) -> String {
    let shown: Vec<&str> = items.iter().take(n).map(AsRef::as_ref).collect();
    let shown = shown.join(separator);
    match items.len().checked_sub(n) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::{listed, short};

    #[test]
    fn of_long_lists_the_first_are_told() {
        assert_eq!(listed(&["a", "b", "c"], 3, ", "), "a, b, c");
        assert_eq!(listed(&["a", "b", "c"], 1, ", "), "a and 2 more");
        assert_eq!(listed(&[] as &[&str], 3, ", "), "");
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        assert_eq!(short(&"x".repeat(80)), "x".repeat(80));
        assert_eq!(
            short(&format!("x{}", "ß".repeat(40))),
            format!("x{}.. (81 bytes)", "ß".repeat(39))
        );
    }
}

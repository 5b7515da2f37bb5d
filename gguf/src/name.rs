//! Names from files in messages.

use std::borrow::Cow;

/// Bytes of a name that a message shows: more than any name that every reader accepts, and than any usual key.
const SHOWN_BYTES: usize = 80;

/// A name as a message shows it: cut, with its length behind, if it is long. Names may have 64 KiB, and one file has
/// room for many messages about one name.
pub fn short(name: &str) -> Cow<'_, str> {
    if name.len() <= SHOWN_BYTES {
        return name.into();
    }
    let end = name.floor_char_boundary(SHOWN_BYTES);
    format!("{}.. ({} bytes)", &name[..end], name.len()).into()
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn long_names_are_cut_between_characters() {
        assert_eq!(short(&"x".repeat(80)), "x".repeat(80));
        assert_eq!(
            short(&format!("x{}", "ß".repeat(40))),
            format!("x{}.. (81 bytes)", "ß".repeat(39))
        );
    }
}

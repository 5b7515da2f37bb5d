//! One spelling for regular expressions that mean the same, as far as tokenizers vary them.

/// Contractions in any case.
const CONTRACTIONS: &str = "<contractions>";

/// Ways to write them; all are alternatives of the same strings.
const CONTRACTION_SPELLINGS: &[&str] = &[
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])",
    "'(?i:[sdmt]|ll|ve|re)",
    "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d|'ll)",
];

/// Each pattern in its one spelling.
pub(super) fn patterns(patterns: &[&str]) -> Vec<String> {
    patterns.iter().map(|p| pattern(p)).collect()
}

fn pattern(text: &str) -> String {
    let mut text = text.to_owned();
    for spelling in CONTRACTION_SPELLINGS {
        text = text.replace(spelling, CONTRACTIONS);
    }
    let text = rewrite(&text).replace("{1}", "");
    // What `\s+(?!\S)` leaves of a run of spaces is at most one, which is a fragment with or without a match.
    match text.strip_suffix(r"|\s+") {
        Some(rest) if rest.ends_with(r"\s+(?!\S)") => rest.to_owned(),
        _ => text,
    }
}

/// Spells every character one way and sorts what is inside of character classes.
fn rewrite(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (class, after) = rest.strip_prefix('[').and_then(split_class).unzip();
        if let (Some(class), Some(after)) = (class, after) {
            out.push_str(&sorted_class(class));
            rest = after;
        } else {
            let (unit, after) = take_unit(rest);
            out.push_str(&unit);
            rest = after;
        }
    }
    out
}

/// The inside of a class (its `[` is gone) and what follows its `]`. `None` for classes in classes.
fn split_class(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => return None,
            // First in its class, `]` is a member.
            ']' if at > 0 && &text[..at] != "^" => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

fn sorted_class(class: &str) -> String {
    let (negated, mut rest) = class.strip_prefix('^').map_or(("", class), |rest| ("^", rest));
    let mut members = Vec::new();
    while !rest.is_empty() {
        let (mut member, after) = take_unit(rest);
        rest = after;
        if let Some(end) = rest.strip_prefix('-').filter(|end| !end.is_empty()) {
            let (last, after) = take_unit(end);
            member = format!("{member}-{last}");
            rest = after;
        }
        members.push(member);
    }
    members.sort_unstable();
    members.dedup();
    format!("[{negated}{}]", members.concat())
}

/// The first character, escape or property in its one spelling, and the rest.
fn take_unit(text: &str) -> (String, &str) {
    let mut chars = text.chars();
    match chars.next() {
        Some('\\') => take_escape(chars.as_str()),
        Some('\n') => (r"\n".to_owned(), chars.as_str()),
        Some('\r') => (r"\r".to_owned(), chars.as_str()),
        Some('\t') => (r"\t".to_owned(), chars.as_str()),
        Some(c) => (c.to_string(), chars.as_str()),
        None => (String::new(), text),
    }
}

/// After a backslash.
fn take_escape(text: &str) -> (String, &str) {
    let braced = |rest: &'_ str| Some(rest.strip_prefix('{')?.split_once('}')?.0.len() + 2);
    let mut chars = text.chars();
    let Some(c) = chars.next() else {
        return ("\\".to_owned(), text);
    };
    let rest = chars.as_str();
    match c {
        'p' | 'P' => {
            let n = braced(rest).unwrap_or(0);
            (format!("\\{c}{}", &rest[..n]), &rest[n..])
        }
        'x' if braced(rest).is_some() => {
            let n = braced(rest).unwrap_or(0);
            let code = u32::from_str_radix(&rest[1..n - 1], 16)
                .ok()
                .and_then(char::from_u32);
            (
                code.map_or_else(|| format!("\\x{}", &rest[..n]), String::from),
                &rest[n..],
            )
        }
        // These stand for themselves with and without a backslash wherever tokenizers use them.
        '-' | '/' | '!' | '"' | '#' | '%' | '&' | '\'' | ',' | ':' | ';' | '<' | '=' | '>' | '@' | '_'
        | '`' | '~' | ' ' => (c.to_string(), rest),
        _ => (format!("\\{c}"), rest),
    }
}

/// Number of characters to insert, delete or replace to turn `a` into `b`.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, &cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_become_one() {
        assert_eq!(pattern("[^\r\n\\p{L}]?"), pattern(r"[^\p{L}\n\r]?"));
        assert_eq!(pattern(r"\p{N}{1}"), pattern(r"\p{N}"));
        assert_eq!(pattern(r"[\-a-z]"), pattern("[a-z-]"));
        assert_eq!(pattern("[\\x{4E00}-龥]"), pattern("[一-龥]"));
        assert_ne!(pattern(r"\p{N}"), pattern(r"\p{N}+"));
        assert_ne!(pattern("[^ab]"), pattern("[ab]"));
    }

    #[test]
    fn odd_input_is_kept() {
        for odd in ["[", "[]", "[^]", "\\", "[a-", "\\p", "\\p{", "\\x{zz}", "[[a]b]"] {
            assert!(!pattern(odd).is_empty(), "{odd}");
        }
        assert_eq!(pattern(""), "");
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}

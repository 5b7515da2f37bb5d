//! Regular expressions of a tokenizer.json, which the library runs in the `fancy-regex` engine. What has no look-around
//! and no references goes to an automaton there and takes time that is linear in the text. All else backtracks, up to a
//! million steps for each character.

use gguf_models::vocab;
use serde_json::Value as Json;
use tokenizers::utils::SysRegex;

use crate::error::quoted;

/// Bytes of all patterns together: those of known pre-tokenizers have 2 KiB. Some bytes can take 16 KiB in the engine.
const MAX_BYTES: usize = 8 << 10;

/// Counted repetitions in all patterns. Each can take 10 MiB in the engine.
const MAX_COUNTED: usize = 16;

/// The end of the usual patterns, the only look-around that is run in a pattern that is not known.
const BLANKS: [&str; 2] = [r"|\s+(?!\S)|\s+", r"|\s+(?!\S)"];

/// The patterns that steps hold.
#[derive(Debug, Default)]
pub(super) struct Patterns<'a> {
    expressions: Vec<&'a str>,
    n_bytes: usize,
}

impl<'a> Patterns<'a> {
    /// Takes the pattern of a step.
    pub(super) fn add(&mut self, pattern: &'a Json) {
        let text = |key: &str| pattern[key].as_str();
        self.n_bytes += text("String").or(pattern.as_str()).map_or(0, str::len);
        if let Some(expression) = text("Regex") {
            self.n_bytes += expression.len();
            self.expressions.push(expression);
        }
    }

    /// What the engine makes of them must fit in memory.
    pub(super) fn check_sizes(&self) -> Result<(), String> {
        if self.n_bytes > MAX_BYTES {
            let found = self.n_bytes;
            return Err(format!(
                "expected at most {MAX_BYTES} bytes of patterns, found {found}"
            ));
        }
        let counted = self.expressions.iter().map(|e| n_counted(e)).sum::<usize>();
        if counted > MAX_COUNTED {
            return Err(format!(
                "expected at most {MAX_COUNTED} counted repetitions in patterns, found {counted}"
            ));
        }
        Ok(())
    }

    /// Refuses patterns that could take more time than a text's length backs. Call it behind `check_sizes`.
    pub(super) fn check_time(&self) -> Result<(), String> {
        let sound = |e: &str| is_linear(e) || vocab::has_pattern(e);
        match self.expressions.iter().find(|e| !sound(e)) {
            Some(e) => Err(format!(
                "expected patterns without look-around and references, found {}",
                quoted(e)
            )),
            None => Ok(()),
        }
    }
}

/// Repetitions like `{2,}`.
fn n_counted(expression: &str) -> usize {
    let pairs = expression.as_bytes().windows(2);
    pairs
        .filter(|pair| pair[0] == b'{' && (pair[1].is_ascii_digit() || pair[1] == b','))
        .count()
}

/// Whether a pattern is sure to run in an automaton, but for the usual end.
fn is_linear(expression: &str) -> bool {
    let rest = BLANKS.iter().find_map(|end| expression.strip_suffix(end));
    match rest {
        // What is an expression without the end has the end outside of all groups: each alternative is run by itself.
        Some(rest) => is_plain(rest) && SysRegex::new(rest).is_ok(),
        None => is_plain(expression),
    }
}

/// Whether nothing in a pattern can be look-around, a reference, a possessive repetition or a command to the engine. It
/// is not parsed: what only looks like one is not plain either.
fn is_plain(expression: &str) -> bool {
    let mut chars = expression.char_indices();
    while let Some((at, c)) = chars.next() {
        let behind = &expression[at + c.len_utf8()..];
        let plain = match c {
            '\\' => chars.next().is_some_and(|(_, c)| {
                "pPsSdDwWrnftvaxu".contains(c) || c == ' ' || c.is_ascii_punctuation() && !"<>".contains(c)
            }),
            '(' if behind.starts_with('*') => false,
            '(' => behind.strip_prefix('?').is_none_or(|flags| {
                flags
                    .trim_start_matches(['i', 'm', 's', '-'])
                    .starts_with([':', ')'])
            }),
            '*' | '+' | '?' => !behind.starts_with('+'),
            '{' => !counted_end(behind).is_some_and(|behind| behind.starts_with('+')),
            _ => true,
        };
        if !plain {
            return false;
        }
    }
    true
}

/// What follows the numbers of a counted repetition.
fn counted_end(text: &str) -> Option<&str> {
    text.trim_start_matches(|c: char| c.is_ascii_digit() || c == ',' || c == ' ')
        .strip_prefix('}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_can_backtrack_is_told_from_what_cannot() {
        for linear in [
            " {2,}",
            r"[\r\n]",
            r"\s?[A-Za-zµ]+",
            r"(?i:'s|'t)|\p{N}{1,3}|[^\s\p{L}]+",
            r"(?:a|b)*?",
            r"\p{N}{1,2}| ?\p{L}+|\s+(?!\S)|\s+",
            r"\++",
        ] {
            assert!(is_linear(linear), "{linear}");
        }
        for other in [
            r"(?:(?:a|a)*|\s*\S*)*(?!.)$x",
            r"^((a|b|.)*)*\1\1x$",
            r"(?=a)",
            r"(?<=a)b",
            r"(?>a)",
            r"(?<n>a)\k<n>",
            "a++",
            "a*+",
            "a{2}+",
            "a{2,3}+",
            r"(?:(?:a|a)*)*\<x",
            r"\Ga",
            r"a\Kb",
            "(*FAIL)",
            "(?x)a+ +",
            r"(?:a*|\s+(?!\S)|\s+)*x",
            r"(?:a*)*(?!x)|\s+(?!\S)",
            r"(a|\s+(?!\S)|\s+",
            r"[a|\s+(?!\S)",
        ] {
            assert!(!is_linear(other), "{other}");
        }
    }

    #[test]
    fn sizes_are_bounded_and_those_of_known_patterns_fit() {
        for entry in vocab::all() {
            let steps: Vec<Json> = entry.patterns.iter().map(|p| json!({"Regex": p})).collect();
            let mut patterns = Patterns::default();
            for step in &steps {
                patterns.add(step);
            }
            assert_eq!(patterns.check_sizes(), Ok(()), "{}", entry.name());
            assert!(patterns.n_bytes * 2 < MAX_BYTES, "{}", entry.name());
        }
        for pattern in [
            json!({"Regex": "a|".repeat(5000)}),
            json!({"String": "a".repeat(9000)}),
            json!({"Regex": r"|\p{L}{500}".repeat(17)}),
        ] {
            let mut patterns = Patterns::default();
            patterns.add(&pattern);
            assert!(patterns.check_sizes().is_err());
        }
    }
}

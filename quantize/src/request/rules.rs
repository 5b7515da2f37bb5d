//! The rules of `--tensor-type` and `--tensor-type-file`, with bounds on the memory and the time that they take: each
//! is compiled, and may be tried on every tensor.

use std::path::Path;

use gguf::short;
use gguf_cli::{Failure, Result, count, human_bytes, read_text};
use regex::{Regex, RegexBuilder};

use super::tensor_type;
use crate::policy::Override;

/// Bytes that a pattern counts for at least. What names a tensor, or some of a layer, has fewer when it is compiled.
const LEAST_PATTERN: usize = 16 << 10;

/// Bytes of a compiled pattern at most.
const MOST_PATTERN: usize = 1 << 20;

/// Bytes of a pattern's text at most.
const MOST_TEXT: usize = 4096;

/// What a byte of text counts for at least: classes take memory and time before they are compiled.
const TEXT_BYTE: usize = MOST_PATTERN / MOST_TEXT;

/// Bytes that all patterns count for at most: 2048 rules that name a tensor each. What is made of them while they are
/// used takes some times as much.
const MOST_PATTERNS: usize = 32 << 20;

/// Bytes that all patterns count for, times those of all names that they are searched in, at most: a few seconds. A
/// model of 1300 tensors with a rule for each takes a fifth of it.
const MOST_SEARCH: u64 = 1 << 42;

/// Rules in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) list: Vec<Override>,
    /// Bytes that their patterns count for.
    size: usize,
}

impl Rules {
    /// Adds a rule `REGEX=TENSOR_TYPE`; `place` says where it was given.
    ///
    /// # Errors
    /// A rule that is none, or is too large, alone or with those before it.
    pub(super) fn add(&mut self, rule: &str, place: &str) -> Result<()> {
        let (rule, size) = parse(rule, place)?;
        self.size += size;
        if self.size > MOST_PATTERNS {
            return Err(Failure::Usage(format!(
                "{place}: the patterns up to this one count for more than {}, each for {} at least; take fewer or simpler \
                 ones",
                human_bytes(MOST_PATTERNS as u64),
                human_bytes(LEAST_PATTERN as u64)
            )));
        }
        self.list.push(rule);
        Ok(())
    }

    /// Adds the rules of a file, which white space separates.
    ///
    /// # Errors
    /// Those of [`Rules::add`]; a file without rules, or one that cannot be read.
    pub(super) fn add_file(&mut self, path: &Path) -> Result<()> {
        let text = read_text(path)?;
        let n_before = self.list.len();
        for (i, item) in text.split_whitespace().enumerate() {
            let place = format!(
                "--tensor-type-file `{}`, item {}, `{}`",
                path.display(),
                i + 1,
                short(item)
            );
            self.add(item, &place)?;
        }
        if self.list.len() == n_before {
            return Err(Failure::Usage(format!(
                "--tensor-type-file `{}`: expected NAME_OR_REGEX=TENSOR_TYPE items, found none",
                path.display()
            )));
        }
        Ok(())
    }

    /// Whether all rules can be tried on all of so many tensors, whose names have so many bytes.
    ///
    /// # Errors
    /// Rules that take too long.
    pub(super) fn check_search(&self, n_tensors: usize, name_bytes: usize) -> Result<()> {
        let search = (self.size as u64).saturating_mul(name_bytes as u64);
        if search <= MOST_SEARCH {
            return Ok(());
        }
        let n_rules = self.list.len() as u64;
        Err(Failure::Usage(format!(
            "--tensor-type, --tensor-type-file: {} on {} take too long: expected at most {} of this size; let one match \
             more names",
            count(n_rules, "rule"),
            count(n_tensors as u64, "tensor"),
            n_rules * MOST_SEARCH / search
        )))
    }
}

/// A rule, and the bytes that its pattern counts for.
fn parse(rule: &str, place: &str) -> Result<(Override, usize)> {
    let bad = |what: &str| Failure::Usage(format!("{place}: {what}"));
    let (pattern, name) = rule
        .rsplit_once('=')
        .ok_or_else(|| bad("expected NAME_OR_REGEX=TENSOR_TYPE"))?;
    if pattern.is_empty() {
        return Err(bad("expected a pattern in front of `=`"));
    }
    let type_name = tensor_type(name).map_err(|e| e.of(place))?;
    let (pattern, size) = compile(pattern).map_err(|what| bad(&what))?;
    let rule = Override {
        text: rule.to_owned(),
        pattern,
        type_name,
    };
    Ok((rule, size))
}

/// A pattern, and the bytes that it counts for: what it has compiled, to a factor of four.
fn compile(pattern: &str) -> std::result::Result<(Regex, usize), String> {
    if pattern.len() > MOST_TEXT {
        let n = pattern.len();
        return Err(format!(
            "expected a pattern of at most {MOST_TEXT} bytes, found {n}"
        ));
    }
    let mut size = LEAST_PATTERN.max(pattern.len() * TEXT_BYTE);
    loop {
        let built = RegexBuilder::new(pattern)
            .case_insensitive(true)
            .size_limit(size)
            .dfa_size_limit(4 * size)
            .build();
        match built {
            Ok(pattern) => return Ok((pattern, size)),
            Err(regex::Error::CompiledTooBig(_)) if size < MOST_PATTERN => {
                size = MOST_PATTERN.min(4 * size);
            }
            Err(regex::Error::CompiledTooBig(_)) => {
                let most = human_bytes(MOST_PATTERN as u64);
                return Err(format!(
                    "expected a pattern of at most {most} compiled, found a larger one; repeat less in it"
                ));
            }
            Err(e) => {
                // The crate's message draws the pattern over several lines; its last line says what is wrong.
                let text = e.to_string();
                let last = text.lines().last().unwrap_or_default().trim();
                return Err(format!("not a regular expression: {last}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_from_the_last_equals_sign() {
        let (rule, size) = parse("blk\\.(0|1)\\.FFN=q5_k", "here").unwrap();
        assert!(rule.pattern.is_match("blk.1.ffn_up.weight") && rule.type_name == "Q5_K");
        assert_eq!(size, LEAST_PATTERN);
        let long = format!("{}=q8_0", "x".repeat(MOST_TEXT + 1));
        for (bad, part) in [
            ("ffn", "NAME_OR_REGEX=TENSOR_TYPE"),
            ("=q5_k", "in front of `=`"),
            ("a=Q99", "unknown tensor type `Q99`"),
            ("(a=q8_0", "not a regular expression"),
            (
                "(\\w{90}|xI)=q8_0",
                "at most 1.00 MiB compiled, found a larger one",
            ),
            (long.as_str(), "at most 4096 bytes, found 4097"),
        ] {
            let text = parse(bad, "here").unwrap_err().to_string();
            assert!(
                text.starts_with("here: ") && text.contains(part) && text.lines().count() == 1,
                "{text}"
            );
        }
    }

    #[test]
    fn patterns_count_for_what_they_take() {
        let size = |pattern: &str| compile(pattern).unwrap().1;
        for small in [
            "ffn",
            "blk\\.59\\.ffn_down_exps\\.weight",
            "^blk\\.(0|1|2|3|4|5|6|7)\\.attn_(q|k|v|output)\\.weight$",
            "blk\\.[0-9]+\\.ffn_(up|gate)_shexp",
        ] {
            assert_eq!(size(small), LEAST_PATTERN, "{small}");
        }
        assert!(size("\\w{2}") > LEAST_PATTERN);
        assert_eq!(size(&"x".repeat(MOST_TEXT / 2)), MOST_PATTERN / 2);
        assert_eq!(size(&"x".repeat(MOST_TEXT)), MOST_PATTERN);
    }

    #[test]
    fn all_rules_together_have_bounds() {
        let large = format!("{}=q8_0", "x".repeat(MOST_TEXT));
        let mut rules = Rules::default();
        for _ in 0..MOST_PATTERNS / MOST_PATTERN {
            rules.add(&large, "here").unwrap();
        }
        let text = rules.add("ffn=q8_0", "item 33").unwrap_err().to_string();
        assert_eq!(
            text,
            "item 33: the patterns up to this one count for more than 32.0 MiB, each for 16.0 KiB at least; take fewer or \
             simpler ones"
        );

        let mut rules = Rules::default();
        for i in 0..1300 {
            rules
                .add(&format!("blk\\.{i}\\.ffn_up\\.weight=q8_0"), "here")
                .unwrap();
        }
        rules.check_search(1300, 1300 * 30).unwrap();
        let most = MOST_SEARCH as usize / (1300 * LEAST_PATTERN);
        rules.check_search(20_000, most).unwrap();
        let text = rules.check_search(20_000, 2 * most).unwrap_err().to_string();
        assert!(
            text.contains(": 1300 rules on 20000 tensors take too long: expected at most 650 of this size"),
            "{text}"
        );
        Rules::default().check_search(usize::MAX, usize::MAX).unwrap();
    }
}

//! The rules of `--tensor-type` and `--tensor-type-file`, with bounds on the memory that they take.

use std::path::Path;

use gguf::short;
use gguf_cli::{Failure, Result, read_text};

use super::tensor_type;
use crate::pattern::Pattern;
use crate::policy::Override;

/// Bytes that all patterns count for at most: 4096 rules that name a tensor each, of which no model has more. What is
/// made of them while they are used takes some times as much.
const MOST_PATTERNS: usize = 64 << 20;

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
        let bad = |what: &str| Failure::Usage(format!("{place}: {what}"));
        let rule = parse(rule, place)?;
        self.size += rule.pattern.size();
        if self.size > MOST_PATTERNS {
            let n = self.list.len();
            return Err(bad(&format!(
                "expected at most {n} rules of this size, found more; take fewer or simpler ones, or let one match more \
                 names"
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
}

fn parse(rule: &str, place: &str) -> Result<Override> {
    let bad = |what: &str| Failure::Usage(format!("{place}: {what}"));
    let (pattern, name) = rule
        .rsplit_once('=')
        .ok_or_else(|| bad("expected NAME_OR_REGEX=TENSOR_TYPE"))?;
    if pattern.is_empty() {
        return Err(bad("expected a pattern in front of `=`"));
    }
    let type_name = tensor_type(name).map_err(|e| e.of(place))?;
    let pattern = Pattern::compile(pattern).map_err(|what| bad(&what))?;
    Ok(Override {
        text: rule.to_owned(),
        place: place.to_owned(),
        pattern,
        type_name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_from_the_last_equals_sign() {
        let rule = parse("blk\\.(0|1)\\.FFN=q5_k", "here").unwrap();
        assert!(rule.pattern.is_in("blk.1.ffn_up.weight") && rule.type_name == "Q5_K");
        for (bad, part) in [
            ("ffn", "NAME_OR_REGEX=TENSOR_TYPE"),
            ("=q5_k", "in front of `=`"),
            ("a=Q99", "unknown tensor type `Q99`"),
            ("(a=q8_0", "not a regular expression"),
        ] {
            let text = parse(bad, "here").unwrap_err().to_string();
            assert!(
                text.starts_with("here: ") && text.contains(part) && text.lines().count() == 1,
                "{text}"
            );
        }
    }

    #[test]
    fn all_rules_together_have_bounds() {
        let mut rules = Rules::default();
        let n = 4096;
        for i in 0..n {
            let rule = format!("blk\\.{i}\\.ffn_down_exps\\.weight=q8_0");
            rules.add(&rule, "here").unwrap();
        }
        let text = rules.add("ffn=q8_0", "item 4097").unwrap_err().to_string();
        assert_eq!(
            text,
            "item 4097: expected at most 4096 rules of this size, found more; take fewer or simpler ones, or let one match \
             more names"
        );
    }
}

//! The rules of `--tensor-type` and `--tensor-type-file`, with bounds on the memory that they take and on the time: each
//! may be tried on every tensor.

use std::path::Path;

use gguf::short;
use gguf_cli::{Failure, Result, human_bytes, read_text};

use super::tensor_type;
use crate::pattern::Pattern;
use crate::policy::Override;

/// Rules at most: a model with a trillion parameters has fewer tensors.
const MOST_RULES: usize = 4096;

/// Bytes of all patterns at most.
const MOST_PATTERNS: usize = 64 << 20;

/// Rules in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) list: Vec<Override>,
    /// Bytes of their patterns.
    size: usize,
}

impl Rules {
    /// Adds a rule `REGEX=TENSOR_TYPE`; `place` says where it was given.
    ///
    /// # Errors
    /// A rule that is none, or is too large, alone or with those before it.
    pub(super) fn add(&mut self, rule: &str, place: &str) -> Result<()> {
        let bad = |what: &str| Failure::Usage(format!("{place}: {what}"));
        if self.list.len() == MOST_RULES {
            return Err(bad(&format!(
                "expected at most {MOST_RULES} rules, found more; let one match more names"
            )));
        }
        let rule = parse(rule, place)?;
        self.size += rule.pattern.size();
        if self.size > MOST_PATTERNS {
            return Err(bad(&format!(
                "expected rules whose patterns have at most {} compiled, found more up to this one; take fewer or simpler \
                 ones",
                human_bytes(MOST_PATTERNS as u64)
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
        let large = {
            let digits: String = (1000..2024).map(|i: u32| i.to_string()).collect();
            format!("{digits}=q8_0")
        };
        let mut rules = Rules::default();
        let most = MOST_PATTERNS / parse(&large, "here").unwrap().pattern.size();
        for _ in 0..most {
            rules.add(&large, "here").unwrap();
        }
        let text = rules.add(&large, "item 9").unwrap_err().to_string();
        assert_eq!(
            text,
            "item 9: expected rules whose patterns have at most 64.0 MiB compiled, found more up to this one; take fewer or \
             simpler ones"
        );

        let mut rules = Rules::default();
        for i in 0..MOST_RULES {
            let rule = format!("blk\\.{i}\\.ffn_down_exps\\.weight=q8_0");
            rules.add(&rule, "here").unwrap();
        }
        let text = rules.add("ffn=q8_0", "item 4097").unwrap_err().to_string();
        assert_eq!(
            text,
            "item 4097: expected at most 4096 rules, found more; let one match more names"
        );
    }
}

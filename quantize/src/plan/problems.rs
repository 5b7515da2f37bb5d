//! Everything that speaks against a plan, gathered so that a user sees it at once.

use std::collections::HashMap;

use gguf::listed;
use gguf_cli::{Failure, count, shortened};

/// Names that a line has of a problem that may concern every tensor.
const SOME_NAMES: usize = 4;

/// Problems that a failure names: every tensor may have one of its own.
const SOME_PROBLEMS: usize = 64;

/// Problems in the order in which they were found, those of one kind together.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    kinds: Vec<Kind>,
    /// Where a problem of tensors is among the kinds.
    by_what: HashMap<String, usize>,
}

#[derive(Debug)]
struct Kind {
    what: String,
    /// The tensors concerned; none for problems of the whole.
    tensors: Vec<String>,
    /// Whether the command line is at fault and not the input.
    is_usage: bool,
    /// Whether every tensor is named, however many there are.
    names_all: bool,
}

impl Problems {
    /// A problem of a tensor; every tensor with the same one is named.
    pub(crate) fn tensor(&mut self, name: &str, what: String) {
        self.add(name, what, true);
    }

    /// A problem of a tensor that every other may have too: only some are named.
    pub(crate) fn some(&mut self, name: &str, what: String) {
        self.add(name, what, false);
    }

    fn add(&mut self, name: &str, what: String, names_all: bool) {
        if let Some(&at) = self.by_what.get(&what) {
            self.kinds[at].tensors.push(name.to_owned());
            return;
        }
        self.by_what.insert(what.clone(), self.kinds.len());
        self.kinds.push(Kind {
            what,
            tensors: vec![name.to_owned()],
            is_usage: false,
            names_all,
        });
    }

    /// A problem of the whole, which names its object.
    pub(crate) fn input(&mut self, what: String) {
        self.whole(what, false);
    }

    /// As [`Problems::input`], for which the command line is at fault.
    pub(crate) fn usage(&mut self, what: String) {
        self.whole(what, true);
    }

    fn whole(&mut self, what: String, is_usage: bool) {
        self.kinds.push(Kind {
            what,
            tensors: Vec::new(),
            is_usage,
            names_all: true,
        });
    }

    /// The problems as lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.kinds.iter().map(Kind::line).collect()
    }

    /// All of them in one failure, which names the first of very many; `Ok` if there is none.
    pub(crate) fn check(&self) -> gguf_cli::Result<()> {
        let lines = self.lines();
        let text = match lines.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            all => {
                let numbered = all
                    .iter()
                    .enumerate()
                    .map(|(i, line)| format!("({}) {line}", i + 1));
                let numbered = numbered.collect::<Vec<_>>();
                let shown = shortened(&numbered, SOME_PROBLEMS, " (`--dry-run --json` has all)");
                format!("{}: {}", count(all.len() as u64, "problem"), shown.join("; "))
            }
        };
        if self.kinds.iter().all(|k| k.is_usage) {
            return Err(Failure::Usage(text));
        }
        Err(Failure::Input(text))
    }
}

impl Kind {
    fn line(&self) -> String {
        if self.tensors.is_empty() {
            return self.what.clone();
        }
        let n = self.tensors.len();
        let shown = if self.names_all { n } else { n.min(SOME_NAMES) };
        let names: Vec<String> = self.tensors.iter().map(|n| format!("`{n}`")).collect();
        let tensor = if n == 1 { "tensor" } else { "tensors" };
        format!("{tensor} {}: {}", listed(&names, shown, ", "), self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_problems_the_first_are_named() {
        let mut all = Problems::default();
        // The whole has a problem in the words of tensors' too, and it stays one of its own.
        all.input("lacks 7".into());
        for round in 0..2 {
            for i in 0..1000 {
                all.tensor(&format!("{round}.{i}"), format!("lacks {i}"));
            }
        }
        let lines = all.lines();
        assert_eq!((lines.len(), lines[0].as_str()), (1001, "lacks 7"));
        for (i, line) in lines[1..].iter().enumerate() {
            assert_eq!(*line, format!("tensors `0.{i}`, `1.{i}`: lacks {i}"));
        }
        let text = all.check().unwrap_err().to_string();
        assert!(text.starts_with("1001 problems: (1) lacks 7; (2) tensors `0.0`, `1.0`: lacks 0; (3) "));
        let end = "; (64) tensors `0.62`, `1.62`: lacks 62; and 937 more (`--dry-run --json` has all)";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn problems_of_one_kind_share_a_line() {
        let mut all = Problems::default();
        assert!(all.check().is_ok());
        all.tensor("a", "lacks x".into());
        assert_eq!(all.check().unwrap_err().to_string(), "tensor `a`: lacks x");
        all.usage("rule `r`: nothing".into());
        all.tensor("b", "lacks x".into());
        for name in ["c", "d", "e", "f", "g", "h"] {
            all.some(name, "is old".into());
        }
        assert_eq!(
            all.check().unwrap_err().to_string(),
            "3 problems: (1) tensors `a`, `b`: lacks x; (2) rule `r`: nothing; (3) tensors `c`, `d`, `e`, `f` and 2 more: \
             is old"
        );
        assert!(matches!(all.check(), Err(Failure::Input(_))));
    }
}

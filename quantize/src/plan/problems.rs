//! Everything that speaks against a plan, gathered so that a user sees it at once.

use gguf_cli::{Failure, count};

/// Names that a line has of a problem that may concern every tensor.
const SOME_NAMES: usize = 4;

/// Problems in the order in which they were found, those of one kind together.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    kinds: Vec<Kind>,
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
        match self
            .kinds
            .iter_mut()
            .find(|k| k.what == what && !k.tensors.is_empty())
        {
            Some(kind) => kind.tensors.push(name.to_owned()),
            None => self.kinds.push(Kind {
                what,
                tensors: vec![name.to_owned()],
                is_usage: false,
                names_all,
            }),
        }
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

    /// All of them in one failure; `Ok` if there is none.
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
                let all = numbered.collect::<Vec<_>>();
                format!("{}: {}", count(all.len() as u64, "problem"), all.join("; "))
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
        let names: Vec<String> = self.tensors[..shown].iter().map(|n| format!("`{n}`")).collect();
        let more = match n - shown {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let tensor = if n == 1 { "tensor" } else { "tensors" };
        format!("{tensor} {}{more}: {}", names.join(", "), self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

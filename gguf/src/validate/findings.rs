//! Findings as they are gathered: a file may have as many as it has bytes, of which a few of each kind say enough.

use super::Finding;

/// Findings of one kind that are kept; of those beyond only the number is.
const OF_KIND: u64 = 100;

/// Findings, of each kind the first 100 and the number of the others.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    list: Vec<Finding>,
    kinds: Vec<Kind>,
    part: usize,
}

#[derive(Clone, Debug)]
struct Kind {
    name: &'static str,
    n: u64,
    /// The first one that is not kept, without its words: what is said of the others goes by it.
    beyond: Option<Finding>,
}

impl Findings {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// What comes next is about this part, where it does not say so itself.
    pub(super) fn set_part(&mut self, part: usize) {
        self.part = part;
    }

    /// Adds one of a kind, whose name is that of several: `tensors that overlap`.
    pub fn push(&mut self, kind: &'static str, finding: impl FnOnce() -> Finding) {
        let i = self.kinds.iter().position(|k| k.name == kind);
        let i = i.unwrap_or_else(|| {
            self.kinds.push(Kind {
                name: kind,
                n: 0,
                beyond: None,
            });
            self.kinds.len() - 1
        });
        let kind = &mut self.kinds[i];
        kind.n += 1;
        if kind.n > OF_KIND && kind.beyond.is_some() {
            return;
        }
        let finding = placed(finding(), self.part);
        if kind.n <= OF_KIND {
            self.list.push(finding);
        } else {
            kind.beyond = Some(Finding {
                object: String::new(),
                what: String::new(),
                at: None,
                ..finding
            });
        }
    }

    /// Adds one that a file has once.
    pub fn one(&mut self, finding: Finding) {
        self.list.push(placed(finding, self.part));
    }

    /// Adds those that were gathered elsewhere, which are few.
    pub fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|f| self.one(f));
    }

    /// All of them, and for each kind that has more one finding that counts these.
    pub fn into_vec(self) -> Vec<Finding> {
        let mut list = self.list;
        for kind in self.kinds {
            if let Some(beyond) = kind.beyond {
                list.push(Finding {
                    object: kind.name.to_owned(),
                    what: format!("and {} more, which are not listed", kind.n - OF_KIND),
                    ..beyond
                });
            }
        }
        list
    }
}

/// A finding about a part, where it does not say so itself.
fn placed(mut finding: Finding, part: usize) -> Finding {
    if finding.part == 0 {
        finding.part = part;
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::{Finding, Findings, OF_KIND};

    #[test]
    fn of_each_kind_some_are_kept_and_the_others_counted() {
        let mut findings = Findings::new();
        findings.set_part(3);
        for i in 0..OF_KIND + 7 {
            findings.push("pairs that are odd", || {
                Finding::severe(format!("key `{i}`"), Some(i), "odd", "remove it")
            });
        }
        findings.push("others", || Finding::unusual("file", None, "other", "nothing"));
        let list = findings.into_vec();
        assert_eq!(list.len() as u64, OF_KIND + 2);
        assert!(list.iter().all(|f| f.part == 3));
        let more = &list[list.len() - 1];
        assert_eq!(
            (more.severe, more.object.as_str(), more.what.as_str()),
            (true, "pairs that are odd", "and 7 more, which are not listed")
        );
    }
}

//! Several matrices as one: sums and counts of all texts together, as if one run had seen them.

use std::collections::{BTreeMap, HashSet};

use gguf::{listed, short};

use crate::{Entry, Error, Imatrix, Origin, Result, is_experts};

/// Texts that a note names.
const N_TEXTS: usize = 8;

/// Sums of one weight in f64, so that the order of merging many files does not show.
#[derive(Debug)]
struct Sums {
    squares: Vec<f64>,
    /// Empty where a part has none.
    values: Vec<f64>,
    counts: Vec<u64>,
}

/// Adds up matrices.
#[derive(Debug)]
pub struct Merger {
    sums: BTreeMap<String, Sums>,
    datasets: Vec<String>,
    /// Tokens of a chunk; 1 where counts are chunks.
    chunk_size: u32,
    origin: Option<Origin>,
}

impl From<Entry> for Sums {
    fn from(e: Entry) -> Self {
        let wide = |v: Vec<f32>| v.into_iter().map(f64::from).collect();
        Self {
            squares: wide(e.sums),
            values: wide(e.means),
            counts: e.counts,
        }
    }
}

/// Whose plain sums a merge of two gives up, because the other one has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Own,
    Other,
}

impl Entry {
    /// Why it cannot be added to an entry of the same weight with `n_sums` sums and `n_counts` counts, if it cannot.
    pub fn misfit(&self, n_sums: usize, n_counts: usize) -> Option<String> {
        let (sums, counts) = (self.sums.len(), self.counts.len());
        if sums != n_sums {
            Some(format!("expected {n_sums} sums, found {sums}"))
        } else if counts != n_counts && counts != 1 && n_counts != 1 {
            Some(format!("expected {n_counts} counts, found {counts}"))
        } else {
            None
        }
    }
}

/// Refuses `other`, of a weight that has `n_sums` sums and `n_counts` counts so far.
fn check(name: &str, n_sums: usize, n_counts: usize, other: &Entry) -> Result<()> {
    other.misfit(n_sums, n_counts).map_or(Ok(()), |what| {
        let what = format!("weight `{name}`: {what}; the matrices are of different models");
        Err(Error::Misfit { what: what.into() })
    })
}

impl Sums {
    fn scale(&mut self, by: u32) {
        let factor = f64::from(by);
        self.squares.iter_mut().for_each(|s| *s *= factor);
        self.values.clear();
        for count in &mut self.counts {
            *count = count.saturating_mul(by.into());
        }
    }

    /// Adds sums that fit. Returns whether plain sums were given up, and whose.
    fn add(&mut self, mut other: Self, is_experts: bool) -> Option<Lost> {
        if self.counts.len() != other.counts.len() {
            let all_equal = |c: &[u64]| c.iter().all(|n| *n == c[0]);
            if !is_experts && all_equal(&self.counts) && all_equal(&other.counts) {
                // Older files have a count for each matrix of a weight without experts.
                self.counts.truncate(1);
                other.counts.truncate(1);
            }
            let n = self.counts.len().max(other.counts.len());
            for counts in [&mut self.counts, &mut other.counts] {
                let first = counts[0];
                counts.resize(n, first);
            }
        }
        for (a, b) in self.squares.iter_mut().zip(&other.squares) {
            *a += b;
        }
        for (a, b) in self.counts.iter_mut().zip(&other.counts) {
            *a = a.saturating_add(*b);
        }
        let lost = match (self.values.is_empty(), other.values.is_empty()) {
            (false, true) => Some(Lost::Own),
            (true, false) => Some(Lost::Other),
            _ => None,
        };
        if self.values.len() == other.values.len() {
            for (a, b) in self.values.iter_mut().zip(&other.values) {
                *a += b;
            }
        } else {
            self.values.clear();
        }
        lost
    }

    fn into_entry(self) -> Entry {
        let narrow = |v: Vec<f64>| v.into_iter().map(|s| s as f32).collect();
        Entry {
            sums: narrow(self.squares),
            means: narrow(self.values),
            counts: self.counts,
        }
    }
}

impl Merger {
    /// Begins with one matrix.
    pub fn new(first: Imatrix) -> Self {
        Self {
            sums: first.entries.into_iter().map(|(n, e)| (n, e.into())).collect(),
            datasets: first.datasets,
            chunk_size: first.chunk_size.max(1),
            origin: first.origin,
        }
    }

    /// Adds another. Returns what a user should know of it, a line each. If it is refused nothing was added.
    ///
    /// # Errors
    /// A weight whose sums are of another length than before.
    pub fn add(&mut self, other: Imatrix) -> Result<Vec<String>> {
        for (name, entry) in &other.entries {
            if let Some(s) = self.sums.get(name) {
                check(name, s.squares.len(), s.counts.len(), entry)?;
            }
        }
        let mut notes = Vec::new();
        let scale = self.unify(other.chunk_size.max(1), &mut notes);
        let (mut lost_own, mut lost_other, mut fresh) = (0, 0, 0);
        let before = self.sums.len();
        for (name, entry) in other.entries {
            let mut sums = Sums::from(entry);
            if scale > 1 {
                sums.scale(scale);
            }
            let is_experts = is_experts(&name);
            if let Some(all) = self.sums.get_mut(&name) {
                match all.add(sums, is_experts) {
                    Some(Lost::Own) => lost_own += 1,
                    Some(Lost::Other) => lost_other += 1,
                    None => {}
                }
            } else {
                fresh += 1;
                self.sums.insert(name, sums);
            }
        }
        if fresh > 0 {
            notes.push(format!(
                "{fresh} of {} weights were not in the matrices before",
                before + fresh
            ));
        }
        if lost_own > 0 {
            notes.push(format!(
                "there are no plain sums of {lost_own} of {} weights here: those of the matrices before are dropped",
                before + fresh
            ));
        }
        if lost_other > 0 {
            notes.push(format!(
                "the plain sums of {lost_other} of {} weights are dropped: the matrices before have none",
                before + fresh
            ));
        }
        self.datasets.extend(other.datasets);
        self.merge_origin(other.origin, &mut notes);
        Ok(notes)
    }

    /// Brings the counts of both into tokens of one size of chunks; what the other's are to be multiplied by.
    fn unify(&mut self, other: u32, notes: &mut Vec<String>) -> u32 {
        let own = self.chunk_size;
        let legacy = |n: u32| format!("counts of the legacy form are chunks: taken for {n} tokens each");
        match (own, other) {
            (a, b) if a == b => 1,
            (1, n) => {
                self.sums.values_mut().for_each(|s| s.scale(n));
                self.chunk_size = n;
                notes.push(legacy(n));
                1
            }
            (n, 1) => {
                notes.push(legacy(n));
                n
            }
            (a, b) => {
                notes.push(format!(
                    "chunks of {b} tokens are added to chunks of {a}: the number of chunks is that of {a} tokens"
                ));
                1
            }
        }
    }

    fn merge_origin(&mut self, other: Option<Origin>, notes: &mut Vec<String>) {
        let (Some(own), Some(other)) = (&mut self.origin, &other) else {
            if self.origin.take().or(other).is_some() {
                notes.push(
                    "only some of the matrices say what they were made of: the result does not".to_owned(),
                );
            }
            return;
        };
        let mut before: HashSet<&str> = own.texts.iter().map(String::as_str).collect();
        let texts = other.texts.iter().map(String::as_str);
        let again: Vec<_> = texts.filter(|t| before.remove(t)).map(short).collect();
        if !again.is_empty() {
            let (texts, are) = if again.len() == 1 {
                ("text", "is")
            } else {
                ("texts", "are")
            };
            notes.push(format!(
                "{texts} {} {are} in the matrices before: chunks that both saw count twice",
                listed(&again, N_TEXTS, ", ")
            ));
        }
        own.texts.extend(other.texts.iter().cloned());
        if own.model != other.model {
            let parts = own.model.as_ref().zip(other.model.as_ref());
            let same_weights = parts.is_some_and(|(a, b)| a.fingerprint == b.fingerprint);
            own.model = None;
            notes.push(if same_weights {
                "the matrices were made with different settings of one model: the result names no model"
                    .to_owned()
            } else {
                "the matrices were made with different models: the result names none".to_owned()
            });
        }
    }

    /// All of them as one. The number of chunks follows from the largest count.
    pub fn finish(self) -> Imatrix {
        let size = u64::from(self.chunk_size);
        let counts = self.sums.values().flat_map(|s| &s.counts);
        let most = counts.max().copied().unwrap_or(0);
        let chunks = most.saturating_add(size / 2) / size;
        Imatrix {
            entries: self.sums.into_iter().map(|(n, s)| (n, s.into_entry())).collect(),
            datasets: self.datasets,
            chunk_count: u32::try_from(chunks).unwrap_or(u32::MAX),
            chunk_size: self.chunk_size,
            origin: self.origin,
        }
    }
}

impl Imatrix {
    /// Adds another matrix, which loses nothing that one run over both texts would have. Of many, [`Merger`] rounds
    /// only once. Returns what a user should know, a line each. If it is refused this matrix stays as it was.
    ///
    /// # Errors
    /// A weight whose sums are of another length than here.
    pub fn merge(&mut self, other: Self) -> Result<Vec<String>> {
        for (name, entry) in &other.entries {
            if let Some(own) = self.entries.get(name) {
                check(name, own.sums.len(), own.counts.len(), entry)?;
            }
        }
        let mut all = Merger::new(std::mem::take(self));
        let notes = all.add(other)?;
        *self = all.finish();
        Ok(notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OriginModel;

    fn one(name: &str, sums: &[f32], counts: &[u64], chunk_size: u32) -> Imatrix {
        let entry = Entry {
            sums: sums.to_vec(),
            means: if chunk_size > 1 { sums.to_vec() } else { vec![] },
            counts: counts.to_vec(),
        };
        Imatrix {
            entries: [(name.to_owned(), entry)].into(),
            datasets: vec!["t".to_owned()],
            chunk_count: 1,
            chunk_size,
            origin: None,
        }
    }

    const EXPERTS: &str = "blk.0.ffn_up_exps.weight";

    #[test]
    fn many_small_parts_round_once() {
        // Each step from 2^24 on would lose its 1 in f32.
        let mut all = Merger::new(one("w", &[16_777_216.0], &[4], 4));
        for _ in 0..4 {
            assert_eq!(all.add(one("w", &[1.0], &[4], 4)).unwrap(), Vec::<String>::new());
        }
        let all = all.finish();
        let w = &all.entries["w"];
        assert_eq!(
            (w.sums[0], w.means[0], w.counts[0]),
            (16_777_220.0, 16_777_220.0, 20)
        );
        assert_eq!((all.chunk_count, all.datasets.len()), (5, 5));
    }

    #[test]
    fn legacy_counts_become_tokens_whichever_comes_first() {
        let new = one(EXPERTS, &[1.0, 2.0, 3.0, 4.0], &[7, 1], 8);
        let old = one(EXPERTS, &[0.5, 1.0, 1.5, 2.0], &[2], 1);
        let mut a = new.clone();
        let notes = a.merge(old.clone()).unwrap();
        assert!(
            notes[0].contains("8 tokens each") && notes[1].contains("plain sums of 1 of 1"),
            "{notes:?}"
        );
        assert!(
            notes[1].ends_with("those of the matrices before are dropped"),
            "{notes:?}"
        );
        let mut b = old;
        let notes = b.merge(new).unwrap();
        assert_eq!(
            notes[1],
            "the plain sums of 1 of 1 weights are dropped: the matrices before have none"
        );
        assert_eq!(a.entries, b.entries);
        let e = &a.entries[EXPERTS];
        assert_eq!(
            (e.sums.as_slice(), e.counts.as_slice()),
            (&[5.0, 10.0, 15.0, 20.0][..], &[23, 17][..])
        );
        assert_eq!((a.chunk_size, a.chunk_count, b.chunk_size), (8, 3, 8));
    }

    #[test]
    fn one_count_is_all_matrices_and_equal_counts_of_heads_are_one() {
        let (per_head, shared) = ([5, 5], [3]);
        for (name, expected) in [("blk.0.attn_k_b.weight", &[8][..]), (EXPERTS, &[8, 8])] {
            let mut m = one(name, &[1.0; 4], &per_head, 2);
            m.merge(one(name, &[1.0; 4], &shared, 2)).unwrap();
            assert_eq!(m.entries[name].counts, expected, "{name}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let mut m = one("w", &[1.0; 4], &[5, 6], 2);
        let before = m.clone();
        for (other, part) in [
            (
                one("w", &[1.0; 3], &[1], 2),
                "weight `w`: expected 4 sums, found 3",
            ),
            (one("w", &[1.0; 4], &[1; 4], 2), "expected 2 counts, found 4"),
        ] {
            let text = m.merge(other).unwrap_err().to_string();
            assert!(text.contains(part) && text.contains("different models"), "{text}");
        }
        assert_eq!(m, before);
        let notes = m.merge(one("v", &[1.0], &[1], 3)).unwrap();
        assert!(
            notes[0].contains("chunks of 3 tokens") && notes[1].contains("1 of 2 weights"),
            "{notes:?}"
        );
    }

    #[test]
    fn a_model_stays_if_it_is_the_same() {
        let made = |fingerprint: &str, text: &str| {
            let model = OriginModel {
                architecture: "a".to_owned(),
                fingerprint: fingerprint.to_owned(),
                settings: vec!["a.b=1".to_owned()],
            };
            let mut m = one("w", &[1.0], &[1], 2);
            m.origin = Some(Origin {
                model: Some(model),
                texts: vec![text.to_owned()],
                tool: "t".to_owned(),
            });
            m
        };
        let mut m = made("x", "1");
        assert!(m.merge(made("x", "2")).unwrap().is_empty());
        let origin = m.origin.clone().unwrap();
        assert_eq!(
            (origin.texts.as_slice(), origin.model.is_some()),
            (&["1".to_owned(), "2".to_owned()][..], true)
        );
        let notes = m.merge(made("x", "1")).unwrap();
        assert!(
            notes.len() == 1 && notes[0].starts_with("text 1 is in the matrices before"),
            "{notes:?}"
        );
        let notes = m.merge(made("y", "3")).unwrap();
        assert!(notes[0].contains("different models"), "{notes:?}");
        let origin = m.origin.clone().unwrap();
        assert_eq!((origin.texts.len(), origin.model), (4, None));
        let notes = m.merge(one("w", &[1.0], &[1], 2)).unwrap();
        assert!(
            notes.iter().any(|n| n.contains("only some of the matrices")) && m.origin.is_none(),
            "{notes:?}"
        );
    }

    #[test]
    fn texts_that_come_again_are_told_in_their_order() {
        let made = |texts: Vec<String>| Imatrix {
            origin: Some(Origin {
                model: None,
                texts,
                tool: "t".to_owned(),
            }),
            ..one("w", &[1.0], &[1], 2)
        };
        let texts = |from: u32, to: u32| -> Vec<String> { (from..to).rev().map(|n| n.to_string()).collect() };
        let mut m = made(texts(0, 20_000));
        let notes = m.merge(made(texts(10_000, 30_000))).unwrap();
        let again = format!("{} and 9992 more", texts(19_992, 20_000).join(", "));
        let note = format!("texts {again} are in the matrices before: chunks that both saw count twice");
        assert!(notes == [note], "{} notes", notes.len());
        assert_eq!(m.origin.unwrap().texts.len(), 40_000);
    }
}

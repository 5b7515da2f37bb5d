//! Merging of neighbours, best first: what byte-level BPE and SPM have in common.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// No symbol, no token.
pub(super) const NONE: u32 = u32::MAX;

/// A stretch of the text: a character at first, then what became of it and its right neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    start: u32,
    /// 0 once it is part of its left neighbour.
    len: u32,
    /// What the model calls it.
    pub(super) id: u32,
    prev: u32,
    next: u32,
}

impl Symbol {
    /// Bytes of the text.
    pub(super) fn range(&self) -> Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }
}

/// Two neighbours that can be merged. The order of the fields is the order of merging: lowest rank, then
/// leftmost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: u32,
    right: u32,
    /// Bytes of both; one that grew meanwhile makes the candidate void.
    len: u32,
    id: u32,
}

/// Merges the symbols of one text at a time; its buffers are kept for the next.
#[derive(Debug, Default)]
pub(super) struct Merger {
    symbols: Vec<Symbol>,
    candidates: BinaryHeap<Reverse<Candidate>>,
    n_bytes: u32,
}

impl Merger {
    /// Forgets the last text.
    pub(super) fn clear(&mut self) {
        self.symbols.clear();
        self.candidates.clear();
        self.n_bytes = 0;
    }

    /// Appends a symbol of `len` bytes. A text has less than 4 GiB.
    pub(super) fn push(&mut self, len: u32, id: u32) {
        let at = self.symbols.len() as u32;
        if let Some(last) = self.symbols.last_mut() {
            last.next = at;
        }
        self.symbols.push(Symbol {
            start: self.n_bytes,
            len,
            id,
            prev: at.checked_sub(1).unwrap_or(NONE),
            next: NONE,
        });
        self.n_bytes += len;
    }

    /// Merges until no two neighbours can be. `join` gives the rank (the lowest is merged first) and the id of
    /// what two neighbours become. Time is n log n in the number of symbols.
    pub(super) fn run(&mut self, join: impl Fn(&Symbol, &Symbol) -> Option<(u32, u32)>) {
        for right in 1..self.symbols.len() as u32 {
            self.consider(right - 1, right, &join);
        }
        while let Some(Reverse(c)) = self.candidates.pop() {
            let (left, right) = (self.symbols[c.left as usize], self.symbols[c.right as usize]);
            if left.len == 0 || left.next != c.right || left.len + right.len != c.len {
                continue;
            }
            self.symbols[c.left as usize] = Symbol {
                len: c.len,
                id: c.id,
                next: right.next,
                ..left
            };
            self.symbols[c.right as usize].len = 0;
            if right.next != NONE {
                self.symbols[right.next as usize].prev = c.left;
                self.consider(c.left, right.next, &join);
            }
            if left.prev != NONE {
                self.consider(left.prev, c.left, &join);
            }
        }
    }

    fn consider(&mut self, left: u32, right: u32, join: &impl Fn(&Symbol, &Symbol) -> Option<(u32, u32)>) {
        let (a, b) = (&self.symbols[left as usize], &self.symbols[right as usize]);
        if let Some((rank, id)) = join(a, b) {
            self.candidates.push(Reverse(Candidate {
                rank,
                left,
                right,
                len: a.len + b.len,
                id,
            }));
        }
    }

    /// The symbols that are left, in order.
    pub(super) fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|s| s.len > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges letters of a text by a list of pairs, best first.
    fn merge(text: &str, merges: &[(&str, &str)]) -> Vec<String> {
        let mut merger = Merger::default();
        text.chars().for_each(|c| merger.push(c.len_utf8() as u32, NONE));
        merger.run(|a, b| {
            let pair = (&text[a.range()], &text[b.range()]);
            let rank = merges.iter().position(|&m| m == pair)? as u32;
            Some((rank, rank))
        });
        merger.symbols().map(|s| text[s.range()].to_owned()).collect()
    }

    #[test]
    fn the_best_pair_comes_first_and_the_leftmost_of_equals() {
        assert_eq!(merge("abc", &[("b", "c"), ("a", "b"), ("a", "bc")]), ["abc"]);
        assert_eq!(merge("abc", &[("b", "c"), ("a", "b")]), ["a", "bc"]);
        assert_eq!(merge("aaaaa", &[("a", "a"), ("aa", "aa")]), ["aaaa", "a"]);
        assert_eq!(merge("ééé", &[("é", "é")]), ["éé", "é"]);
        assert_eq!(merge("", &[("a", "b")]), [""; 0]);
    }

    #[test]
    fn pairs_that_no_longer_exist_are_passed_over() {
        // After `bc` neither `ab` nor `cd` is left.
        let merges = [("b", "c"), ("a", "b"), ("c", "d"), ("bc", "d")];
        assert_eq!(merge("abcd", &merges), ["a", "bcd"]);
    }
}

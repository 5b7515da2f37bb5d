//! All tokens that end at each place of a text, in one walk over the text (Aho and Corasick, 1975).

use super::trie::Trie;

/// Byte strings with ids. A node of the trie stands for the longest end of what was read that some string begins with.
#[derive(Debug)]
pub(super) struct Automaton {
    trie: Trie,
    /// Of each node the node of its longest proper suffix.
    suffixes: Vec<u32>,
    /// Of each node the longest suffix, itself among them, that is a whole string; the root if none is.
    ends: Vec<u32>,
    /// Of each node at which a string ends, how many strings end there.
    ranks: Vec<u32>,
    /// Of each of these one of the shorter ones, chosen so that any is a logarithm of jumps and steps away (Myers, 1983).
    jumps: Vec<u32>,
    /// Bytes of each node.
    lens: Vec<u32>,
    /// Where each byte leads to from the root.
    first: Box<[u32; 256]>,
}

/// A string that ends at a place of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Match {
    node: u32,
    /// Its bytes.
    pub(super) len: u32,
    pub(super) id: u32,
}

impl Automaton {
    /// Of different strings that are not empty. `None` if they have 2^32 bytes or more together.
    pub(super) fn new<'a>(strings: impl Iterator<Item = (&'a str, u32)>) -> Option<Self> {
        let trie = Trie::new(strings)?;
        let n = trie.n_nodes();
        let mut made = Self {
            suffixes: vec![0; n],
            ends: vec![0; n],
            ranks: vec![0; n],
            jumps: vec![0; n],
            lens: vec![0; n],
            first: Box::new([0; 256]),
            trie,
        };
        for (child, byte) in made.trie.children(0) {
            made.first[usize::from(byte)] = child;
        }
        // Parents and shorter strings have lower numbers, so suffixes are known when they are needed.
        for node in 0..n as u32 {
            for (child, byte) in made.trie.children(node) {
                let at = child as usize;
                made.lens[at] = made.lens[node as usize] + 1;
                if node != 0 {
                    made.suffixes[at] = made.next(made.suffixes[node as usize], byte);
                }
                made.ends[at] = made.ends[made.suffixes[at] as usize];
                if made.trie.id(child).is_some() {
                    (made.ranks[at], made.jumps[at]) = made.rank_and_jump(child);
                    made.ends[at] = child;
                }
            }
        }
        Some(made)
    }

    /// The node behind one more byte. Over a text the time is linear: each step to a suffix takes back one of a byte.
    fn next(&self, mut node: u32, byte: u8) -> u32 {
        while node != 0 {
            if let Some(child) = self.trie.child(node, byte) {
                return child;
            }
            node = self.suffixes[node as usize];
        }
        self.first[usize::from(byte)]
    }

    /// Of each place of a text at which strings end, the place and the longest of them.
    pub(super) fn longest<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (u32, Match)> + 'a {
        let mut node = 0;
        (1u32..).zip(text.bytes()).filter_map(move |(end, byte)| {
            node = self.next(node, byte);
            Some((end, self.at(self.ends[node as usize])?))
        })
    }

    /// The longest string of at most `most` bytes that ends where `found` does.
    pub(super) fn shorter(&self, found: Match, most: u32) -> Option<Match> {
        let mut node = found.node;
        while self.lens[node as usize] > most {
            let jump = self.jumps[node as usize];
            node = if self.lens[jump as usize] > most {
                jump
            } else {
                self.next_shorter(node)
            };
        }
        self.at(node)
    }

    /// The node of the next shorter string that ends where that of `node` does, or the root.
    fn next_shorter(&self, node: u32) -> u32 {
        self.ends[self.suffixes[node as usize] as usize]
    }

    /// Rank and jump of a node at which a string ends: the jumps of two shorter ones in one, where these are as wide as
    /// each other.
    fn rank_and_jump(&self, node: u32) -> (u32, u32) {
        let parent = self.next_shorter(node);
        let jump = |of: u32| self.jumps[of as usize];
        let rank = |of: u32| self.ranks[of as usize];
        let (near, far) = (jump(parent), jump(jump(parent)));
        let is_even = rank(parent) - rank(near) == rank(near) - rank(far);
        (rank(parent) + 1, if is_even { far } else { parent })
    }

    fn at(&self, node: u32) -> Option<Match> {
        Some(Match {
            node,
            len: self.lens[node as usize],
            id: self.trie.id(node)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All strings that end at each place.
    fn all(strings: &[&str], text: &str) -> Vec<(u32, Vec<u32>)> {
        let made = Automaton::new(strings.iter().copied().zip(0..)).unwrap();
        let chain = |longest| std::iter::successors(Some(longest), |&m| made.shorter(m, m.len - 1));
        let found = made.longest(text);
        found
            .map(|(end, longest)| (end, chain(longest).map(|m| m.id).collect()))
            .collect()
    }

    #[test]
    fn strings_that_end_at_a_place_come_longest_first() {
        let strings = ["he", "she", "hers", "e", "é"];
        assert_eq!(
            all(&strings, "ushers é"),
            [(4, vec![1, 0, 3]), (6, vec![2]), (9, vec![4])]
        );
        assert_eq!(
            all(&["aa", "aaaa", "b"], "aaaaa"),
            [(2, vec![0]), (3, vec![0]), (4, vec![1, 0]), (5, vec![1, 0])]
        );
        assert_eq!(all(&[], "a"), []);
        assert_eq!(all(&["a"], ""), []);
    }

    #[test]
    fn suffixes_lead_into_other_strings() {
        assert_eq!(all(&["abcd", "bce", "c"], "abce"), [(3, vec![2]), (4, vec![1])]);
    }

    #[test]
    fn shorter_strings_are_a_few_jumps_away() {
        let strings: Vec<String> = (1..=3000).map(|n| "a".repeat(n)).collect();
        let made = Automaton::new(strings.iter().map(String::as_str).zip(0..)).unwrap();
        let (_, longest) = made.longest(&strings[2999]).last().unwrap();
        for most in 1..=3000 {
            assert_eq!(
                made.shorter(longest, most).map(|m| (m.len, m.id)),
                Some((most, most - 1))
            );
            let step = |&node: &u32| {
                let jump = made.jumps[node as usize];
                let to = if made.lens[jump as usize] > most {
                    jump
                } else {
                    made.next_shorter(node)
                };
                (made.lens[node as usize] > most).then_some(to)
            };
            let n_steps = std::iter::successors(Some(longest.node), step).count();
            assert!(n_steps <= 40, "{n_steps} to {most}");
        }
        assert!(made.shorter(longest, 0).is_none());
    }
}

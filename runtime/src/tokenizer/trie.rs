//! All tokens that a text starts with, in one walk.

use std::collections::VecDeque;

use super::merge::NONE;

/// Byte strings with ids. Nodes lie in breadth-first order; the children of a node are neighbours.
#[derive(Debug)]
pub(super) struct Trie {
    nodes: Vec<Node>,
    /// The byte that leads to each node.
    labels: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    first_child: u32,
    n_children: u16,
    /// What ends here, or [`NONE`].
    id: u32,
}

impl Trie {
    /// Of different strings that are not empty. `None` if they have 2^32 bytes or more together.
    pub(super) fn new<'a>(strings: impl Iterator<Item = (&'a str, u32)>) -> Option<Self> {
        let mut sorted: Vec<(&[u8], u32)> = strings.map(|(s, id)| (s.as_bytes(), id)).collect();
        sorted.sort_unstable();
        let n_bytes = sorted.iter().map(|(s, _)| s.len() as u64).sum::<u64>();
        u32::try_from(n_bytes + 1).ok()?;
        let empty = Node {
            first_child: 0,
            n_children: 0,
            id: NONE,
        };
        let mut trie = Self {
            nodes: vec![empty],
            labels: vec![0],
        };
        // The strings below each node from node `at` on, all alike in their first `depth` bytes.
        let mut below = VecDeque::from([(0..sorted.len(), 0usize)]);
        let mut at = 0;
        while let Some((mut range, depth)) = below.pop_front() {
            let first_child = trie.nodes.len() as u32;
            if let Some(&(s, id)) = sorted.get(range.start).filter(|(s, _)| s.len() == depth) {
                debug_assert!(!s.is_empty());
                trie.nodes[at].id = id;
                range.start += 1;
            }
            while !range.is_empty() {
                let label = sorted[range.start].0[depth];
                let n = sorted[range.clone()].partition_point(|(s, _)| s[depth] == label);
                trie.nodes.push(empty);
                trie.labels.push(label);
                below.push_back((range.start..range.start + n, depth + 1));
                range.start += n;
            }
            trie.nodes[at].first_child = first_child;
            trie.nodes[at].n_children = (trie.nodes.len() as u32 - first_child) as u16;
            at += 1;
        }
        Some(trie)
    }

    /// Nodes, the root among them.
    pub(super) fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The children of a node, whose numbers are larger, and the bytes that lead to them.
    pub(super) fn children(&self, node: u32) -> impl Iterator<Item = (u32, u8)> + '_ {
        let Node {
            first_child,
            n_children,
            ..
        } = self.nodes[node as usize];
        (first_child..first_child + u32::from(n_children)).map(|child| (child, self.labels[child as usize]))
    }

    /// The child of a node that a byte leads to.
    pub(super) fn child(&self, node: u32, byte: u8) -> Option<u32> {
        let Node {
            first_child,
            n_children,
            ..
        } = self.nodes[node as usize];
        let labels = &self.labels[first_child as usize..][..usize::from(n_children)];
        Some(first_child + labels.binary_search(&byte).ok()? as u32)
    }

    /// The id of the string that ends at a node, if one does.
    pub(super) fn id(&self, node: u32) -> Option<u32> {
        Some(self.nodes[node as usize].id).filter(|&id| id != NONE)
    }

    /// The length and id of every string that `text` starts with, shortest first.
    pub(super) fn prefixes<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = (usize, u32)> + 'a {
        let mut node = 0;
        let mut len = 0;
        std::iter::from_fn(move || {
            while let Some(&byte) = text.get(len) {
                node = self.child(node, byte)?;
                len += 1;
                if let Some(id) = self.id(node) {
                    return Some((len, id));
                }
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_come_shortest_first() {
        let words = ["b", "a", "abc", "ab", "xyz", "é"];
        let trie = Trie::new(words.into_iter().zip(0..)).unwrap();
        let found = |text: &str| trie.prefixes(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(found("abcd"), [(1, 1), (2, 3), (3, 2)]);
        assert_eq!(found("abx"), [(1, 1), (2, 3)]);
        assert_eq!(found("xy"), []);
        assert_eq!(found("éa"), [(2, 5)]);
        assert_eq!(found(""), []);
        let none = Trie::new(std::iter::empty()).unwrap();
        assert_eq!(none.prefixes(b"a").count(), 0);
    }

    #[test]
    fn every_byte_can_follow() {
        let letters: Vec<String> = (0..0x800u32)
            .filter_map(char::from_u32)
            .map(String::from)
            .collect();
        let trie = Trie::new(letters.iter().map(String::as_str).zip(0..)).unwrap();
        for (letter, id) in letters.iter().zip(0..) {
            assert_eq!(trie.prefixes(letter.as_bytes()).last(), Some((letter.len(), id)));
        }
    }
}

//! Patterns of `--tensor-type` rules, as automata that look once at each byte of a name, whatever the pattern: rules are
//! shared like files, and each may be tried on every tensor. What would need a large automaton is refused.

use std::sync::Arc;

use gguf_cli::human_bytes;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind};

/// Bytes of a pattern's text at most.
const MOST_TEXT: usize = 4096;

/// Bytes of an automaton at most, and of what it is made from. One that finds 4096 bytes as they stand has half of it
/// with sixteen letters.
const MOST_SIZE: usize = 512 << 10;

/// A regular expression of bytes, without regard to the case of ASCII letters.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Arc<dense::DFA<Vec<u32>>>);

impl Pattern {
    /// # Errors
    /// In words: a text that is no regular expression, or one that would take too much memory.
    pub(crate) fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MOST_TEXT {
            let n = text.len();
            return Err(format!(
                "expected a pattern of at most {MOST_TEXT} bytes, found {n}"
            ));
        }
        let syntax = syntax::Config::new()
            .unicode(false)
            .utf8(false)
            .case_insensitive(true);
        let hir = syntax::parse_with(text, &syntax).map_err(|e| {
            // The crate's message draws the pattern over several lines; its last line says what is wrong.
            let text = e.to_string();
            let last = text.lines().last().unwrap_or_default().trim();
            format!("not a regular expression: {last}")
        })?;
        let steps = thompson::Config::new()
            .utf8(false)
            .nfa_size_limit(Some(MOST_SIZE))
            .which_captures(thompson::WhichCaptures::None);
        let nfa = thompson::Compiler::new()
            .configure(steps)
            .build_from_hir(&hir)
            .map_err(|_| too_large())?;
        // Whether it is found is all that is asked: an end may come as soon as it can, wherever it began.
        let config = dense::Config::new()
            .start_kind(StartKind::Unanchored)
            .match_kind(MatchKind::All)
            .dfa_size_limit(Some(MOST_SIZE))
            .determinize_size_limit(Some(2 * MOST_SIZE));
        let dfa = dense::Builder::new().configure(config).build_from_nfa(&nfa);
        dfa.map(|dfa| Self(Arc::new(dfa))).map_err(|_| too_large())
    }

    /// Whether it is found in a name.
    pub(crate) fn is_in(&self, name: &str) -> bool {
        let found = self.0.try_search_fwd(&Input::new(name).earliest(true));
        // No byte ends a search early: those would be asked for by Unicode's ends of words.
        matches!(found, Ok(Some(_)))
    }

    /// Bytes of memory that it takes.
    pub(crate) fn size(&self) -> usize {
        self.0.memory_usage()
    }
}

fn too_large() -> String {
    let most = human_bytes(MOST_SIZE as u64);
    format!("expected a pattern of at most {most} compiled, found a larger one; repeat less in it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_found_anywhere_in_any_case() {
        for (pattern, found, other) in [
            ("ffn_down", "blk.0.FFN_DOWN.weight", "blk.0.ffn_up.weight"),
            (
                "^blk\\.(0|1|2[0-9])\\.attn_[qkv]\\.weight$",
                "blk.27.attn_k.weight",
                "blk.27.attn_k.weight2",
            ),
            (
                "blk\\.\\d+\\.ffn_.*_(exps|shexp)",
                "blk.59.ffn_gate_exps.weight",
                "blk.59.ffn_gate.weight",
            ),
            ("\\bup\\b", "ffn.up.weight", "ffn_up.weight"),
            ("(nothing)?Q", "attn_q", "attn_v"),
            ("a[ab]{3}z", "aabaz", "aaz"),
            ("ä.ß", "xä-ß", "Ä-ß"),
            ("(?-i)Q", "attn_Q", "attn_q"),
        ] {
            let compiled = Pattern::compile(pattern).unwrap();
            assert!(compiled.is_in(found) && !compiled.is_in(other), "{pattern}");
        }
        assert!(Pattern::compile("").unwrap().is_in(""));
    }

    #[test]
    fn what_would_be_large_is_refused() {
        let digits: String = (1000..1000 + MOST_TEXT / 4).map(|i| i.to_string()).collect();
        let layers: Vec<String> = (0..100).map(|i| i.to_string()).collect();
        let usual = format!(
            "^blk\\.({})\\.(attn_(q|k|v|output)|ffn_(up|gate|down)(_exps|_shexp)?)\\.weight$",
            layers.join("|")
        );
        for (pattern, most) in [
            ("ffn", 4 << 10),
            (usual.as_str(), 64 << 10),
            (&digits, MOST_SIZE / 2 + (8 << 10)),
        ] {
            let size = Pattern::compile(pattern).unwrap().size();
            assert!(size <= most, "{pattern}: {size}");
        }
        for (pattern, part) in [
            ("a[ab]{40}z".to_owned(), "512 KiB compiled, found a larger one"),
            (
                "(a{1000}){1000}".to_owned(),
                "512 KiB compiled, found a larger one",
            ),
            ("x".repeat(MOST_TEXT + 1), "at most 4096 bytes, found 4097"),
            ("(a".to_owned(), "not a regular expression: error: unclosed group"),
            ("\\pL".to_owned(), "not a regular expression: "),
        ] {
            let text = Pattern::compile(&pattern).unwrap_err();
            assert!(text.contains(part) && text.lines().count() == 1, "{text}");
        }
    }
}

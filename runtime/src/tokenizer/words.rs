//! Cutting a text into words by the patterns of a pre-tokenizer.
//!
//! Patterns are run by an engine without backtracking, so that time is linear in the text whatever it holds.
//! That engine has no look-ahead; the few uses of it are programmed here.

use std::ops::Range;

use gguf_models::vocab::PreTokenizer;
use regex::Regex;

use super::vocabulary::key_error;
use crate::Result;

/// Spaces up to the last one, which goes with the word that follows; all of them at the end of the text.
const ALL_BUT_LAST: &str = r"|\s+(?!\S)";

/// The same in pieces of powers of two.
const POWERS: &str = r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";

/// Sizes of the pieces.
const POWERS_SIZES: [usize; 9] = [512, 256, 128, 64, 32, 16, 8, 4, 2];

/// Digits in threes, counted from the end of a number that no letter follows.
const DIGIT_GROUPS: &str = r"\d{1,3}(?=(?:\d{3})*\b)";

/// In front of every three digits, counted from the end of a number.
const THOUSANDS: &str = r"(?=(\d{3})+(?!\d))";

/// Bytes that a pattern's automaton may take; the largest needs a fraction of it.
const AUTOMATON_BYTES: usize = 64 << 20;

/// The patterns of a pre-tokenizer.
#[derive(Debug)]
pub(super) struct Words(Vec<Cutter>);

impl Words {
    pub(super) fn new(pre: &PreTokenizer) -> Result<Self> {
        let cutters = pre.patterns.iter().map(|pattern| {
            Cutter::new(pattern).map_err(|e| {
                let expected = format!("a pre-tokenizer whose pattern `{pattern}` compiles");
                key_error("tokenizer.ggml.pre", &expected, e.to_string())
            })
        });
        Ok(Self(cutters.collect::<Result<_>>()?))
    }

    /// Cuts a text: each pattern is applied to every fragment that the one before left, and what it does not
    /// match stays a fragment.
    pub(super) fn cut(&self, text: &str) -> Vec<Range<usize>> {
        let mut words: Vec<_> = std::iter::once(0..text.len()).collect();
        for cutter in &self.0 {
            let mut finer = Vec::with_capacity(words.len());
            for range in words {
                let mut pieces = Pieces {
                    out: &mut finer,
                    offset: range.start,
                    end: 0,
                };
                let text = &text[range];
                cutter.cut(text, &mut pieces);
                pieces.cut_at(text.len());
            }
            words = finer;
        }
        words
    }
}

/// The fragments of a fragment.
struct Pieces<'a> {
    out: &'a mut Vec<Range<usize>>,
    /// Where the fragment starts in the text.
    offset: usize,
    /// Where its last piece ends.
    end: usize,
}

impl Pieces<'_> {
    /// Ends a piece here, unless one just ended.
    fn cut_at(&mut self, at: usize) {
        if at > self.end {
            self.out.push(self.offset + self.end..self.offset + at);
            self.end = at;
        }
    }
}

#[derive(Debug)]
enum Cutter {
    Pattern {
        regex: Regex,
        tail: Option<Tail>,
        /// Whether spaces that end in a newline are matched by another part of the pattern.
        newlines_apart: bool,
    },
    DigitGroups {
        runs: Regex,
        word: Regex,
    },
    Thousands {
        runs: Regex,
    },
}

/// What becomes of a run of spaces that the rest of the pattern does not match.
#[derive(Clone, Copy, Debug)]
enum Tail {
    AllButLast,
    Powers,
}

impl Cutter {
    fn new(pattern: &str) -> Result<Self, Box<regex::Error>> {
        let compile = |pattern: &str| {
            regex::RegexBuilder::new(pattern)
                .size_limit(AUTOMATON_BYTES)
                .dfa_size_limit(AUTOMATON_BYTES)
                .build()
                .map_err(Box::new)
        };
        if pattern == DIGIT_GROUPS {
            // A word boundary ends a run of digits unless a word goes on behind it.
            return Ok(Self::DigitGroups {
                runs: compile(r"\d+")?,
                word: compile(r"\A\w")?,
            });
        }
        if pattern == THOUSANDS {
            return Ok(Self::Thousands {
                runs: compile(r"\d+")?,
            });
        }
        let all = pattern.strip_suffix(r"|\s+").unwrap_or(pattern);
        let all_but_last = all.strip_suffix(ALL_BUT_LAST).map(|p| (p, Tail::AllButLast));
        let powers = || pattern.strip_suffix(POWERS).map(|p| (p, Tail::Powers));
        let (regex, tail) = match all_but_last.or_else(powers) {
            Some((rest, tail)) => (compile(&format!(r"{rest}|\s+"))?, Some(tail)),
            None => (compile(pattern)?, None),
        };
        Ok(Self::Pattern {
            regex,
            tail,
            newlines_apart: pattern.contains(r"|\s*[\r\n]"),
        })
    }

    fn cut(&self, text: &str, pieces: &mut Pieces<'_>) {
        match self {
            Self::Pattern {
                regex,
                tail,
                newlines_apart,
            } => {
                let mut at = 0;
                while let Some(found) = regex.find_at(text, at) {
                    pieces.cut_at(found.start());
                    let spaces = tail.filter(|_| is_tail(found.as_str(), *newlines_apart));
                    at = match spaces {
                        Some(tail) => tail.cut(found.range(), text, pieces),
                        None => found.end(),
                    };
                    pieces.cut_at(at);
                }
            }
            Self::DigitGroups { runs, word } => {
                for run in runs.find_iter(text).filter(|r| !word.is_match(&text[r.end()..])) {
                    pieces.cut_at(run.start());
                    cut_in_threes(run.start(), run.as_str(), pieces);
                    pieces.cut_at(run.end());
                }
            }
            Self::Thousands { runs } => {
                for run in runs.find_iter(text) {
                    cut_in_threes(run.start(), run.as_str(), pieces);
                }
            }
        }
    }
}

/// Whether a match is spaces that only the last part of a pattern takes. One space is cut the same way by any
/// part.
fn is_tail(found: &str, newlines_apart: bool) -> bool {
    let last = found.chars().next_back().unwrap_or('x');
    let is_other = newlines_apart && matches!(last, '\r' | '\n');
    found.len() > last.len_utf8() && !is_other && found.chars().all(char::is_whitespace)
}

impl Tail {
    /// Cuts a run of two spaces or more and says where to go on.
    fn cut(self, run: Range<usize>, text: &str, pieces: &mut Pieces<'_>) -> usize {
        let spaces = &text[run.clone()];
        let last = spaces.chars().next_back().map_or(0, char::len_utf8);
        let end = if run.end == text.len() {
            run.end
        } else {
            run.end - last
        };
        if let Self::Powers = self {
            let starts: Vec<usize> = text[run.start..end].char_indices().map(|(at, _)| at).collect();
            let mut n = 0;
            while n < starts.len() {
                pieces.cut_at(run.start + starts[n]);
                let left = starts.len() - n;
                n += POWERS_SIZES.into_iter().find(|&size| size <= left).unwrap_or(1);
            }
        }
        end
    }
}

/// Cuts in front of every three digits, counted from the end.
fn cut_in_threes(start: usize, digits: &str, pieces: &mut Pieces<'_>) {
    let n = digits.chars().count();
    for (i, (at, _)) in digits.char_indices().enumerate() {
        if (n - i).is_multiple_of(3) {
            pieces.cut_at(start + at);
        }
    }
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;

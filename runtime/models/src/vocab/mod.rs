//! Tokenizer families and pre-tokenizers.

mod normalize;
mod table;

use table::TABLE;

/// A pre-tokenizer: how text is cut into words before merging.
#[derive(Debug)]
pub struct PreTokenizer {
    /// Value of `tokenizer.ggml.pre`, first the canonical one.
    pub names: &'static [&'static str],
    /// Regular expressions applied in order, each to every fragment that the one before left. What a pattern
    /// does not match stays as a fragment of its own.
    pub patterns: &'static [&'static str],
    /// How words are written in the texts of tokens.
    pub words: WordForm,
    /// Whether a whole word that is a token is taken without merging.
    pub ignore_merges: bool,
    /// Whether BOS is put in front where the file does not say.
    pub add_bos: bool,
    /// Whether a separator belongs between two texts where the file does not say.
    pub add_sep: bool,
    /// The BOS where the file does not name one.
    pub default_bos: Option<u32>,
}

/// How words are written in the texts of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordForm {
    /// A printable letter for each byte.
    Bytes,
    /// As they are, but for `▁` in place of a space.
    Characters,
}

impl PreTokenizer {
    /// The canonical name.
    pub fn name(&self) -> &'static str {
        self.names
            .first()
            .copied()
            .expect("every entry of the table has a name")
    }
}

/// The words of GPT-2: what a byte-level pre-tokenizer cuts by when it uses its own pattern.
pub const GPT2_WORDS: &str = table::GPT2_WORDS;

/// Every pre-tokenizer, the best known first.
pub fn all() -> &'static [PreTokenizer] {
    TABLE
}

/// The pre-tokenizer with this `tokenizer.ggml.pre`.
pub fn by_name(name: &str) -> Option<&'static PreTokenizer> {
    TABLE.iter().find(|p| p.names.contains(&name))
}

/// The pre-tokenizer whose patterns these are (compared by structure, not by a sample's hash).
pub fn by_patterns(patterns: &[&str]) -> Option<&'static PreTokenizer> {
    all_by_patterns(patterns).next()
}

/// Every pre-tokenizer whose patterns these are, the best known first. They differ in their flags.
pub fn all_by_patterns(patterns: &[&str]) -> impl Iterator<Item = &'static PreTokenizer> {
    let wanted = normalize::patterns(patterns);
    TABLE
        .iter()
        .filter(move |p| normalize::patterns(p.patterns) == wanted)
}

/// Whether some pre-tokenizer has this pattern.
pub fn has_pattern(pattern: &str) -> bool {
    let wanted = normalize::patterns(&[pattern]);
    let mut all = TABLE.iter().flat_map(|p| p.patterns);
    all.any(|pattern| normalize::patterns(&[pattern]) == wanted)
}

/// Bytes of patterns that are compared with the known ones, which have less than half of that.
const COMPARED: usize = 4096;

/// The pre-tokenizer whose patterns are most like these: what a message about unknown patterns can offer.
/// Of very long ones it is the start that is compared.
pub fn nearest(patterns: &[&str]) -> &'static PreTokenizer {
    let wanted = normalize::patterns(&starts(patterns)).join("\n");
    let distance =
        |p: &&PreTokenizer| normalize::distance(&wanted, &normalize::patterns(p.patterns).join("\n"));
    TABLE.iter().min_by_key(distance).expect("the table has entries")
}

/// The first [`COMPARED`] bytes of patterns.
fn starts<'a>(patterns: &[&'a str]) -> Vec<&'a str> {
    let mut left = COMPARED;
    let mut starts = Vec::new();
    for pattern in patterns {
        let start = &pattern[..pattern.floor_char_boundary(left)];
        starts.push(start);
        // The empty ones count too.
        left = left.saturating_sub(start.len().max(1));
        if left == 0 || start.len() < pattern.len() {
            break;
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = TABLE.iter().flat_map(|p| p.names).collect();
        let n = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n);
        assert!(
            TABLE
                .iter()
                .all(|p| !p.patterns.is_empty() && !p.names.is_empty())
        );
        assert!(TABLE.iter().all(|p| p.default_bos.is_some() || !p.add_bos));
    }

    #[test]
    fn an_entry_is_found_by_its_own_patterns() {
        for entry in TABLE {
            assert!(
                all_by_patterns(entry.patterns).any(|p| std::ptr::eq(p, entry)),
                "{}",
                entry.name()
            );
        }
    }

    #[test]
    fn every_pattern_is_known_by_itself() {
        for pattern in TABLE.iter().flat_map(|p| p.patterns) {
            assert!(has_pattern(pattern) && pattern.len() * 2 < COMPARED, "{pattern}");
        }
        assert!(!has_pattern(r"(?:a|a)*(?!x)"));
    }

    #[test]
    fn long_patterns_are_compared_by_their_start() {
        let long = "é".repeat(COMPARED);
        assert_eq!(starts(&["a", &long, "b"]), ["a", &long[..COMPARED - 2]]);
        assert_eq!(starts(&vec!["ab"; COMPARED]), vec!["ab"; COMPARED / 2]);
        assert_eq!(starts(&vec![""; 2 * COMPARED]).len(), COMPARED);
        let known = by_name("qwen2").expect("known").patterns;
        assert_eq!(starts(known), known);
    }

    #[test]
    fn known_spellings_of_checkpoints_are_recognised() {
        let qwen2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        assert_eq!(by_patterns(&[qwen2]).map(PreTokenizer::name), Some("qwen2"));
        let llama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        assert_eq!(by_patterns(&[llama3]).map(PreTokenizer::name), Some("llama-bpe"));
        let gpt2 = format!(r"{GPT2_WORDS}|\s+");
        assert_eq!(by_patterns(&[&gpt2]).map(PreTokenizer::name), Some("gpt-2"));
        assert_eq!(
            by_patterns(&[r"\p{N}", &gpt2]).map(PreTokenizer::name),
            Some("smollm")
        );
        let cased = by_name("gpt-4o").expect("known").patterns[0];
        let cased = cased.replace(
            "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])",
            "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        );
        assert!(cased.contains("(?i:"));
        assert_eq!(by_patterns(&[&cased]).map(PreTokenizer::name), Some("gpt-4o"));
        let two_digits = qwen2.replace(r"|\p{N}|", r"|\p{N}{1,2}|");
        assert!(by_patterns(&[&two_digits]).is_none());
        assert_eq!(nearest(&[&two_digits]).name(), "llama-bpe");
    }
}

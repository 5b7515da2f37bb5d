//! Tokenizer families and pre-tokenizers.

/// A pre-tokenizer: how text is cut into words before merging.
#[derive(Debug)]
pub struct PreTokenizer {
    /// Value of `tokenizer.ggml.pre`, first the canonical one.
    pub names: &'static [&'static str],
    /// Regular expressions applied in order, each to every fragment that the one before left.
    pub patterns: &'static [&'static str],
    /// Whether a whole word that is a token is taken without merging.
    pub ignore_merges: bool,
    /// Whether BOS is put in front where the file does not say.
    pub add_bos: bool,
}

/// The pre-tokenizer with this `tokenizer.ggml.pre`.
pub fn by_name(_name: &str) -> Option<&'static PreTokenizer> {
    todo!()
}

/// The pre-tokenizer whose patterns these are (compared by structure, not by a sample's hash).
pub fn by_patterns(_patterns: &[&str]) -> Option<&'static PreTokenizer> {
    todo!()
}

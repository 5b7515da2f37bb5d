//! Files of log probabilities.

use gguf::source;
use gguf_runtime::perplexity;

/// Reads any bytes as a base file of a model that has as many tokens as the file says, and compares every record with
/// logits of that model.
pub(super) fn base_file(data: &[u8]) {
    /// A vocabulary for files that say nothing of use.
    const USUAL: usize = 7;
    let said = data
        .get(12..16)
        .map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])));
    let n_vocab = said.filter(|&n| n > 0).unwrap_or(USUAL);
    let source = source::bytes("fuzz.kld".into(), data.to_vec());
    // Refused in words, or all numbers are finite: nothing else comes back.
    let _refused = perplexity::read_base(source, n_vocab);
}

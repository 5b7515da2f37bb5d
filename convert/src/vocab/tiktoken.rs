//! Ranks of byte sequences, as tiktoken has them: one line a token, its bytes in base64 and its rank.

use std::path::Path;

use foldhash::{HashMap, HashMapExt};
use gguf_models::vocab::PreTokenizer;
use rayon::prelude::*;

use super::base64;
use super::content::{Content, Family, OwnIds};
use super::token::Token;
use super::tokenizer::AddedToken;
use crate::Result;
use crate::error::Error;
use crate::source::read_bytes;

/// Bytes of the longest token; real ones have 128.
const MAX_TOKEN: usize = 256;

/// The ranks of a file.
pub(super) type Ranks = HashMap<Vec<u8>, u32>;

/// Whether a file starts as one of ranks.
pub(super) fn looks_like(bytes: &[u8]) -> bool {
    let line = bytes.split(|&b| b == b'\n').next().unwrap_or_default();
    line.len() < 2 * MAX_TOKEN && std::str::from_utf8(line).is_ok_and(|line| entry(line).is_some())
}

/// Reads the ranks.
///
/// # Errors
/// Lines that are no base64 with a number, tokens that occur twice, tokens of more than 256 bytes.
pub(super) fn read(path: &Path) -> Result<Ranks> {
    let bytes = read_bytes(path)?;
    let mut ranks = HashMap::new();
    let wrong = |line: usize, expected: &str, found: String| {
        let object = format!("`{}` line {}", path.display(), line + 1);
        Error::mismatch(object, expected, found)
    };
    let text = std::str::from_utf8(&bytes)
        .map_err(|e| Error::mismatch(format!("`{}`", path.display()), "UTF-8 text", e))?;
    for (number, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let Some((token, rank)) = entry(line) else {
            let shown: String = line.chars().take(40).collect();
            let expected = "a token in base64 and its rank";
            return Err(wrong(number, expected, format!("`{}`", shown.escape_debug())));
        };
        if token.is_empty() || token.len() > MAX_TOKEN {
            let expected = format!("a token of 1 to {MAX_TOKEN} bytes");
            return Err(wrong(number, &expected, token.len().to_string()));
        }
        if let Some(first) = ranks.insert(token, rank) {
            return Err(wrong(
                number,
                "each token once",
                format!("one that has rank {first} too"),
            ));
        }
    }
    Ok(ranks)
}

fn entry(line: &str) -> Option<(Vec<u8>, u32)> {
    let (token, rank) = line.trim().split_once(' ')?;
    Some((base64::decode(token)?, rank.parse().ok()?))
}

/// The vocabulary with the merges that the ranks imply.
pub(super) fn content(
    file: &str,
    ranks: &Ranks,
    added: Vec<AddedToken>,
    pre: &'static PreTokenizer,
    pre_name: Option<&str>,
    notes: &mut Vec<String>,
) -> Content {
    let letters = letters();
    let text = |bytes: &[u8]| -> String { bytes.iter().map(|&b| letters[usize::from(b)]).collect() };
    let mut order: Vec<(&[u8], u32)> = ranks.iter().map(|(t, &rank)| (t.as_slice(), rank)).collect();
    order.sort_unstable_by_key(|&(_, rank)| rank);
    let longer: Vec<_> = order.iter().filter(|(token, _)| token.len() > 1).collect();
    let merges: Vec<Option<String>> = longer
        .par_iter()
        .map(|&&(token, rank)| {
            let at = halves(token, rank, ranks)?;
            Some(format!("{} {}", text(&token[..at]), text(&token[at..])))
        })
        .collect();
    let n_unmade = merges.iter().filter(|merge| merge.is_none()).count();
    if n_unmade > 0 {
        notes.push(format!(
            "{file}: {n_unmade} tokens are not made of two others, merging never gives them"
        ));
    }
    let mut tokens: Vec<_> = order
        .iter()
        .map(|&(token, rank)| Token::normal(text(token), rank.into()))
        .collect();
    tokens.extend(added.iter().map(|token| Token::added(token, 0.0)));
    Content {
        file: file.to_owned(),
        tokens,
        added,
        family: Family::Bpe {
            pre,
            pre_name: pre_name.unwrap_or(pre.name()).to_owned(),
            merges: merges.into_iter().flatten().collect(),
        },
        own_ids: OwnIds::default(),
    }
}

/// Where the two tokens meet that make this one last.
fn halves(token: &[u8], rank: u32, ranks: &Ranks) -> Option<usize> {
    let ends = merge(token, ranks, rank);
    match ends.as_slice() {
        [middle, _] => Some(*middle),
        _ => None,
    }
}

/// Ends of the parts that merging by rank leaves, with ranks below `limit` only.
pub(super) fn merge(bytes: &[u8], ranks: &Ranks, limit: u32) -> Vec<usize> {
    let rank = |from: usize, to: usize| ranks.get(&bytes[from..to]).copied().filter(|&r| r < limit);
    // Part i is from starts[i] to starts[i + 1]; joined[i] is the rank of parts i and i + 1 together.
    let mut starts: Vec<usize> = (0..=bytes.len()).collect();
    let mut joined: Vec<Option<u32>> = (2..=bytes.len()).map(|to| rank(to - 2, to)).collect();
    while let Some((_, i)) = joined
        .iter()
        .enumerate()
        .filter_map(|(i, r)| Some((((*r)?), i)))
        .min()
    {
        starts.remove(i + 1);
        joined.remove(i);
        if let Some(next) = joined.get_mut(i) {
            *next = rank(starts[i], starts[i + 2]);
        }
        if i > 0 {
            joined[i - 1] = rank(starts[i - 1], starts[i + 1]);
        }
    }
    starts.split_off(1.min(starts.len()))
}

/// The printable letter of each byte, as vocabularies of byte-level BPE have them.
pub(super) fn letters() -> [char; 256] {
    let mut next = 0x100u32;
    std::array::from_fn(|byte| {
        let byte = byte as u8;
        if matches!(byte, 33..=126 | 161..=172 | 174..=255) {
            return char::from(byte);
        }
        next += 1;
        char::from_u32(next - 1).expect("U+0100 .. U+0144 are letters")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks() -> Ranks {
        let tokens: [&[u8]; 7] = [b"a", b"b", b"c", b"ab", b"bc", b"abc", b"abcc"];
        tokens.iter().map(|t| t.to_vec()).zip(0..).collect()
    }

    #[test]
    fn merges_follow_from_ranks() {
        let ranks = ranks();
        let pre = gguf_models::vocab::by_name("kimi-k2").expect("known");
        let content = content("f", &ranks, Vec::new(), pre, None, &mut Vec::new());
        let Family::Bpe { merges, .. } = content.family else {
            panic!("byte-level BPE")
        };
        assert_eq!(merges, ["a b", "b c", "ab c", "abc c"]);
        assert_eq!(merge(b"abcbc", &ranks, u32::MAX), [3, 5]);
        assert_eq!(merge(b"", &ranks, u32::MAX), Vec::<usize>::new());
    }

    #[test]
    fn lines_are_checked() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ranks");
        let read = |text: &str| {
            #[expect(clippy::disallowed_methods, reason = "inputs of tests need no atomic writes")]
            std::fs::write(&path, text).expect("a file");
            super::read(&path)
        };
        assert_eq!(read("YQ== 0\nYg== 1\n\n").expect("sound").len(), 2);
        for (text, message) in [
            ("YQ== 0\nYg==", "line 2"),
            ("YQ== 0\nYg== x", "line 2"),
            ("YQ== 0\nYQ== 1", "rank 0 too"),
            ("= 0", "1 to 256 bytes"),
        ] {
            let error = read(text).expect_err(message).to_string();
            assert!(error.contains(message), "{error}");
        }
        assert!(looks_like(b"YQ== 0\n\xFF") && !looks_like(b"\x0a\x0e\x0a\x05<unk>"));
    }
}

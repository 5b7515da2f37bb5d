//! Byte-level BPE: words of the pre-tokenizer, merged by rank.

use foldhash::{HashMap, HashMapExt};
use gguf::Metadata;
use gguf_models::vocab::PreTokenizer;

use super::bytes::ByteAlphabet;
use super::merge::{Merger, NONE, Symbol};
use super::vocabulary::{Vocabulary, key_error, missing};
use super::words::Words;
use crate::Result;

const MERGES: &str = "tokenizer.ggml.merges";

#[derive(Debug)]
pub(super) struct Bpe {
    words: Words,
    alphabet: ByteAlphabet,
    /// The symbol of each byte. Symbols are tokens, and behind them texts that are parts of tokens only.
    letters: [u32; 256],
    /// Neighbours to their rank and the symbol they make.
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Whether a word that is a token is taken without merging.
    ignore_merges: bool,
}

impl Bpe {
    pub(super) fn new(metadata: &Metadata, vocabulary: &Vocabulary, pre: &PreTokenizer) -> Result<Self> {
        let alphabet = ByteAlphabet::new();
        let mut symbols = Symbols {
            vocabulary,
            others: HashMap::new(),
        };
        let mut letters = [0; 256];
        for (byte, symbol) in (0u8..=255).zip(&mut letters) {
            *symbol = symbols.of(alphabet.letter(byte).encode_utf8(&mut [0; 4]));
        }
        let texts = metadata
            .strings(MERGES)?
            .ok_or_else(|| missing(MERGES, "an array of strings"))?;
        let mut merges = HashMap::with_capacity(texts.len());
        let mut joined = String::new();
        for (merge, rank) in texts.iter().zip(0u32..) {
            let Some((left, right)) = parts(&merge) else {
                let found = format!("`{merge}` as merge {rank}");
                return Err(key_error(MERGES, "two parts with a space between", found));
            };
            joined.clear();
            joined.extend([left, right]);
            let pair = (symbols.of(left), symbols.of(right));
            merges.entry(pair).or_insert((rank, symbols.of(&joined)));
        }
        Ok(Self {
            words: Words::new(pre)?,
            alphabet,
            letters,
            merges,
            ignore_merges: pre.ignore_merges,
        })
    }

    /// Appends the tokens of a text.
    pub(super) fn encode(&self, text: &str, vocabulary: &Vocabulary, out: &mut Vec<u32>) {
        let mut merger = Merger::default();
        let mut letters = String::new();
        for range in self.words.cut(text) {
            let word = &text.as_bytes()[range];
            if self.ignore_merges {
                letters.clear();
                letters.extend(word.iter().map(|&b| self.alphabet.letter(b)));
                if let Some(id) = vocabulary.id(&letters) {
                    out.push(id);
                    continue;
                }
            }
            merger.clear();
            for &byte in word {
                merger.push(1, self.letters[usize::from(byte)]);
            }
            merger.run(|left, right| self.merges.get(&(left.id, right.id)).copied());
            for symbol in merger.symbols() {
                self.emit(symbol, word, vocabulary, out);
            }
        }
    }

    /// A symbol that is no token is written byte by byte; bytes without a token are dropped.
    fn emit(&self, symbol: &Symbol, word: &[u8], vocabulary: &Vocabulary, out: &mut Vec<u32>) {
        let is_token = |id: &u32| (*id as usize) < vocabulary.len();
        if is_token(&symbol.id) {
            out.push(symbol.id);
        } else {
            let letters = word[symbol.range()].iter().map(|&b| self.letters[usize::from(b)]);
            out.extend(letters.filter(is_token));
        }
    }

    /// Appends the bytes that a token's text stands for.
    pub(super) fn append_bytes(&self, text: &str, out: &mut Vec<u8>) {
        self.alphabet.append_bytes(text, out);
    }
}

/// Numbers for texts: ids of tokens, and numbers behind them for others.
struct Symbols<'a> {
    vocabulary: &'a Vocabulary,
    others: HashMap<String, u32>,
}

impl Symbols<'_> {
    fn of(&mut self, text: &str) -> u32 {
        if let Some(id) = self
            .vocabulary
            .id(text)
            .or_else(|| self.others.get(text).copied())
        {
            return id;
        }
        let id = self.vocabulary.len() + self.others.len();
        // Past 32 bits a text gets a number that no merge looks for.
        let id = u32::try_from(id).unwrap_or(NONE);
        self.others.insert(text.to_owned(), id);
        id
    }
}

/// The two parts of a merge. The left one may itself start with a space.
fn parts(merge: &str) -> Option<(&str, &str)> {
    let at = 1 + merge.bytes().skip(1).position(|b| b == b' ')?;
    Some((&merge[..at], &merge[at + 1..]))
}

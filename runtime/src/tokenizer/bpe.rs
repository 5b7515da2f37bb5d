//! BPE: words of the pre-tokenizer, merged by rank. Words are written in letters that stand for bytes, or with
//! some pre-tokenizers in their own characters.

use std::borrow::Cow;

use foldhash::{HashMap, HashMapExt};
use gguf::Metadata;
use gguf_models::vocab::{PreTokenizer, WordForm};

use super::SPACE_TEXT;
use super::bytes::{self, ByteAlphabet};
use super::merge::{Merger, NONE, Symbol};
use super::vocabulary::{Vocabulary, key_error, missing};
use super::words::Words;
use crate::Result;

const MERGES: &str = "tokenizer.ggml.merges";

#[derive(Debug)]
pub(super) struct Bpe {
    words: Words,
    script: Script,
    /// Neighbours to their rank and the symbol they make. Symbols are tokens, and behind them texts that are
    /// parts of tokens only.
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Whether a word that is a token is taken without merging.
    ignore_merges: bool,
}

/// How words are written before they are merged.
#[derive(Debug)]
enum Script {
    Bytes {
        alphabet: ByteAlphabet,
        /// The symbol of each byte.
        letters: Box<[u32; 256]>,
    },
    Characters {
        symbols: HashMap<char, u32>,
        /// The tokens of bytes, for characters that are no token.
        bytes: Box<[Option<u32>; 256]>,
    },
}

impl Bpe {
    pub(super) fn new(metadata: &Metadata, vocabulary: &Vocabulary, pre: &PreTokenizer) -> Result<Self> {
        let mut symbols = Symbols {
            vocabulary,
            others: HashMap::new(),
        };
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
            script: match pre.words {
                WordForm::Bytes => {
                    let alphabet = ByteAlphabet::new();
                    let mut letters = Box::new([0; 256]);
                    for (byte, symbol) in (0u8..=255).zip(letters.iter_mut()) {
                        *symbol = symbols.of(alphabet.letter(byte).encode_utf8(&mut [0; 4]));
                    }
                    Script::Bytes { alphabet, letters }
                }
                WordForm::Characters => Script::Characters {
                    symbols: symbols.characters(),
                    bytes: Box::new(bytes::tokens(vocabulary)),
                },
            },
            merges,
            ignore_merges: pre.ignore_merges,
        })
    }

    /// Appends the tokens of a text.
    pub(super) fn encode(&self, text: &str, vocabulary: &Vocabulary, out: &mut Vec<u32>) {
        let text = match self.script {
            Script::Bytes { .. } => Cow::Borrowed(text),
            Script::Characters { .. } => Cow::Owned(text.replace(' ', SPACE_TEXT)),
        };
        let mut merger = Merger::default();
        for range in self.words.cut(&text) {
            let word = &text[range];
            if let Some(id) = self.whole(word, vocabulary) {
                out.push(id);
                continue;
            }
            merger.clear();
            match &self.script {
                Script::Bytes { letters, .. } => {
                    word.bytes().for_each(|b| merger.push(1, letters[usize::from(b)]));
                }
                Script::Characters { symbols, .. } => {
                    let symbol = |c| symbols.get(&c).copied().unwrap_or(NONE);
                    word.chars()
                        .for_each(|c| merger.push(c.len_utf8() as u32, symbol(c)));
                }
            }
            merger.run(|left, right| self.merges.get(&(left.id, right.id)).copied());
            for symbol in merger.symbols() {
                self.emit(symbol, word.as_bytes(), vocabulary, out);
            }
        }
    }

    /// The token of a whole word, where words are looked up before they are merged.
    fn whole(&self, word: &str, vocabulary: &Vocabulary) -> Option<u32> {
        match &self.script {
            _ if !self.ignore_merges => None,
            Script::Bytes { alphabet, .. } => {
                let letters: String = word.bytes().map(|b| alphabet.letter(b)).collect();
                vocabulary.id(&letters)
            }
            Script::Characters { .. } => vocabulary.id(word),
        }
    }

    /// A symbol that is no token is written byte by byte; bytes without a token are dropped.
    fn emit(&self, symbol: &Symbol, word: &[u8], vocabulary: &Vocabulary, out: &mut Vec<u32>) {
        let is_token = |id: &u32| (*id as usize) < vocabulary.len();
        let each = word[symbol.range()].iter().map(|&b| usize::from(b));
        match &self.script {
            _ if is_token(&symbol.id) => out.push(symbol.id),
            Script::Bytes { letters, .. } => out.extend(each.map(|b| letters[b]).filter(is_token)),
            Script::Characters { bytes, .. } => out.extend(each.filter_map(|b| bytes[b])),
        }
    }

    /// The letters that stand for bytes in texts of tokens, if they do.
    pub(super) fn alphabet(&self) -> Option<&ByteAlphabet> {
        match &self.script {
            Script::Bytes { alphabet, .. } => Some(alphabet),
            Script::Characters { .. } => None,
        }
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

    /// The symbols that are one character.
    fn characters(&self) -> HashMap<char, u32> {
        let tokens = self.vocabulary.texts.iter().map(|t| &**t).zip(0u32..);
        let others = self.others.iter().map(|(text, &id)| (text.as_str(), id));
        let lone = |(text, id): (&str, u32)| {
            let mut chars = text.chars();
            chars.next().filter(|_| chars.next().is_none()).map(|c| (c, id))
        };
        tokens.chain(others).filter_map(lone).collect()
    }
}

/// The two parts of a merge. The left one may itself start with a space.
fn parts(merge: &str) -> Option<(&str, &str)> {
    let at = 1 + merge.bytes().skip(1).position(|b| b == b' ')?;
    Some((&merge[..at], &merge[at + 1..]))
}

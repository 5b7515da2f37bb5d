//! Reading `tokenizer.model`: the protocol buffer of the `SentencePiece` library.

use std::path::Path;

use super::token::TokenType;
use crate::Result;
use crate::error::Error;
use crate::source::read_bytes;

/// How the model makes tokens, by its `model_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// The library's default.
    #[default]
    Unigram,
    Bpe,
    Other(u64),
}

/// A token of the model.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) score: f32,
    pub(super) kind: TokenType,
}

/// What is read of the model.
#[derive(Debug)]
pub(super) struct SentencePiece {
    pub(super) pieces: Vec<Piece>,
    pub(super) kind: Kind,
    /// Ids of unknown, BOS, EOS and padding; negative where there is none.
    pub(super) special: [i32; 4],
    /// Table of replacements, in the library's own form.
    pub(super) charsmap: Vec<u8>,
    pub(super) add_dummy_prefix: bool,
    pub(super) remove_extra_whitespaces: bool,
}

impl SentencePiece {
    /// Reads the file.
    ///
    /// # Errors
    /// A file that is no such model; the message has the place of the first byte that does not fit.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let bytes = read_bytes(path)?;
        Self::parse(&bytes).map_err(|at| {
            let object = format!("`{}` byte {at}", path.display());
            Error::mismatch(object, "a SentencePiece model", "bytes that are none")
        })
    }

    /// The error is the place of what does not fit.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, usize> {
        let mut model = Self {
            pieces: Vec::new(),
            kind: Kind::default(),
            special: [0, 1, 2, -1],
            charsmap: Vec::new(),
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
        };
        let mut has_trainer = false;
        for field in Fields::of(bytes, 0) {
            let field = field?;
            has_trainer |= field.number == 2;
            match (field.number, field.value) {
                (1, Wire::Bytes(bytes)) => model.pieces.push(piece(bytes, field.at)?),
                (2, Wire::Bytes(bytes)) => model.trainer(bytes, field.at)?,
                (3, Wire::Bytes(bytes)) => model.normalizer(bytes, field.at)?,
                (1..=3, _) => return Err(field.at),
                _ => {}
            }
        }
        // The trainer's settings stand behind the pieces: a file without them is cut.
        if model.pieces.is_empty() || !has_trainer {
            Err(bytes.len())
        } else {
            Ok(model)
        }
    }

    fn trainer(&mut self, bytes: &[u8], at: usize) -> Result<(), usize> {
        for field in Fields::of(bytes, at) {
            let field = field?;
            if let (number, Wire::Number(value)) = (field.number, field.value) {
                match number {
                    3 => {
                        self.kind = match value {
                            1 => Kind::Unigram,
                            2 => Kind::Bpe,
                            other => Kind::Other(other),
                        }
                    }
                    // A negative int32 is stored with 64 bits.
                    40..=43 => self.special[number as usize - 40] = value as i32,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn normalizer(&mut self, bytes: &[u8], at: usize) -> Result<(), usize> {
        for field in Fields::of(bytes, at) {
            let field = field?;
            match (field.number, field.value) {
                (2, Wire::Bytes(bytes)) => bytes.clone_into(&mut self.charsmap),
                (3, Wire::Number(value)) => self.add_dummy_prefix = value != 0,
                (4, Wire::Number(value)) => self.remove_extra_whitespaces = value != 0,
                _ => {}
            }
        }
        Ok(())
    }
}

fn piece(bytes: &[u8], at: usize) -> Result<Piece, usize> {
    let mut piece = Piece {
        text: String::new(),
        score: 0.0,
        kind: TokenType::Normal,
    };
    for field in Fields::of(bytes, at) {
        let field = field?;
        match (field.number, field.value) {
            (1, Wire::Bytes(bytes)) => {
                let text = std::str::from_utf8(bytes).map_err(|_| field.at)?;
                text.clone_into(&mut piece.text);
            }
            (2, Wire::Four(bytes)) => piece.score = f32::from_le_bytes(bytes),
            (3, Wire::Number(value)) => piece.kind = TokenType::from_number(value).ok_or(field.at)?,
            (1..=3, _) => return Err(field.at),
            _ => {}
        }
    }
    Ok(piece)
}

/// A value in the form in which it is stored.
enum Wire<'a> {
    Number(u64),
    Four([u8; 4]),
    Eight,
    Bytes(&'a [u8]),
}

struct Field<'a> {
    number: u64,
    value: Wire<'a>,
    /// Place of the value in the file.
    at: usize,
}

/// The fields of a message.
struct Fields<'a> {
    rest: &'a [u8],
    /// Place of `rest` in the file.
    at: usize,
}

impl<'a> Fields<'a> {
    fn of(bytes: &'a [u8], at: usize) -> Self {
        Self { rest: bytes, at }
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], usize> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(self.at)?;
        (self.rest, self.at) = (rest, self.at + n);
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, usize> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.take(1)?[0];
            // Bits beyond the 64th are dropped, as the format has it.
            value |= u64::from(byte & 0x7F).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.at)
    }

    fn field(&mut self) -> Result<Field<'a>, usize> {
        let tag = self.varint()?;
        let start = self.at;
        let value = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => self.take(8).map(|_| Wire::Eight)?,
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| start)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Four(self.take(4)?.try_into().map_err(|_| start)?),
            _ => return Err(start),
        };
        let at = match value {
            Wire::Bytes(bytes) => self.at - bytes.len(),
            _ => start,
        };
        Ok(Field {
            number: tag >> 3,
            value,
            at,
        })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, usize>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

//! Reads the front of a source in order: through the mapping where there is one, else in chunks.

use crate::limits::MAX_HEAD_BYTES;
use crate::read::Endian;
use crate::source::Source;
use crate::{Error, Result};

/// Bytes of a chunk. Small, so that a file whose metadata is short costs one read.
const CHUNK: usize = 64 << 10;

/// A position in a source, and how to decode what stands there. Every read is checked against the bytes that
/// are left before anything is allocated for it.
pub(crate) struct Cursor<'a> {
    source: &'a dyn Source,
    whole: Option<&'a [u8]>,
    /// What was read last, where there is no mapping.
    chunk: Vec<u8>,
    /// Position of the chunk; 0 where there is a mapping.
    chunk_start: u64,
    pos: u64,
    /// Bytes that may be read: the file's, up to the largest head.
    len: u64,
    endian: Endian,
    /// What is being read, for messages: "key `x`".
    pub(crate) object: String,
}

/// A number that the file stores in its own byte order.
pub(crate) trait Number: Copy {
    /// Bytes of the number, at most 8.
    const SIZE: usize;
    /// Decodes `SIZE` bytes.
    fn decode(bytes: &[u8], endian: Endian) -> Self;
}

macro_rules! number {
    ($($t:ty),*) => {$(
        impl Number for $t {
            const SIZE: usize = size_of::<$t>();
            #[inline]
            fn decode(bytes: &[u8], endian: Endian) -> Self {
                let bytes = bytes.try_into().expect("SIZE bytes");
                match endian {
                    Endian::Little => <$t>::from_le_bytes(bytes),
                    Endian::Big => <$t>::from_be_bytes(bytes),
                }
            }
        }
    )*};
}
number!(u8, i8, u16, i16, u32, i32, f32, u64, i64, f64);

impl<'a> Cursor<'a> {
    /// Starts at byte 0, little-endian.
    pub(crate) fn new(source: &'a dyn Source) -> Self {
        Self {
            source,
            whole: source.bytes(),
            chunk: Vec::new(),
            chunk_start: 0,
            pos: 0,
            len: source.len().min(MAX_HEAD_BYTES),
            endian: Endian::Little,
            object: "header".to_owned(),
        }
    }

    /// Byte position of what comes next.
    pub(crate) fn pos(&self) -> u64 {
        self.pos
    }

    /// Bytes left in the file.
    pub(crate) fn left(&self) -> u64 {
        self.len - self.pos
    }

    /// Decodes from now on in this byte order.
    pub(crate) fn set_endian(&mut self, endian: Endian) {
        self.endian = endian;
    }

    /// An error about the object being read, at byte `at`.
    pub(crate) fn error(&self, at: u64, what: &str) -> Error {
        Error::malformed(self.source.path(), at, format!("{}: {what}", self.object))
    }

    /// The next `n` bytes, if the file has them; `part` says of what, for the message.
    #[inline]
    pub(crate) fn take(&mut self, n: usize, part: &str) -> Result<&[u8]> {
        let at = self.pos;
        if self.left() < n as u64 {
            return Err(self.truncated(n as u64, part));
        }
        self.pos += n as u64;
        // Positions only grow, so what is left of the chunk begins at or before `at`.
        if self.whole.is_none() && self.pos > self.chunk_start + self.chunk.len() as u64 {
            self.fill(at, n)?;
        }
        let bytes = self.whole.unwrap_or(&self.chunk);
        let start = usize::try_from(at - self.chunk_start).expect("a position inside a slice");
        Ok(&bytes[start..start + n])
    }

    /// Passes over `n` bytes, if the file has them.
    pub(crate) fn skip(&mut self, n: u64, part: &str) -> Result<()> {
        if self.left() < n {
            return Err(self.truncated(n, part));
        }
        self.pos += n;
        Ok(())
    }

    /// Makes the chunk begin at byte `at` and hold at least `n` bytes, which are inside the file.
    #[cold]
    fn fill(&mut self, at: u64, n: usize) -> Result<()> {
        let left = usize::try_from(self.len - at).unwrap_or(usize::MAX);
        self.chunk.resize(n.max(CHUNK).min(left), 0);
        self.chunk_start = at;
        self.source.read_at(at, &mut self.chunk)
    }

    #[cold]
    fn truncated(&self, needed: u64, part: &str) -> Error {
        if self.len == MAX_HEAD_BYTES && self.source.len() > self.len {
            let what = format!(
                "{part} of {needed} bytes makes a head of more than {MAX_HEAD_BYTES} bytes, which is unreasonable"
            );
            return self.error(self.pos, &what);
        }
        let what = format!(
            "{part} needs {needed} bytes, but the file ends after {} (it has {} bytes: truncated?)",
            self.left(),
            self.len
        );
        self.error(self.pos, &what)
    }

    /// The next number.
    pub(crate) fn number<T: Number>(&mut self, part: &str) -> Result<T> {
        let endian = self.endian;
        Ok(T::decode(self.take(T::SIZE, part)?, endian))
    }

    /// The next `n` numbers.
    pub(crate) fn numbers<T: Number>(&mut self, n: usize) -> Result<Vec<T>> {
        self.require(n as u64, T::SIZE as u64, "array")?;
        let endian = self.endian;
        let mut numbers = Vec::new();
        numbers.try_reserve_exact(n).map_err(|_| self.out_of_memory(n))?;
        while numbers.len() < n {
            let some = (n - numbers.len()).min(CHUNK / T::SIZE);
            let bytes = self.take(some * T::SIZE, "array")?;
            numbers.extend(bytes.chunks_exact(T::SIZE).map(|b| T::decode(b, endian)));
        }
        Ok(numbers)
    }

    /// The error where there is no memory for the next `n` elements.
    #[cold]
    pub(crate) fn out_of_memory(&self, n: usize) -> Error {
        self.error(self.pos, &format!("no memory for {n} elements"))
    }

    /// Checks that `n` things of at least `min_bytes` each can still follow.
    pub(crate) fn require(&self, n: u64, min_bytes: u64, part: &str) -> Result<()> {
        match n.checked_mul(min_bytes) {
            Some(needed) if needed <= self.left() => Ok(()),
            needed => Err(self.truncated(needed.unwrap_or(u64::MAX), part)),
        }
    }

    /// The next string's bytes: a length, at most `max`, then the bytes.
    pub(crate) fn string_bytes(&mut self, max: u64, part: &str) -> Result<&[u8]> {
        let at = self.pos;
        let n: u64 = self.number(part)?;
        if n > self.left() {
            return Err(self.truncated(n, part));
        }
        match usize::try_from(n) {
            Ok(n) if n as u64 <= max => self.take(n, part),
            _ => Err(self.error(
                at,
                &format!("{part} of {n} bytes is unreasonable: expected at most {max}"),
            )),
        }
    }

    /// The next string, which must be UTF-8.
    pub(crate) fn string(&mut self, max: u64, part: &str) -> Result<String> {
        let at = self.pos + 8;
        let bytes = self.string_bytes(max, part)?;
        match std::str::from_utf8(bytes) {
            Ok(s) => Ok(s.to_owned()),
            Err(e) => {
                let at = at + e.valid_up_to() as u64;
                Err(self.error(at, &format!("{part} is not UTF-8")))
            }
        }
    }
}

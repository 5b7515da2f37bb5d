//! Keys or values of one layer, as bytes of a tensor type.

use std::io;

use gguf_blocks::{Cpu, DecodeRow, EncodeRow, Importance};

use super::KvType;
use crate::kernels::attention::GROUP;
use crate::pool;

/// Rows from which on the heads are stored in parallel.
const MIN_ROWS: usize = 16;

/// One row a position, position and head: heads of a sequence follow each other, in each the positions.
#[derive(Debug)]
pub(crate) struct Rows {
    codec: Codec,
    /// Positions there is room for in each head.
    n_pos: usize,
    bytes: Vec<u8>,
}

/// How a row becomes bytes and back.
#[derive(Clone, Copy, Debug)]
struct Codec {
    kind: KvType,
    encode: EncodeRow,
    decode: DecodeRow,
    /// Elements of a row.
    dim: usize,
    /// Bytes of a row.
    n_bytes: usize,
}

impl Rows {
    /// Room for `n_heads` heads (of all sequences) of `n_pos` positions, whole groups of [`GROUP`].
    pub(super) fn new(kind: KvType, dim: usize, n_heads: usize, n_pos: usize) -> Self {
        assert!(n_pos.is_multiple_of(GROUP), "positions are whole groups");
        let format = kind.format();
        let codec = Codec {
            kind,
            // The bytes are the same at every level.
            encode: format
                .encoder(Cpu::best())
                .expect("types of the cache have encoders"),
            decode: format.decode.expect("types of the cache have decoders"),
            dim,
            n_bytes: kind.head_bytes(dim).expect("heads are whole blocks"),
        };
        let mut bytes = vec![0; n_heads * n_pos * codec.n_bytes];
        pool::place(&mut bytes);
        Self { codec, n_pos, bytes }
    }

    pub(super) fn n_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Number of the tensor type.
    pub(crate) fn type_id(&self) -> u32 {
        self.codec.kind.format().id.0
    }

    /// Elements of a row.
    pub(crate) fn dim(&self) -> usize {
        self.codec.dim
    }

    /// Stores rows of `n_heads` heads, which belong to `(sequence, position)`.
    pub(super) fn store(&mut self, place: &[(u32, u32)], n_heads: usize, values: &[f32]) {
        let codec = self.codec;
        assert_eq!(
            values.len(),
            place.len() * n_heads * codec.dim,
            "elements of {} positions",
            place.len()
        );
        if n_heads * codec.dim == 0 {
            return;
        }
        let n_head_bytes = self.n_pos * codec.n_bytes;
        let rows = || place.iter().zip(values.chunks_exact(n_heads * codec.dim));
        if place.len() < MIN_ROWS {
            for (&(seq, pos), row) in rows() {
                for (head, row) in row.chunks_exact(codec.dim).enumerate() {
                    let first = (seq as usize * n_heads + head) * n_head_bytes;
                    codec.put(row, pos as usize, &mut self.bytes[first..][..n_head_bytes]);
                }
            }
            return;
        }
        let heads = self.bytes.chunks_exact_mut(n_head_bytes).enumerate();
        pool::for_each(heads, |(i, bytes)| {
            let (seq, head) = (i / n_heads, i % n_heads);
            for (&(_, pos), row) in rows().filter(|(place, _)| place.0 as usize == seq) {
                codec.put(&row[head * codec.dim..][..codec.dim], pos as usize, bytes);
            }
        });
    }

    /// All positions of a head (counted over all sequences).
    pub(crate) fn of_head(&self, head: usize) -> RowsOfHead<'_> {
        let n = self.n_pos * self.codec.n_bytes;
        RowsOfHead {
            codec: &self.codec,
            bytes: &self.bytes[head * n..][..n],
            dim: self.codec.dim,
        }
    }

    /// Gives head `to` the first `n` positions of head `from`.
    pub(super) fn copy(&mut self, from: usize, to: usize, n: usize) {
        let at = |head| head * self.n_pos * self.codec.n_bytes;
        let n = n * self.codec.n_bytes;
        self.bytes.copy_within(at(from)..at(from) + n, at(to));
    }

    /// Hands out the first `n` rows of a head, position after position.
    pub(super) fn save(
        &self,
        head: usize,
        n: usize,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let bytes = &self.bytes[head * self.n_pos * self.codec.n_bytes..];
        sink(&bytes[..n * self.codec.n_bytes])
    }

    /// Takes the first `n` rows of a head, position after position.
    pub(super) fn load(
        &mut self,
        head: usize,
        n: usize,
        source: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let bytes = &mut self.bytes[head * self.n_pos * self.codec.n_bytes..];
        source(&mut bytes[..n * self.codec.n_bytes])
    }
}

impl Codec {
    /// Stores a row in the bytes of a head.
    fn put(&self, row: &[f32], pos: usize, bytes: &mut [u8]) {
        (self.encode)(
            row,
            Importance::None,
            &mut bytes[pos * self.n_bytes..][..self.n_bytes],
        );
    }
}

/// The rows of one head, or the first elements of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowsOfHead<'a> {
    codec: &'a Codec,
    bytes: &'a [u8],
    /// Elements of a row.
    dim: usize,
}

impl<'a> RowsOfHead<'a> {
    /// The same rows without what is behind the first `dim` elements.
    pub(crate) fn first_elements(self, dim: usize) -> Self {
        assert!(dim <= self.dim, "rows have the elements");
        Self { dim, ..self }
    }

    /// The same rows at another place.
    #[cfg(test)]
    pub(crate) fn at(self, bytes: &'a [u8]) -> Self {
        Self { bytes, ..self }
    }

    /// Type of the elements.
    pub(crate) fn kind(&self) -> KvType {
        self.codec.kind
    }

    /// Elements of a row.
    pub(crate) fn dim(&self) -> usize {
        self.dim
    }

    /// Bytes from one row to the next: a row is there for each whole number of them in [`RowsOfHead::bytes`].
    pub(crate) fn row_bytes(&self) -> usize {
        self.codec.n_bytes
    }

    /// Row after row.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Elements of a row as it is stored.
    pub(crate) fn whole_dim(&self) -> usize {
        self.codec.dim
    }

    /// All elements that are stored of a position.
    pub(crate) fn decode(&self, pos: usize, out: &mut [f32]) {
        let n = self.codec.n_bytes;
        (self.codec.decode)(&self.bytes[pos * n..][..n], out);
    }
}

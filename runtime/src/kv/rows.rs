//! Keys or values of one layer, as bytes of a tensor type.

use std::io;
use std::ops::Range;

use gguf_blocks::half_bulk::{f32_to_bf16, f32_to_f16};
use gguf_blocks::{Cpu, DecodeRow, EncodeRow, Importance};

use super::KvType;
use crate::kernels::attention::{BLOCK, LANES};
use crate::pool;

/// Rows from which on the heads are stored in parallel.
const MIN_ROWS: usize = 16;

/// How the elements of a head's positions follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Position after position.
    Positions,
    /// Of each [`LANES`] positions, element after element those of all the positions: as products take them.
    Lanes,
}

/// One row a position, position and head: heads of a sequence follow each other, in each the positions.
#[derive(Debug)]
pub(crate) struct Rows {
    codec: Codec,
    /// Positions there is room for in each head: whole [`BLOCK`]s.
    n_pos: usize,
    bytes: Vec<u8>,
}

/// How a row becomes bytes and back.
#[derive(Clone, Copy, Debug)]
struct Codec {
    kind: KvType,
    order: Order,
    encode: EncodeRow,
    decode: DecodeRow,
    /// Elements of a row.
    dim: usize,
    /// Bytes of a row.
    n_bytes: usize,
}

impl Rows {
    /// Room for `n_heads` heads (of all sequences) of `n_pos` positions. Types of blocks have positions one after the
    /// other, whatever `order` says: a block is not taken apart.
    pub(super) fn new(kind: KvType, dim: usize, order: Order, n_heads: usize, n_pos: usize) -> Self {
        let format = kind.format();
        let codec = Codec {
            kind,
            order: if format.quantized { Order::Positions } else { order },
            // The bytes are the same at every level.
            encode: format
                .encoder(Cpu::best())
                .expect("types of the cache have encoders"),
            decode: format.decode.expect("types of the cache have decoders"),
            dim,
            n_bytes: kind.head_bytes(dim).expect("heads are whole blocks"),
        };
        Self {
            codec,
            n_pos,
            bytes: vec![0; n_heads * n_pos * codec.n_bytes],
        }
    }

    pub(super) fn n_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn order(&self) -> Order {
        self.codec.order
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

    /// Decodes block `block` of a head (counted over all sequences), in the order that it is stored in.
    pub(crate) fn decode(&self, head: usize, block: usize, out: &mut [f32]) {
        (self.codec.decode)(self.block(head, block), out);
    }

    /// Decodes block `block` of a head, stored position after position, into rows `stride` apart.
    pub(crate) fn decode_strided(&self, head: usize, block: usize, stride: usize, out: &mut [f32]) {
        let codec = &self.codec;
        if stride == codec.dim {
            return self.decode(head, block, out);
        }
        let rows = self.block(head, block).chunks_exact(codec.n_bytes);
        for (row, out) in rows.zip(out.chunks_exact_mut(stride)) {
            (codec.decode)(row, &mut out[..codec.dim]);
        }
    }

    fn block(&self, head: usize, block: usize) -> &[u8] {
        let n = self.codec.n_bytes;
        &self.bytes[(head * self.n_pos + block * BLOCK) * n..][..BLOCK * n]
    }

    /// Gives head `to` the first `n` positions of head `from`.
    pub(super) fn copy(&mut self, from: usize, to: usize, n: usize) {
        let at = |head| head * self.n_pos * self.codec.n_bytes;
        // Lanes are taken whole.
        let n = n.next_multiple_of(LANES) * self.codec.n_bytes;
        self.bytes.copy_within(at(from)..at(from) + n, at(to));
    }

    /// Hands out the first `n` rows of a head, position after position.
    pub(super) fn save(
        &self,
        head: usize,
        n: usize,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let codec = &self.codec;
        let bytes = &self.bytes[head * self.n_pos * codec.n_bytes..];
        if codec.order == Order::Positions {
            return sink(&bytes[..n * codec.n_bytes]);
        }
        let mut rows = vec![0; LANES * codec.n_bytes];
        for (i, lanes) in bytes.chunks_exact(LANES * codec.n_bytes).enumerate() {
            let n = n.saturating_sub(i * LANES).min(LANES);
            if n == 0 {
                break;
            }
            codec.each_element(|row, lane| rows[row].copy_from_slice(&lanes[lane]));
            sink(&rows[..n * codec.n_bytes])?;
        }
        Ok(())
    }

    /// Takes the first `n` rows of a head, position after position.
    pub(super) fn load(
        &mut self,
        head: usize,
        n: usize,
        source: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let codec = self.codec;
        let bytes = &mut self.bytes[head * self.n_pos * codec.n_bytes..];
        if codec.order == Order::Positions {
            return source(&mut bytes[..n * codec.n_bytes]);
        }
        let mut rows = vec![0; LANES * codec.n_bytes];
        for (i, lanes) in bytes.chunks_exact_mut(LANES * codec.n_bytes).enumerate() {
            let n = n.saturating_sub(i * LANES).min(LANES);
            if n == 0 {
                break;
            }
            source(&mut rows[..n * codec.n_bytes])?;
            codec.each_element(|row, lane| lanes[lane].copy_from_slice(&rows[row]));
        }
        Ok(())
    }
}

impl Codec {
    /// Where each element of eight positions lies in rows, and where in lanes.
    fn each_element(&self, mut f: impl FnMut(Range<usize>, Range<usize>)) {
        let size = self.n_bytes / self.dim.max(1);
        for e in 0..self.dim {
            for lane in 0..LANES {
                let (row, at) = (lane * self.n_bytes + e * size, (e * LANES + lane) * size);
                f(row..row + size, at..at + size);
            }
        }
    }

    /// Stores a row in the bytes of a head.
    fn put(&self, row: &[f32], pos: usize, bytes: &mut [u8]) {
        match self.order {
            Order::Positions => {
                let bytes = &mut bytes[pos * self.n_bytes..][..self.n_bytes];
                (self.encode)(row, Importance::None, bytes);
            }
            Order::Lanes => {
                let first = pos / LANES * LANES * self.n_bytes;
                let (bytes, lane) = (&mut bytes[first..][..LANES * self.n_bytes], pos % LANES);
                match self.kind {
                    KvType::F32 => scatter(row, lane, bytes, f32::to_le_bytes),
                    KvType::Bf16 => scatter(row, lane, bytes, |v| f32_to_bf16(v).to_le_bytes()),
                    _ => scatter(row, lane, bytes, |v| f32_to_f16(v).to_le_bytes()),
                }
            }
        }
    }
}

fn scatter<const N: usize>(row: &[f32], lane: usize, bytes: &mut [u8], to_bytes: impl Fn(f32) -> [u8; N]) {
    let lanes = bytes.as_chunks_mut::<N>().0.as_chunks_mut::<LANES>().0;
    for (v, lanes) in row.iter().zip(lanes) {
        lanes[lane] = to_bytes(*v);
    }
}

//! The state of a sequence as bytes, for a later session of the same model.
//!
//! All numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `GGUFSEQ` and a zero |
//! | 4 | version: 1 |
//! | 32 | the model: SHA-256 over its description and samples of all tensors |
//! | 4 | layers with keys |
//! | 20 a layer | type of keys, type of values (numbers of tensor types), key heads, elements of a key, of a stored value |
//! | 4 | elements of recurrent states |
//! | 4 | positions |
//! | | of each layer the keys, then the stored values: head after head, position after position, as rows of their type |
//! | 4 an element | recurrent states in order of the layers, F32 |
//! | 32 | SHA-256 of all before |

use std::io::{self, BufWriter, ErrorKind, Read, Write};

use gguf_blocks::{TypeId, registry};
use sha2::{Digest, Sha256};

use crate::kv::KvCache;
use crate::model::Model;
use crate::recurrent::Recurrent;
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"GGUFSEQ\0";
const VERSION: u32 = 1;
/// Elements that are converted at a time.
const CHUNK: usize = 4096;

/// What is saved of a sequence.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) model: &'a Model,
    pub(crate) kv: &'a KvCache,
    pub(crate) recurrent: &'a Recurrent,
    pub(crate) seq: usize,
}

/// A number that a state must agree in, with words for it.
struct Field {
    what: String,
    number: u32,
    /// Whether it is a tensor type's.
    is_type: bool,
}

impl Field {
    fn show(&self, number: u32) -> String {
        let format = registry::by_id(TypeId(number)).filter(|_| self.is_type);
        format.map_or_else(|| number.to_string(), |f| f.name.to_owned())
    }
}

/// What a state must agree in, in the order of the header.
fn layout(parts: Parts<'_>) -> Vec<Field> {
    let Parts {
        kv, recurrent, seq, ..
    } = parts;
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let plain = |what: &str, n: usize| Field {
        what: what.to_owned(),
        number: number(n),
        is_type: false,
    };
    let mut out = vec![plain("layers with keys", kv.layers().len())];
    for (i, layer) in kv.layers().iter().enumerate() {
        let (v_type, v_len) = layer.v.as_ref().map_or((0, 0), |v| (v.type_id(), v.dim()));
        let fields = [
            ("type of keys (`-ctk`)", layer.k.type_id(), true),
            ("type of values (`-ctv`)", v_type, true),
            ("key heads", number(layer.heads.n_head_kv), false),
            ("elements of a key", number(layer.k.dim()), false),
            ("elements of a value", number(v_len), false),
        ];
        out.extend(fields.map(|(what, number, is_type)| Field {
            what: format!("{what} in the cache of layer {i}"),
            number,
            is_type,
        }));
    }
    let elems = recurrent.parts(seq).map(<[f32]>::len).sum();
    out.push(plain("elements of recurrent states", elems));
    out
}

/// A writer that knows the digest of what it wrote.
struct HashedWriter<'a> {
    to: BufWriter<&'a mut dyn Write>,
    hash: Sha256,
}

impl HashedWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.to.write_all(bytes)
    }
}

/// A reader that knows the digest of what it read, and reads no byte more.
struct HashedReader<'a> {
    from: &'a mut dyn Read,
    hash: Sha256,
}

impl HashedReader<'_> {
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.from.read_exact(bytes)?;
        self.hash.update(bytes);
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes).map_err(read_error)?;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }
}

fn read_error(e: io::Error) -> Error {
    if e.kind() == ErrorKind::UnexpectedEof {
        mismatch("it ends too early; write it again")
    } else {
        Error::StateIo(e)
    }
}

fn mismatch(what: impl Into<Box<str>>) -> Error {
    Error::State(what.into())
}

/// Writes the first `n` positions of a sequence.
pub(crate) fn save(parts: Parts<'_>, n: u32, to: &mut dyn Write) -> Result<()> {
    let mut out = HashedWriter {
        to: BufWriter::with_capacity(1 << 16, to),
        hash: Sha256::new(),
    };
    let fingerprint = parts.model.fingerprint(parts.kv.n_ctx())?;
    write(parts, n, &fingerprint, &mut out).map_err(Error::StateIo)
}

fn write(parts: Parts<'_>, n: u32, fingerprint: &[u8; 32], out: &mut HashedWriter<'_>) -> io::Result<()> {
    out.put(&MAGIC)?;
    out.put(&VERSION.to_le_bytes())?;
    out.put(fingerprint)?;
    for field in layout(parts) {
        out.put(&field.number.to_le_bytes())?;
    }
    out.put(&n.to_le_bytes())?;
    parts
        .kv
        .save(parts.seq, n as usize, &mut |bytes| out.put(bytes))?;
    for chunk in parts
        .recurrent
        .parts(parts.seq)
        .flat_map(|part| part.chunks(CHUNK))
    {
        let mut bytes = [0; CHUNK * 4];
        for (b, v) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(chunk) {
            *b = v.to_le_bytes();
        }
        out.put(&bytes[..chunk.len() * 4])?;
    }
    let digest = out.hash.finalize_reset();
    out.to.write_all(&digest)?;
    out.to.flush()
}

/// Reads what [`save`] wrote; the result is the number of positions. After an error the sequence holds anything.
pub(crate) fn load(
    model: &Model,
    kv: &mut KvCache,
    recurrent: &mut Recurrent,
    seq: usize,
    from: &mut dyn Read,
) -> Result<u32> {
    let mut from = HashedReader {
        from,
        hash: Sha256::new(),
    };
    let parts = Parts {
        model,
        kv,
        recurrent,
        seq,
    };
    let n = header(parts, &mut from)?;
    kv.load(seq, n as usize, &mut |bytes| from.fill(bytes))
        .map_err(read_error)?;
    for chunk in recurrent.parts_mut(seq).flat_map(|part| part.chunks_mut(CHUNK)) {
        let mut bytes = [0; CHUNK * 4];
        let bytes = &mut bytes[..chunk.len() * 4];
        from.fill(bytes).map_err(read_error)?;
        for (b, v) in bytes.as_chunks::<4>().0.iter().zip(chunk) {
            *v = f32::from_le_bytes(*b);
        }
    }
    let expected: [u8; 32] = from.hash.finalize_reset().into();
    if from.array()? != expected {
        return Err(mismatch("its digest is not that of its bytes: it is damaged"));
    }
    Ok(n)
}

/// Checks the header; the result is the number of positions.
fn header(parts: Parts<'_>, from: &mut HashedReader<'_>) -> Result<u32> {
    if from.array()? != MAGIC {
        return Err(mismatch("expected `GGUFSEQ` at its beginning"));
    }
    let version = from.number()?;
    if version != VERSION {
        return Err(mismatch(format!("expected version {VERSION}, found {version}")));
    }
    if from.array()? != parts.model.fingerprint(parts.kv.n_ctx())? {
        let file = parts.model.file().path().display();
        return Err(mismatch(format!("it was not written with the model `{file}`")));
    }
    for field in layout(parts) {
        let found = from.number()?;
        if found != field.number {
            let (what, expected, found) = (&field.what, field.show(field.number), field.show(found));
            return Err(mismatch(format!("{what}: expected {expected}, found {found}")));
        }
    }
    let n_ctx = parts.kv.n_ctx();
    let n = from.number()?;
    if n as usize > n_ctx {
        return Err(mismatch(format!(
            "expected at most the {n_ctx} positions of the context, found {n}; ask for a longer context"
        )));
    }
    Ok(n)
}

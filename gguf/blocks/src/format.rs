//! The record that describes one tensor type. Everything that lists types iterates the registry of these.

use crate::kernel::Kernel;
use crate::{Cpu, Geometry};

/// The number that stands for a tensor type in a GGUF file (`ggml_type`). Unknown numbers are legal: a
/// container can hold types this build cannot decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub u32);

/// How much each column matters when a row is encoded. Explicit, so that nothing is weighted by accident.
#[derive(Clone, Copy, Debug)]
pub enum Importance<'a> {
    /// No importance: the type's own unweighted search.
    None,
    /// One weight a column, as many as the row has elements: the mean square of the activations.
    Column(&'a [f32]),
}

/// Which program a tensor type comes from, so which programs read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// llama.cpp. Decoders were compared with it bit for bit.
    Mainline,
    /// Only `ik_llama.cpp`. The bits were taken from a description of them and not compared with the program.
    Ik,
}

impl Origin {
    /// The program's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mainline => "llama.cpp",
            Self::Ik => "ik_llama.cpp",
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Decodes whole units of storage: `bytes` is whole blocks, one group of interleaved rows, or one tensor, whichever
/// [`Geometry::unit`] says; `out` has exactly their elements, row after row. [`Format::decode_rows`] does that for
/// any number of rows.
pub type DecodeRow = fn(bytes: &[u8], out: &mut [f32]);

/// Encodes one row: `out` has exactly the bytes of `src.len()` elements.
pub type EncodeRow = fn(src: &[f32], importance: Importance<'_>, out: &mut [u8]);

/// Looks for values that no sound file has (non-finite scales or values) in what a [`DecodeRow`] takes. Returns the
/// index of the unsound block that is stored first; blocks are counted row after row, also where rows are
/// interleaved. [`Format::check_rows`] does that for any number of rows.
pub type CheckBlocks = fn(bytes: &[u8]) -> Option<usize>;

/// One tensor type. Plain data in a static; the registry is an ordered list of these.
#[derive(Debug)]
pub struct Format {
    /// The file's number for this type.
    pub id: TypeId,
    /// The canonical name, as llama.cpp prints it in upper case: `Q4_K`, `BF16`.
    pub name: &'static str,
    /// Which program the type comes from.
    pub origin: Origin,
    /// Storage of rows.
    pub geometry: Geometry,
    /// Whether values are stored in fewer bits than 16, so that encoding again loses more.
    pub quantized: bool,
    /// Whether encoding without importance is refused.
    pub requires_importance: bool,
    /// Decoder; `None` where the order of the values is not known.
    pub decode: Option<DecodeRow>,
    /// The encoder at a level; `None` where the type can only be read. Every level writes the same bytes.
    pub encode: Option<fn(Cpu) -> EncodeRow>,
    /// Time to encode a value with importance, in tenths of a nanosecond on one core at the highest level: roughly, for
    /// sharing work out. Measured by the bench `rate`. `gguf-quantize --part` shares the tensors of a run out by it,
    /// so a change puts tensors in other parts: the parts of one run have to come from the same build.
    pub encode_cost: u32,
    /// Soundness of stored blocks.
    pub check: CheckBlocks,
    /// The kernels at a level. Types without their own get the one made from the decoder.
    pub kernel: fn(Cpu) -> Option<Kernel>,
    /// One sentence for the table in the documents.
    pub doc: &'static str,
}

/// The place of a block in rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The row, counted from the first one that was looked at.
    pub row: usize,
    /// The column of the block's first element.
    pub col: usize,
}

impl Format {
    /// What most types of llama.cpp have in common; the rest of a record is to be given.
    pub(crate) const MAINLINE: Self = Self {
        id: TypeId(u32::MAX),
        name: "",
        origin: Origin::Mainline,
        geometry: Geometry::blocks(1, 1),
        quantized: true,
        requires_importance: false,
        decode: None,
        encode: None,
        encode_cost: 0,
        check: |_| None,
        kernel: |_| None,
        doc: "",
    };

    /// What most types of `ik_llama.cpp` have in common; the rest of a record is to be given.
    pub(crate) const IK: Self = Self {
        origin: Origin::Ik,
        ..Self::MAINLINE
    };

    /// Whether weights are stored as this type. Whole numbers and double precision are for tables and indices.
    pub fn holds_weights(&self) -> bool {
        self.quantized || self.encode.is_some()
    }

    /// The encoder at the level of `cpu`; `None` where the type can only be read.
    pub fn encoder(&self, cpu: Cpu) -> Option<EncodeRow> {
        self.encode.map(|encode| encode(cpu))
    }

    /// Decodes rows of `n_cols` elements, row after row into `out`; `None` (and `out` untouched) if the type has no
    /// decoder. The rows are whole groups where rows are interleaved, and all rows of the tensor where the tensor
    /// has a trailer.
    ///
    /// # Panics
    ///
    /// If `bytes` is not as long as [`Geometry::tensor_bytes`] says for the rows of `out`.
    pub fn decode_rows(&self, n_cols: usize, bytes: &[u8], out: &mut [f32]) -> Option<()> {
        let decode = self.decode?;
        let n_rows = out.len().checked_div(n_cols).unwrap_or(0);
        if n_rows == 0 {
            return Some(());
        }
        assert_eq!(out.len(), n_rows * n_cols, "values of whole rows");
        assert_eq!(
            self.geometry.tensor_bytes(n_cols as u64, n_rows as u64),
            Some(bytes.len() as u64),
            "the bytes of {n_rows} rows of {n_cols} elements of `{}`",
            self.name
        );
        let unit_rows = self.geometry.unit_rows(n_rows);
        let units = bytes.chunks(bytes.len() / (n_rows / unit_rows));
        for (bytes, out) in units.zip(out.chunks_mut(unit_rows * n_cols)) {
            decode(bytes, out);
        }
        Some(())
    }

    /// The first unsound block of rows of `n_cols` elements. `bytes` is whole rows, under the conditions of
    /// [`Self::decode_rows`].
    ///
    /// # Panics
    ///
    /// If `bytes` is not whole rows (and not a trailer where there is one).
    pub fn check_rows(&self, n_cols: usize, bytes: &[u8]) -> Option<Place> {
        let blocks = n_cols / self.geometry.block_elems;
        if blocks == 0 {
            return None;
        }
        let n_rows = self.geometry.rows_in(n_cols as u64, bytes.len() as u64);
        let n_rows = n_rows.expect("bytes of whole rows") as usize;
        if n_rows == 0 {
            return None;
        }
        let unit_rows = self.geometry.unit_rows(n_rows);
        let units = bytes.chunks(bytes.len() / (n_rows / unit_rows));
        let (unit, block) = units
            .enumerate()
            .find_map(|(unit, bytes)| Some((unit, (self.check)(bytes)?)))?;
        Some(Place {
            row: unit * unit_rows + block / blocks,
            col: block % blocks * self.geometry.block_elems,
        })
    }
}

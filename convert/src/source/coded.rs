//! Weights stored as codes row behind row, with scales: floats and whole numbers of 8 bits, packed whole numbers,
//! four-bit floats. A value is the code's, less the zero point, times the scale, in this order in f32.

use std::ops::Range;

use gguf_blocks::half_bulk::{f16_to_f32, f32_to_f16};
use gguf_blocks::{Format, registry};

use super::grid::Grid;
use super::numbers::{BATCH_BYTES, Data};
use super::safetensors::Entry;
use super::stored::{Part, Quantized, Storage, Stored};
use crate::Result;
use crate::error::Error;
use crate::view::Files;

/// The values that a byte's codes stand for, first code first.
#[derive(Clone, Copy, Debug)]
pub(super) enum Codes {
    /// One code a byte.
    Bytes(&'static [f32; 256]),
    /// Two codes a byte.
    Pairs(&'static [[f32; 2]; 256]),
    /// Four codes a byte.
    Quads(&'static [[f32; 4]; 256]),
}

impl Codes {
    /// Codes of a byte.
    pub(super) fn per_byte(self) -> u64 {
        match self {
            Self::Bytes(_) => 1,
            Self::Pairs(_) => 2,
            Self::Quads(_) => 4,
        }
    }

    /// The values of codes from number `skip` of the first byte on.
    pub(super) fn decode(self, bytes: &[u8], skip: usize, out: &mut [f32]) {
        match self {
            Self::Bytes(table) => {
                for (out, &byte) in out.iter_mut().zip(bytes) {
                    *out = table[usize::from(byte)];
                }
            }
            Self::Pairs(table) => unpack(table, bytes, skip, out),
            Self::Quads(table) => unpack(table, bytes, skip, out),
        }
    }
}

fn unpack<const N: usize>(table: &[[f32; N]; 256], bytes: &[u8], skip: usize, out: &mut [f32]) {
    let (mut bytes, mut out) = (bytes, out);
    if skip > 0
        && let Some((first, rest)) = bytes.split_first()
    {
        let (head, tail) = out.split_at_mut((N - skip).min(out.len()));
        head.copy_from_slice(&table[usize::from(*first)][skip..][..head.len()]);
        (bytes, out) = (rest, tail);
    }
    let (whole, tail) = out.as_chunks_mut::<N>();
    for (out, &byte) in whole.iter_mut().zip(bytes) {
        *out = table[usize::from(byte)];
    }
    if let Some(&byte) = bytes.get(whole.len()) {
        tail.copy_from_slice(&table[usize::from(byte)][..tail.len()]);
    }
}

/// Zero points, laid out as the scales are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Zeros {
    /// Numbers with a sign.
    Plain(Data),
    /// Codes of so many bits, rows packed into words: row `r` is in word row `r / (32 / bits)`.
    Packed { data: Data, bits: u32 },
}

/// A factor of a whole matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factor {
    pub(super) data: Data,
    /// Whether the stored number is one over the factor.
    pub(super) inverse: bool,
    /// Whether each matrix of the stack has its own.
    pub(super) per_matrix: bool,
}

impl Factor {
    fn stored(self, matrix: u64) -> Stored {
        let mut data = self.data;
        data.at += if self.per_matrix {
            matrix * data.dtype.bytes()
        } else {
            0
        };
        Stored {
            n_rows: 1,
            n_cols: 1,
            repacked: false,
            storage: if self.inverse {
                Storage::Inverse(data)
            } else {
                Storage::Plain(data)
            },
        }
    }
}

/// A stack of matrices of codes.
#[derive(Debug)]
pub(super) struct Coded {
    /// The name of the codes' tensor, for messages.
    pub(super) name: Box<str>,
    pub(super) n_rows: u64,
    pub(super) n_cols: u64,
    pub(super) data: Data,
    /// Bytes from a row to the next.
    pub(super) row_bytes: u64,
    pub(super) codes: Codes,
    pub(super) scales: Grid,
    pub(super) zeros: Option<Zeros>,
    /// The group of each column, where columns were sorted before they were grouped.
    pub(super) groups: Option<Data>,
    /// Rows and columns as the checkpoint states them in a tensor.
    pub(super) stated: Option<Data>,
    /// The scale of the scales.
    pub(super) factor: Option<Factor>,
    /// The scale of the activations.
    pub(super) input_factor: Option<Factor>,
    /// The GGUF type that the codes can be put into unchanged.
    pub(super) repack: Option<&'static str>,
}

/// Room to work in.
#[derive(Default)]
struct Scratch {
    raw: Vec<u8>,
    numbers: Vec<u8>,
    scales: Vec<f32>,
    zeros: Vec<f32>,
}

impl Quantized for Coded {
    fn read(&self, files: &Files, part: Part, values: &mut [f32]) -> Result<()> {
        self.check_stated(files)?;
        let width = (part.cols.end - part.cols.start) as usize;
        if width == 0 {
            return Ok(());
        }
        let per_byte = self.codes.per_byte();
        let bytes = part.cols.start / per_byte..part.cols.end.div_ceil(per_byte);
        let skip = (part.cols.start % per_byte) as usize;
        let factor = self
            .factor
            .map(|f| f.stored(part.matrix).value(files))
            .transpose()?;
        let groups = self.read_groups(files, &part.cols)?;
        let mut scratch = Scratch::default();
        let step = BATCH_BYTES / (bytes.end - bytes.start) + 1;
        let mut rest = values;
        let mut first = part.rows.start;
        while first < part.rows.end {
            let rows = first..part.rows.end.min(first + step);
            let (batch, after) = rest.split_at_mut((rows.end - rows.start) as usize * width);
            self.read_bytes(files, part.matrix, &rows, &bytes, &mut scratch.raw)?;
            let grid_rows = self.scales.rows(&rows);
            let Scratch {
                numbers,
                scales,
                zeros,
                ..
            } = &mut scratch;
            self.scales
                .read(files, part.matrix, &grid_rows, numbers, scales)?;
            self.read_zeros(files, part.matrix, &grid_rows, numbers, zeros)?;
            let row_len = (bytes.end - bytes.start) as usize;
            let coded = rows.clone().zip(scratch.raw.chunks_exact(row_len));
            for ((row, bytes), out) in coded.zip(batch.chunks_exact_mut(width)) {
                self.codes.decode(bytes, skip, out);
                let at = (row / self.scales.block_rows - grid_rows.start) * self.scales.n_cols;
                let line = at as usize..(at + self.scales.n_cols) as usize;
                let scales = &scratch.scales[line.clone()];
                let zeros = self.zeros.map(|_| &scratch.zeros[line]);
                match &groups {
                    Some(groups) => scale_sorted(out, groups, scales, zeros),
                    None => self.scale(out, part.cols.start, scales, zeros),
                }
                if let Some(factor) = factor {
                    for v in out.iter_mut() {
                        *v *= factor;
                    }
                }
            }
            (rest, first) = (after, rows.end);
        }
        Ok(())
    }

    fn repack(&self) -> Option<&'static Format> {
        self.repack.and_then(registry::by_name)
    }

    fn read_repacked(&self, files: &Files, matrix: u64, rows: Range<u64>, out: &mut [u8]) -> Result<()> {
        self.check_stated(files)?;
        let format = self.repack().expect("asked for where there is a type");
        let per_row = self.scales.n_cols as usize;
        let out_row = format
            .geometry
            .row_bytes(self.n_cols)
            .expect("rows are whole blocks") as usize;
        let scale_bytes = self.scales.data.dtype.bytes() as usize;
        let (mut raw, mut scales) = (Vec::new(), Vec::new());
        let step = BATCH_BYTES / self.row_bytes.max(1) + 1;
        let mut rest = out;
        let mut first = rows.start;
        while first < rows.end {
            let batch = first..rows.end.min(first + step);
            let n = (batch.end - batch.start) as usize;
            self.read_bytes(files, matrix, &batch, &(0..self.row_bytes), &mut raw)?;
            scales.resize(n * per_row * scale_bytes, 0);
            let at = matrix * self.scales.per_matrix + batch.start * self.scales.n_cols;
            self.scales.data.bytes(files, at, &mut scales)?;
            let (out, after) = rest.split_at_mut(n * out_row);
            let place = |i: usize| {
                let (row, group) = (batch.start + (i / per_row) as u64, i % per_row);
                format!("scale of group {group} of row {row} of `{}`", self.name)
            };
            match format.name {
                "MXFP4" => to_mxfp4(&raw, &scales, out),
                "NVFP4" => to_nvfp4(&raw, &scales, out).map_err(|i| {
                    Error::mismatch(place(i), "a positive number, as NVFP4 has no others", scales[i])
                })?,
                _ => {
                    let decoded = self.scale_values(&scales);
                    to_q4_0(&raw, &decoded, out).map_err(|i| {
                        Error::mismatch(place(i), "a number that F16 holds exactly", decoded[i])
                    })?;
                }
            }
            (rest, first) = (after, batch.end);
        }
        Ok(())
    }

    fn misfits(&self, files: &Files, matrix: u64) -> Result<u64> {
        if self.repack != Some("Q4_0") {
            return Ok(0);
        }
        let (mut raw, mut scales) = (Vec::new(), Vec::new());
        let step = BATCH_BYTES / self.scales.n_cols.max(1) + 1;
        let (mut n, mut first) = (0, 0);
        while first < self.scales.n_rows {
            let rows = first..self.scales.n_rows.min(first + step);
            self.scales.read(files, matrix, &rows, &mut raw, &mut scales)?;
            n += scales.iter().filter(|&&s| exact_half(s).is_none()).count() as u64;
            first = rows.end;
        }
        Ok(n)
    }

    fn factor(&self, matrix: u64) -> Option<Stored> {
        self.factor.map(|f| f.stored(matrix))
    }

    fn input_factor(&self, matrix: u64) -> Option<Stored> {
        self.input_factor.map(|f| f.stored(matrix))
    }
}

impl Coded {
    /// Codes of `entry` with scales, and nothing else.
    pub(super) fn new(
        entry: &Entry,
        (n_rows, n_cols): (u64, u64),
        row_bytes: u64,
        codes: Codes,
        scales: Grid,
    ) -> Self {
        Self {
            name: entry.name.as_str().into(),
            n_rows,
            n_cols,
            data: entry.data,
            row_bytes,
            codes,
            scales,
            zeros: None,
            groups: None,
            stated: None,
            factor: None,
            input_factor: None,
            repack: None,
        }
    }

    /// Some bytes of rows that are neighbours.
    fn read_bytes(
        &self,
        files: &Files,
        matrix: u64,
        rows: &Range<u64>,
        bytes: &Range<u64>,
        raw: &mut Vec<u8>,
    ) -> Result<()> {
        let len = (bytes.end - bytes.start) as usize;
        raw.resize((rows.end - rows.start) as usize * len, 0);
        let at = |row: u64| self.data.at + (matrix * self.n_rows + row) * self.row_bytes + bytes.start;
        let file = &files[self.data.file];
        if len as u64 == self.row_bytes {
            file.read_at(at(rows.start), raw)?;
        } else {
            for (row, raw) in rows.clone().zip(raw.chunks_exact_mut(len)) {
                file.read_at(at(row), raw)?;
            }
        }
        Ok(())
    }

    /// The stated shape was read for one of many alike; here each one is compared.
    fn check_stated(&self, files: &Files) -> Result<()> {
        let Some(stated) = self.stated else {
            return Ok(());
        };
        let found = stated.whole(files, 0, 2)?;
        if found == [self.n_rows as i64, self.n_cols as i64] {
            return Ok(());
        }
        let object = format!("shape that the checkpoint states for `{}`", self.name);
        let expected = format!("{:?}, as of others like it", [self.n_rows, self.n_cols]);
        Err(Error::mismatch(object, expected, format!("{found:?}")))
    }

    fn read_groups(&self, files: &Files, cols: &Range<u64>) -> Result<Option<Vec<usize>>> {
        let Some(data) = self.groups else {
            return Ok(None);
        };
        let found = data.whole(files, cols.start, (cols.end - cols.start) as usize)?;
        // Minus one for all columns stands for groups in order.
        if found.iter().all(|&g| g == -1) {
            return Ok(None);
        }
        check_groups(&self.name, &found, self.scales.n_cols).map(Some)
    }

    fn read_zeros(
        &self,
        files: &Files,
        matrix: u64,
        rows: &Range<u64>,
        raw: &mut Vec<u8>,
        zeros: &mut Vec<f32>,
    ) -> Result<()> {
        match self.zeros {
            None => Ok(()),
            Some(Zeros::Plain(data)) => Grid { data, ..self.scales }.read(files, matrix, rows, raw, zeros),
            Some(Zeros::Packed { data, bits }) => {
                let n_cols = self.scales.n_cols as usize;
                let per_word = u64::from(32 / bits);
                let words = rows.start / per_word..rows.end.div_ceil(per_word);
                raw.resize((words.end - words.start) as usize * n_cols * 4, 0);
                data.bytes(files, words.start * self.scales.n_cols, raw)?;
                zeros.clear();
                for row in rows.clone() {
                    let line = (row / per_word - words.start) as usize * n_cols;
                    let shift = (row % per_word) as u32 * bits;
                    let words = &raw.as_chunks().0[line..line + n_cols];
                    let code = |word: &[u8; 4]| u32::from_le_bytes(*word) >> shift & ((1 << bits) - 1);
                    // The codes' tables are those of numbers with a sign.
                    let half = (1u32 << (bits - 1)) as f32;
                    zeros.extend(words.iter().map(|word| code(word) as f32 - half));
                }
                Ok(())
            }
        }
    }

    /// Scales the values of columns from `first` on.
    fn scale(&self, out: &mut [f32], first: u64, scales: &[f32], zeros: Option<&[f32]>) {
        let block = self.scales.block_cols;
        let mut rest = out;
        let mut col = first;
        while !rest.is_empty() {
            let i = (col / block) as usize;
            let n = (block - col % block).min(rest.len() as u64) as usize;
            let (part, after) = rest.split_at_mut(n);
            let scale = scales[i];
            match zeros {
                Some(zeros) => {
                    for v in part {
                        *v = (*v - zeros[i]) * scale;
                    }
                }
                None => {
                    for v in part {
                        *v *= scale;
                    }
                }
            }
            col += n as u64;
            rest = after;
        }
    }

    fn scale_values(&self, raw: &[u8]) -> Vec<f32> {
        let mut values = vec![0.0; raw.len() / self.scales.data.dtype.bytes() as usize];
        super::numbers::decode(self.scales.data.dtype, raw, &mut values);
        values
    }
}

fn scale_sorted(out: &mut [f32], groups: &[usize], scales: &[f32], zeros: Option<&[f32]>) {
    for (v, &group) in out.iter_mut().zip(groups) {
        *v = (*v - zeros.map_or(0.0, |z| z[group])) * scales[group];
    }
}

/// Groups of columns as indices.
///
/// # Errors
/// A group that has no scale.
pub(super) fn check_groups(name: &str, groups: &[i64], n_groups: u64) -> Result<Vec<usize>> {
    let fits = |&g: &i64| {
        u64::try_from(g)
            .ok()
            .filter(|&g| g < n_groups)
            .map(|g| g as usize)
    };
    let checked: Option<Vec<_>> = groups.iter().map(fits).collect();
    checked.ok_or_else(|| {
        let wrong = groups.iter().find(|g| fits(g).is_none()).copied().unwrap_or(-1);
        let object = format!("group of a column of `{name}`");
        Error::mismatch(
            object,
            format!("below the {n_groups} groups that have scales"),
            wrong,
        )
    })
}

/// The half of a number that one holds exactly.
fn exact_half(value: f32) -> Option<u16> {
    let half = f32_to_f16(value);
    (f16_to_f32(half).to_bits() == value.to_bits() && value.is_finite()).then_some(half)
}

/// Pairs of neighbours become pairs with half a group between them.
fn spread<const HALF: usize>(codes: &[u8], out: &mut [u8]) {
    let (low, high) = codes.split_at(HALF);
    for ((pair, &a), &b) in out.as_chunks_mut::<2>().0.iter_mut().zip(low).zip(high) {
        *pair = [a & 15 | b << 4, a >> 4 | b & 0xf0];
    }
}

fn to_mxfp4(codes: &[u8], scales: &[u8], out: &mut [u8]) {
    let blocks = out.as_chunks_mut::<17>().0.iter_mut();
    for ((block, codes), &scale) in blocks.zip(codes.as_chunks::<16>().0).zip(scales) {
        block[0] = scale;
        spread::<8>(codes, &mut block[1..]);
    }
}

/// An error is the number of a scale that the type does not have.
fn to_nvfp4(codes: &[u8], scales: &[u8], out: &mut [u8]) -> std::result::Result<(), usize> {
    let blocks = out.as_chunks_mut::<36>().0.iter_mut();
    let groups = codes.as_chunks::<32>().0.iter().zip(scales.as_chunks::<4>().0);
    for (i, (block, (codes, scales))) in blocks.zip(groups).enumerate() {
        let fits = |s: u8| s < 0x7f || s == 0x80;
        if let Some(j) = scales.iter().position(|&s| !fits(s)) {
            return Err(4 * i + j);
        }
        let (d, qs) = block.split_at_mut(4);
        for (d, s) in d.iter_mut().zip(scales) {
            *d = s & 0x7f;
        }
        for (codes, qs) in codes.as_chunks::<8>().0.iter().zip(qs.as_chunks_mut::<8>().0) {
            spread::<4>(codes, qs);
        }
    }
    Ok(())
}

/// An error is the number of a scale that is no half.
fn to_q4_0(codes: &[u8], scales: &[f32], out: &mut [u8]) -> std::result::Result<(), usize> {
    let blocks = out.as_chunks_mut::<18>().0.iter_mut();
    for (i, ((block, codes), &scale)) in blocks.zip(codes.as_chunks::<16>().0).zip(scales).enumerate() {
        let half = exact_half(scale).ok_or(i)?;
        block[..2].copy_from_slice(&half.to_le_bytes());
        spread::<8>(codes, &mut block[2..]);
    }
    Ok(())
}

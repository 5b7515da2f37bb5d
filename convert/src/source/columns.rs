//! Weights whose words run along columns of the stored tensor, so that a row of the matrix is a column of words: GPTQ
//! and AWQ. Stored are `[inputs, outputs]`; the matrix is `[outputs, inputs]`. A value is the scale times the code
//! less the zero point.

use std::ops::Range;

use super::coded::{Codes, check_groups};
use super::numbers::{Data, INT2_QUADS, INT4_PAIRS, OFFSET_BYTES};
use super::stored::{Part, Quantized};
use crate::Result;
use crate::view::Files;

/// Rows of the matrix that are put together at once: the width of a read in the stored tensor.
const TILE_ROWS: u64 = 64;

/// Which codes share a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    /// Neighbours in a row of the matrix, the first in the lowest bits.
    Inputs,
    /// Rows of the matrix that are neighbours, in the order of [`SHIFTS`].
    Outputs,
}

/// Where in a word AWQ has the four bits of each of eight neighbours.
const SHIFTS: [u32; 8] = [0, 16, 4, 20, 8, 24, 12, 28];

/// A matrix of words.
#[derive(Debug)]
pub(super) struct Columns {
    /// The name of the words' tensor, for messages.
    pub(super) name: Box<str>,
    /// Outputs.
    pub(super) n_rows: u64,
    pub(super) bits: u32,
    pub(super) along: Along,
    pub(super) words: Data,
    /// Words of zero points `[groups, outputs / (32 / bits)]`.
    pub(super) zeros: Data,
    /// Added to stored zero points.
    pub(super) zero_offset: u8,
    /// `[groups, outputs]`.
    pub(super) scales: Data,
    pub(super) n_groups: u64,
    /// Inputs of a group.
    pub(super) group: u64,
    /// The group of each input, where they were sorted before they were grouped.
    pub(super) groups: Option<Data>,
}

/// What a tile of rows is made of.
#[derive(Default)]
struct Tile {
    raw: Vec<u8>,
    /// Words, line by line of the stored tensor.
    words: Vec<u32>,
    /// Words of a line.
    per_line: usize,
    /// Scales, group by group.
    scales: Vec<f32>,
    /// Zero points, as [`Self::scales`].
    zeros: Vec<f32>,
}

impl Quantized for Columns {
    fn rows_at_once(&self) -> u64 {
        TILE_ROWS
    }

    fn read(&self, files: &Files, part: Part, values: &mut [f32]) -> Result<()> {
        let width = (part.cols.end - part.cols.start) as usize;
        if width == 0 {
            return Ok(());
        }
        let groups = self.groups_of(files, &part.cols)?;
        let mut tile = Tile::default();
        let mut rest = values;
        let mut first = part.rows.start;
        while first < part.rows.end {
            let rows = first..part.rows.end.min(first + TILE_ROWS);
            let n = (rows.end - rows.start) as usize;
            let (out, after) = rest.split_at_mut(n * width);
            self.read_words(files, &rows, &part.cols, &mut tile)?;
            self.read_scales(files, &rows, &mut tile)?;
            for (i, out) in out.chunks_exact_mut(width).enumerate() {
                match self.along {
                    Along::Inputs => self.row_of_inputs(&tile, i, part.cols.start, out),
                    Along::Outputs => row_of_outputs(&tile, (rows.start % 8) as usize + i, out),
                }
                match &groups {
                    Some(groups) => {
                        for (v, group) in out.iter_mut().zip(groups) {
                            let at = group * n + i;
                            *v = tile.scales[at] * (*v - tile.zeros[at]);
                        }
                    }
                    None => self.scale(&tile, (i, n), part.cols.start, out),
                }
            }
            (rest, first) = (after, rows.end);
        }
        Ok(())
    }
}

impl Columns {
    fn per_word(&self) -> u64 {
        u64::from(32 / self.bits)
    }

    /// Half of the codes' range: codes and zero points are both taken less this.
    fn half(&self) -> f32 {
        (1u32 << (self.bits - 1)) as f32
    }

    /// The words of some rows and columns.
    fn read_words(&self, files: &Files, rows: &Range<u64>, cols: &Range<u64>, tile: &mut Tile) -> Result<()> {
        let per_word = self.per_word();
        let packed = |range: &Range<u64>| range.start / per_word..range.end.div_ceil(per_word);
        let (lines, within, line_len) = match self.along {
            Along::Inputs => (packed(cols), rows.clone(), self.n_rows),
            Along::Outputs => (cols.clone(), packed(rows), self.n_rows / per_word),
        };
        tile.per_line = (within.end - within.start) as usize;
        let n_lines = (lines.end - lines.start) as usize;
        tile.raw.resize(n_lines * tile.per_line * 4, 0);
        if within.end - within.start == line_len {
            self.words.bytes(files, lines.start * line_len, &mut tile.raw)?;
        } else {
            for (line, raw) in lines.zip(tile.raw.chunks_exact_mut(tile.per_line * 4)) {
                self.words.bytes(files, line * line_len + within.start, raw)?;
            }
        }
        tile.words.clear();
        let words = tile.raw.as_chunks().0;
        tile.words
            .extend(words.iter().map(|word| u32::from_le_bytes(*word)));
        Ok(())
    }

    /// Scales and zero points of some rows in all groups.
    fn read_scales(&self, files: &Files, rows: &Range<u64>, tile: &mut Tile) -> Result<()> {
        let n = (rows.end - rows.start) as usize;
        tile.scales.resize(n * self.n_groups as usize, 0.0);
        tile.zeros.clear();
        let per_word = self.per_word();
        let words_per_line = self.n_rows.div_ceil(per_word);
        let words = rows.start / per_word..rows.end.div_ceil(per_word);
        let mut raw = vec![0; (words.end - words.start) as usize * 4];
        for (group, scales) in (0..self.n_groups).zip(tile.scales.chunks_exact_mut(n)) {
            let first = group * self.n_rows + rows.start;
            self.scales.numbers(files, first, &mut tile.raw, scales)?;
            self.zeros
                .bytes(files, group * words_per_line + words.start, &mut raw)?;
            for row in rows.clone() {
                let word = u32::from_le_bytes(raw.as_chunks().0[(row / per_word - words.start) as usize]);
                let within = (row % per_word) as usize;
                let shift = match self.along {
                    Along::Inputs => within as u32 * self.bits,
                    Along::Outputs => SHIFTS[within],
                };
                let code = word >> shift & ((1 << self.bits) - 1);
                tile.zeros
                    .push((code + u32::from(self.zero_offset)) as f32 - self.half());
            }
        }
        Ok(())
    }

    /// The codes of row `i` of a tile, columns from `first` on, less [`Self::half`].
    fn row_of_inputs(&self, tile: &Tile, i: usize, first: u64, out: &mut [f32]) {
        let codes = match self.bits {
            2 => Codes::Quads(&INT2_QUADS),
            4 => Codes::Pairs(&INT4_PAIRS),
            _ => Codes::Bytes(&OFFSET_BYTES),
        };
        let per_word = self.per_word() as usize;
        let mut skip = (first % self.per_word()) as usize;
        let mut rest = out;
        for line in tile.words.chunks_exact(tile.per_line) {
            let n = (per_word - skip).min(rest.len());
            let (part, after) = rest.split_at_mut(n);
            let bytes = line[i].to_le_bytes();
            let per_byte = codes.per_byte() as usize;
            codes.decode(&bytes[skip / per_byte..], skip % per_byte, part);
            (rest, skip) = (after, 0);
        }
    }

    /// Scales the values of row `i` of `n`, columns from `first` on, where groups are in order.
    fn scale(&self, tile: &Tile, (i, n): (usize, usize), first: u64, out: &mut [f32]) {
        let mut rest = out;
        let mut col = first;
        while !rest.is_empty() {
            let len = (self.group - col % self.group).min(rest.len() as u64) as usize;
            let (part, after) = rest.split_at_mut(len);
            let at = (col / self.group) as usize * n + i;
            let (scale, zero) = (tile.scales[at], tile.zeros[at]);
            for v in part {
                *v = scale * (*v - zero);
            }
            col += len as u64;
            rest = after;
        }
    }

    fn groups_of(&self, files: &Files, cols: &Range<u64>) -> Result<Option<Vec<usize>>> {
        let Some(data) = self.groups else {
            return Ok(None);
        };
        let found = data.whole(files, cols.start, (cols.end - cols.start) as usize)?;
        let groups = check_groups(&self.name, &found, self.n_groups)?;
        let in_order = (cols.clone())
            .zip(&groups)
            .all(|(col, &g)| col / self.group == g as u64);
        Ok((!in_order).then_some(groups))
    }
}

/// The codes of row `i`, counted from the first word, in all columns of a tile, less half of their range.
fn row_of_outputs(tile: &Tile, i: usize, out: &mut [f32]) {
    let shift = SHIFTS[i % 8];
    for (v, line) in out.iter_mut().zip(tile.words.chunks_exact(tile.per_line)) {
        *v = (line[i / 8] >> shift & 15) as f32 - 8.0;
    }
}

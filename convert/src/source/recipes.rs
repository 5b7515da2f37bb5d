//! How each form's weights are put together from a tensor of codes and its companions: what must be there, in which
//! formats and shapes.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::assemble::{Parts, Weight, dtype};
use super::bitnet::Ternary;
use super::coded::{Coded, Codes, Factor, Zeros};
use super::columns::{Along, Columns};
use super::grid::Grid;
use super::method::{Form, Scheme, Strategy};
use super::numbers::{
    Data, E2M1_PAIRS, INT2_QUADS, INT4_PAIRS, OFFSET_BYTES, is_number, table, whole_numbers,
};
use super::safetensors::Entry;
use crate::Result;
use crate::error::Error;

/// Elements of a group of NVFP4.
const NVFP4_GROUP: u64 = 16;

/// Elements of a block of MXFP4.
const MXFP4_BLOCK: u64 = 32;

/// Rows and columns behind the stack's dimensions. None is zero, so that all of them are bounded by the file.
fn matrix(entry: &Entry) -> Result<(&[u64], u64, u64)> {
    match entry.shape.as_slice() {
        [stack @ .., rows, cols] if !entry.shape.contains(&0) => Ok((stack, *rows, *cols)),
        other => {
            let object = format!("shape of tensor `{}`", entry.name);
            Err(Error::mismatch(object, "a matrix of codes", format!("{other:?}")))
        }
    }
}

fn expect_shape(entry: &Entry, expected: &[u64], of: &str) -> Result<()> {
    if entry.shape == expected {
        return Ok(());
    }
    let object = format!("shape of tensor `{}`", entry.name);
    Err(Error::mismatch(
        object,
        format!("{expected:?} for {of}"),
        format!("{:?}", entry.shape),
    ))
}

fn expect_dtype(entry: &Entry, fits: bool, expected: &str) -> Result<()> {
    if fits {
        return Ok(());
    }
    let object = format!("dtype of tensor `{}`", entry.name);
    Err(Error::mismatch(object, expected, entry.data.dtype.name))
}

impl<'a> Parts<'a> {
    /// Schemes of the settings with so many bits; empty if settings tell none.
    fn schemes(&self, fits: impl Fn(&Scheme) -> bool) -> Vec<Scheme> {
        match self.method.map(|m| &m.form) {
            Some(Form::Compressed(schemes)) => schemes.iter().copied().filter(fits).collect(),
            _ => Vec::new(),
        }
    }

    /// Numbers of 8 bits.
    pub(super) fn scaled(&mut self, entry: &'a Entry) -> Result<Weight> {
        let name = entry.name.as_str();
        let base = name.strip_suffix(".weight").unwrap_or(name);
        let names = [(name, "_scale_inv"), (name, "_scale"), (base, ".qscale_weight")];
        let scales = self.require(entry, &names)?;
        let (_, n_rows, n_cols) = matrix(entry)?;
        let schemes = self.schemes(|s| s.bits == 8);
        let strategies: Vec<_> = match self.method.map(|m| &m.form) {
            Some(Form::Fp8 { block: Some(block) }) => vec![Strategy::Block(*block)],
            Some(Form::Compressed(_)) if !schemes.is_empty() => schemes.iter().map(|s| s.strategy).collect(),
            _ => vec![Strategy::Tensor, Strategy::Channel],
        };
        let scales = Grid::new(name, &entry.shape, scales, &strategies)?;
        let zeros = match self.claim(name, "_zero_point") {
            Some(zeros) => {
                expect_dtype(
                    zeros,
                    zeros.data.dtype.name == "I8",
                    "I8, as zero points are stored",
                )?;
                Grid::new(name, &entry.shape, zeros, &strategies)?;
                Some(Zeros::Plain(zeros.data))
            }
            None => None,
        };
        let table = table(entry.data.dtype).expect("a format of 8 bits");
        let coded = Coded {
            zeros,
            ..Coded::new(entry, (n_rows, n_cols), n_cols, Codes::Bytes(table), scales)
        };
        Ok(Weight {
            name: name.to_owned(),
            shape: entry.shape.clone(),
            stack: Arc::new(coded),
        })
    }

    /// Whole numbers in words of 32 bits.
    pub(super) fn packed(&mut self, entry: &'a Entry, weight: &str) -> Result<Weight> {
        expect_dtype(
            entry,
            entry.data.dtype.name == "I32",
            "I32, words of packed codes",
        )?;
        let (stack, n_rows, n_words) = matrix(entry)?;
        let schemes = self.schemes(|_| true);
        if schemes.is_empty() {
            let object = format!("packed codes in tensor `{}`", entry.name);
            let expected =
                "`quantization_config` of config.json with bits and groups of `compressed-tensors`";
            return Err(Error::mismatch(object, expected, "none"));
        }
        let scales = self.require(entry, &[(weight, "_scale")])?;
        let stated = self.claim(weight, "_shape");
        let zeros = self.claim(weight, "_zero_point");
        let groups = self.claim(weight, "_g_idx");
        let n_cols = match stated {
            Some(stated) => self.stated_shape(entry, scales, stated)?,
            None => n_words.saturating_mul(u64::from(32 / schemes[0].bits)),
        };
        let shape = [stack, &[n_rows, n_cols]].concat();
        let scheme = scheme_of(&schemes, entry, &shape, scales)?;
        let grid = Grid::new(weight, &shape, scales, &[scheme.strategy])?;
        let codes = match scheme.bits {
            2 => Codes::Quads(&INT2_QUADS),
            4 => Codes::Pairs(&INT4_PAIRS),
            _ => Codes::Bytes(&OFFSET_BYTES),
        };
        if zeros.is_none() && !scheme.symmetric {
            self.require(entry, &[(weight, "_zero_point")])?;
        }
        let zeros = zeros
            .map(|z| packed_zeros(z, scheme.bits, &grid, stack))
            .transpose()?;
        if let Some(groups) = groups {
            expect_dtype(groups, whole_numbers(groups.data.dtype), "whole numbers")?;
            expect_shape(groups, &[n_cols], &format!("the columns of `{weight}`"))?;
        }
        let is_q4_0 = scheme.bits == 4
            && (grid.block_rows, grid.block_cols) == (1, 32)
            && n_cols.is_multiple_of(32)
            && zeros.is_none()
            && groups.is_none();
        let coded = Coded {
            zeros,
            groups: groups.map(|g| g.data),
            stated: stated.map(|s| s.data),
            repack: is_q4_0.then_some("Q4_0"),
            ..Coded::new(entry, (n_rows, n_cols), n_words * 4, codes, grid)
        };
        Ok(Weight {
            name: weight.to_owned(),
            shape,
            stack: Arc::new(coded),
        })
    }

    /// Columns of packed codes as a tensor states them. Of tensors that are alike in name and shapes one is read: there
    /// are thousands of experts.
    fn stated_shape(&mut self, entry: &Entry, scales: &Entry, stated: &Entry) -> Result<u64> {
        expect_dtype(stated, whole_numbers(stated.data.dtype), "whole numbers")?;
        expect_shape(stated, &[2], "rows and columns")?;
        // A digest is enough: a tensor that states another shape is seen when its weight is read.
        let mut alike = std::hash::DefaultHasher::new();
        for part in entry.name.split(|c: char| c.is_ascii_digit()) {
            part.hash(&mut alike);
        }
        (&entry.shape, &scales.shape).hash(&mut alike);
        let alike = alike.finish();
        let [rows, cols] = if let Some(shape) = self.stated.get(&alike) {
            *shape
        } else {
            let read = stated.data.whole(self.files, 0, 2)?;
            // What does not fit is refused below.
            let shape = [read[0], read[1]].map(|n| u64::try_from(n).unwrap_or(u64::MAX));
            self.stated.insert(alike, shape);
            shape
        };
        let (stack, n_rows, _) = matrix(entry)?;
        // Codes are stored, so that columns beyond any file do not pass.
        if !stack.is_empty() || rows != n_rows || cols.div_ceil(16) > entry.n_bytes() {
            let object = format!("shape that tensor `{}` states", stated.name);
            let expected = format!("rows and columns of words of shape {:?}", entry.shape);
            return Err(Error::mismatch(object, expected, format!("[{rows}, {cols}]")));
        }
        Ok(cols)
    }

    /// Four-bit floats with 8-bit scales for 16 of them, which have a scale of their own.
    pub(super) fn nvfp4(&mut self, entry: &'a Entry, weight: &str) -> Result<Weight> {
        let (stack, n_rows, n_bytes) = matrix(entry)?;
        let n_cols = n_bytes.saturating_mul(2);
        let shape = [stack, &[n_rows, n_cols]].concat();
        let base = weight.strip_suffix(".weight").unwrap_or(weight);
        let scales = self.require(entry, &[(weight, "_scale")])?;
        let is_e4m3 = scales.data.dtype.name == "F8_E4M3";
        expect_dtype(scales, is_e4m3, "F8_E4M3, as scales of NVFP4 are")?;
        let grid = Grid::new(weight, &shape, scales, &[Strategy::Group(NVFP4_GROUP)])?;
        // The first names are ModelOpt's, the others those of compressed-tensors, which stores the inverse.
        let names = [(weight, "_scale_2"), (weight, "_global_scale")];
        let found = self.require(entry, &names)?;
        let of_scales = factor(found, stack, found.name.ends_with(names[1].1))?;
        let inputs = [(base, ".input_scale"), (base, ".input_global_scale")];
        let found = inputs.iter().find_map(|(base, ending)| self.claim(base, ending));
        let input = found
            .map(|f| factor(f, stack, f.name.ends_with(inputs[1].1)))
            .transpose()?;
        let coded = Coded {
            factor: Some(of_scales),
            input_factor: input,
            repack: n_cols.is_multiple_of(64).then_some("NVFP4"),
            ..Coded::new(entry, (n_rows, n_cols), n_bytes, Codes::Pairs(&E2M1_PAIRS), grid)
        };
        Ok(Weight {
            name: weight.to_owned(),
            shape,
            stack: Arc::new(coded),
        })
    }

    /// Four-bit floats with a power of two for 32 of them.
    pub(super) fn mxfp4(&mut self, entry: &'a Entry, weight: &str) -> Result<Weight> {
        let scales = self.require(entry, &[(weight, "_scales")])?;
        matrix(entry)?;
        let [stack @ .., n_rows, n_blocks, 16] = entry.shape.as_slice() else {
            let object = format!("shape of tensor `{}`", entry.name);
            let expected = "rows of blocks of 16 bytes";
            return Err(Error::mismatch(object, expected, format!("{:?}", entry.shape)));
        };
        let exponents = matches!(scales.data.dtype.name, "U8" | "F8_E8M0");
        expect_dtype(scales, exponents, "U8, as exponents are stored")?;
        let n_cols = n_blocks.saturating_mul(MXFP4_BLOCK);
        let shape = [stack, &[*n_rows, n_cols]].concat();
        let exponents = Entry {
            name: scales.name.clone(),
            shape: scales.shape.clone(),
            data: Data {
                dtype: dtype("F8_E8M0"),
                ..scales.data
            },
        };
        let grid = Grid::new(weight, &shape, &exponents, &[Strategy::Group(MXFP4_BLOCK)])?;
        let coded = Coded {
            repack: Some("MXFP4"),
            ..Coded::new(
                entry,
                (*n_rows, n_cols),
                n_blocks * 16,
                Codes::Pairs(&E2M1_PAIRS),
                grid,
            )
        };
        Ok(Weight {
            name: weight.to_owned(),
            shape,
            stack: Arc::new(coded),
        })
    }

    /// Words of codes whose rows are inputs.
    pub(super) fn columns(&mut self, entry: &'a Entry, base: &str) -> Result<Weight> {
        expect_dtype(entry, entry.data.dtype.name == "I32", "I32, words of codes")?;
        let (bits, group, zero_offset, along) = match self.method.map(|m| &m.form) {
            Some(Form::Gptq {
                bits,
                group,
                zero_offset,
            }) => (*bits, *group, *zero_offset, Along::Inputs),
            Some(Form::Awq { group }) => (4, *group, 0, Along::Outputs),
            _ => {
                let object = format!("packed codes in tensor `{}`", entry.name);
                let expected = "`quantization_config` of config.json with the method `gptq` or `awq`";
                let found = self.method.map_or("none", |m| m.name.as_str());
                return Err(Error::mismatch(object, expected, found));
            }
        };
        let zeros = self.require(entry, &[(base, ".qzeros")])?;
        let scales = self.require(entry, &[(base, ".scales")])?;
        let groups = self.claim(base, ".g_idx");
        matrix(entry)?;
        let per_word = u64::from(32 / bits);
        let (n_rows, n_cols) = match (entry.shape.as_slice(), along) {
            (&[inputs, outputs], Along::Inputs) => (outputs, inputs.saturating_mul(per_word)),
            (&[inputs, outputs], Along::Outputs) => (outputs.saturating_mul(per_word), inputs),
            (other, _) => {
                let object = format!("shape of tensor `{}`", entry.name);
                return Err(Error::mismatch(object, "a matrix of words", format!("{other:?}")));
            }
        };
        let group = group.unwrap_or(n_cols).max(1);
        let n_groups = n_cols.div_ceil(group);
        let of = format!("`{}` of {:?} in groups of {group}", entry.name, entry.shape);
        expect_dtype(scales, is_number(scales.data.dtype), "a float format")?;
        expect_shape(scales, &[n_groups, n_rows], &of)?;
        expect_dtype(zeros, zeros.data.dtype.name == "I32", "I32, words of zero points")?;
        expect_shape(zeros, &[n_groups, n_rows.div_ceil(per_word)], &of)?;
        if let Some(groups) = groups {
            expect_dtype(groups, whole_numbers(groups.data.dtype), "whole numbers")?;
            expect_shape(groups, &[n_cols], &of)?;
        }
        let columns = Columns {
            name: entry.name.as_str().into(),
            n_rows,
            bits,
            along,
            words: entry.data,
            zeros: zeros.data,
            zero_offset,
            scales: scales.data,
            n_groups,
            group,
            groups: groups.map(|g| g.data),
        };
        Ok(Weight {
            name: format!("{base}.weight"),
            shape: vec![n_rows, n_cols],
            stack: Arc::new(columns),
        })
    }

    /// Ternary codes, four rows a byte.
    pub(super) fn ternary(&mut self, entry: &'a Entry) -> Result<Weight> {
        let scale = self.require(entry, &[(entry.name.as_str(), "_scale")])?;
        let (stack, quarter, n_cols) = matrix(entry)?;
        let object = format!("`{}`", entry.name);
        expect_dtype(scale, is_number(scale.data.dtype), "a float format")?;
        if !stack.is_empty() {
            expect_shape(entry, &[quarter, n_cols], "ternary codes")?;
        }
        if scale.n_elems() != 1 {
            expect_shape(scale, &[1], &object)?;
        }
        let n_rows = quarter.saturating_mul(4);
        let ternary = Ternary {
            n_rows,
            n_cols,
            codes: entry.data,
            scale: scale.data,
        };
        Ok(Weight {
            name: entry.name.clone(),
            shape: vec![n_rows, n_cols],
            stack: Arc::new(ternary),
        })
    }
}

/// One number for a matrix of NVFP4.
fn factor(entry: &Entry, stack: &[u64], inverse: bool) -> Result<Factor> {
    expect_dtype(
        entry,
        entry.data.dtype.name == "F32",
        "F32, as the scale of a matrix is",
    )?;
    let n_matrices: u64 = stack.iter().product();
    let n = entry.n_elems();
    if n != 1 && n != n_matrices {
        let object = format!("shape of tensor `{}`", entry.name);
        let expected = format!("one number, or one for each of the {n_matrices} matrices");
        return Err(Error::mismatch(object, expected, format!("{:?}", entry.shape)));
    }
    Ok(Factor {
        data: entry.data,
        inverse,
        per_matrix: n != 1,
    })
}

/// Zero points packed along rows.
fn packed_zeros(entry: &Entry, bits: u32, grid: &Grid, stack: &[u64]) -> Result<Zeros> {
    expect_dtype(
        entry,
        entry.data.dtype.name == "I32",
        "I32, words of packed zero points",
    )?;
    let words = grid.n_rows.div_ceil(u64::from(32 / bits));
    expect_shape(
        entry,
        &[stack, &[words, grid.n_cols]].concat(),
        "packed zero points",
    )?;
    Ok(Zeros::Packed {
        data: entry.data,
        bits,
    })
}

/// The scheme that has as many bits as words hold, of several one whose scales have the shape that is there.
fn scheme_of(schemes: &[Scheme], words: &Entry, shape: &[u64], scales: &Entry) -> Result<Scheme> {
    let (_, _, n_words) = matrix(words)?;
    let n_cols = shape.last().copied().unwrap_or(0);
    let needed = |s: &Scheme| n_cols.div_ceil(u64::from(32 / s.bits));
    let fitting = || schemes.iter().filter(|s| needed(s) == n_words);
    let by_scales = fitting().find(|s| Grid::of_shape(shape, scales, &[s.strategy]).is_some());
    by_scales.or_else(|| fitting().next()).copied().ok_or_else(|| {
        let mut expected: Vec<_> = schemes.iter().map(|s| needed(s).to_string()).collect();
        expected.dedup();
        let object = format!("words of a row of tensor `{}`", words.name);
        let expected = format!("{} for {n_cols} codes", expected.join(" or "));
        Error::mismatch(object, expected, n_words)
    })
}

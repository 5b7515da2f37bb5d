//! From the tensors that are stored to the weights that they stand for.
//!
//! Names and formats of the tensors decide which weights are quantized; the checkpoint's settings tell what
//! tensors do not show. A tensor of codes is claimed together with its companions, and what is left must be plain.

use std::collections::HashMap;
use std::sync::Arc;

use super::bitnet::Ternary;
use super::coded::{Coded, Codes, Factor, Zeros};
use super::columns::{Along, Columns};
use super::grid::Grid;
use super::method::{Form, Method, Scheme, Strategy};
use super::numbers::{
    Data, E2M1_PAIRS, INT2_QUADS, INT4_PAIRS, OFFSET_BYTES, is_number, table, whole_numbers,
};
use super::safetensors::Entry;
use super::stored::Quantized;
use super::{Dtype, Place, SourceTensor};
use crate::Result;
use crate::error::Error;
use crate::view::Files;

/// Endings of scales of activations and of the KV cache, which no weight needs.
const OF_ACTIVATIONS: &[&str] = &[
    "activation_scale",
    ".input_scale",
    ".input_global_scale",
    ".input_zero_point",
    ".output_scale",
    ".qscale_act",
    ".q_scale",
    ".k_scale",
    ".v_scale",
    ".prob_scale",
    ".k_zero_point",
    ".v_zero_point",
];

/// Endings that belong to codes.
const COMPANIONS: &[&str] = &[
    ".weight_scale",
    ".weight_scale_2",
    ".weight_scale_inv",
    "_proj_scale",
    "_proj_scale_inv",
    ".weight_global_scale",
    ".weight_zero_point",
    ".weight_shape",
    ".weight_g_idx",
    ".qscale_weight",
    ".qzeros",
    ".g_idx",
];

/// Elements of a group of NVFP4.
const NVFP4_GROUP: u64 = 16;

/// Elements of a block of MXFP4.
const MXFP4_BLOCK: u64 = 32;

/// The stored tensors on the way to weights.
struct Parts<'a> {
    entries: &'a [Entry],
    by_name: HashMap<&'a str, usize>,
    /// Which belong to a weight that was put together.
    claimed: Vec<bool>,
    method: Option<&'a Method>,
    files: &'a Files,
    /// Stated shapes by what is equal in tensors that are alike.
    stated: HashMap<(String, Vec<u64>, Vec<u64>), [u64; 2]>,
}

/// A weight: its name, shape and numbers.
struct Weight {
    name: String,
    shape: Vec<u64>,
    stack: Arc<dyn Quantized>,
}

/// The weights that stored tensors stand for, in the order of files and then of names, with notes for the user.
///
/// # Errors
/// Codes without their companions, companions without codes, and shapes that do not belong together.
pub(super) fn assemble(
    entries: Vec<Entry>,
    method: Option<&Method>,
    files: &Files,
) -> Result<(Vec<SourceTensor>, Vec<String>)> {
    let mut parts = Parts {
        by_name: entries
            .iter()
            .enumerate()
            .map(|(i, e)| (e.name.as_str(), i))
            .collect(),
        claimed: vec![false; entries.len()],
        entries: &entries,
        method,
        files,
        stated: HashMap::new(),
    };
    let mut weights = HashMap::new();
    for (i, entry) in entries.iter().enumerate() {
        if let Some(weight) = parts.weight(entry)? {
            parts.claimed[i] = true;
            weights.insert(i, weight);
        }
    }
    let notes = parts.rest(weights.len())?;
    let claimed = parts.claimed;
    let mut tensors = Vec::new();
    for (i, entry) in entries.into_iter().enumerate() {
        let file = entry.data.file;
        let tensor = match weights.remove(&i) {
            Some(Weight { name, shape, stack }) => SourceTensor {
                name,
                dtype: dtype("BF16"),
                shape,
                place: Place::Quantized(stack),
            },
            None if claimed[i] => continue,
            None => SourceTensor {
                name: entry.name,
                dtype: entry.data.dtype,
                shape: entry.shape,
                place: Place::Plain(entry.data),
            },
        };
        tensors.push((file, tensor));
    }
    tensors.sort_by(|(a_file, a), (b_file, b)| (a_file, &a.name).cmp(&(b_file, &b.name)));
    let tensors: Vec<_> = tensors.into_iter().map(|(_, t)| t).collect();
    if let Some(pair) = tensors.windows(2).find(|pair| pair[0].name == pair[1].name) {
        let object = format!("tensor `{}`", pair[0].name);
        return Err(Error::mismatch(
            object,
            "one form of it",
            "a plain and a quantized one",
        ));
    }
    Ok((tensors, notes))
}

fn dtype(name: &str) -> Dtype {
    Dtype::by_name(name).expect("a name of the container's formats")
}

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
    /// The weight whose codes a tensor is, if it is one's.
    fn weight(&mut self, entry: &'a Entry) -> Result<Option<Weight>> {
        let name = entry.name.as_str();
        let of = entry.data.dtype.name;
        let form = self.method.map(|m| &m.form);
        if COMPANIONS
            .iter()
            .chain(OF_ACTIVATIONS)
            .any(|end| name.ends_with(end))
        {
            return Ok(None);
        }
        if let Some(base) = name.strip_suffix(".qweight") {
            return self.columns(entry, base).map(Some);
        }
        if let Some(weight) = name.strip_suffix("_packed") {
            return match of {
                "U8" => self.nvfp4(entry, weight).map(Some),
                _ => self.packed(entry, weight).map(Some),
            };
        }
        if let (Some(weight), "U8") = (name.strip_suffix("_blocks"), of) {
            return self.mxfp4(entry, weight).map(Some);
        }
        match (of, form) {
            ("F8_E4M3" | "F8_E5M2" | "I8", _) => self.scaled(entry).map(Some),
            ("U8", Some(Form::BitNet)) => self.ternary(entry).map(Some),
            ("U8", Some(Form::ModelOpt)) => self.nvfp4(entry, name).map(Some),
            ("U8", _) if self.by_name.contains_key(format!("{name}_scale_2").as_str()) => {
                self.nvfp4(entry, name).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Takes a companion, if it is there.
    fn claim(&mut self, name: &str) -> Option<&'a Entry> {
        let i = *self.by_name.get(name)?;
        self.claimed[i] = true;
        Some(&self.entries[i])
    }

    /// Takes the companion that has one of these names.
    fn require(&mut self, of: &Entry, names: &[String]) -> Result<&'a Entry> {
        names.iter().find_map(|name| self.claim(name)).ok_or_else(|| {
            let names: Vec<_> = names.iter().map(|n| format!("`{n}`")).collect();
            let object = format!("tensor `{}` of {}", of.name, of.data.dtype.name);
            let expected = format!("its companion {}", names.join(" or "));
            Error::mismatch(object, expected, "none; the checkpoint is incomplete")
        })
    }

    /// Schemes of the settings with so many bits; empty if settings tell none.
    fn schemes(&self, fits: impl Fn(&Scheme) -> bool) -> Vec<Scheme> {
        match self.method.map(|m| &m.form) {
            Some(Form::Compressed(schemes)) => schemes.iter().copied().filter(fits).collect(),
            _ => Vec::new(),
        }
    }

    /// Numbers of 8 bits.
    fn scaled(&mut self, entry: &'a Entry) -> Result<Weight> {
        let name = entry.name.as_str();
        let base = name.strip_suffix(".weight").unwrap_or(name);
        let names = [
            format!("{name}_scale_inv"),
            format!("{name}_scale"),
            format!("{base}.qscale_weight"),
        ];
        let scales = self.require(entry, &names)?;
        let (_, n_rows, n_cols) = matrix(entry)?;
        let schemes = self.schemes(|s| s.bits == 8);
        let strategies: Vec<_> = match self.method.map(|m| &m.form) {
            Some(Form::Fp8 { block: Some(block) }) => vec![Strategy::Block(*block)],
            Some(Form::Compressed(_)) if !schemes.is_empty() => schemes.iter().map(|s| s.strategy).collect(),
            _ => vec![Strategy::Tensor, Strategy::Channel],
        };
        let scales = Grid::new(name, &entry.shape, scales, &strategies)?;
        let zeros = match self.claim(&format!("{name}_zero_point")) {
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
    fn packed(&mut self, entry: &'a Entry, weight: &str) -> Result<Weight> {
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
        let scales = self.require(entry, &[format!("{weight}_scale")])?;
        let stated = self.claim(&format!("{weight}_shape"));
        let zeros = self.claim(&format!("{weight}_zero_point"));
        let groups = self.claim(&format!("{weight}_g_idx"));
        let n_cols = match stated {
            Some(stated) => self.stated_shape(entry, scales, stated)?,
            None => n_words.saturating_mul(u64::from(32 / schemes[0].bits)),
        };
        let shape = [stack, &[n_rows, n_cols]].concat();
        let fits = |s: &&Scheme| n_cols.div_ceil(u64::from(32 / s.bits)) == n_words;
        let Some(first) = schemes.iter().find(fits) else {
            let words: Vec<_> = schemes
                .iter()
                .map(|s| n_cols.div_ceil(u64::from(32 / s.bits)).to_string())
                .collect();
            let object = format!("words of a row of tensor `{}`", entry.name);
            let expected = format!("{} for {n_cols} codes", words.join(" or "));
            return Err(Error::mismatch(object, expected, n_words));
        };
        let of_shape =
            |s: &&Scheme| s.bits == first.bits && Grid::of_shape(&shape, scales, &[s.strategy]).is_some();
        let scheme = schemes.iter().find(of_shape).unwrap_or(first);
        let grid = Grid::new(weight, &shape, scales, &[scheme.strategy])?;
        let codes = match scheme.bits {
            2 => Codes::Quads(&INT2_QUADS),
            4 => Codes::Pairs(&INT4_PAIRS),
            _ => Codes::Bytes(&OFFSET_BYTES),
        };
        if zeros.is_none() && !scheme.symmetric {
            self.require(entry, &[format!("{weight}_zero_point")])?;
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
        let alike = (
            entry.name.split(|c: char| c.is_ascii_digit()).collect(),
            entry.shape.clone(),
            scales.shape.clone(),
        );
        let [rows, cols] = match self.stated.get(&alike) {
            Some(shape) => *shape,
            None => {
                let read = stated.data.whole(self.files, 0, 2)?;
                let shape = [0, 1].map(|i| {
                    read.get(i)
                        .and_then(|&n| u64::try_from(n).ok())
                        .unwrap_or(u64::MAX)
                });
                self.stated.insert(alike, shape);
                shape
            }
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
    fn nvfp4(&mut self, entry: &'a Entry, weight: &str) -> Result<Weight> {
        let (stack, n_rows, n_bytes) = matrix(entry)?;
        let n_cols = n_bytes.saturating_mul(2);
        let shape = [stack, &[n_rows, n_cols]].concat();
        let base = weight.strip_suffix(".weight").unwrap_or(weight);
        let scales = self.require(entry, &[format!("{weight}_scale")])?;
        let is_e4m3 = scales.data.dtype.name == "F8_E4M3";
        expect_dtype(scales, is_e4m3, "F8_E4M3, as scales of NVFP4 are")?;
        let grid = Grid::new(weight, &shape, scales, &[Strategy::Group(NVFP4_GROUP)])?;
        // The first names are ModelOpt's, the others those of compressed-tensors, which stores the inverse.
        let names = [format!("{weight}_scale_2"), format!("{weight}_global_scale")];
        let found = self.require(entry, &names)?;
        let of_scales = factor(found, stack, found.name == names[1])?;
        let inputs = [
            format!("{base}.input_scale"),
            format!("{base}.input_global_scale"),
        ];
        let found = inputs.iter().find_map(|name| self.claim(name));
        let input = found.map(|f| factor(f, stack, f.name == inputs[1])).transpose()?;
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
    fn mxfp4(&mut self, entry: &'a Entry, weight: &str) -> Result<Weight> {
        let scales = self.require(entry, &[format!("{weight}_scales")])?;
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
    fn columns(&mut self, entry: &'a Entry, base: &str) -> Result<Weight> {
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
        let zeros = self.require(entry, &[format!("{base}.qzeros")])?;
        let scales = self.require(entry, &[format!("{base}.scales")])?;
        let groups = self.claim(&format!("{base}.g_idx"));
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
    fn ternary(&mut self, entry: &'a Entry) -> Result<Weight> {
        let scale = self.require(entry, &[format!("{}_scale", entry.name)])?;
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

    /// Looks at what no weight has claimed: companions without codes are an error, scales of activations are left
    /// out.
    fn rest(&mut self, n_weights: usize) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        let is_quantized = n_weights > 0;
        if let (false, Some(method)) = (is_quantized, self.method) {
            notes.push(format!(
                "{} names the method `{}`, but all weights are plain numbers: they are taken as they are",
                method.place, method.name
            ));
        }
        let mut unused = 0;
        for (entry, claimed) in self.entries.iter().zip(&mut self.claimed) {
            let ends = |endings: &[&str]| endings.iter().any(|end| entry.name.ends_with(end));
            if *claimed || !is_quantized && self.method.is_none() {
                continue;
            }
            if ends(OF_ACTIVATIONS) {
                *claimed = true;
                unused += 1;
            } else if ends(COMPANIONS) {
                let object = format!("tensor `{}`", entry.name);
                let found = "none that it fits; the checkpoint is incomplete, or half converted";
                return Err(Error::mismatch(
                    object,
                    "quantized weights that it belongs to",
                    found,
                ));
            }
        }
        if unused > 0 {
            let what = gguf_cli::count(unused, "scale");
            notes.push(format!(
                "left out, as weights do not need them: {what} of activations or of the KV cache"
            ));
        }
        Ok(notes)
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

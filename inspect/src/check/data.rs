//! Reads the weights: values and scales that no sound file has, tensors, experts and rows without content.

use gguf::validate::{Finding, Findings};
use gguf::{Endian, GgufFile, TensorInfo, short};
use gguf_blocks::Format;
use gguf_cli::{Progress, Result, Unit};
use rayon::ThreadPool;

use crate::walk::{self, Buffers, Grid, Piece, in_order};

/// Unsound blocks and empty experts of a tensor that are listed one by one.
const LISTED: usize = 3;
/// Values decoded at a time to see whether a row goes on as it began.
const PROBE: usize = 256;

/// Tensors with a row for each token: those of tokens that are never used may be empty.
const OF_VOCABULARY: [&str; 2] = ["token_embd.weight", "output.weight"];

const AGAIN: &str = "download the file again, or make it again from sound weights";
const EMPTY: &str = "compare with the source: a download that was never completed reads as zeros";

/// Reads the data of every tensor that lies inside its file and apart from others and whose type is known, and lists
/// what is unsound.
pub(crate) fn findings(file: &GgufFile, pool: &ThreadPool, quiet: bool) -> Result<Vec<Finding>> {
    let order = walk::sound_tensors(file);
    let tensors = order.iter().flatten().map(|&i| &file.tensors[i]);
    let jobs: Vec<(&TensorInfo, &'static Format)> = tensors.filter_map(|t| job(file, t)).collect();
    let total = jobs.iter().fold(0_u64, |n, (t, _)| n.saturating_add(t.n_bytes));
    let progress = Progress::new("check", total, Unit::Bytes, quiet);
    let items = jobs.iter().enumerate().flat_map(|(i, (tensor, format))| {
        let pieces = Grid::new(&tensor.shape, &[format]).pieces();
        pieces.map(move |piece| (i, piece))
    });
    let work = |buffers: &mut Buffers, &(i, piece): &(usize, Piece)| {
        let (tensor, format) = jobs[i];
        let found = look(buffers, file, tensor, format, &piece)?;
        progress.add(buffers.bytes.len() as u64);
        Ok(found)
    };
    let mut findings = Findings::new();
    let mut current: Option<(usize, Tally)> = None;
    in_order(pool, items, work, |(i, piece), found| {
        if current.as_ref().is_none_or(|(j, _)| *j != i) {
            if let Some((j, tally)) = current.take() {
                tally.report(file, jobs[j].0, &mut findings);
            }
            current = Some((i, Tally::default()));
        }
        let tally = &mut current.as_mut().expect("set above").1;
        tally.add(jobs[i].0, &piece, found);
        Ok(())
    })?;
    if let Some((j, tally)) = current {
        tally.report(file, jobs[j].0, &mut findings);
    }
    progress.finish();
    Ok(findings.into_vec())
}

/// A tensor whose values can be looked at.
fn job<'a>(file: &GgufFile, tensor: &'a TensorInfo) -> Option<(&'a TensorInfo, &'static Format)> {
    let format = tensor.format()?;
    let fits = tensor.shape.n_bytes(format) == Some(tensor.n_bytes);
    (fits && file.part(tensor).header.endian == Endian::Little).then_some((tensor, format))
}

/// An unsound block.
struct Bad {
    /// Counted over all matrices.
    row: u64,
    col: u64,
    /// Byte in the tensor.
    at: u64,
    what: &'static str,
}

/// What a row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    /// One value only, given by its bits.
    Constant(u32),
    Varied,
}

impl Row {
    /// What a row holds of which these are two parts.
    fn join(self, other: Self) -> Self {
        if self == other { self } else { Self::Varied }
    }

    fn is_zero(self) -> bool {
        matches!(self, Self::Constant(bits) if bits << 1 == 0)
    }
}

/// What was found in a piece.
struct Found {
    n_blocks: u64,
    n_bad: u64,
    bad: Vec<Bad>,
    /// Runs of rows alike, with their number; varied rows are most of them.
    rows: Vec<(Row, u64)>,
}

fn look(
    buffers: &mut Buffers,
    file: &GgufFile,
    tensor: &TensorInfo,
    format: &Format,
    piece: &Piece,
) -> Result<Found> {
    let n_cols = tensor.shape.n_cols();
    let geometry = &format.geometry;
    let mut found = Found {
        n_blocks: piece.n_elems() as u64 / geometry.block_elems as u64,
        n_bad: 0,
        bad: Vec::new(),
        rows: Vec::new(),
    };
    let plain = geometry.is_plain();
    if format.decode.is_some() && !plain {
        buffers.decode(file, tensor, format, piece)?;
    } else {
        let (at, n) = walk::span(format, n_cols, piece);
        buffers.read(file, tensor, at, n)?;
    }
    find_bad(&buffers.bytes, format, n_cols, piece, &mut found);
    if format.decode.is_some() {
        let row_bytes = buffers.bytes.len() / piece.n_rows as usize;
        buffers.values.resize(piece.n_elems().max(PROBE), 0.0);
        for i in 0..piece.n_rows as usize {
            let row = if plain {
                probe(
                    &buffers.bytes[i * row_bytes..][..row_bytes],
                    format,
                    &mut buffers.values,
                )
            } else {
                let n = piece.n_cols as usize;
                let values = &buffers.values[i * n..][..n];
                constant(values, values[0].to_bits())
            };
            match found.rows.last_mut() {
                Some((last, n)) if *last == row => *n += 1,
                _ => found.rows.push((row, 1)),
            }
        }
    }
    Ok(found)
}

fn constant(values: &[f32], bits: u32) -> Row {
    if values.iter().all(|v| v.to_bits() == bits) {
        Row::Constant(bits)
    } else {
        Row::Varied
    }
}

/// Decodes a row of plain blocks as far as it holds one value only.
fn probe(row: &[u8], format: &Format, values: &mut [f32]) -> Row {
    let geometry = &format.geometry;
    let (one, two) = (geometry.block_bytes, 2 * geometry.block_bytes);
    if geometry.block_elems > 1 && row.len() >= two && row[..one] != row[one..two] {
        // Equal values are stored as equal blocks, and a hole in a file has equal bytes: spares the decoder.
        return Row::Varied;
    }
    let mut first = None;
    // Most rows are known to vary after a few values.
    let mut blocks = (32 / geometry.block_elems).max(1);
    let mut rest = row;
    while !rest.is_empty() {
        let (front, back) = rest.split_at(rest.len().min(blocks * geometry.block_bytes));
        let values = &mut values[..front.len() / geometry.block_bytes * geometry.block_elems];
        walk::decode(format, values.len(), front, values);
        let bits = *first.get_or_insert(values[0].to_bits());
        if constant(values, bits) == Row::Varied {
            return Row::Varied;
        }
        blocks = (PROBE / geometry.block_elems).max(1);
        rest = back;
    }
    first.map_or(Row::Varied, Row::Constant)
}

/// Lists the unsound blocks of a piece; where blocks do not stand by themselves, the first of each group of rows.
fn find_bad(bytes: &[u8], format: &Format, n_cols: u64, piece: &Piece, found: &mut Found) {
    let geometry = &format.geometry;
    let start = walk::span(format, n_cols, piece).0;
    let mut add = |row: u64, col: u64, at: usize, what| {
        found.n_bad += 1;
        if found.bad.len() < LISTED {
            found.bad.push(Bad {
                row: piece.row + row,
                col: piece.col + col,
                at: start + at as u64,
                what,
            });
        }
    };
    if !geometry.is_plain() {
        let rows = match geometry.unit() {
            gguf_blocks::Unit::Tensor => piece.n_rows,
            _ => geometry.interleave as u64,
        };
        let group_bytes = bytes.len() / (piece.n_rows / rows) as usize;
        for (i, group) in bytes.chunks(group_bytes).enumerate() {
            if let Some(place) = format.check_rows(n_cols as usize, group) {
                let row = i as u64 * rows + place.row as u64;
                let what = "a scale or value is infinite or NaN";
                add(row, place.col as u64, i * group_bytes, what);
            }
        }
        return;
    }
    let blocks_of_row = piece.n_cols / geometry.block_elems as u64;
    let mut first = 0;
    while let Some(i) = bytes
        .get(first * geometry.block_bytes..)
        .and_then(|rest| (format.check)(rest))
    {
        let block = first + i;
        let at = block * geometry.block_bytes;
        let what = describe(&bytes[at..][..geometry.block_bytes], format);
        let (row, in_row) = (block as u64 / blocks_of_row, block as u64 % blocks_of_row);
        add(row, in_row * geometry.block_elems as u64, at, what);
        first = block + 1;
    }
}

/// What is wrong with a block that the check rejects.
fn describe(block: &[u8], format: &Format) -> &'static str {
    let mut values = vec![0.0_f32; format.geometry.block_elems];
    if format.decode.is_some() {
        walk::decode(format, values.len(), block, &mut values);
    }
    let stored = values.len() == 1;
    if values.iter().any(|v| v.is_nan()) {
        if stored {
            "the value is NaN"
        } else {
            "the scale makes NaN of values"
        }
    } else if values.iter().any(|v| v.is_infinite()) {
        if stored {
            "the value is infinite"
        } else {
            "the scale makes values infinite"
        }
    } else {
        "the scale is out of range"
    }
}

/// Rows without content that come one after the other.
#[derive(Default)]
struct Same {
    n: u64,
    /// The first of all.
    first: Option<u64>,
}

impl Same {
    fn add(&mut self, row: u64, n: u64) {
        self.n += n;
        self.first.get_or_insert(row);
    }
}

/// Everything found in a tensor.
#[derive(Default)]
struct Tally {
    n_blocks: u64,
    n_bad: u64,
    bad: Vec<Bad>,
    /// What the part of a row in front of the next piece holds.
    begun: Option<Row>,
    zero: Same,
    constant: Same,
    /// A matrix and its zero rows up to here.
    zero_here: (u64, u64),
    /// Matrices of zeros.
    n_empty: u64,
    empty: Vec<u64>,
}

impl Tally {
    fn add(&mut self, tensor: &TensorInfo, piece: &Piece, found: Found) {
        self.n_blocks += found.n_blocks;
        self.n_bad += found.n_bad;
        let room = LISTED - self.bad.len();
        self.bad.extend(found.bad.into_iter().take(room));
        let mut row = piece.row;
        for (kind, n) in found.rows {
            if piece.n_cols == tensor.shape.n_cols() {
                self.rows(tensor, kind, row, n);
                row += n;
                continue;
            }
            let kind = self.begun.map_or(kind, |begun| begun.join(kind));
            self.begun = Some(kind);
            if piece.col + piece.n_cols == tensor.shape.n_cols() {
                self.begun = None;
                self.rows(tensor, kind, row, 1);
            }
        }
    }

    /// Counts rows alike.
    fn rows(&mut self, tensor: &TensorInfo, kind: Row, row: u64, n: u64) {
        match kind {
            Row::Varied => {}
            _ if kind.is_zero() => {
                self.zero.add(row, n);
                self.zero_rows(tensor.shape.dim(1), row, n);
            }
            Row::Constant(_) => self.constant.add(row, n),
        }
    }

    /// Finds the matrices that consist of zero rows.
    fn zero_rows(&mut self, of_matrix: u64, mut row: u64, mut n: u64) {
        while n > 0 {
            let matrix = row / of_matrix;
            let here = n.min(of_matrix - row % of_matrix);
            if self.zero_here.0 != matrix {
                self.zero_here = (matrix, 0);
            }
            self.zero_here.1 += here;
            row += here;
            n -= here;
            if self.zero_here.1 == of_matrix {
                self.n_empty += 1;
                if self.empty.len() < LISTED {
                    self.empty.push(matrix);
                }
            }
        }
    }

    fn report(self, file: &GgufFile, tensor: &TensorInfo, findings: &mut Findings) {
        let mut add = |mut finding: Finding| {
            finding.part = tensor.part;
            let kind = if finding.severe {
                "tensors with unsound blocks or values"
            } else {
                "tensors without content"
            };
            findings.push(kind, || finding);
        };
        let object = format!("tensor `{}`", short(&tensor.name));
        let start = file.tensor_range(tensor).start;
        for bad in &self.bad {
            let block = tensor.format().map_or(1, |f| f.geometry.block_elems as u64);
            let columns = match block {
                1 => format!("column {}", bad.col),
                n => format!(
                    "block {} (columns {} to {})",
                    bad.col / n,
                    bad.col,
                    bad.col + n - 1
                ),
            };
            let what = format!("{}, {columns}: {}", place(tensor, bad.row), bad.what);
            add(Finding::severe(object.clone(), Some(start + bad.at), what, AGAIN));
        }
        if self.n_bad > self.bad.len() as u64 {
            let kind = match tensor.format().map(|f| f.geometry) {
                Some(g) if !g.is_plain() => "blocks, each the first of its rows,",
                Some(g) if g.block_elems > 1 => "blocks",
                _ => "values",
            };
            let what = format!(
                "{} of {} {kind} are unsound, {LISTED} are listed",
                self.n_bad, self.n_blocks
            );
            add(Finding::severe(object.clone(), Some(start), what, AGAIN));
        }
        self.report_empty(tensor, &object, start, &mut add);
    }

    fn report_empty(&self, tensor: &TensorInfo, object: &str, start: u64, add: &mut dyn FnMut(Finding)) {
        let (n_rows, n_matrices) = (tensor.shape.n_rows(), tensor.shape.dim(2) * tensor.shape.dim(3));
        let mut warn = |what: String| add(Finding::unusual(object, Some(start), what, EMPTY));
        if tensor
            .format()
            .is_some_and(|f| f.geometry.block_elems == 1 && f.name.starts_with('I'))
        {
            // Tables of whole numbers are no weights.
            return;
        }
        if n_rows == 1 {
            // A bias of zeros and a norm of ones are usual.
            if self.zero.n == 1 && tensor.name.strip_suffix(".bias").is_none() {
                warn("all values are zero".to_owned());
            }
            return;
        }
        if self.zero.n == n_rows {
            return warn("all values are zero".to_owned());
        }
        if self.n_empty > 0 {
            let list: Vec<String> = self.empty.iter().map(u64::to_string).collect();
            let more = if self.n_empty > self.empty.len() as u64 {
                ", .."
            } else {
                ""
            };
            warn(format!(
                "{} of {n_matrices} experts have only zeros: {}{more}",
                self.n_empty,
                list.join(", ")
            ));
        }
        let n_usual = if OF_VOCABULARY.contains(&tensor.name.as_str()) {
            n_rows / 2
        } else {
            0
        };
        let in_experts = self.n_empty * tensor.shape.dim(1);
        if let Some(first) = self.zero.first.filter(|_| self.zero.n > in_experts.max(n_usual)) {
            let first = place(tensor, first);
            warn(format!(
                "{} of {n_rows} rows have only zeros, the first is {first}",
                self.zero.n
            ));
        }
        if let Some(first) = self
            .constant
            .first
            .filter(|_| tensor.shape.n_cols() > 1 && self.constant.n > n_usual)
        {
            let first = place(tensor, first);
            warn(format!(
                "{} of {n_rows} rows have one value only, the first is {first}",
                self.constant.n
            ));
        }
    }
}

/// `row 17`, or `expert 3, row 17` in a stack.
fn place(tensor: &TensorInfo, row: u64) -> String {
    let of_matrix = tensor.shape.dim(1);
    if tensor.shape.n_rows() == of_matrix {
        return format!("row {row}");
    }
    format!("expert {}, row {}", row / of_matrix, row % of_matrix)
}

//! The part of a tensor's matrices that a rule takes.

use gguf_models::HParams;
use gguf_models::hf::{self, Groups, Piece};

use crate::Result;
use crate::error::Error;
use crate::source::SourceTensor;
use crate::view::{Select, View};

/// What a piece takes of a tensor.
pub(super) struct Cut {
    rows: Axis,
    cols: Axis,
    transpose: bool,
    op: hf::Op,
    /// Dimensions of what is taken, row length last.
    pub(super) dims: Vec<u64>,
}

/// What is taken along an axis.
struct Axis {
    selects: Vec<Select>,
    /// Whether each is a matrix of its own, not a part of one.
    stacked: bool,
}

impl Axis {
    fn n(&self) -> u64 {
        match self.selects.as_slice() {
            [first, ..] if self.stacked => first.n(),
            all => all.iter().map(|s| s.n()).sum(),
        }
    }
}

impl Cut {
    /// # Errors
    /// Dimensions that the piece does not fit.
    pub(super) fn new(piece: &Piece, hparams: &HParams, tensor: &SourceTensor) -> Result<Self> {
        let (stacked, n_rows, n_cols) = match tensor.shape.as_slice() {
            [stacked @ .., rows, cols] => (stacked, *rows, *cols),
            [cols] => (&[][..], 1, *cols),
            [] => (&[][..], 1, 1),
        };
        let rows = axis(piece.rows, hparams, n_rows, "rows", tensor)?;
        let cols = axis(piece.cols, hparams, n_cols, "columns", tensor)?;
        let mut dims = stacked.to_vec();
        if rows.stacked || cols.stacked {
            dims.push(rows.selects.len().max(cols.selects.len()) as u64);
        }
        match (tensor.shape.len(), piece.transpose) {
            (0, _) => {}
            (1, _) => dims.push(cols.n()),
            (_, false) => dims.extend([rows.n(), cols.n()]),
            (_, true) => dims.extend([cols.n(), rows.n()]),
        }
        Ok(Self {
            rows,
            cols,
            transpose: piece.transpose,
            op: piece.op,
            dims,
        })
    }

    /// The views of every matrix of a tensor.
    pub(super) fn views<'a>(&'a self, tensor: &'a SourceTensor) -> impl Iterator<Item = View> + 'a {
        (0..tensor.n_matrices()).flat_map(move |i| {
            self.rows.selects.iter().flat_map(move |rows| {
                self.cols.selects.iter().map(move |cols| View {
                    stored: tensor.matrix(i),
                    rows: *rows,
                    cols: *cols,
                    transpose: self.transpose,
                    op: self.op,
                })
            })
        })
    }
}

fn axis(cut: hf::Cut, h: &HParams, n: u64, words: &str, tensor: &SourceTensor) -> Result<Axis> {
    let misfit = |expected: String| {
        let object = format!("{words} of the matrices of tensor `{}`", tensor.name);
        Error::mismatch(object, expected, n)
    };
    let even = || {
        n.is_multiple_of(2)
            .then_some(n / 2)
            .ok_or_else(|| misfit("an even number".into()))
    };
    let mut stacked = false;
    let selects = match cut {
        hf::Cut::All => vec![Select::span(0, n)],
        hf::Cut::Half(which) => {
            let half = even()?;
            vec![Select::span(which * half, half)]
        }
        hf::Cut::EverySecond(first) => vec![Select::Groups {
            first,
            len: 1,
            step: 2,
            n: even()?,
        }],
        hf::Cut::Interleaved(head_dim) => {
            let head_dim = head_dim(h) as u64;
            if head_dim == 0 || !head_dim.is_multiple_of(2) || !n.is_multiple_of(head_dim) {
                return Err(misfit(format!("whole heads of an even length, here {head_dim}")));
            }
            vec![Select::Interleaved { head_dim, n }]
        }
        hf::Cut::Groups(groups) => {
            let fit = |groups: Groups| {
                let end = groups.first + groups.n.saturating_sub(1) * groups.step + groups.len;
                let fits = groups.n > 0 && groups.len > 0 && end as u64 <= n;
                fits.then(|| select(groups))
                    .ok_or_else(|| misfit(format!("at least {end}")))
            };
            groups.iter().map(|of| fit(of(h))).collect::<Result<_>>()?
        }
        hf::Cut::Heads(of) => {
            let heads = of(h);
            stacked = true;
            if (heads.n * heads.step) as u64 != n || heads.first + heads.len > heads.step || heads.len == 0 {
                let expected = format!("{} heads of {}", heads.n, heads.step);
                return Err(misfit(expected));
            }
            (0..heads.n)
                .map(|head| Select::span((head * heads.step + heads.first) as u64, heads.len as u64))
                .collect()
        }
    };
    Ok(Axis { selects, stacked })
}

fn select(groups: Groups) -> Select {
    Select::Groups {
        first: groups.first as u64,
        len: groups.len as u64,
        step: groups.step as u64,
        n: (groups.len * groups.n) as u64,
    }
}

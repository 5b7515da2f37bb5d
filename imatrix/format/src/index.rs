//! A matrix that stays in its file: what it holds is known, values are read when they are asked for.
//!
//! The matrix of a model with hundreds of experts a layer has gigabytes, of which a quantizer needs one expert's at a
//! time. Opening one reads all values once, in pieces, to see that they are sound.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use gguf::source::Source;

use crate::{Error, Origin, Result, gguf_form, is_gguf, legacy, prior};

/// Columns that block formats give a scale of their own at least. If all of them count for nothing, the scale does not
/// follow from anything.
pub const GROUP: usize = 16;

/// Values of a read.
const PIECE: usize = 256 << 10;

/// Where the sums of one weight lie.
#[derive(Clone, Debug)]
pub struct Place {
    /// Byte of the first value.
    pub(crate) at: u64,
    /// Sums of squares in all.
    pub n_values: u64,
    /// Tokens (chunks, in a legacy file) that each matrix saw; one count for all matrices of a weight without experts.
    pub counts: Vec<u64>,
    /// Aligned groups of [`GROUP`] columns of matrices that saw tokens in which every sum is zero.
    pub zero_groups: u64,
}

impl Place {
    /// The matrices that saw no token.
    pub fn unseen(&self) -> impl Iterator<Item = usize> {
        let counts = self.counts.iter().enumerate();
        counts.filter(|(_, c)| **c == 0).map(|(i, _)| i)
    }

    /// Values that share a count.
    fn per_count(&self) -> u64 {
        self.n_values / self.counts.len().max(1) as u64
    }
}

/// An importance matrix in its file.
#[derive(Debug)]
pub struct Index {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) little_endian: bool,
    /// Places by full weight name.
    pub entries: BTreeMap<String, Place>,
    /// Base names of the calibration texts.
    pub datasets: Vec<String>,
    /// Chunks seen; 0 if unknown.
    pub chunk_count: u32,
    /// What it was made of; `None` where the file does not say.
    pub origin: Option<Origin>,
}

impl Index {
    /// Opens either form.
    ///
    /// # Errors
    /// What [`crate::Imatrix::read`] refuses, and values that are not sound: those of all weights are named at once.
    /// Plain sums are not looked at.
    pub fn open(path: &Path) -> Result<Self> {
        Self::from_source(gguf::source::open(path)?)
    }

    /// As [`Index::open`], from any source.
    pub fn from_source(source: Arc<dyn Source>) -> Result<Self> {
        let mut this = if is_gguf(&*source)? {
            gguf_form::index(source)?
        } else {
            legacy::index(source)?
        };
        this.check()?;
        Ok(this)
    }

    /// The mean squares of some of a weight's columns, counted over all its matrices; 1 in a matrix that saw nothing.
    /// `None` if the weight has no entry or fewer columns.
    ///
    /// # Errors
    /// A failed read.
    pub fn mean_squares(&self, name: &str, columns: Range<u64>) -> Result<Option<Vec<f32>>> {
        self.averaged(
            name,
            columns,
            |sum, count, _| if count > 0 { sum / count as f32 } else { 1.0 },
        )
    }

    /// As [`Index::mean_squares`], with a prior ([`crate::shrink`]): `means` are the weight's
    /// [`Index::column_means`].
    ///
    /// # Errors
    /// A failed read.
    pub fn shrunk(
        &self,
        name: &str,
        columns: Range<u64>,
        means: &[f64],
        prior: u32,
    ) -> Result<Option<Vec<f32>>> {
        self.averaged(name, columns, |sum, count, column| {
            prior::shrink(sum, count, means[column], prior)
        })
    }

    /// What becomes of the sums of some of a weight's columns: `average` gets the sum, the tokens of its matrix, and the
    /// column there.
    fn averaged(
        &self,
        name: &str,
        columns: Range<u64>,
        average: impl Fn(f32, u64, usize) -> f32,
    ) -> Result<Option<Vec<f32>>> {
        let Some(place) = self.entries.get(name).filter(|p| columns.end <= p.n_values) else {
            return Ok(None);
        };
        let mut out = vec![0.0; (columns.end - columns.start) as usize];
        self.read(place, columns.start, &mut out)?;
        let per_count = place.per_count().max(1);
        for (i, v) in (columns.start..).zip(&mut out) {
            *v = average(
                *v,
                place.counts[(i / per_count) as usize],
                (i % per_count) as usize,
            );
        }
        Ok(Some(out))
    }

    /// The mean square of each column over the tokens of all experts of a weight, which have counts of their own.
    /// `None` if there is no such weight, or none of its experts saw a token.
    ///
    /// # Errors
    /// A failed read.
    pub fn column_means(&self, name: &str) -> Result<Option<Vec<f64>>> {
        let Some(place) = self
            .entries
            .get(name)
            .filter(|p| prior::takes_prior(name, &p.counts))
        else {
            return Ok(None);
        };
        let n_cols = place.per_count() as usize;
        let mut means = prior::Means::new(n_cols);
        let mut row = vec![0.0; n_cols];
        for matrix in 0..place.counts.len() as u64 {
            self.read(place, matrix * n_cols as u64, &mut row)?;
            means.add(&row);
        }
        Ok(means.of(&place.counts))
    }

    /// Sums from value `first` on.
    fn read(&self, place: &Place, first: u64, out: &mut [f32]) -> Result<()> {
        let mut bytes = vec![0; out.len() * 4];
        self.source.read_at(place.at + first * 4, &mut bytes)?;
        let (words, _) = bytes.as_chunks::<4>();
        for (v, w) in out.iter_mut().zip(words) {
            *v = if self.little_endian {
                f32::from_le_bytes(*w)
            } else {
                f32::from_be_bytes(*w)
            };
        }
        Ok(())
    }

    /// Looks at every value once.
    fn check(&mut self) -> Result<()> {
        let mut faults = Vec::new();
        let mut zero_groups = Vec::with_capacity(self.entries.len());
        for (name, place) in &self.entries {
            let mut scan = Scan::default();
            let per_count = place.per_count();
            for (matrix, &count) in place.counts.iter().enumerate() {
                for first in (0..per_count).step_by(PIECE) {
                    let mut values = vec![0.0; (per_count - first).min(PIECE as u64) as usize];
                    self.read(place, matrix as u64 * per_count + first, &mut values)?;
                    scan.add(&values, (matrix as u64, first), count > 0);
                }
            }
            zero_groups.push(scan.zero_groups);
            faults.extend(scan.fault.map(|f| format!("weight `{name}`, {f}")));
        }
        for (place, n) in self.entries.values_mut().zip(zero_groups) {
            place.zero_groups = n;
        }
        match faults.as_slice() {
            [] => Ok(()),
            [one] => Err(Error::malformed(self.source.path(), one.clone())),
            all => {
                let what = format!("{} weights are not sound: {}", all.len(), all.join("; "));
                Err(Error::malformed(self.source.path(), what))
            }
        }
    }
}

/// What a pass over the values of one weight finds.
#[derive(Default)]
struct Scan {
    /// The first value that cannot be.
    fault: Option<String>,
    zero_groups: u64,
}

impl Scan {
    /// The values of a matrix from column `first` on, which is a multiple of [`GROUP`].
    fn add(&mut self, values: &[f32], (matrix, first): (u64, u64), seen: bool) {
        if self.fault.is_none()
            && let Some((i, found)) = crate::first_bad(values, false)
        {
            self.fault = Some(crate::bad_value(matrix, first + i as u64, false, &found));
        }
        if seen {
            let zero = |group: &&[f32]| group.iter().all(|v| *v == 0.0);
            self.zero_groups += values.chunks(GROUP).filter(zero).count() as u64;
        }
    }
}

//! The importance matrix as the quantizer uses it.

use std::collections::BTreeMap;
use std::path::Path;

use gguf::digest::{self, Digest};
use gguf::{GgufFile, Metadata, Shape, listed, short};
use gguf_cli::{Failure, Result, count, file_name, printable};
use gguf_imatrix_format::{GROUP, Index, base_name};
use gguf_models::{Identity, identity};

/// What a group of columns that count for nothing gets, as a share of the matrix's mean: so little that it does not
/// compete with others for a common scale, and enough for a scale of its own.
const ZERO_SHARE: f64 = 1.0 / 1024.0;

/// The least of such weights: its products with squares of weights stay above the smallest floats.
const LEAST: f32 = 1e-20;

/// Settings that a doubt names.
const N_SETTINGS: usize = 8;

/// An open importance matrix and the name it goes by in the output.
#[derive(Debug)]
pub(crate) struct Guide {
    index: Index,
    /// The file's name without folders.
    pub(crate) file: String,
    /// Digest of the file.
    pub(crate) digest: Digest,
    /// What speaks against the matrix being of the model that is encoded, a line each.
    pub(crate) doubts: Vec<String>,
    prior: Option<Prior>,
}

/// What pulls experts that saw few tokens towards the mean of their tensor.
#[derive(Debug)]
struct Prior {
    n_tokens: u32,
    /// Mean squares of columns over the tokens of all experts, for each entry with counts of its experts.
    means: BTreeMap<String, Vec<f64>>,
}

/// What the matrix has for one tensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Match {
    /// Name of the entry.
    entry: String,
    layout: Layout,
    /// Columns of a matrix of the tensor.
    n_cols: u64,
    /// Matrices that saw no token and have no importance.
    pub(crate) unseen: Vec<usize>,
    /// Matrices that saw no token and have the tensor's mean by request.
    pub(crate) n_from_mean: usize,
    /// Matrices that have a count of their own.
    pub(crate) n_counts: usize,
    /// Groups of columns whose sums are all zero.
    pub(crate) zero_groups: u64,
}

/// How the entry's matrices lie to the tensor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// One for each.
    Own,
    /// One that all share: keys and values of latent attention in one weight see the same inputs as the values alone.
    Shared,
    /// So many heads, whose mean it is.
    Heads(u64),
}

/// Matrices of a tensor with importance of their own: `dim(2)`. Those along a fourth dimension share it, as in the
/// reference.
fn n_matrices(shape: &Shape) -> u64 {
    shape.dim(2)
}

/// The matrix, of those with importance of their own, that a row belongs to, counted over all rows of the tensor: the
/// expert, in a stack of experts.
pub(crate) fn matrix_of(shape: &Shape, row: u64) -> usize {
    (row / shape.dim(1) % n_matrices(shape)) as usize
}

impl Match {
    /// Whether any matrix saw a token.
    fn saw_tokens(&self) -> bool {
        self.unseen.len() < self.n_counts
    }

    /// Whether all matrices of the tensor have the same importance.
    pub(crate) fn is_shared(&self) -> bool {
        self.layout != Layout::Own
    }

    /// The share of matrices that saw tokens.
    pub(crate) fn share(&self) -> f64 {
        1.0 - self.unseen.len() as f64 / self.n_counts.max(1) as f64
    }
}

impl Guide {
    /// Opens a file, in whatever form, and looks at all its values once. If `include` is not empty only entries stay
    /// whose name contains one of it; entries whose name contains one of `exclude` go.
    pub(crate) fn load(path: &Path, include: &[String], exclude: &[String]) -> Result<Self> {
        let mut index = Index::open(path).map_err(failure)?;
        let n_all = index.entries.len();
        let any = |list: &[String], name: &str| list.iter().any(|part| name.contains(part.as_str()));
        index
            .entries
            .retain(|name, _| (include.is_empty() || any(include, name)) && !any(exclude, name));
        if index.entries.is_empty() {
            let option = if include.is_empty() {
                "--exclude-weights"
            } else {
                "--include-weights"
            };
            return Err(Failure::Usage(format!(
                "`{option}` leaves nothing of the {} of the importance matrix `{}`",
                count(n_all as u64, "entry"),
                path.display()
            )));
        }
        let source = gguf::source::open(path)?;
        let digest = digest::of_source(&*source, 0..source.len(), &mut |_| Ok(()))?;
        Ok(Self {
            index,
            file: file_name(path).into_owned(),
            digest,
            doubts: Vec::new(),
            prior: None,
        })
    }

    /// Counts each expert as if it had seen `n_tokens` more of the mean of its tensor. Reads the entries of experts.
    ///
    /// # Errors
    /// A failed read; a matrix without counts of single experts.
    pub(crate) fn with_prior(mut self, n_tokens: u32) -> Result<Self> {
        let mut means = BTreeMap::new();
        for name in self.index.entries.keys() {
            if let Some(found) = self.index.column_means(name).map_err(failure)? {
                means.insert(name.clone(), found);
            }
        }
        if means.is_empty() {
            return Err(Failure::Input(format!(
                "importance matrix `{}`: `--prior` needs counts of single experts, found none",
                self.file
            )));
        }
        self.prior = Some(Prior { n_tokens, means });
        Ok(self)
    }

    /// Compares what the matrix was made with, if it says so, with the model that is to be encoded, whose metadata may
    /// have been changed for it.
    ///
    /// # Errors
    /// A failed read of the model.
    pub(crate) fn compare(&mut self, model: &GgufFile, metadata: &Metadata) -> Result<()> {
        let Some(made) = self.index.origin.as_ref().and_then(|o| o.model.as_ref()) else {
            return Ok(());
        };
        let found =
            Identity::of(model).map_err(|e| Failure::Input(format!("`{}`: {e}", model.path().display())))?;
        let file = &self.file;
        if made.architecture != found.architecture {
            self.doubts.push(format!(
                "importance matrix `{file}` was made with another model: expected architecture `{}`, found `{}`",
                found.architecture,
                printable(&short(&made.architecture))
            ));
            return Ok(());
        }
        if made.fingerprint != found.fingerprint {
            self.doubts.push(format!(
                "importance matrix `{file}` was made with another model of this architecture: its norms differ"
            ));
        }
        let shown = |v: Option<String>| v.map_or_else(|| "nothing".to_owned(), |v| short(&v).into_owned());
        let told = identity::differences(&made.settings, metadata)
            .into_iter()
            .map(|d| {
                let text = format!(
                    "key `{}` was {} and is {}",
                    short(&d.key),
                    shown(d.given),
                    shown(d.found)
                );
                printable(&text).into_owned()
            })
            .collect::<Vec<_>>();
        if !told.is_empty() {
            self.doubts.push(format!(
                "importance matrix `{file}` was made with other settings than those of the model to encode: {}: make \
                 the matrix again",
                listed(&told, N_SETTINGS, "; ")
            ));
        }
        Ok(())
    }

    /// The prior, in tokens.
    pub(crate) fn prior(&self) -> Option<u32> {
        self.prior.as_ref().map(|p| p.n_tokens)
    }

    /// Entries in use.
    pub(crate) fn n_entries(&self) -> usize {
        self.index.entries.len()
    }

    /// Chunks of text that went into it; 0 if unknown.
    pub(crate) fn chunk_count(&self) -> u32 {
        self.index.chunk_count
    }

    /// Base name of the first calibration text.
    pub(crate) fn dataset(&self) -> Option<&str> {
        self.index.datasets.first().map(|d| base_name(d))
    }

    /// What the matrix has for a tensor: `Ok(None)` if nothing, an error if it is of another length than the tensor
    /// needs, one value a column of each of its [`n_matrices`]. The values of latent attention are found in the other layout of
    /// their weights too.
    pub(crate) fn find(&self, name: &str, shape: &Shape) -> std::result::Result<Option<Match>, String> {
        let (n_cols, n_mat) = (shape.dim(0), n_matrices(shape));
        let n_values = |entry: &str| self.index.entries.get(entry).map(|p| p.n_values);
        if let Some(n) = n_values(name) {
            let wanted = n_cols.checked_mul(n_mat);
            if wanted != Some(n) {
                return Err(format!(
                    "{shape} needs {} values in the importance matrix `{}`, found {n}; the matrix is of another model",
                    wanted.map_or_else(|| "too many".to_owned(), |w| w.to_string()),
                    self.file
                ));
            }
            let n_counts = self.index.entries[name].counts.len() as u64;
            if n_counts != 1 && n_counts != n_mat {
                return Err(format!(
                    "{shape} needs 1 or {n_mat} counts in the importance matrix `{}`, found {n_counts}; the matrix is of \
                     another model",
                    self.file
                ));
            }
            // Sums of no tokens are no data.
            return Ok(Some(self.found(name, Layout::Own, n_cols)).filter(Match::saw_tokens));
        }
        if let Some(other) = in_other_layout(name, ".attn_v_b.", ".attn_kv_b.")
            && n_values(&other) == Some(n_cols)
        {
            return Ok(Some(self.found(&other, Layout::Shared, n_cols)));
        }
        if let Some(other) = in_other_layout(name, ".attn_kv_b.", ".attn_v_b.")
            && let Some(n) = n_values(&other).filter(|n| n_cols > 0 && n.is_multiple_of(n_cols))
        {
            return Ok(Some(self.found(&other, Layout::Heads(n / n_cols), n_cols)));
        }
        Ok(None)
    }

    /// Whether the matrix has an entry of this name.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.index.entries.contains_key(name)
    }

    /// Whether the matrix has data for the keys of latent attention only together with the values.
    pub(crate) fn lacks_keys_alone(&self, name: &str) -> bool {
        in_other_layout(name, ".attn_k_b.", ".attn_kv_b.")
            .is_some_and(|other| self.index.entries.contains_key(&other))
    }

    fn found(&self, entry: &str, layout: Layout, n_cols: u64) -> Match {
        let place = &self.index.entries[entry];
        let mut unseen: Vec<usize> = place.unseen().collect();
        let has_mean = self.prior.as_ref().is_some_and(|p| p.means.contains_key(entry));
        let n_from_mean = if has_mean { unseen.len() } else { 0 };
        unseen.truncate(unseen.len() - n_from_mean);
        Match {
            entry: entry.to_owned(),
            layout,
            n_cols,
            unseen,
            n_from_mean,
            n_counts: place.counts.len(),
            zero_groups: place.zero_groups,
        }
    }

    /// The weights of a matrix's columns: mean squares; 1 for a matrix that saw nothing; a small weight in place of
    /// zeros that fill a whole group. Reads the file: all of the entry for the mean of its heads, so one result is to
    /// serve all matrices where these share it ([`Match::is_shared`]).
    ///
    /// # Errors
    /// A read that fails.
    pub(crate) fn matrix(&self, found: &Match, matrix: usize) -> Result<Vec<f32>> {
        let n = found.n_cols;
        let read = |i: u64| {
            let (name, columns) = (found.entry.as_str(), i * n..(i + 1) * n);
            let prior = self.prior.as_ref();
            let values = match prior.and_then(|p| Some((p.n_tokens, p.means.get(name)?))) {
                Some((n_tokens, means)) => self.index.shrunk(name, columns, means, n_tokens),
                None => self.index.mean_squares(name, columns),
            };
            Ok::<_, Failure>(
                values
                    .map_err(failure)?
                    .expect("the length was compared when it was found"),
            )
        };
        let mut values = match found.layout {
            Layout::Own => read(matrix as u64)?,
            Layout::Shared => read(0)?,
            Layout::Heads(n_heads) => {
                let mut sums = vec![0.0_f64; n as usize];
                for head in 0..n_heads {
                    for (sum, v) in sums.iter_mut().zip(read(head)?) {
                        *sum += f64::from(v);
                    }
                }
                sums.iter().map(|s| (s / n_heads as f64) as f32).collect()
            }
        };
        lift_zeros(&mut values);
        Ok(values)
    }
}

fn failure(e: gguf_imatrix_format::Error) -> Failure {
    match e {
        gguf_imatrix_format::Error::Container(e) => match Failure::from(e) {
            Failure::Input(text) => Failure::Input(format!("importance matrix: {text}")),
            other => other,
        },
        e => Failure::Input(format!("importance matrix {e}")),
    }
}

/// A name with `part` replaced, if it is there.
fn in_other_layout(name: &str, part: &str, other: &str) -> Option<String> {
    name.contains(part).then(|| name.replacen(part, other, 1))
}

/// Gives aligned groups of columns that are all zero a small weight: a block's scale would follow from nothing.
fn lift_zeros(values: &mut [f32]) {
    let is_zero = |group: &[f32]| group.iter().all(|v| *v == 0.0);
    if !values.chunks(GROUP).any(is_zero) {
        return;
    }
    let sum: f64 = values.iter().map(|v| f64::from(*v)).sum();
    let small = if sum > 0.0 {
        ((sum / values.len() as f64 * ZERO_SHARE) as f32).max(LEAST)
    } else {
        1.0
    };
    for group in values.chunks_mut(GROUP) {
        if is_zero(group) {
            group.fill(small);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_groups_of_zeros_are_lifted() {
        let mut some: Vec<f32> = (0..64).map(|i| (i % 16) as f32).collect();
        let before = some.clone();
        lift_zeros(&mut some);
        assert_eq!(some, before);
        some[16..32].fill(0.0);
        lift_zeros(&mut some);
        assert_eq!((&some[..16], &some[32..]), (&before[..16], &before[32..]));
        let lifted = some[16];
        assert!(lifted > 0.0 && lifted < 0.01 && some[16..32].iter().all(|v| *v == lifted));
        let mut none = vec![0.0; 40];
        lift_zeros(&mut none);
        assert_eq!(none, vec![1.0; 40]);
        let mut tiny = vec![0.0; 32];
        tiny[0] = 1e-38;
        lift_zeros(&mut tiny);
        assert_eq!(tiny[16], LEAST);
    }

    /// A matrix of one entry whose sums are 1, 2, and so on, and the folder that has it.
    fn guide(name: &str, n_values: usize, n_counts: usize) -> (Guide, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        let entry = gguf_imatrix_format::Entry {
            sums: (0..n_values).map(|i| (i + 1) as f32).collect(),
            means: vec![],
            counts: vec![1; n_counts],
        };
        let m = gguf_imatrix_format::Imatrix {
            entries: [(name.to_owned(), entry)].into(),
            datasets: vec![],
            chunk_count: 1,
            chunk_size: 1,
            origin: None,
        };
        m.write_gguf(&path, false, &[]).unwrap();
        (Guide::load(&path, &[], &[]).unwrap(), folder)
    }

    #[test]
    fn the_mean_of_heads_is_the_same_for_all_matrices() {
        let (guide, _folder) = guide("blk.0.attn_v_b.weight", 32 * 5, 1);
        let shape = Shape::new(&[32, 2, 7]).unwrap();
        let found = guide.find("blk.0.attn_kv_b.weight", &shape).unwrap().unwrap();
        assert!(found.is_shared());
        let mean: Vec<f32> = (0..32).map(|c| (c + 1) as f32 + 64.0).collect();
        for matrix in 0..7 {
            assert_eq!(guide.matrix(&found, matrix).unwrap(), mean, "{matrix}");
        }
    }

    #[test]
    fn matrices_along_a_fourth_dimension_share_importance() {
        let (guide, _folder) = guide("x.weight", 32 * 3, 3);
        let shape = Shape::new(&[32, 2, 3, 2]).unwrap();
        let found = guide.find("x.weight", &shape).unwrap().unwrap();
        for row in 0..shape.n_rows() {
            let matrix = matrix_of(&shape, row);
            assert_eq!(matrix as u64, row / 2 % 3);
            let first = guide.matrix(&found, matrix).unwrap()[0];
            assert_eq!(first, (matrix * 32 + 1) as f32, "row {row}");
        }
        assert!(!found.is_shared());
        let text = guide
            .find("x.weight", &Shape::new(&[32, 2, 2, 3]).unwrap())
            .unwrap_err();
        assert!(
            text.contains("needs 64 values") && text.contains("found 96"),
            "{text}"
        );
    }
}

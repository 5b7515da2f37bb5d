//! How a target's tensors lie in files, and which of the files this run writes.

use std::ops::Range;
use std::path::{Path, PathBuf};

use gguf::split::{self, Limits, ShardName};
use gguf::{Layout, Metadata, TensorInfo, TensorSpec};
use gguf_cli::{Failure, Result};

use crate::options::Part;

/// How the tensors are divided among files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Division {
    /// One file.
    Whole,
    /// Shards within limits.
    Within(Limits),
    /// Shards that begin at these tensors.
    Starts(Vec<usize>),
    /// This many shards of even work.
    Even(u32),
}

/// The files of one target.
#[derive(Clone, Debug)]
pub(crate) struct Shards {
    layouts: Vec<Layout>,
    paths: Vec<PathBuf>,
    /// The first tensor of each.
    starts: Vec<usize>,
    /// Those that this run writes.
    mine: Range<usize>,
    /// Whether it is one file without a number.
    whole: bool,
}

impl Shards {
    /// Lays out the tensors `specs`, the work for each of which is `costs`. `output` names the file, or the shards up
    /// to their numbers; of `part` the shards are this run's, else all are.
    ///
    /// # Errors
    /// More shards than a set can have; more parts than there are shards.
    pub(crate) fn new(
        metadata: &Metadata,
        specs: Vec<TensorSpec>,
        costs: &[u64],
        division: &Division,
        output: &Path,
        part: Option<Part>,
    ) -> Result<Self> {
        let starts = match division {
            Division::Whole => {
                let layout = Layout::plan(metadata, specs)?;
                return Ok(Self {
                    layouts: vec![layout],
                    paths: vec![output.to_owned()],
                    starts: vec![0],
                    mine: 0..1,
                    whole: true,
                });
            }
            Division::Within(limits) => {
                let whole = Layout::plan(metadata, specs.clone())?;
                let sizes = whole.tensors.iter().map(|t| t.n_bytes);
                split::starts(sizes, whole.alignment, *limits)
            }
            Division::Starts(starts) => starts.clone(),
            Division::Even(n) => even_starts(costs, *n)?,
        };
        let layouts = split::layouts(metadata, specs, &starts)?;
        let mine = match part {
            None => 0..layouts.len(),
            Some(part) if matches!(division, Division::Even(_)) => {
                part.first as usize - 1..part.last as usize
            }
            Some(part) => shards_of(part, costs, &starts),
        };
        Ok(Self {
            paths: names(output, layouts.len()),
            layouts,
            starts,
            mine,
            whole: false,
        })
    }

    /// Names and bytes of the files that this run writes.
    pub(crate) fn outputs(&self) -> Vec<(PathBuf, u64)> {
        let sizes = self.layouts[self.mine.clone()].iter().map(|l| l.total_bytes);
        self.paths[self.mine.clone()].iter().cloned().zip(sizes).collect()
    }

    /// The heads of all files, another run's too: with the tensors' types and places they say what is written.
    pub(crate) fn all_heads(&self) -> impl Iterator<Item = &[u8]> {
        self.layouts.iter().map(|l| l.head.as_slice())
    }

    /// The heads of the files that this run writes.
    pub(crate) fn heads(&self) -> impl Iterator<Item = &[u8]> {
        self.layouts[self.mine.clone()].iter().map(|l| l.head.as_slice())
    }

    /// The tensors of all files in their order, with types, sizes and offsets in their file's data section.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.layouts.iter().flat_map(|l| &l.tensors)
    }

    /// Whether it is one file under the name that the target has.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// All files' names.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Number of all files, another run's too.
    pub(crate) fn n_files(&self) -> usize {
        self.paths.len()
    }

    /// Whether this run writes the file with the metadata.
    pub(crate) fn has_first(&self) -> bool {
        self.mine.start == 0 && !self.mine.is_empty()
    }

    /// Bytes of all files, another run's too.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.layouts.iter().map(|l| l.total_bytes).sum()
    }

    /// Where each tensor goes: the file, counted among those that this run writes, and the byte; `None` for those of
    /// other runs.
    pub(crate) fn places(&self) -> Vec<Option<(usize, u64)>> {
        let mut out = Vec::new();
        for (no, layout) in self.layouts.iter().enumerate() {
            let file = self.mine.contains(&no).then(|| no - self.mine.start);
            let head = layout.head.len() as u64;
            out.extend(layout.tensors.iter().map(|t| Some((file?, head + t.offset))));
        }
        out
    }

    /// The same files with other metadata, whose values take as many bytes.
    pub(crate) fn with_metadata(&self, metadata: &Metadata) -> Result<Self> {
        let specs: Vec<TensorSpec> = self
            .layouts
            .iter()
            .flat_map(|l| l.tensors.iter().map(TensorSpec::from))
            .collect();
        let layouts = if self.whole {
            vec![Layout::plan(metadata, specs)?]
        } else {
            split::layouts(metadata, specs, &self.starts)?
        };
        let sizes = |layouts: &[Layout]| layouts.iter().map(|l| l.head.len()).collect::<Vec<_>>();
        assert_eq!(sizes(&layouts), sizes(&self.layouts), "values of the same size");
        Ok(Self {
            layouts,
            ..self.clone()
        })
    }
}

/// `folder/model-00001-of-00003.gguf` and so on, from `folder/model.gguf` or the name of any shard.
fn names(output: &Path, n: usize) -> Vec<PathBuf> {
    let prefix = match ShardName::parse(output) {
        Some(shard) => shard.prefix().to_owned(),
        None if output.extension().is_some_and(|e| e == "gguf") => output.with_extension(""),
        None => output.to_owned(),
    };
    let n = u32::try_from(n).expect("at most MAX_SHARDS");
    (1..=n)
        .map(|no| ShardName::new(&prefix, no, n).path(no))
        .collect()
}

/// The first tensor of each of `n` shards, none without a tensor, such that each has about the same work.
fn even_starts(costs: &[u64], n: u32) -> Result<Vec<usize>> {
    let n = n as usize;
    if n > costs.len() {
        let what = format!(
            "--part: {n} parts are too many, the model has {} tensors",
            costs.len()
        );
        return Err(Failure::Usage(what));
    }
    let total: u128 = costs.iter().map(|&c| u128::from(c)).sum();
    let mut starts = vec![0];
    let mut before = 0_u128;
    for (i, &cost) in costs.iter().enumerate() {
        let no = starts.len();
        // A shard begins where the middle of its first tensor is behind the share of the shards before.
        let due = (2 * before + u128::from(cost)) * n as u128 >= 2 * total * no as u128;
        let must = costs.len() - i == n - no;
        if no < n && i > starts[no - 1] && (due || must) {
            starts.push(i);
        }
        before += u128::from(cost);
    }
    Ok(starts)
}

/// The shards whose middle of the work lies in a part's share of all.
fn shards_of(part: Part, costs: &[u64], starts: &[usize]) -> Range<usize> {
    let total: u128 = costs.iter().map(|&c| u128::from(c)).sum::<u128>().max(1);
    let ends = starts.iter().skip(1).copied().chain([costs.len()]);
    let mut before = 0_u128;
    let mut mine = None::<Range<usize>>;
    for (no, (&start, end)) in starts.iter().zip(ends).enumerate() {
        let cost: u128 = costs[start..end].iter().map(|&c| u128::from(c)).sum();
        // Twice the middle of the shard's work, as a part from 0.
        let of = u128::from(part.of);
        let at = ((2 * before + cost) * of / (2 * total)).min(of - 1) + 1;
        before += cost;
        if (u128::from(part.first)..=u128::from(part.last)).contains(&at) {
            mine = Some(mine.map_or(no, |m| m.start)..no + 1);
        }
    }
    mine.unwrap_or(0..0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(first: u32, last: u32, of: u32) -> Part {
        Part { first, last, of }
    }

    #[test]
    fn parts_share_all_shards_in_order() {
        let costs = [1, 1, 100, 1, 1, 50, 50, 3, 0, 7];
        for starts in [vec![0, 0, 2, 3, 5, 6, 9], (0..10).collect::<Vec<_>>(), vec![0]] {
            for of in 1..9 {
                let all: Vec<usize> = (1..=of)
                    .flat_map(|i| shards_of(part(i, i, of), &costs, &starts))
                    .collect();
                assert_eq!(all, (0..starts.len()).collect::<Vec<_>>(), "{starts:?} in {of}");
                assert_eq!(shards_of(part(1, of, of), &costs, &starts), 0..starts.len());
            }
        }
    }

    #[test]
    fn even_shards_have_tensors_and_about_the_same_work() {
        assert_eq!(even_starts(&[1; 8], 4).unwrap(), [0, 2, 4, 6]);
        assert_eq!(even_starts(&[100, 1, 1, 1], 2).unwrap(), [0, 1]);
        assert_eq!(even_starts(&[1, 1, 1, 100], 4).unwrap(), [0, 1, 2, 3]);
        assert_eq!(even_starts(&[0, 0, 0], 3).unwrap(), [0, 1, 2]);
        assert!(even_starts(&[1, 1], 3).is_err());
        // With as many parts as shards each part gets one.
        let costs = [3, 9, 1, 1, 1, 20, 2, 2, 8];
        for n in 1..=9 {
            let starts = even_starts(&costs, n).unwrap();
            assert_eq!(starts.len(), n as usize);
            assert!(starts.is_sorted_by(|a, b| a < b), "{starts:?}");
        }
    }

    #[test]
    fn shards_are_named_after_the_output() {
        let expected = ["x/m-00001-of-00002.gguf", "x/m-00002-of-00002.gguf"].map(PathBuf::from);
        for output in ["x/m.gguf", "x/m", "x/m-00002-of-00007.gguf"] {
            assert_eq!(names(Path::new(output), 2), expected, "{output}");
        }
        assert_eq!(
            names(Path::new("m.q4.gguf"), 1),
            [Path::new("m.q4-00001-of-00001.gguf")]
        );
    }
}

//! `compare A B`: how two matrices differ.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gguf_cli::{Result, count, file_name, print_data, print_json, warn};
use gguf_imatrix_format::Entry;
use serde::Serialize;

use crate::{files, origin};

/// Compare two matrices: the cosine of each weight's mean squares, and what the experts saw
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CompareArgs {
    /// Matrix, of either form
    pub(crate) a: PathBuf,
    /// Matrix, of either form
    pub(crate) b: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `--json` prints; the tables show the same.
#[derive(Debug, Serialize)]
struct Comparison {
    a: String,
    b: String,
    /// Cosine over all columns of all weights that both have data for.
    #[serde(skip_serializing_if = "Option::is_none")]
    cosine: Option<f64>,
    /// Mean over the weights of their cosines.
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_cosine: Option<f64>,
    /// The least alike first.
    tensors: Vec<Row>,
    only_a: Vec<String>,
    only_b: Vec<String>,
}

/// A weight that both have.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// Of the mean squares of all matrices that both have data for; null if there are none, or the lengths differ.
    cosine: Option<f64>,
    /// The matrix (expert) that is least alike and its cosine, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    least_alike: Option<LeastAlike>,
    /// Root of the sum of mean squares in `b`, over that in `a`.
    strength: Option<f64>,
    a: Seen,
    b: Seen,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct LeastAlike {
    expert: usize,
    cosine: f64,
}

/// Counts of a weight: tokens, or chunks in the legacy form.
#[derive(Clone, Copy, Debug, Serialize)]
struct Seen {
    values: usize,
    /// Counts: one, or one an expert.
    counts: usize,
    /// Of them, those above 0.
    reached: usize,
    least: u64,
    total: u64,
}

impl Seen {
    fn of(entry: &Entry) -> Self {
        Self {
            values: entry.sums.len(),
            counts: entry.counts.len(),
            reached: entry.counts.iter().filter(|c| **c > 0).count(),
            least: entry.counts.iter().copied().min().unwrap_or(0),
            total: entry.counts.iter().fold(0, |sum, c| sum.saturating_add(*c)),
        }
    }

    fn shown(&self) -> String {
        if self.counts == 1 {
            return self.total.to_string();
        }
        format!("{}/{}, least {}", self.reached, self.counts, self.least)
    }
}

/// Products of mean squares.
#[derive(Clone, Copy, Debug, Default)]
struct Dot {
    ab: f64,
    aa: f64,
    bb: f64,
}

impl Dot {
    fn add(&mut self, other: Self) {
        self.ab += other.ab;
        self.aa += other.aa;
        self.bb += other.bb;
    }

    /// `None` if one has no data, or all of it zero.
    fn cosine(&self) -> Option<f64> {
        let norm = self.aa.sqrt() * self.bb.sqrt();
        (norm > 0.0).then(|| (self.ab / norm).min(1.0))
    }
}

/// Products of each matrix that both have data for, as many as the one with more counts has.
fn dots(a: &Entry, b: &Entry) -> Vec<Option<Dot>> {
    let n_mat = a.counts.len().max(b.counts.len());
    if a.sums.len() != b.sums.len() || !a.sums.len().is_multiple_of(n_mat) {
        return Vec::new();
    }
    let n_cols = a.sums.len() / n_mat;
    let count = |e: &Entry, m: usize| {
        if e.counts.len() == 1 {
            e.counts[0]
        } else {
            e.counts[m]
        }
    };
    let comparable = [a, b]
        .iter()
        .all(|e| e.counts.len() == 1 || e.counts.len() == n_mat);
    if !comparable {
        return Vec::new();
    }
    let one = |m: usize| {
        let (na, nb) = (count(a, m), count(b, m));
        if na == 0 || nb == 0 {
            return None;
        }
        let mut dot = Dot::default();
        let rows = a.sums[m * n_cols..][..n_cols]
            .iter()
            .zip(&b.sums[m * n_cols..][..n_cols]);
        for (x, y) in rows {
            let (x, y) = (f64::from(*x) / na as f64, f64::from(*y) / nb as f64);
            dot.add(Dot {
                ab: x * y,
                aa: x * x,
                bb: y * y,
            });
        }
        Some(dot)
    };
    (0..n_mat).map(one).collect()
}

impl Row {
    fn of(name: &str, a: &Entry, b: &Entry, all: &mut Dot) -> Self {
        let dots = dots(a, b);
        let mut sum = Dot::default();
        dots.iter().flatten().for_each(|d| sum.add(*d));
        all.add(sum);
        let cosines = dots.iter().enumerate().filter(|_| dots.len() > 1);
        let cosines = cosines.filter_map(|(expert, d)| {
            Some(LeastAlike {
                expert,
                cosine: (*d)?.cosine()?,
            })
        });
        Self {
            name: name.to_owned(),
            cosine: sum.cosine(),
            least_alike: cosines.min_by(|x, y| x.cosine.total_cmp(&y.cosine)),
            strength: (sum.aa > 0.0).then(|| (sum.bb / sum.aa).sqrt().sqrt()),
            a: Seen::of(a),
            b: Seen::of(b),
        }
    }
}

impl Comparison {
    fn of(names: (String, String), a: &BTreeMap<String, Entry>, b: &BTreeMap<String, Entry>) -> Self {
        let mut all = Dot::default();
        let both = a.iter().filter_map(|(name, x)| Some((name, x, b.get(name)?)));
        let mut tensors: Vec<Row> = both.map(|(name, x, y)| Row::of(name, x, y, &mut all)).collect();
        // What cannot be compared is the least alike of all.
        let key = |r: &Row| r.cosine.unwrap_or(-1.0);
        tensors.sort_by(|x, y| key(x).total_cmp(&key(y)).then_with(|| x.name.cmp(&y.name)));
        let cosines: Vec<f64> = tensors.iter().filter_map(|r| r.cosine).collect();
        let only = |x: &BTreeMap<String, Entry>, y: &BTreeMap<String, Entry>| {
            x.keys().filter(|n| !y.contains_key(*n)).cloned().collect()
        };
        Self {
            a: names.0,
            b: names.1,
            cosine: all.cosine(),
            mean_cosine: (!cosines.is_empty()).then(|| cosines.iter().sum::<f64>() / cosines.len() as f64),
            tensors,
            only_a: only(a, b),
            only_b: only(b, a),
        }
    }

    fn table(&self) -> String {
        let number = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), |v| format!("{v:.6}"));
        let row = |r: &Row| {
            let (expert, cosine) = r.least_alike.map_or((String::new(), String::new()), |l| {
                (l.expert.to_string(), number(Some(l.cosine)))
            });
            vec![
                gguf::short(&r.name).into_owned(),
                number(r.cosine),
                expert,
                cosine,
                r.strength.map_or_else(|| "-".to_owned(), |v| format!("{v:.3}")),
                r.a.shown(),
                r.b.shown(),
            ]
        };
        gguf_cli::table(
            &[
                "tensor",
                "cosine",
                "expert",
                "its cosine",
                "B/A",
                "tokens A",
                "tokens B",
            ],
            &self.tensors.iter().map(row).collect::<Vec<_>>(),
            &[1, 2, 3, 4, 5, 6],
        )
    }

    fn total(&self) -> String {
        let n = count(self.tensors.len() as u64, "tensor");
        match (self.cosine, self.mean_cosine) {
            (Some(all), Some(mean)) => {
                format!("total: cosine {all:.6} over {n}, mean of the tensors {mean:.6}")
            }
            _ => format!("total: {n} in both, none of which can be compared"),
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &CompareArgs) -> Result<()> {
    let (a, b) = (files::read(&args.a)?, files::read(&args.b)?);
    let names = (file_name(&args.a).into_owned(), file_name(&args.b).into_owned());
    let found = Comparison::of(names, &a.entries, &b.entries);
    if args.json {
        return print_json(&found);
    }
    print_data(&found.table())?;
    for (list, name) in [(&found.only_a, "A"), (&found.only_b, "B")] {
        if !list.is_empty() {
            let names: Vec<_> = list.iter().map(|n| gguf::short(n)).collect();
            print_data(&format!("only in {name}: {}", names.join(", ")))?;
        }
    }
    print_data(&found.total())?;
    let models = (a.origin.and_then(|o| o.model), b.origin.and_then(|o| o.model));
    if let (Some(a), Some(b)) = &models
        && let Some(what) = origin::difference(a, b)
    {
        warn(&format!("the matrices were made with {what}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sums: &[f32], counts: &[u64]) -> Entry {
        Entry {
            sums: sums.to_vec(),
            means: vec![],
            counts: counts.to_vec(),
        }
    }

    #[test]
    fn weights_are_ranked_and_experts_compared_where_both_saw_tokens() {
        let a: BTreeMap<String, Entry> = [
            ("dense".to_owned(), entry(&[2.0, 4.0], &[2])),
            (
                "experts".to_owned(),
                entry(&[1.0, 0.0, 5.0, 5.0, 7.0, 7.0], &[1, 1, 0]),
            ),
            ("gone".to_owned(), entry(&[1.0], &[1])),
            ("other".to_owned(), entry(&[1.0], &[1])),
        ]
        .into();
        let b: BTreeMap<String, Entry> = [
            ("dense".to_owned(), entry(&[3.0, 6.0], &[1])),
            (
                "experts".to_owned(),
                entry(&[0.0, 3.0, 5.0, 5.0, 7.0, 7.0], &[1, 5, 2]),
            ),
            ("new".to_owned(), entry(&[1.0], &[1])),
            ("other".to_owned(), entry(&[1.0, 2.0], &[1])),
        ]
        .into();
        let found = Comparison::of(("a".to_owned(), "b".to_owned()), &a, &b);
        let order: Vec<&str> = found.tensors.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(order, ["other", "experts", "dense"]);
        assert_eq!(
            (found.only_a.as_slice(), found.only_b.as_slice()),
            (&["gone".to_owned()][..], &["new".to_owned()][..])
        );
        let [other, experts, dense] = found.tensors.as_slice() else {
            panic!("three tensors")
        };
        assert_eq!(other.cosine, None);
        assert!(
            (dense.cosine.unwrap() - 1.0).abs() < 1e-12
                && (dense.strength.unwrap() - 3.0_f64.sqrt()).abs() < 1e-12
        );
        // (1, 0, 5, 5) and (0, 3, 1, 1): the third expert saw nothing in A.
        let expected = 10.0 / (51.0_f64.sqrt() * 11.0_f64.sqrt());
        assert!((experts.cosine.unwrap() - expected).abs() < 1e-12);
        let least = experts.least_alike.unwrap();
        assert_eq!((least.expert, least.cosine), (0, 0.0));
        assert_eq!((experts.a.reached, experts.b.least), (2, 1));
    }
}

//! What `diff` prints.

use std::io::{self, Write};

use gguf::{GgufFile, Shape};
use gguf_cli::{count, human_bytes, printable, table};
use serde::Serialize;

use super::error::{Compared, Outcome, Sums, TensorError};
use super::{metadata, tensors};

/// One of the two models.
#[derive(Debug, Serialize)]
struct Side {
    path: String,
    files: usize,
    bytes: u64,
    metadata_keys: usize,
    tensors: usize,
}

impl Side {
    fn of(file: &GgufFile) -> Self {
        Self {
            path: file.path().display().to_string(),
            files: file.parts().len(),
            bytes: file.n_bytes(),
            metadata_keys: file.metadata.len(),
            tensors: file.tensors.len(),
        }
    }

    fn text(&self) -> String {
        let files = if self.files == 1 {
            String::new()
        } else {
            format!(" ({} files)", self.files)
        };
        format!(
            "`{}`{files}, {}, {}, {}",
            printable(&self.path),
            human_bytes(self.bytes),
            count(self.metadata_keys as u64, "key"),
            count(self.tensors as u64, "tensor")
        )
    }
}

/// What differs in the files and not in the model.
#[derive(Debug, Serialize)]
struct Layout<'a> {
    files_differ: bool,
    keys_reordered: bool,
    tensors_reordered: bool,
    /// Tensors at another offset or in another file.
    tensors_moved: usize,
    /// Keys about alignment and split.
    keys: Vec<&'a str>,
}

/// The errors of all tensors.
#[derive(Debug, Serialize)]
struct Data<'a> {
    equal: usize,
    /// Over the tensors that were decoded, which are those that differ.
    total: Sums,
    tensors: Vec<Compared<'a>>,
}

#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    equal: bool,
    a: Side,
    b: Side,
    metadata: metadata::Differences<'a>,
    tensors: tensors::Differences<'a>,
    layout: Layout<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Data<'a>>,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        a: &GgufFile,
        b: &GgufFile,
        mut metadata: metadata::Differences<'a>,
        tensors: tensors::Differences<'a>,
        errors: Option<Vec<Compared<'a>>>,
    ) -> Self {
        let layout = Layout {
            files_differ: a.parts().len() != b.parts().len(),
            keys_reordered: metadata.reordered,
            tensors_reordered: tensors.reordered,
            tensors_moved: tensors.n_moved,
            keys: std::mem::take(&mut metadata.layout),
        };
        let data = errors.map(Data::new);
        let equal_data = data.as_ref().is_none_or(|d| d.equal == d.tensors.len());
        Self {
            equal: metadata.is_empty() && tensors.is_empty() && equal_data,
            a: Side::of(a),
            b: Side::of(b),
            metadata,
            tensors,
            layout,
            data,
        }
    }

    /// Whether the models are the same, as far as they were compared; the layout does not count.
    pub(super) fn equal(&self) -> bool {
        self.equal
    }

    pub(super) fn layout_differs(&self) -> bool {
        let l = &self.layout;
        l.files_differ || l.keys_reordered || l.tensors_reordered || l.tensors_moved > 0 || !l.keys.is_empty()
    }

    pub(super) fn write(&self, out: &mut dyn Write, top: usize) -> io::Result<()> {
        writeln!(out, "A: {}\nB: {}", self.a.text(), self.b.text())?;
        if self.equal && !self.layout_differs() {
            return match &self.data {
                Some(_) => writeln!(out, "equal: metadata, tensors and data"),
                None => writeln!(
                    out,
                    "equal: metadata and list of tensors (`--data` compares the weights too)"
                ),
            };
        }
        self.write_metadata(out, top)?;
        self.write_tensors(out, top)?;
        self.write_layout(out)?;
        match &self.data {
            Some(data) => data.write(out, top),
            None => Ok(()),
        }
    }

    fn write_metadata(&self, out: &mut dyn Write, top: usize) -> io::Result<()> {
        let m = &self.metadata;
        let (added, removed, changed) = (m.added.len(), m.removed.len(), m.changed.len());
        if m.is_empty() {
            return writeln!(out, "\nmetadata: equal");
        }
        writeln!(
            out,
            "\nmetadata: {added} added, {removed} removed, {changed} changed"
        )?;
        m.removed
            .iter()
            .try_for_each(|pair| writeln!(out, "- {}", pair.text()))?;
        m.added
            .iter()
            .try_for_each(|pair| writeln!(out, "+ {}", pair.text()))?;
        m.changed
            .iter()
            .try_for_each(|pair| writeln!(out, "~ {}", pair.text(top.min(8))))
    }

    fn write_tensors(&self, out: &mut dyn Write, top: usize) -> io::Result<()> {
        let t = &self.tensors;
        if t.is_empty() {
            return writeln!(out, "\ntensors: the same names, types and shapes");
        }
        let (added, removed, changed) = (t.added.len(), t.removed.len(), t.changed.len());
        writeln!(
            out,
            "\ntensors: {added} added, {removed} removed, {changed} of another type or shape"
        )?;
        for (sign, list) in [("-", &t.removed), ("+", &t.added)] {
            for one in list.iter().take(top) {
                let shape = shape(one.shape);
                writeln!(
                    out,
                    "{sign} {}: {} {shape}, {} bytes",
                    printable(one.name),
                    one.type_name,
                    one.bytes
                )?;
            }
            write_more(out, list.len(), top)?;
        }
        if changed > 0 {
            let rows: Vec<Vec<String>> = t.changed.iter().take(top).map(changed_row).collect();
            let headers = ["tensor", "type A", "type B", "shape", "bytes A", "bytes B"];
            writeln!(out, "{}", table(&headers, &rows, &[4, 5]))?;
            write_more(out, changed, top)?;
        }
        let rows: Vec<Vec<String>> = t.by_type.iter().map(type_row).collect();
        let headers = ["type", "tensors A", "tensors B", "bytes A", "bytes B", "change"];
        writeln!(out, "\n{}", table(&headers, &rows, &[1, 2, 3, 4, 5]))
    }

    fn write_layout(&self, out: &mut dyn Write) -> io::Result<()> {
        let l = &self.layout;
        let mut lines = Vec::new();
        if l.files_differ {
            lines.push(format!(
                "{} against {}",
                count(self.a.files as u64, "file"),
                self.b.files
            ));
        }
        if l.keys_reordered {
            lines.push("keys in another order".to_owned());
        }
        if l.tensors_reordered {
            lines.push("tensors in another order".to_owned());
        }
        if l.tensors_moved > 0 {
            let moved = count(l.tensors_moved as u64, "tensor");
            lines.push(format!("{moved} at another offset or in another file"));
        }
        if !l.keys.is_empty() {
            lines.push(format!("other values of {}", l.keys.join(", ")));
        }
        if lines.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nlayout: {}", lines.join("; "))
    }
}

fn shape(dims: &[u64]) -> String {
    Shape::new(dims).map_or_else(String::new, |s| s.to_string())
}

fn write_more(out: &mut dyn Write, n: usize, top: usize) -> io::Result<()> {
    if n > top {
        writeln!(out, ".. and {} more (`--top 0` shows all)", n - top)?;
    }
    Ok(())
}

fn changed_row(c: &tensors::Changed<'_>) -> Vec<String> {
    let shapes = if c.shape_a == c.shape_b {
        shape(c.shape_a)
    } else {
        format!("{} -> {}", shape(c.shape_a), shape(c.shape_b))
    };
    vec![
        gguf::short(c.name).into_owned(),
        c.type_a.clone(),
        c.type_b.clone(),
        shapes,
        c.bytes_a.to_string(),
        c.bytes_b.to_string(),
    ]
}

fn type_row((name, s): (&String, &tensors::TypeSizes)) -> Vec<String> {
    let (sign, change) = if s.bytes_b >= s.bytes_a {
        ("+", s.bytes_b - s.bytes_a)
    } else {
        ("-", s.bytes_a - s.bytes_b)
    };
    vec![
        name.clone(),
        s.tensors_a.to_string(),
        s.tensors_b.to_string(),
        s.bytes_a.to_string(),
        s.bytes_b.to_string(),
        format!("{sign}{}", human_bytes(change)),
    ]
}

impl<'a> Data<'a> {
    fn new(tensors: Vec<Compared<'a>>) -> Self {
        let mut total = Sums::default();
        for t in &tensors {
            if let Some(e) = t.error() {
                total.add(&e.sums);
            }
        }
        Self {
            equal: tensors.iter().filter(|t| t.outcome == Outcome::Equal).count(),
            total,
            tensors,
        }
    }

    fn write(&self, out: &mut dyn Write, top: usize) -> io::Result<()> {
        writeln!(
            out,
            "\ndata: {} of {} tensors have the same bytes",
            self.equal,
            self.tensors.len()
        )?;
        let with_error: Vec<_> = self
            .tensors
            .iter()
            .filter_map(|t| Some((t, t.error()?)))
            .collect();
        if !with_error.is_empty() {
            writeln!(out, "error of B against A, after decoding both:")?;
            let shown = &with_error[..with_error.len().min(top)];
            let stacks = shown.iter().any(|(_, e)| e.worst_expert.is_some());
            let n_columns = ERROR_HEADERS.len() - usize::from(!stacks);
            let row = |(t, e): &(&Compared<'_>, &TensorError)| {
                let mut row = error_row(t, e);
                row.truncate(n_columns);
                row
            };
            let rows: Vec<Vec<String>> = shown.iter().map(row).collect();
            writeln!(
                out,
                "{}",
                table(&ERROR_HEADERS[..n_columns], &rows, &[2, 3, 4, 5])
            )?;
            write_more(out, with_error.len(), top)?;
            let t = &self.total;
            writeln!(
                out,
                "total of the {} that differ: rmse {}, relative {}, cosine {}",
                with_error.len(),
                number(t.rmse()),
                percent(t.relative()),
                cosine(t)
            )?;
            if t.non_finite > 0 {
                let pairs = count(t.non_finite, "pair");
                writeln!(out, "left out: {pairs} with an infinite or NaN value")?;
            }
        }
        for t in &self.tensors {
            match &t.outcome {
                Outcome::OtherBytes { first } => {
                    let name = printable(t.name);
                    writeln!(out, "{name}: {} data differs from byte {first} on", t.type_a)?;
                }
                Outcome::Incomparable { why } => {
                    writeln!(out, "{}: not compared: {why}", printable(t.name))?;
                }
                Outcome::Equal | Outcome::Error(_) => {}
            }
        }
        Ok(())
    }
}

/// The last one is for stacks of matrices only.
const ERROR_HEADERS: [&str; 9] = [
    "tensor",
    "types",
    "rmse",
    "relative",
    "cosine",
    "max",
    "at",
    "worst row",
    "worst expert",
];

fn error_row(t: &Compared<'_>, e: &TensorError) -> Vec<String> {
    let of_matrix = t.shape.get(1).copied().unwrap_or(1).max(1);
    let stack = t.shape.len() > 2;
    let row = |row: u64| {
        if stack {
            format!("{}:{}", row / of_matrix, row % of_matrix)
        } else {
            row.to_string()
        }
    };
    let worst = |w: Option<super::error::Worst>, name: &dyn Fn(u64) -> String| {
        w.map_or(String::new(), |w| {
            format!("{} ({})", name(w.index), percent(w.relative))
        })
    };
    let types = if t.type_a == t.type_b {
        t.type_a.clone()
    } else {
        format!("{} {}", t.type_a, t.type_b)
    };
    vec![
        gguf::short(t.name).into_owned(),
        types,
        number(e.sums.rmse()),
        percent(e.sums.relative()),
        cosine(&e.sums),
        e.max.map_or("0".to_owned(), |m| number(m.abs)),
        e.max
            .map_or(String::new(), |m| format!("{}[{}]", row(m.row), m.col)),
        worst(e.worst_row, &row),
        worst(e.worst_expert, &|i| i.to_string()),
    ]
}

/// Four digits.
fn number(x: f64) -> String {
    if x == 0.0 || (1e-3..1e4).contains(&x) {
        let digits = if x == 0.0 {
            0
        } else {
            (3 - x.log10().floor() as i32).max(0) as usize
        };
        format!("{x:.digits$}")
    } else {
        format!("{x:.3e}")
    }
}

fn percent(x: f64) -> String {
    if x.is_finite() {
        format!("{} %", number(x * 100.0))
    } else {
        "inf".to_owned()
    }
}

fn cosine(sums: &Sums) -> String {
    sums.cosine().map_or("-".to_owned(), |c| format!("{c:.7}"))
}

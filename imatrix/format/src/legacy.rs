//! The legacy form.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use gguf::source::Source;

use crate::{Entry, Error, Imatrix, Result, base_name, check_entry};

/// The smallest record: name length, one byte of name, number of chunks, number of values, one value.
const MIN_RECORD: u64 = 4 + 1 + 4 + 4 + 4;

/// Reads front to back, knowing where it is.
struct Cursor<'a> {
    source: &'a dyn Source,
    at: u64,
}

impl Cursor<'_> {
    fn left(&self) -> u64 {
        self.source.len() - self.at
    }

    /// Refuses, as the file's fault, at byte `at`.
    fn fail(&self, at: u64, what: impl std::fmt::Display) -> Error {
        let text =
            format!("not a sound importance matrix (neither GGUF nor legacy form) at byte {at}: {what}");
        Error::malformed(self.source.path(), text)
    }

    fn bytes(&mut self, n: u64, what: &str) -> Result<Vec<u8>> {
        if n > self.left() {
            let text = format!(
                "{what}: expected {n} bytes, found {} before the end of the file",
                self.left()
            );
            return Err(self.fail(self.at, text));
        }
        let mut buf = vec![0; n as usize];
        self.source.read_at(self.at, &mut buf)?;
        self.at += n;
        Ok(buf)
    }

    fn i32(&mut self, what: &str) -> Result<i32> {
        let b = self.bytes(4, what)?;
        Ok(i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// An i32 that must lie in `min..=max`.
    fn length(&mut self, min: u64, max: u64, what: &str) -> Result<u64> {
        let at = self.at;
        let n = self.i32(what)?;
        match u64::try_from(n) {
            Ok(v) if (min..=max).contains(&v) => Ok(v),
            _ => Err(self.fail(at, format!("{what}: expected {min} to {max}, found {n}"))),
        }
    }

    fn text(&mut self, n: u64, what: &str) -> Result<String> {
        let at = self.at;
        let bytes = self.bytes(n, what)?;
        String::from_utf8(bytes).map_err(|_| self.fail(at, format!("{what}: expected UTF-8")))
    }
}

/// Reads the legacy form. Sums are the stored values and counts the stored numbers of chunks, so that their
/// quotients are exactly the importance that the writer meant.
pub(crate) fn read(source: &dyn Source) -> Result<Imatrix> {
    let mut c = Cursor { source, at: 0 };
    let n_entries = c.length(1, (source.len() / MIN_RECORD).max(1), "number of entries")?;
    let mut out = Imatrix {
        chunk_size: 1,
        ..Imatrix::default()
    };
    for i in 0..n_entries {
        let start = c.at;
        let (name, entry) = read_entry(&mut c, i, n_entries)?;
        check_entry(source.path(), &name, &entry)?;
        if out.entries.contains_key(&name) {
            return Err(c.fail(
                start,
                format!("entry {} of {n_entries}: `{name}` occurs twice", i + 1),
            ));
        }
        out.entries.insert(name, entry);
    }
    if c.left() > 0 {
        let at = c.at;
        let chunks = c.i32("number of chunks")?;
        out.chunk_count = u32::try_from(chunks)
            .map_err(|_| c.fail(at, format!("number of chunks: expected a count, found {chunks}")))?;
    }
    if c.left() > 0 {
        let n = c.length(0, c.left(), "length of the dataset's name")?;
        let dataset = c.text(n, "name of the dataset")?;
        out.datasets
            .extend((!dataset.is_empty()).then(|| base_name(&dataset).to_owned()));
    }
    if c.left() > 0 {
        return Err(c.fail(
            c.at,
            format!("expected the end of the file, found {} more bytes", c.left()),
        ));
    }
    Ok(out)
}

fn read_entry(c: &mut Cursor<'_>, i: u64, n_entries: u64) -> Result<(String, Entry)> {
    let label = |what: &str| format!("entry {} of {n_entries}: {what}", i + 1);
    let n = c.length(1, c.left().max(1), &label("length of the name"))?;
    let name = c.text(n, &label("name"))?;
    let n_call = c.i32(&label("number of chunks"))?;
    let n_values = c.length(
        1,
        (c.left() / 4).max(1),
        &label(&format!("`{name}`: number of values")),
    )?;
    let bytes = c.bytes(n_values * 4, &label(&format!("`{name}`: values")))?;
    let (words, _) = bytes.as_chunks::<4>();
    let sums = words.iter().map(|w| f32::from_le_bytes(*w)).collect();
    // Without a number of chunks the values are the means themselves.
    let counts = vec![u64::try_from(n_call).unwrap_or(0).max(1)];
    Ok((
        name,
        Entry {
            sums,
            means: Vec::new(),
            counts,
        },
    ))
}

/// Writes the legacy form with its trailer. Entries that saw nothing at all are left out.
pub(crate) fn write(imatrix: &Imatrix, path: &Path, force: bool, inputs: &[&Path]) -> Result<()> {
    let stored: BTreeMap<&String, &Entry> = imatrix
        .entries
        .iter()
        .filter(|(_, e)| e.counts.iter().any(|&c| c > 0))
        .collect();
    if stored.is_empty() {
        return Err(Error::malformed(
            path,
            "no weight has data: there is nothing to write",
        ));
    }
    let mut out = Vec::new();
    put_i32(&mut out, path, stored.len() as u64, "number of entries")?;
    for (name, e) in stored {
        check_entry(path, name, e)?;
        let n_chunks = e
            .counts
            .iter()
            .copied()
            .max()
            .unwrap_or(0)
            .div_ceil(u64::from(imatrix.chunk_size.max(1)));
        put_i32(&mut out, path, name.len() as u64, "length of a name")?;
        out.extend_from_slice(name.as_bytes());
        put_i32(&mut out, path, n_chunks, "number of chunks")?;
        put_i32(&mut out, path, e.sums.len() as u64, "number of values")?;
        for mean in e.mean_squares() {
            out.extend_from_slice(&(mean * n_chunks as f32).to_le_bytes());
        }
    }
    put_i32(&mut out, path, u64::from(imatrix.chunk_count), "number of chunks")?;
    let dataset = imatrix.datasets.last().map_or("", |d| base_name(d));
    if !dataset.is_empty() {
        put_i32(
            &mut out,
            path,
            dataset.len() as u64,
            "length of the dataset's name",
        )?;
        out.extend_from_slice(dataset.as_bytes());
    }
    let mut file = gguf::atomic::AtomicFile::create(path, force, inputs, Some(out.len() as u64))?;
    file.write_all(&out).map_err(|source| {
        Error::Container(gguf::Error::Io {
            action: "write",
            path: path.to_owned(),
            source,
        })
    })?;
    file.commit()?;
    Ok(())
}

fn put_i32(out: &mut Vec<u8>, path: &Path, n: u64, what: &str) -> Result<()> {
    let n = i32::try_from(n)
        .map_err(|_| Error::malformed(path, format!("{what}: the legacy form holds 31 bits, found {n}")))?;
    out.extend_from_slice(&n.to_le_bytes());
    Ok(())
}

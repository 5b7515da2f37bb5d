//! The legacy form.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use gguf::atomic::AtomicFile;
use gguf::source::Source;

use crate::{Entry, Error, Imatrix, Index, Place, Result, Weight, base_name, check_entry};

/// The smallest record: name length, one byte of name, number of chunks, number of values, one value.
const MIN_RECORD: u64 = 4 + 1 + 4 + 4 + 4;

/// More chunks than any text has: of 512 tokens each they are a hundred billion.
const MAX_CHUNKS: u64 = 1 << 28;

/// Reads front to back, knowing where it is.
struct Cursor<'a> {
    source: &'a dyn Source,
    at: u64,
    /// What is being read: `entry 2 of 24`.
    part: String,
}

impl Cursor<'_> {
    fn left(&self) -> u64 {
        self.source.len() - self.at
    }

    /// Refuses, as the file's fault, at byte `at`.
    fn fail(&self, at: u64, what: impl std::fmt::Display) -> Error {
        let text = format!(
            "not a sound importance matrix (neither GGUF nor legacy form) at byte {at}, {}: {what}",
            self.part
        );
        Error::malformed(self.source.path(), text)
    }

    /// Refuses a file that ends before `what`, which takes `n` bytes.
    fn truncated(&self, n: u64, what: &str) -> Error {
        let text = format!(
            "importance matrix truncated at byte {} in {}: {what}: expected {n} bytes from byte {} on, found {}",
            self.source.len(),
            self.part,
            self.at,
            self.left()
        );
        Error::malformed(self.source.path(), text)
    }

    fn bytes(&mut self, n: u64, what: &str) -> Result<Vec<u8>> {
        if n > self.left() {
            return Err(self.truncated(n, what));
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
    fn number(&mut self, min: u64, max: u64, what: &str) -> Result<u64> {
        let at = self.at;
        let n = self.i32(what)?;
        match u64::try_from(n) {
            Ok(v) if (min..=max).contains(&v) => Ok(v),
            _ => Err(self.fail(at, format!("{what}: expected {min} to {max}, found {n}"))),
        }
    }

    /// The number in front of `what`, `min` at least.
    fn length(&mut self, min: u64, what: &str) -> Result<u64> {
        self.number(min, i32::MAX as u64, &format!("length of {what}"))
    }

    /// Passes over `n` bytes, which must be there.
    fn skip(&mut self, n: u64, what: &str) -> Result<()> {
        if n > self.left() {
            return Err(self.truncated(n, what));
        }
        self.at += n;
        Ok(())
    }

    fn text(&mut self, min: u64, what: &str) -> Result<String> {
        let at = self.at;
        let n = self.length(min, what)?;
        let bytes = self.bytes(n, what)?;
        String::from_utf8(bytes).map_err(|_| self.fail(at, format!("{what}: expected UTF-8")))
    }
}

/// Reads the legacy form. Sums are the stored values and counts the stored numbers of chunks, so that their
/// quotients are exactly the importance that the writer meant.
pub(crate) fn read(source: &dyn Source) -> Result<Imatrix> {
    let (entries, trailer) = walk(source, |c, name, n_call, n_values| {
        let bytes = c.bytes(n_values * 4, &format!("the values of `{name}`"))?;
        let (words, _) = bytes.as_chunks::<4>();
        let entry = Entry {
            sums: words.iter().map(|w| f32::from_le_bytes(*w)).collect(),
            means: Vec::new(),
            counts: vec![n_call],
        };
        check_entry(source.path(), name, &entry)?;
        Ok(entry)
    })?;
    Ok(Imatrix {
        entries,
        datasets: trailer.datasets,
        chunk_count: trailer.chunk_count,
        chunk_size: 1,
        origin: None,
    })
}

/// Finds the values of the legacy form without reading them.
pub(crate) fn index(source: Arc<dyn Source>) -> Result<Index> {
    let (entries, trailer) = walk(&*source, |c, name, n_call, n_values| {
        let place = Place {
            at: c.at,
            n_values,
            counts: vec![n_call],
            zero_groups: 0,
        };
        c.skip(n_values * 4, &format!("the values of `{name}`"))?;
        Ok(place)
    })?;
    Ok(Index {
        source,
        little_endian: true,
        entries,
        datasets: trailer.datasets,
        chunk_count: trailer.chunk_count,
        origin: None,
    })
}

/// What stands behind the entries.
#[derive(Default)]
struct Trailer {
    datasets: Vec<String>,
    chunk_count: u32,
}

/// Goes through a file; `entry` gets the name, the number of chunks and the number of values in front of it, takes the
/// values, and returns what it made of them.
fn walk<T>(
    source: &dyn Source,
    entry: impl Fn(&mut Cursor<'_>, &str, u64, u64) -> Result<T>,
) -> Result<(BTreeMap<String, T>, Trailer)> {
    let mut c = Cursor {
        source,
        at: 0,
        part: "head".to_owned(),
    };
    if c.left() < 4 {
        let what = format!("expected the number of entries, found {} bytes in all", c.left());
        return Err(c.fail(0, what));
    }
    let n_entries = c.number(1, (source.len() / MIN_RECORD).max(1), "number of entries")?;
    let mut entries = BTreeMap::new();
    let mut most = (0, String::new());
    for i in 0..n_entries {
        let start = c.at;
        c.part = format!("entry {} of {n_entries}", i + 1);
        let name = c.text(1, "the name")?;
        let n_call = c.number(0, MAX_CHUNKS, &format!("number of chunks of `{name}`"))?;
        let n_values = c.length(1, &format!("the values of `{name}`"))?;
        // Without a number of chunks the values are the means themselves.
        let n_call = n_call.max(1);
        let found = entry(&mut c, &name, n_call, n_values)?;
        if entries.contains_key(&name) {
            return Err(c.fail(start, format!("`{name}` occurs twice")));
        }
        if n_call > most.0 {
            most = (n_call, name.clone());
        }
        entries.insert(name, found);
    }
    let trailer = read_trailer(&mut c, &most)?;
    Ok((entries, trailer))
}

/// `most` is the largest number of chunks of a weight, and that weight.
fn read_trailer(c: &mut Cursor<'_>, most: &(u64, String)) -> Result<Trailer> {
    let mut out = Trailer::default();
    "the trailer".clone_into(&mut c.part);
    if c.left() > 0 {
        let chunks = c.number(0, MAX_CHUNKS, "number of chunks")?;
        check_chunks(c, most, chunks)?;
        out.chunk_count = chunks as u32;
    }
    if c.left() > 0 {
        let dataset = c.text(0, "the dataset's name")?;
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

/// No weight can have seen more chunks than there were. Files that were merged may have no number of all.
fn check_chunks(c: &Cursor<'_>, (seen, name): &(u64, String), chunks: u64) -> Result<()> {
    if chunks == 0 || *seen <= chunks {
        return Ok(());
    }
    let what = format!("number of chunks: expected at least the {seen} of weight `{name}`, found {chunks}");
    Err(c.fail(c.at - 4, what))
}

/// Bytes of a file in which all of these weights have data.
pub(crate) fn n_bytes(weights: &[Weight<'_>], dataset: &str) -> u64 {
    let record = |w: &Weight<'_>| {
        let values = w.n_cols.saturating_mul(w.n_mat).saturating_mul(4);
        values.saturating_add(4 + w.name.len() as u64 + 4 + 4)
    };
    let records = weights.iter().map(record).fold(4 + 4, u64::saturating_add);
    let name = base_name(dataset).len() as u64;
    records.saturating_add(if name > 0 { 4 + name } else { 0 })
}

/// Writes the legacy form with its trailer. Entries that saw nothing at all are left out.
pub(crate) fn write(imatrix: &Imatrix, mut file: AtomicFile) -> Result<()> {
    let path = &file.path().to_owned();
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
    // No weight has seen more chunks than there are, also where a count was rounded up.
    let mut most_chunks = u64::from(imatrix.chunk_count);
    for (name, e) in stored {
        check_entry(path, name, e)?;
        let n_chunks = e
            .counts
            .iter()
            .copied()
            .max()
            .unwrap_or(0)
            .div_ceil(u64::from(imatrix.chunk_size.max(1)));
        most_chunks = most_chunks.max(n_chunks);
        put_i32(&mut out, path, name.len() as u64, "length of a name")?;
        out.extend_from_slice(name.as_bytes());
        put_chunks(&mut out, path, n_chunks)?;
        put_i32(&mut out, path, e.sums.len() as u64, "number of values")?;
        for (i, mean) in e.mean_squares().into_iter().enumerate() {
            let sum = mean * n_chunks as f32;
            // Another expert's chunks count for this one, too.
            if !sum.is_finite() {
                let what = format!(
                    "`{name}`, value {i}: mean {mean:e} over {n_chunks} chunks is more than F32 holds; write the GGUF form"
                );
                return Err(Error::malformed(path, what));
            }
            out.extend_from_slice(&sum.to_le_bytes());
        }
    }
    put_chunks(&mut out, path, most_chunks)?;
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
    file.expect(out.len() as u64)?;
    file.write_all(&out).map_err(|source| {
        Error::Container(gguf::Error::Io {
            action: "write",
            path: path.clone(),
            source,
        })
    })?;
    file.commit()?;
    Ok(())
}

/// A number of chunks that is read again.
fn put_chunks(out: &mut Vec<u8>, path: &Path, n: u64) -> Result<()> {
    if n > MAX_CHUNKS {
        let what = format!(
            "number of chunks: the legacy form holds at most {MAX_CHUNKS}, found {n}; write the GGUF form"
        );
        return Err(Error::malformed(path, what));
    }
    put_i32(out, path, n, "number of chunks")
}

fn put_i32(out: &mut Vec<u8>, path: &Path, n: u64, what: &str) -> Result<()> {
    let n = i32::try_from(n)
        .map_err(|_| Error::malformed(path, format!("{what}: the legacy form holds 31 bits, found {n}")))?;
    out.extend_from_slice(&n.to_le_bytes());
    Ok(())
}

//! Hidden states between layers, in memory or in a temporary file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::memory;
use crate::{Error, Result};

/// Bytes of a value.
const BYTES: usize = size_of::<f32>();

/// Rows of `n_embd` elements, one a token.
#[derive(Debug)]
pub struct HiddenStates {
    n_embd: usize,
    n_rows: usize,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory(Vec<f32>),
    /// A file without a name, which goes when it is closed.
    File {
        file: File,
        dir: PathBuf,
        bytes: Vec<u8>,
    },
}

impl HiddenStates {
    /// Room for `n_rows` rows in memory.
    pub(super) fn in_memory(n_rows: usize, n_embd: usize) -> Result<Self> {
        let n_bytes = n_rows.checked_mul(n_embd).and_then(|n| n.checked_mul(BYTES));
        if !n_bytes.is_some_and(|n| memory::can_be_had(n as u64)) {
            return Err(Error::Settings(
                format!("no memory for the hidden states of {n_rows} tokens; give `--max-memory`").into(),
            ));
        }
        Ok(Self {
            n_embd,
            n_rows,
            place: Place::Memory(vec![0.0; n_rows * n_embd]),
        })
    }

    /// Room for `n_rows` rows in a file in `dir`, which will have `n_bytes`.
    pub(super) fn in_file(n_rows: usize, n_embd: usize, dir: &Path, n_bytes: u64) -> Result<Self> {
        if let Some(free) = gguf::atomic::free_bytes(dir).filter(|&free| free < n_bytes) {
            let e = std::io::Error::other(format!("expected room for {n_bytes} bytes, found {free}"));
            return Err(failed(dir, &e));
        }
        let file = tempfile::tempfile_in(dir).map_err(|e| failed(dir, &e))?;
        Ok(Self {
            n_embd,
            n_rows,
            place: Place::File {
                file,
                dir: dir.to_owned(),
                bytes: Vec::new(),
            },
        })
    }

    /// Rows that are of use: one a token, behind the last layer one for each row of logits that is wanted.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Elements of a row.
    pub fn n_embd(&self) -> usize {
        self.n_embd
    }

    /// Leaves only the first rows.
    pub(super) fn truncate(&mut self, n_rows: usize) {
        self.n_rows = n_rows;
        if let Place::Memory(rows) = &mut self.place {
            rows.truncate(n_rows * self.n_embd);
            rows.shrink_to_fit();
        }
    }

    /// Fills `out` with rows from row `first` on.
    ///
    /// # Errors
    /// A read that fails.
    pub fn read(&self, first: usize, out: &mut [f32]) -> Result<()> {
        let at = first * self.n_embd;
        match &self.place {
            Place::Memory(rows) => out.copy_from_slice(&rows[at..at + out.len()]),
            Place::File { file, dir, .. } => {
                let mut bytes = vec![0; out.len() * BYTES];
                file.read_exact_at(&mut bytes, (at * BYTES) as u64)
                    .map_err(|e| failed(dir, &e))?;
                for (v, b) in out.iter_mut().zip(bytes.as_chunks::<BYTES>().0) {
                    *v = f32::from_le_bytes(*b);
                }
            }
        }
        Ok(())
    }

    /// Stores rows from row `first` on.
    pub(super) fn write(&mut self, first: usize, rows: &[f32]) -> Result<()> {
        let at = first * self.n_embd;
        match &mut self.place {
            Place::Memory(all) => all[at..at + rows.len()].copy_from_slice(rows),
            Place::File { file, dir, bytes } => {
                bytes.clear();
                bytes.extend(rows.iter().flat_map(|v| v.to_le_bytes()));
                file.write_all_at(bytes, (at * BYTES) as u64)
                    .map_err(|e| failed(dir, &e))?;
            }
        }
        Ok(())
    }
}

fn failed(dir: &Path, e: &std::io::Error) -> Error {
    Error::Settings(
        format!(
            "the hidden states in a temporary file in `{}`: {e}; give another folder with `--temp-dir` or more \
             memory with `--max-memory`",
            dir.display()
        )
        .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_from_memory_and_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let both = [
            HiddenStates::in_memory(5, 3).unwrap(),
            HiddenStates::in_file(5, 3, dir.path(), 60).unwrap(),
        ];
        for mut states in both {
            let rows: Vec<f32> = (0..15).map(|i| i as f32 - 0.3).collect();
            states.write(0, &rows).unwrap();
            states.write(2, &[f32::MIN_POSITIVE; 3]).unwrap();
            let mut out = [0.0; 6];
            states.read(1, &mut out).unwrap();
            assert_eq!(out[..3], rows[3..6]);
            assert_eq!(out[3..], [f32::MIN_POSITIVE; 3]);
            states.truncate(3);
            assert_eq!(states.n_rows(), 3);
        }
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
        let gone = dir.path().join("no");
        assert!(
            HiddenStates::in_file(5, 3, &gone, 60)
                .unwrap_err()
                .to_string()
                .contains("no")
        );
    }
}

//! A copy of a file under a new head.

use std::fs::File;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::Plan;
use super::in_place::{lock, real_path};
use crate::atomic::AtomicFile;
use crate::{Error, Result, copy, source};

impl Plan {
    /// Writes a copy with the new head to another file. The data section is copied as it stands; the copy is read
    /// again and its data compared with the original's by SHA-256 before it gets its name. `on` hears of the
    /// bytes as they are written and read again, in all twice [`Plan::copy_bytes`]; an error of its own ends the work.
    /// `inputs` are further files that were read and must stay.
    ///
    /// # Errors
    /// An output that exists (unless `force`) or is the file itself or one of `inputs`, too little space, a file that
    /// changed since the plan was made.
    pub fn copy_to(
        &self,
        out: &Path,
        force: bool,
        inputs: &[&Path],
        on: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let file = File::open(&self.path).map_err(|source| Error::Io {
            action: "open",
            path: self.path.clone(),
            source,
        })?;
        self.check_unchanged(&file)?;
        let inputs = [&[self.path.as_path()], inputs].concat();
        self.write_copy(out, force, &inputs, on)
    }

    /// As [`Plan::copy_to`], but the copy takes the place of the file, with its permissions.
    ///
    /// # Errors
    /// Also an edit by another program that is at work.
    pub fn replace(&self, on: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        let path = real_path(&self.path)?;
        let file = lock(&path)?;
        self.check_unchanged(&file)?;
        self.write_copy(&path, true, &[], on)
    }

    fn write_copy(
        &self,
        path: &Path,
        force: bool,
        inputs: &[&Path],
        on: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let mut out = AtomicFile::create(path, force, inputs, Some(self.copy_bytes()))?;
        if inputs.is_empty() {
            let meta = self.path.metadata().map_err(|source| Error::Io {
                action: "open",
                path: self.path.clone(),
                source,
            })?;
            out.set_permissions(meta.permissions())?;
        }
        copy::put(&mut out, &self.copied)?;
        on(self.copied.len() as u64)?;
        let data = source::open(&self.path)?;
        let mut hash = Sha256::new();
        copy::pieces(&*data, self.old.len() as u64..self.n_bytes, |bytes| {
            hash.update(bytes);
            copy::put(&mut out, bytes)?;
            on(bytes.len() as u64)
        })?;
        let expected: [u8; 32] = hash.finalize().into();
        let complete = out.complete()?;
        let written = source::open(complete.part())?;
        let mut hash = Sha256::new();
        on(self.copied.len() as u64)?;
        copy::pieces(&*written, self.copied.len() as u64..self.copy_bytes(), |bytes| {
            hash.update(bytes);
            on(bytes.len() as u64)
        })?;
        if hash.finalize().as_slice() != expected {
            let what = format!(
                "cannot write `{}`: the data read again is not what was written; check the disk",
                path.display()
            );
            return Err(Error::Output(what.into()));
        }
        complete.publish()
    }
}

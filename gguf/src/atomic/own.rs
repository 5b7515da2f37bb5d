//! Files under names that the programs make up themselves: what else has such a name is not read, written or waited
//! for.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// A symbolic link is not followed, and a pipe does not wait for its other end.
pub(super) const FLAGS: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();

/// Opens a file with a fixed name that a run writes beside its output, or makes it, as it stands: what has the name
/// must be a regular file with no other name, or its bytes would be somebody else's.
///
/// # Errors
/// Of the system; something else under the name.
pub fn open_own(path: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false);
    open(path, &options, is_own, "a regular file with no other name")
}

/// Opens such a file to read it.
///
/// # Errors
/// Of the system; something else than a regular file.
pub(crate) fn read_own(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    open(path, options.read(true), Metadata::is_file, "a regular file")
}

fn open(
    path: &Path,
    options: &OpenOptions,
    is_expected: impl Fn(&Metadata) -> bool,
    expected: &str,
) -> io::Result<File> {
    let in_the_way = || {
        let what = format!(
            "`{}` is in the way: expected {expected}; remove it",
            path.display()
        );
        io::Error::other(what)
    };
    match options.clone().custom_flags(FLAGS).open(path) {
        Ok(file) if is_expected(&file.metadata()?) => Ok(file),
        Ok(_) => Err(in_the_way()),
        // Links and sockets are refused with words that say little.
        Err(_) if path.symlink_metadata().is_ok_and(|m| !m.is_file()) => Err(in_the_way()),
        Err(e) => Err(e),
    }
}

/// Whether a file is a regular one with no other name.
pub(super) fn is_own(meta: &Metadata) -> bool {
    meta.is_file() && meta.nlink() <= 1
}

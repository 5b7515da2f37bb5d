//! Texts that models read.

use std::path::Path;

use crate::{Failure, Result, human_bytes};

/// The largest text: it is in memory as a whole, and again as tokens.
const MAX_BYTES: u64 = 1 << 30;

/// A whole text file: a regular file of at most 1 GiB, which must be UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let source = gguf::source::open(path)?;
    let n_bytes = source.len();
    if n_bytes > MAX_BYTES {
        return Err(Failure::Input(format!(
            "`{}`: expected a text of at most {}, found {}; cut it",
            path.display(),
            human_bytes(MAX_BYTES),
            human_bytes(n_bytes)
        )));
    }
    let mut bytes = vec![0; n_bytes as usize];
    source.read_at(0, &mut bytes)?;
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Failure::Input(format!(
            "`{}` at byte {at}: expected UTF-8 text, found other bytes",
            path.display()
        ))
    })
}

/// Bytes of memory that texts take, as they are and as tokens; none for those that are no files.
pub fn text_memory(files: &[impl AsRef<Path>]) -> u64 {
    let len = |file: &Path| std::fs::metadata(file).map_or(0, |m| m.len());
    let n_bytes = files.iter().map(|f| len(f.as_ref())).fold(0, u64::saturating_add);
    n_bytes.saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{MAX_BYTES, read_text, text_memory};
    use crate::Failure;

    #[test]
    fn only_regular_files_are_read() {
        for path in ["/dev/zero", "/dev/null", "/", "/absent"] {
            let failure = read_text(Path::new(path)).expect_err(path);
            assert!(
                matches!(&failure, Failure::Usage(text) if text.contains(path)),
                "{failure}"
            );
        }
    }

    #[test]
    fn a_text_has_a_largest_size() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        // Sparse: takes no room on the disk.
        file.as_file().set_len(MAX_BYTES + 1).expect("a long file");
        let text = read_text(file.path()).expect_err("too long").to_string();
        assert!(text.contains("at most 1.00 GiB"), "{text}");
        file.as_file().set_len(3).expect("a short file");
        assert_eq!(read_text(file.path()).expect("three bytes"), "\0\0\0");
        assert_eq!(text_memory(&[file.path(), Path::new("-")]), 6);
    }
}

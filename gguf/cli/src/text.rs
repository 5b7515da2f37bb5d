//! Texts that models read.

use std::path::Path;

use crate::{Failure, Result};

/// A whole text file, which must be UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|source| gguf::Error::Io {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Failure::Input(format!(
            "`{}` at byte {at}: expected UTF-8 text, found other bytes",
            path.display()
        ))
    })
}

//! A checkpoint as an opened model.

use std::path::Path;
use std::sync::Arc;

use gguf::GgufFile;

use crate::Result;
use crate::plan::{Options, Plan};
use crate::virtual_file::VirtualFile;

/// A checkpoint opened as the GGUF file that it would be converted to: nothing is written, and every byte is computed
/// when it is read. Its path is that of the checkpoint's folder.
#[derive(Debug)]
pub struct Checkpoint {
    /// The model.
    pub file: GgufFile,
    /// How it was made.
    pub plan: Arc<Plan>,
}

/// Opens a checkpoint as a GGUF file. What programs do with files on disk they can do with it: encode, split, compare,
/// run. Reads of weights that are not finite or that the type cannot hold fail with [`gguf::Error::Computed`].
///
/// # Errors
/// Everything that would make the file incomplete, wrong or unreadable.
pub fn open_checkpoint(dir: &Path, options: &Options) -> Result<Checkpoint> {
    Checkpoint::new(Plan::new(dir, options)?)
}

impl Checkpoint {
    /// From a plan.
    ///
    /// # Errors
    /// A head that no reader takes.
    pub fn new(plan: Plan) -> Result<Self> {
        let plan = Arc::new(plan);
        let file = GgufFile::from_source(Arc::new(VirtualFile::new(plan.clone())))?;
        Ok(Self { file, plan })
    }
}

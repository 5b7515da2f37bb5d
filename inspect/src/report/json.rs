//! Reports for programs.

use gguf::GgufFile;
use serde::Serialize;

use crate::facts::{self, Header, Pair, Tensor, Totals};
use crate::plan::Sections;

#[derive(Serialize)]
pub(crate) struct Show<'a> {
    #[serde(flatten)]
    header: Option<Header>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Vec<Pair<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensors: Option<Vec<Tensor<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<Totals>,
}

/// The sections of a file.
pub(crate) fn show(file: &GgufFile, sections: Sections) -> Show<'_> {
    Show {
        header: sections.summary.then(|| Header::of(file)),
        metadata: sections.metadata.then(|| facts::pairs(&file.metadata)),
        tensors: sections.tensors.then(|| facts::tensors(file)),
        totals: sections.summary.then(|| Totals::of(file)),
    }
}

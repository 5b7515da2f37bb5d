//! The metadata of the output.

use gguf::Metadata;

use crate::guide::Guide;
use crate::job::{Job, Kind, Target};
use crate::request::Request;
use crate::source;

/// The version of the block formats, in `general.quantization_version`.
const QUANTIZATION_VERSION: u32 = 2;

/// Longest string, in bytes, that readers of these keys take.
const MAX_TEXT: usize = 127;

/// Begin of the keys that say how a file was quantized.
const PROVENANCE: &str = "quantize.";

/// The source's pairs in order, then what quantizing adds, then room for edits. Shard keys go, since the output's are
/// its own, and so do the source's room and what it says of how it was quantized itself, unless its tensors are
/// copied. Of a plain target the pairs are all there is. Only base names are written, so that no private folder gets out. Without a file type the source's stays.
/// The digest of the source is known at the end only; something of its size stands for it.
pub(crate) fn of_output(
    source: &Metadata,
    job: &Job<'_>,
    request: &Request,
    target: &Target,
    guide: Option<&Guide>,
) -> Metadata {
    let is_copy = target.file_type().is_none();
    let stays = |key: &str| !key.starts_with("split.") && (is_copy || !key.starts_with(PROVENANCE));
    let mut out: Metadata = source
        .iter()
        .filter(|(key, _)| stays(key))
        .map(|(k, v)| (k, v.clone()))
        .collect();
    if matches!(target.kind, Kind::Plain) {
        request.reserve.add_to(&mut out);
        return out;
    }
    out.set(gguf::key::QUANTIZATION_VERSION, QUANTIZATION_VERSION.into());
    match (target.file_type(), out.get(gguf::key::FILE_TYPE).cloned()) {
        (Some(t), _) => out.set(gguf::key::FILE_TYPE, t.id.into()),
        (None, Some(kept)) => out.set(gguf::key::FILE_TYPE, kept),
        (None, None) => {}
    }
    for (key, value) in &request.pairs {
        out.set(key, value.clone());
    }
    if let Some(g) = guide {
        out.set("quantize.imatrix.file", shorten(&g.file).into());
        if let Some(dataset) = g.dataset() {
            out.set("quantize.imatrix.dataset", shorten(dataset).into());
        }
        out.set(
            "quantize.imatrix.entries_count",
            u32::try_from(g.n_entries()).unwrap_or(u32::MAX).into(),
        );
        if g.chunk_count() > 0 {
            out.set("quantize.imatrix.chunks_count", g.chunk_count().into());
        }
        out.set("quantize.imatrix.sha256", g.digest.to_string().into());
    }
    let version = concat!("gguf-quantize ", env!("CARGO_PKG_VERSION"));
    out.set("quantize.version", version.into());
    out.set("quantize.recipe", request.recipe(target).into());
    out.set("quantize.source.file", shorten(&job.source_name).into());
    if request.hashes_source {
        out.set(source::SHA256, source::placeholder(job.file));
    } else {
        out.remove(source::SHA256);
    }
    request.reserve.add_to(&mut out);
    out
}

/// The first bytes of a text that make whole characters.
fn shorten(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_end_at_a_character() {
        let name = "ä".repeat(100);
        assert_eq!(shorten(&name).len(), 126);
        assert_eq!(shorten("short"), "short");
    }
}

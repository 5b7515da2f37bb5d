//! The metadata of the output.

use gguf::Metadata;
use gguf_cli::ReserveArgs;
use gguf_models::file_type::FileType;

use crate::guide::Guide;

/// The version of the block formats, in `general.quantization_version`.
const QUANTIZATION_VERSION: u32 = 2;

/// Longest string, in bytes, that readers of these keys take.
const MAX_TEXT: usize = 127;

/// The source's pairs in order, then what quantizing adds, then room for edits. Shard keys go, since the output is
/// one file, and so does the source's room. Only base names are written, so that no private folder gets out.
/// Without a file type the source's stays.
pub(crate) fn of_output(
    source: &Metadata,
    file_type: Option<&FileType>,
    guide: Option<&Guide>,
    reserve: ReserveArgs,
) -> Metadata {
    let mut out: Metadata = source
        .iter()
        .filter(|(key, _)| !key.starts_with("split."))
        .map(|(k, v)| (k, v.clone()))
        .collect();
    out.set(gguf::key::QUANTIZATION_VERSION, QUANTIZATION_VERSION.into());
    match (file_type, out.get(gguf::key::FILE_TYPE).cloned()) {
        (Some(t), _) => out.set(gguf::key::FILE_TYPE, t.id.into()),
        (None, Some(kept)) => out.set(gguf::key::FILE_TYPE, kept),
        (None, None) => {}
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
    }
    reserve.add_to(&mut out);
    out
}

/// The first bytes of a text that make whole characters.
fn shorten(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use gguf::Value;
    use gguf_models::file_type;

    #[test]
    fn keys_move_to_the_end_and_shard_keys_go() {
        let mut source = Metadata::new();
        for (key, value) in [
            ("general.file_type", 32_u32),
            ("split.count", 1),
            (gguf::key::PAD, 0),
            ("llama.block_count", 2),
        ] {
            source.set(key, value.into());
        }
        let none = ReserveArgs::default();
        let out = of_output(&source, file_type::by_name("Q8_0"), None, none);
        let keys: Vec<_> = out.iter().map(|(k, _)| k).collect();
        assert_eq!(
            keys,
            [
                "llama.block_count",
                "general.quantization_version",
                "general.file_type"
            ]
        );
        assert_eq!(out.get("general.file_type"), Some(&Value::U32(7)));
        assert_eq!(
            of_output(&source, None, None, none).get("general.file_type"),
            Some(&Value::U32(32))
        );
    }

    #[test]
    fn room_is_the_last_key() {
        let source: Metadata = [(gguf::key::PAD, Value::from(vec![0_u8; 5]))]
            .into_iter()
            .collect();
        let room = ReserveArgs {
            reserve_metadata: Some(7),
        };
        let out = of_output(&source, file_type::by_name("Q8_0"), None, room);
        assert_eq!(
            out.iter().last(),
            Some((gguf::key::PAD, &Value::from(vec![0_u8; 7])))
        );
    }

    #[test]
    fn long_names_end_at_a_character() {
        let name = "ä".repeat(100);
        assert_eq!(shorten(&name).len(), 126);
        assert_eq!(shorten("short"), "short");
    }
}

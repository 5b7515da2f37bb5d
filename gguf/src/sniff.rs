//! Names what a file is that is no GGUF file: the usual mix-ups, each with what to do about it.

/// Bytes at the front that [`describe`] wants to see (fewer if the file is shorter).
pub(crate) const SNIFF_BYTES: usize = 512;

/// Signatures of other formats: leading bytes, what the file is, what to do.
const SIGNATURES: &[(&[u8], &str, &str)] = &[
    (
        b"version https://git-lfs",
        "a Git LFS pointer, not the model itself",
        "fetch the data with `git lfs pull` or download it again",
    ),
    (
        b"lmgg",
        "a GGML file from before GGUF",
        "convert the original model again",
    ),
    (
        b"fmgg",
        "a GGMF file from before GGUF",
        "convert the original model again",
    ),
    (
        b"tjgg",
        "a GGJT file from before GGUF",
        "convert the original model again",
    ),
    (
        b"algg",
        "a GGLA adapter from before GGUF",
        "convert the original adapter again",
    ),
    (
        b"PK\x03\x04",
        "a ZIP archive (a PyTorch checkpoint or a packed model)",
        "unpack or convert it first",
    ),
    (
        b"\x80\x02",
        "a pickled PyTorch checkpoint",
        "convert the model first",
    ),
    (b"\x1f\x8b", "gzip-compressed", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "unpack it first"),
    (
        b"\x00\x00\x00\x00",
        "filled with zero bytes at its start",
        "the download did not finish: repeat it",
    ),
];

/// Says what a file of `len` bytes is that starts with `head` and not with `GGUF`.
pub(crate) fn describe(head: &[u8], len: u64) -> String {
    if len == 0 {
        return "the file is empty (0 bytes): download it again".to_owned();
    }
    if len < 4 && b"GGUF".starts_with(head) {
        return format!("the file ends inside the magic bytes: expected 24 bytes or more, found {len}");
    }
    if let Some((_, what, remedy)) = SIGNATURES.iter().find(|(magic, _, _)| head.starts_with(magic)) {
        return format!("not a GGUF file but {what}: {remedy}");
    }
    if is_html(head) {
        return "not a GGUF file but a web page (HTML): the link led to a page about the file, use its download \
                link"
            .to_owned();
    }
    if is_safetensors(head, len) {
        return "not a GGUF file but a safetensors file: convert the model with `gguf-convert`".to_owned();
    }
    let magic = head.get(..4).unwrap_or(head);
    format!(
        "not a GGUF file: expected the bytes `GGUF` at the start, found `{}`",
        magic.escape_ascii()
    )
}

fn is_html(head: &[u8]) -> bool {
    let head = head.trim_ascii_start().to_ascii_lowercase();
    head.starts_with(b"<!doctype html") || head.starts_with(b"<html")
}

/// A safetensors file starts with the length of its JSON header, then the header.
fn is_safetensors(head: &[u8], len: u64) -> bool {
    let Some((n, json)) = head.split_first_chunk::<8>() else {
        return false;
    };
    u64::from_le_bytes(*n) <= len - 8 && json.starts_with(b"{")
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn each_mix_up_has_its_own_words() {
        let safetensors = [&60_u64.to_le_bytes()[..], b"{\"a\":{}}"].concat();
        let cases: &[(&[u8], &str)] = &[
            (b"", "empty"),
            (b"GG", "ends inside the magic"),
            (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
            (b"  <!DOCTYPE html><html>", "web page"),
            (b"tjgg\x03\0\0\0", "GGJT"),
            (&safetensors, "gguf-convert"),
            (b"PK\x03\x04aaaa", "ZIP"),
            (b"\0\0\0\0\0\0", "did not finish"),
            (b"vers", "found `vers`"),
            (b"\xffx", "found `\\xffx`"),
        ];
        for (head, words) in cases {
            let len = if head.starts_with(&60_u64.to_le_bytes()) {
                100
            } else {
                head.len() as u64
            };
            let text = describe(head, len);
            assert!(text.contains(words), "{text}");
        }
    }
}

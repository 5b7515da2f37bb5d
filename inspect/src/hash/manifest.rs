//! The manifest: a text that a person can read and `sha256sum -c` can check.
//!
//! ```text
//! # gguf-inspect hash, format 1: `sha256sum -c` checks the files, `gguf-inspect hash --verify` all of it
//! SHA256  model-00001-of-00002.gguf
//! SHA256  model-00002-of-00002.gguf
//! # metadata SHA256  u32  qwen3moe.block_count
//! # tensor SHA256  Q4_K  [256, 512]  blk.0.attn_q.weight
//! ```
//!
//! Names have the escapes of `sha256sum`, and `\u{1b}` for what acts on a terminal, which that program does not know.
//! Lines of files are those of `sha256sum`, with base names only; everything else stands behind `#`, which it passes
//! over. Fields are apart by two spaces and the name comes last. A tensor's digest is that of its bytes alone, a
//! metadata value's that of its bytes in a little-endian file, type number first; the keys of a split are left out. So
//! both stay the same when a model is split, merged or put in another order. A text may have several manifests, one
//! behind the other: each begins with the first line.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;

use gguf::digest::Digest;
use gguf::{GgufFile, key};
use gguf_cli::{Failure, Result, printable};
use serde::Serialize;

use super::digest::{Digests, as_text};

/// Number of the form; a later one may change the lines.
const FORMAT: u32 = 1;

/// How the first line of a manifest begins, up to the number.
const HEADER: &str = "# gguf-inspect hash, format ";

#[derive(Debug, Serialize)]
pub(super) struct Manifest {
    format: u32,
    pub(super) files: Vec<FileLine>,
    pub(super) metadata: Vec<PairLine>,
    pub(super) tensors: Vec<TensorLine>,
}

#[derive(Debug, Serialize)]
pub(super) struct FileLine {
    /// Base name.
    pub(super) name: String,
    #[serde(serialize_with = "as_text")]
    pub(super) sha256: Digest,
}

#[derive(Debug, Serialize)]
pub(super) struct PairLine {
    pub(super) key: String,
    #[serde(rename = "type")]
    pub(super) type_name: String,
    #[serde(serialize_with = "as_text")]
    pub(super) sha256: Digest,
}

#[derive(Debug, Serialize)]
pub(super) struct TensorLine {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) type_name: String,
    /// Row length first, as text: `[256, 512]`.
    pub(super) shape: String,
    #[serde(serialize_with = "as_text")]
    pub(super) sha256: Digest,
}

impl Default for Manifest {
    fn default() -> Self {
        Self {
            format: FORMAT,
            files: Vec::new(),
            metadata: Vec::new(),
            tensors: Vec::new(),
        }
    }
}

/// The base name of a path.
pub(super) fn base_name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

impl Manifest {
    /// The manifest of a model; tensors without a digest are left out.
    pub(super) fn of(file: &GgufFile, digests: &Digests) -> Self {
        let files = file.parts().iter().zip(digests.files.iter().flatten());
        let files = files.map(|(part, &sha256)| FileLine {
            name: base_name(part.path()).into_owned(),
            sha256,
        });
        let pairs = file.metadata.iter().filter(|(k, _)| !key::SPLIT.contains(k));
        let metadata = pairs.map(|(key, value)| PairLine {
            key: key.to_owned(),
            type_name: value.type_name(),
            sha256: Digest::of(&value.to_bytes()),
        });
        let tensors = file.tensors.iter().zip(&digests.tensors).filter_map(|(t, d)| {
            Some(TensorLine {
                name: t.name.clone(),
                type_name: t.type_name(),
                shape: t.shape.to_string(),
                sha256: (*d)?,
            })
        });
        Self {
            format: FORMAT,
            files: files.collect(),
            metadata: metadata.collect(),
            tensors: tensors.collect(),
        }
    }

    pub(super) fn write(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let files = if self.files.is_empty() {
            ""
        } else {
            "`sha256sum -c` checks the files, "
        };
        writeln!(
            out,
            "{HEADER}{FORMAT}: {files}`gguf-inspect hash --verify` all of it"
        )?;
        for f in &self.files {
            let name = escape(&f.name);
            // sha256sum marks a line with escapes by a backslash in front.
            let mark = if name == f.name { "" } else { "\\" };
            writeln!(out, "{mark}{}  {name}", f.sha256)?;
        }
        for p in &self.metadata {
            writeln!(
                out,
                "# metadata {}  {}  {}",
                p.sha256,
                p.type_name,
                escape(&p.key)
            )?;
        }
        for t in &self.tensors {
            let name = escape(&t.name);
            writeln!(out, "# tensor {}  {}  {}  {name}", t.sha256, t.type_name, t.shape)?;
        }
        Ok(())
    }

    /// Reads a manifest, or a list of files as `sha256sum` writes it. Of several manifests, the one that lists a file of
    /// the model.
    pub(super) fn of_model(file: &GgufFile, text: &str, path: &Path) -> Result<Self> {
        let mut manifests = Self::parse(text, path)?;
        let n = manifests.len();
        if n > 1 {
            let names: HashSet<_> = file.parts().iter().map(|p| base_name(p.path())).collect();
            manifests.retain(|m| m.files.iter().any(|f| names.contains(f.name.as_str())));
        }
        if manifests.len() != 1 {
            let (path, model) = (path.display(), file.path().display());
            return Err(Failure::Input(format!(
                "`{path}` has {n} manifests: expected one that lists `{model}`, found {}; give that of the model alone",
                manifests.len()
            )));
        }
        Ok(manifests.remove(0))
    }

    /// Reads manifests that stand one behind the other; at least one, none empty. A list of files in front of the first
    /// is a part of that.
    fn parse(text: &str, path: &Path) -> Result<Vec<Self>> {
        let mut manifests = Vec::new();
        let (mut current, mut has_header) = (Self::default(), false);
        for (i, line) in text.lines().enumerate() {
            if line.starts_with(HEADER) {
                if has_header {
                    manifests.push(std::mem::take(&mut current));
                }
                has_header = true;
            }
            if current.add(line).is_none() {
                return Err(Failure::Input(format!(
                    "`{}` line {}: expected a line that `gguf-inspect hash` or `sha256sum` wrote, found {:?}",
                    path.display(),
                    i + 1,
                    line.chars().take(80).collect::<String>()
                )));
            }
        }
        manifests.push(current);
        manifests.retain(|m| !m.is_empty());
        if manifests.is_empty() {
            let path = path.display();
            return Err(Failure::Input(format!(
                "`{path}` has no digests: expected a manifest"
            )));
        }
        Ok(manifests)
    }

    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.metadata.is_empty() && self.tensors.is_empty()
    }

    /// Takes a line; `None` if it is of no known form.
    fn add(&mut self, line: &str) -> Option<()> {
        if let Some(rest) = line.strip_prefix("# metadata ") {
            let mut fields = rest.splitn(3, "  ");
            let (sha256, type_name, key) = (fields.next()?, fields.next()?, fields.next()?);
            self.metadata.push(PairLine {
                key: unescape(key)?,
                type_name: type_name.to_owned(),
                sha256: Digest::parse(sha256)?,
            });
        } else if let Some(rest) = line.strip_prefix("# tensor ") {
            let mut fields = rest.splitn(4, "  ");
            let (sha256, type_name, shape) = (fields.next()?, fields.next()?, fields.next()?);
            self.tensors.push(TensorLine {
                name: unescape(fields.next()?)?,
                type_name: type_name.to_owned(),
                shape: shape.to_owned(),
                sha256: Digest::parse(sha256)?,
            });
        } else if let Some(rest) = line.strip_prefix(HEADER) {
            let number = rest.split(':').next()?.parse::<u32>().ok()?;
            (number == FORMAT).then_some(())?;
        } else if !line.is_empty() && !line.starts_with('#') {
            let escaped = line.strip_prefix('\\');
            let line = escaped.unwrap_or(line);
            let (sha, name) = (line.get(..64)?, line.get(64..)?);
            // A star stands for sha256sum's binary mode.
            let name = name.strip_prefix("  ").or_else(|| name.strip_prefix(" *"))?;
            let name = match escaped {
                Some(_) => unescape(name)?,
                None => name.to_owned(),
            };
            self.files.push(FileLine {
                name: base_name(Path::new(&name)).into_owned(),
                sha256: Digest::parse(sha)?,
            });
        }
        Some(())
    }
}

/// A name on one line, with the escapes of `sha256sum` and of [`printable`].
fn escape(name: &str) -> Cow<'_, str> {
    if !name.contains('\\') {
        return printable(name);
    }
    printable(&name.replace('\\', "\\\\")).into_owned().into()
}

/// The name that was escaped; `None` if it has another escape.
fn unescape(name: &str) -> Option<String> {
    let mut out = String::with_capacity(name.len());
    let mut chars = name.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next()? {
                '\\' => '\\',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => {
                    let (number, rest) = chars.as_str().strip_prefix('{')?.split_once('}')?;
                    chars = rest.chars();
                    char::from_u32(u32::from_str_radix(number, 16).ok()?)?
                }
                _ => return None,
            },
            c => c,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gguf::digest::Digest;

    use gguf_cli::printable;

    use super::{FORMAT, FileLine, Manifest, PairLine, TensorLine};

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let sha = |text: &str| Digest::of(text.as_bytes());
        let name = "a  strange\\name\nwith\rlines\t\u{1b}[2J\\u{1b}\u{202e}".to_owned();
        let manifest = Manifest {
            format: FORMAT,
            files: vec![FileLine {
                name: name.clone(),
                sha256: sha("file"),
            }],
            metadata: vec![PairLine {
                key: name.clone(),
                type_name: "array of string".to_owned(),
                sha256: sha("pair"),
            }],
            tensors: vec![TensorLine {
                name,
                type_name: "type 4242".to_owned(),
                shape: "[256, 2]".to_owned(),
                sha256: sha("tensor"),
            }],
        };
        let mut text = Vec::new();
        manifest.write(&mut text).expect("memory");
        let text = String::from_utf8(text).expect("UTF-8");
        assert_eq!(printable(&text.replace('\n', "")), text.replace('\n', ""));
        let back = |text: &str| {
            let manifests = Manifest::parse(text, Path::new("m")).expect("manifests");
            format!("{manifests:?}")
        };
        let (one, two) = (format!("[{manifest:?}]"), format!("[{manifest:?}, {manifest:?}]"));
        assert_eq!(back(&text), one);
        assert_eq!(back(&text.repeat(2)), two);
        let header = text.lines().next().expect("a line").to_owned() + "\n";
        assert_eq!(back(&[&*header, &text, &header].concat()), one);
        // What `sha256sum` wrote, in front or behind.
        let list = text.lines().nth(1).expect("a file").to_owned() + "\n";
        for parts in [[&*list, &text], [&*text, &list]] {
            let both = Manifest::parse(&parts.concat(), Path::new("m")).expect("manifests");
            let sizes = both
                .iter()
                .map(|m| (m.files.len(), m.metadata.len(), m.tensors.len()));
            assert_eq!(sizes.collect::<Vec<_>>(), [(2, 1, 1)]);
        }
    }

    #[test]
    fn other_texts_are_refused_with_their_line() {
        let sha = "0".repeat(64);
        for bad in [
            "hello",
            "# tensor 00  F32  [1]  a",
            &format!("# tensor {sha}  F32  a"),
            &format!("{sha} a"),
            &format!("ß{sha}  a"),
            &format!("# metadata {sha}  u8  \\u{{110000}}"),
            &format!("# metadata {sha}  u8  \\u1b"),
            "# gguf-inspect hash, format 2: new",
            "",
        ] {
            let text = format!("# a comment\n{bad}");
            let e = Manifest::parse(&text, Path::new("m")).expect_err(bad).to_string();
            assert!(bad.is_empty() || e.contains("line 2"), "{e}");
        }
        let listed = Manifest::parse(&format!("{sha} *folder/m.gguf\n"), Path::new("m")).expect("a list");
        assert_eq!(listed[0].files[0].name, "m.gguf");
    }
}

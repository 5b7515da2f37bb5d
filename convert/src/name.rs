//! The model's name, its size label and the name of its file.

use std::path::Path;

use gguf::Shape;

use crate::Result;
use crate::error::Error;

/// A name from the folder's: words in capitals, dashes as blanks. Only the last part of the path goes into it;
/// `None` if that says nothing.
pub(crate) fn from_folder(dir: &Path) -> Option<String> {
    let dir = dir.canonicalize().ok()?;
    let base = hub_name(&dir).or_else(|| dir.file_name()?.to_str())?;
    let words: Vec<_> = base
        .split(|c: char| c == '-' || c.is_whitespace())
        .filter(|w| !w.is_empty())
        .collect();
    let title = words.into_iter().map(title_word).collect::<Vec<_>>().join(" ");
    (!title.is_empty()).then_some(title)
}

/// The model's name in the hub's cache, `models--ORG--NAME/snapshots/COMMIT`, where the folder's own name is a
/// number.
fn hub_name(dir: &Path) -> Option<&str> {
    let snapshots = dir
        .parent()
        .filter(|p| p.file_name().is_some_and(|n| n == "snapshots"))?;
    snapshots
        .parent()?
        .file_name()?
        .to_str()?
        .strip_prefix("models--")?
        .rsplit("--")
        .next()
}

/// Words in lower case get capitals: the first letter, and each behind something that is no letter. Versions
/// (`v2.5`) stay as they are.
fn title_word(word: &str) -> String {
    let is_version = word.strip_prefix('v').is_some_and(|v| {
        v.starts_with(|c: char| c.is_ascii_digit()) && v.chars().all(|c| c.is_ascii_digit() || c == '.')
    });
    let has_upper = word.chars().any(char::is_uppercase);
    if is_version || has_upper {
        return word.to_owned();
    }
    let mut out = String::new();
    let mut after_letter = false;
    for c in word.chars() {
        if after_letter {
            out.push(c);
        } else {
            out.extend(c.to_uppercase());
        }
        after_letter = c.is_alphabetic();
    }
    out
}

/// The size label: parameters of the whole model, or `8x1.6M` for experts: their number, and the parameters
/// of a model that had one.
pub(crate) fn size_label<'a>(tensors: impl Iterator<Item = (&'a str, Shape)>, n_expert: usize) -> String {
    let (mut shared, mut experts) = (0u64, 0u64);
    for (name, shape) in tensors {
        let sum = if name.contains("_exps.") {
            &mut experts
        } else {
            &mut shared
        };
        *sum = sum.saturating_add(shape.n_elems());
    }
    if n_expert > 0 {
        format!(
            "{n_expert}x{}",
            rounded(shared.saturating_add(experts / n_expert as u64))
        )
    } else {
        rounded(shared.saturating_add(experts))
    }
}

/// Two digits or, where the number has more, all of those in front of the point.
fn rounded(n_params: u64) -> String {
    let n = n_params as f64;
    let (scaled, suffix) = match n {
        n if n > 1e12 => (n * 1e-12, 'T'),
        n if n > 1e9 => (n * 1e-9, 'B'),
        n if n > 1e6 => (n * 1e-6, 'M'),
        n => (n * 1e-3, 'K'),
    };
    let digits = format!("{scaled:.0}").len();
    format!("{scaled:.*}{suffix}", 2usize.saturating_sub(digits))
}

/// What stands for a model's name where it has none.
const UNNAMED: &str = "ggml-model";

/// A name that was asked for: one that says something.
pub(crate) fn check(name: &str) -> Result<()> {
    if name.chars().any(char::is_alphanumeric) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Error::argument(
        "--model-name",
        "a name with a letter or digit and without control characters",
        name,
    ))
}

/// The default name of the output file.
pub(crate) fn file_name(model: Option<&str>, size_label: &str, file_type: &str) -> String {
    let base = model.unwrap_or(UNNAMED);
    let joined: String = base
        .chars()
        .map(|c| {
            if c.is_whitespace() || c == '/' || c.is_control() {
                '-'
            } else {
                c
            }
        })
        .collect();
    // A dot hides a file, and a dash in front makes options of it on command lines.
    let base = match joined.trim_start_matches(['.', '-']) {
        "" => UNNAMED,
        base => base,
    };
    format!("{base}-{size_label}-{file_type}.gguf")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_become_titles() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, title) in [
            ("qwen3moe", "Qwen3Moe"),
            ("deepseek-v2-lite", "Deepseek v2 Lite"),
            ("Qwen3-30B-A3B", "Qwen3 30B A3B"),
            ("ernie4.5-moe", "Ernie4.5 Moe"),
            ("models--org--some-model/snapshots/0123abcd", "Some Model"),
        ] {
            let dir = folder.path().join(name);
            std::fs::create_dir_all(&dir).expect("a folder");
            assert_eq!(from_folder(&dir).as_deref(), Some(title));
        }
        assert_eq!(from_folder(&folder.path().join("absent")), None);
    }

    #[test]
    fn sizes_have_two_digits() {
        for (n, label) in [
            (1_581_184, "1.6M"),
            (132_000, "132K"),
            (30_532_122_624, "31B"),
            (999_999_999, "1000M"),
            (1_000_000_001, "1.0B"),
            (0, "0.0K"),
        ] {
            assert_eq!(rounded(n), label);
        }
    }

    #[test]
    fn a_file_name_has_no_folders() {
        assert_eq!(
            file_name(Some("Big Model/1"), "8x7B", "BF16"),
            "Big-Model-1-8x7B-BF16.gguf"
        );
        assert_eq!(file_name(Some("../x"), "1K", "F32"), "x-1K-F32.gguf");
        assert_eq!(file_name(Some("--help"), "1K", "F32"), "help-1K-F32.gguf");
        for nothing in ["", ".", "/"] {
            assert_eq!(file_name(Some(nothing), "1K", "F32"), "ggml-model-1K-F32.gguf");
        }
        assert_eq!(file_name(None, "1K", "F16"), "ggml-model-1K-F16.gguf");
    }
}

//! Logits of given tokens, for comparing runtimes.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use gguf::atomic::AtomicFile;
use gguf_cli::{Failure, Progress, Result, Unit};
use serde::de::{Deserializer as _, SeqAccess, Visitor};
use serde_json::json;

use super::args::Args;
use super::start;
use crate::{Error, Logits, Session, Token};

/// Evaluates the ids of a file and writes the logits behind each of them.
pub(super) fn run(args: &Args, from: &Path, to: &Path) -> Result<()> {
    let text = gguf_cli::read_text(from)?;
    let in_file = |what: String| Failure::Input(format!("`{}`: {what}", from.display()));
    let ids = parse(&text).map_err(in_file)?;
    drop(text);
    let model = start::open(args)?;
    let n_vocab = model.spec().n_vocab;
    if let Some(i) = ids.iter().position(|&id| id as usize >= n_vocab) {
        let found = ids[i];
        return Err(in_file(format!(
            "element {i}: expected an id below the {n_vocab} of the vocabulary, found {found}"
        )));
    }
    let n_ctx = args.size.ctx_size.filter(|&n| n > 0).unwrap_or(ids.len());
    if ids.len() > n_ctx {
        return Err(in_file(format!(
            "{} ids are more than the {n_ctx} positions of the context; ask for a longer one with `-c`",
            ids.len()
        )));
    }
    start::warn_if_long(&model, n_ctx);
    let n_batch = args.size.batch_size;
    if n_batch == 0 {
        return Err(Failure::Usage("batch: expected at least 1 token, found 0".into()));
    }
    let mut session = Session::new(&model, start::settings(args, n_ctx))?;
    let shards = model.file().parts().iter().map(|p| p.path().to_owned());
    let inputs: Vec<PathBuf> = shards.chain(args.inputs()).collect();
    let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
    let head = head(&ids, n_vocab);
    let n_bytes = (head.len() + ids.len() * 8) as u64 + ids.len() as u64 * n_vocab as u64 * 4;
    let mut file = AtomicFile::create(to, args.output.force, &inputs, Some(n_bytes))?;
    let failed = |e| gguf::Error::from_write(e, to);
    file.write_all(&head).map_err(failed)?;
    for &id in &ids {
        file.write_all(&i64::from(id).to_le_bytes()).map_err(failed)?;
    }
    evaluate(args, &mut session, &ids, &mut file)?;
    file.commit()?;
    if !args.talk.quiet {
        let line = format!("wrote `{}`: logits [{}, {n_vocab}]", to.display(), ids.len());
        gguf_cli::say(&line);
    }
    Ok(())
}

/// Rows of logits go to the file as they are computed.
fn evaluate(args: &Args, session: &mut Session<'_>, ids: &[u32], file: &mut AtomicFile) -> Result<()> {
    let path = file.path().to_owned();
    let progress = Progress::new("tokens", ids.len() as u64, Unit::Tokens, args.talk.quiet);
    let mut bytes = Vec::new();
    for piece in ids.chunks(args.size.batch_size) {
        let start = session.n_past(0);
        let token = |(i, &id): (usize, &u32)| Token {
            id,
            seq: 0,
            pos: (start + i) as u32,
            logits: true,
        };
        let batch: Vec<Token> = piece.iter().enumerate().map(token).collect();
        let mut failure = None;
        let done = session.decode_with(&batch, None, &mut |rows| {
            let put = finite(start, rows).and_then(|()| {
                bytes.clear();
                bytes.extend(rows.rows.iter().flat_map(|l| l.to_le_bytes()));
                let put = file.write_all(&bytes);
                put.map_err(|e| gguf::Error::from_write(e, &path).into())
            });
            put.map_err(|e| {
                failure = Some(e);
                Error::Stopped
            })
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        done?;
        progress.add(piece.len() as u64);
    }
    progress.finish();
    Ok(())
}

/// Refuses rows with a logit that is no number. `start` is the position of the batch's first token.
fn finite(start: usize, l: Logits<'_>) -> Result<()> {
    let Some(i) = l.rows.iter().position(|v| !v.is_finite()) else {
        return Ok(());
    };
    let (row, token) = (i / l.n_vocab, i % l.n_vocab);
    Err(Failure::Input(format!(
        "position {}: {}",
        start + l.index[row],
        Error::Logit {
            token,
            value: l.rows[i],
        }
    )))
}

/// The front of the safetensors file: the length of the description and the description, padded so that the data
/// begins at a multiple of 8.
fn head(ids: &[u32], n_vocab: usize) -> Vec<u8> {
    let n_ids = ids.len() as u64 * 8;
    let end = n_ids + ids.len() as u64 * n_vocab as u64 * 4;
    let about = json!({
        "input_ids": { "dtype": "I64", "shape": [ids.len()], "data_offsets": [0, n_ids] },
        "logits": { "dtype": "F32", "shape": [ids.len(), n_vocab], "data_offsets": [n_ids, end] },
    });
    let mut about = about.to_string().into_bytes();
    about.resize(about.len().next_multiple_of(8), b' ');
    let mut out = (about.len() as u64).to_le_bytes().to_vec();
    out.extend(about);
    out
}

/// A JSON array of ids, at least one.
fn parse(text: &str) -> std::result::Result<Vec<u32>, String> {
    struct Ids;
    impl<'de> Visitor<'de> for Ids {
        type Value = Vec<u32>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a JSON array of token ids")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Vec<u32>, A::Error> {
            use serde::de::Error as _;
            let mut ids = Vec::new();
            let at = |i: usize, e: A::Error| A::Error::custom(format!("element {i}: {e}"));
            while let Some(id) = seq.next_element().map_err(|e| at(ids.len(), e))? {
                ids.push(id);
            }
            Ok(ids)
        }
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let ids = json.deserialize_seq(Ids).and_then(|ids| json.end().map(|()| ids));
    match ids {
        Ok(ids) if ids.is_empty() => Err("expected at least one id, found an empty array".into()),
        Ok(ids) => Ok(ids),
        Err(e) => Err(format!("expected a JSON array of token ids: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn only_arrays_of_ids_are_taken() {
        assert_eq!(parse(" [1, 0,\n 4294967295] "), Ok(vec![1, 0, u32::MAX]));
        for (text, words) in [
            ("[]", "at least one"),
            ("{}", "expected a JSON array of token ids"),
            ("7", "expected a JSON array of token ids"),
            ("", "EOF"),
            ("[1, -2]", "element 1: invalid value: integer `-2`"),
            ("[4294967296]", "element 0"),
            ("[1.5]", "element 0"),
            ("[[1]]", "element 0"),
            ("[1] 2", "trailing"),
            ("[1", "EOF"),
        ] {
            let e = parse(text).unwrap_err();
            assert!(e.contains(words), "{text}: {e}");
        }
    }
}

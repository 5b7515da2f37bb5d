//! Files with the state of a prompt.
//!
//! Little-endian: a magic number, the SHA-256 of the model, the settings that the state depends on (length u32
//! and text), the number of tokens u32 and the tokens as u32, the number of logits u32 and the logits behind the
//! last token as f32, the session's state, and the SHA-256 of all that. The model's digest is over its head
//! (metadata, names, shapes and types of tensors) and some bytes of each tensor: no path, and no reading of all
//! weights.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gguf::atomic::AtomicFile;
use gguf::source::{self, Source};
use gguf_cli::{Failure, Result};
use sha2::{Digest as _, Sha256};

use super::args::Args;
use super::engine::{Engine, SEQ};
use crate::{Error, Model, Settings};

const MAGIC: &[u8; 8] = b"GGUFpc\0\x01";
/// Bytes of a digest.
const DIGEST: u64 = 32;
/// Bytes of the text of settings, at most.
const MAX_SETTINGS: usize = 256;

/// The file of a run.
pub(super) struct Cache<'a> {
    path: &'a Path,
    model: [u8; 32],
    settings: String,
    /// Whether the file is to be replaced, whatever it holds.
    force: bool,
    /// Files that must not be written.
    inputs: Vec<PathBuf>,
    n_vocab: usize,
    /// The tokens whose state the file holds, once that is known.
    holds: Option<Vec<u32>>,
}

/// The front of a file.
struct Head {
    model: [u8; 32],
    settings: String,
    ids: Vec<u32>,
    logits: Vec<f32>,
}

impl<'a> Cache<'a> {
    pub(super) fn new(args: &'a Args, path: &'a Path, model: &Model, settings: &Settings) -> Result<Self> {
        let shards = model.file().parts().iter().map(|p| p.path().to_owned());
        let inputs: Vec<PathBuf> = shards.chain(args.inputs()).collect();
        if !args.cache.read_only {
            // Told before the prompt is evaluated.
            let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
            AtomicFile::check_all(&[(path.to_owned(), 0)], true, &inputs)?;
        }
        Ok(Self {
            path,
            model: model.fingerprint(settings.n_ctx)?,
            settings: text(settings),
            force: args.output.force && !args.cache.read_only,
            inputs,
            n_vocab: model.spec().n_vocab,
            holds: None,
        })
    }

    /// Brings the state of the file into an engine that holds nothing yet, if some of it is of use for the prompt.
    /// A file that is not there is none.
    ///
    /// # Errors
    /// A file that is no prompt cache, or of another model or other settings, unless it is to be replaced; a
    /// damaged one.
    pub(super) fn restore(&mut self, engine: &mut Engine<'_>, prompt: &[u32]) -> Result<()> {
        if self.holds.is_some() {
            return Ok(());
        }
        self.holds = Some(Vec::new());
        if std::fs::symlink_metadata(self.path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            return Ok(());
        }
        let source = source::open(self.path)?;
        let mut reader = Reader::new(source);
        let head = match self.head(&mut reader) {
            Err(_) if self.force => return Ok(()),
            head => head?,
        };
        if !self.fits(&head)? {
            return Ok(());
        }
        if head.ids.first() == prompt.first() {
            match self.load(&mut reader, &head, engine) {
                Err(_) if self.force => {
                    engine.session.truncate(SEQ, 0);
                    return Ok(());
                }
                loaded => loaded?,
            }
        }
        self.holds = Some(head.ids);
        Ok(())
    }

    fn head(&self, reader: &mut Reader) -> Result<Head> {
        let mut magic = [0; MAGIC.len()];
        if reader.read_exact(&mut magic).is_err() || magic != *MAGIC {
            return Err(self.failed("expected a prompt cache of this version, found another file; give another name, or `--force` to replace it"));
        }
        let mut read = || -> io::Result<Head> {
            let mut model = [0; 32];
            reader.read_exact(&mut model)?;
            let n = reader.count(1, MAX_SETTINGS)?;
            let mut settings = vec![0; n];
            reader.read_exact(&mut settings)?;
            let n = reader.count(4, i32::MAX as usize)?;
            let ids = reader.words(n)?;
            let n = reader.count(4, self.n_vocab)?;
            let logits = reader.words(n)?;
            Ok(Head {
                model,
                settings: String::from_utf8_lossy(&settings).into_owned(),
                ids,
                logits: logits.into_iter().map(f32::from_bits).collect(),
            })
        };
        read().map_err(|e| self.damaged(&e))
    }

    /// Whether a file is of this model and these settings; if not, it is to be replaced.
    fn fits(&self, head: &Head) -> Result<bool> {
        let wrong = if head.model != self.model {
            "it is of another model".to_owned()
        } else if head.settings != self.settings {
            format!(
                "expected the settings {}, found {}",
                self.settings,
                gguf_cli::printable(&head.settings)
            )
        } else {
            return Ok(true);
        };
        if self.force {
            return Ok(false);
        }
        Err(self.failed(&format!("{wrong}; give another name, or `--force` to replace it")))
    }

    fn load(&self, reader: &mut Reader, head: &Head, engine: &mut Engine<'_>) -> Result<()> {
        let (n, n_ctx) = (head.ids.len(), engine.n_ctx());
        if n > n_ctx {
            return Err(self.failed(&format!(
                "it holds {n} tokens, more than the {n_ctx} positions of the context; ask for `-c {n}` or more"
            )));
        }
        engine
            .session
            .load_state(SEQ, reader)
            .map_err(|e| self.damaged(&e))?;
        reader.finish().map_err(|e| self.damaged(&e))?;
        let held = engine.session.n_past(SEQ);
        if held != n {
            return Err(self.damaged(&format!("the state is of {held} tokens, its list has {n}")));
        }
        engine.ids.clone_from(&head.ids);
        engine.logits.clone_from(&head.logits);
        Ok(())
    }

    /// Writes the state of an engine, unless the file holds it already.
    pub(super) fn save(&mut self, engine: &Engine<'_>) -> Result<()> {
        let held = self.holds.as_deref().unwrap_or_default();
        if held.starts_with(&engine.ids) {
            return Ok(());
        }
        let inputs: Vec<&Path> = self.inputs.iter().map(PathBuf::as_path).collect();
        // What was there is a cache of this model and these settings, or was to be replaced.
        let file = AtomicFile::create_shared(self.path, &inputs)?;
        let mut writer = Writer {
            hash: Sha256::new(),
            file,
        };
        self.write(&mut writer, engine)?;
        writer.file.commit()?;
        self.holds = Some(engine.ids.clone());
        Ok(())
    }

    fn write(&self, out: &mut Writer, engine: &Engine<'_>) -> Result<()> {
        let mut front = Vec::new();
        let count = |front: &mut Vec<u8>, n: usize| front.extend_from_slice(&(n as u32).to_le_bytes());
        front.extend_from_slice(MAGIC);
        front.extend_from_slice(&self.model);
        count(&mut front, self.settings.len());
        front.extend_from_slice(self.settings.as_bytes());
        count(&mut front, engine.ids.len());
        front.extend(engine.ids.iter().flat_map(|id| id.to_le_bytes()));
        count(&mut front, engine.logits.len());
        front.extend(engine.logits.iter().flat_map(|l| l.to_le_bytes()));
        let failed = |e| Failure::from(gguf::Error::from_write(e, self.path));
        out.write_all(&front).map_err(failed)?;
        engine.session.save_state(SEQ, out).map_err(|e| match e {
            Error::StateIo(e) => failed(e),
            e => e.into(),
        })?;
        let digest = out.hash.clone().finalize();
        out.file.write_all(&digest).map_err(failed)
    }

    fn failed(&self, what: &str) -> Failure {
        Failure::Input(format!("`{}`: {what}", self.path.display()))
    }

    fn damaged(&self, what: &dyn std::fmt::Display) -> Failure {
        self.failed(&format!("the prompt cache is damaged: {what}; delete it"))
    }
}

/// What the numbers of a state depend on beside the model.
fn text(settings: &Settings) -> String {
    format!(
        "`-ctk {} -ctv {} --compute {}`",
        settings.type_k, settings.type_v, settings.compute
    )
}

/// Reads a file front to back up to its digest, and computes that.
struct Reader {
    source: Arc<dyn Source>,
    at: u64,
    end: u64,
    hash: Sha256,
}

impl Reader {
    fn new(source: Arc<dyn Source>) -> Self {
        Self {
            at: 0,
            end: source.len().saturating_sub(DIGEST),
            source,
            hash: Sha256::new(),
        }
    }

    /// A number of elements of `size` bytes, which are all there.
    fn count(&mut self, size: u64, max: usize) -> io::Result<usize> {
        let [n] = self.words(1)?[..] else {
            unreachable!("one word was asked for")
        };
        let left = self.end - self.at;
        if u64::from(n) * size > left || n as usize > max {
            let text = format!(
                "byte {}: expected at most {max} elements, {left} bytes are left, found {n}",
                self.at - 4
            );
            return Err(io::Error::other(text));
        }
        Ok(n as usize)
    }

    fn words(&mut self, n: usize) -> io::Result<Vec<u32>> {
        let mut bytes = vec![0; n * 4];
        self.read_exact(&mut bytes)?;
        let words = bytes.as_chunks().0.iter();
        Ok(words.map(|&b| u32::from_le_bytes(b)).collect())
    }

    /// Compares the digest; all must have been read.
    fn finish(&mut self) -> io::Result<()> {
        if self.at != self.end {
            let left = self.end - self.at;
            return Err(io::Error::other(format!(
                "{left} bytes are left behind the state"
            )));
        }
        let mut expected = [0; DIGEST as usize];
        let read = self.source.read_at(self.end, &mut expected);
        read.map_err(io::Error::other)?;
        if self.hash.clone().finalize()[..] == expected {
            Ok(())
        } else {
            Err(io::Error::other("its digest is not that of its bytes"))
        }
    }
}

impl Read for Reader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = (self.end - self.at).min(buf.len() as u64) as usize;
        let buf = &mut buf[..n];
        self.source.read_at(self.at, buf).map_err(io::Error::other)?;
        self.hash.update(&*buf);
        self.at += n as u64;
        Ok(n)
    }
}

/// Writes a file and computes its digest.
struct Writer {
    hash: Sha256,
    file: AtomicFile,
}

impl Write for Writer {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.file.write(buf)?;
        self.hash.update(&buf[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

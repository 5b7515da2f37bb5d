//! Fetching a repository's files into the local cache, in the layout that the hub's own programs read.
//!
//! A file comes in pieces by range requests, is appended to `blobs/DIGEST.incomplete`, and gets its name when its length
//! and, for those that the server knows it of, its SHA-256 are right. So a download that was stopped goes on where it
//! was, and nothing unsound has a name in the cache.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use gguf::atomic::{AtomicFile, open_own, refuse_link};
use gguf::digest::{self, Digest};
use gguf::listed;
use gguf_cli::{Progress, Unit, human_bytes};
use ureq::Agent;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, StatusCode, header};

use super::RepoId;
use super::cache::{self, Repository};
use crate::Result;
use crate::error::Error;

/// The hub, unless `HF_ENDPOINT` names another.
const ENDPOINT: &str = "https://huggingface.co";

/// Bytes of one request.
const PIECE: u64 = 32 << 20;

/// Bytes of the longest list of files that is read.
const MAX_LIST: u64 = 64 << 20;

/// Tries of a request that fails for a reason that may pass.
const TRIES: u32 = 4;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// For one piece, so that a server that sends nothing ends the run.
const CALL_TIMEOUT: Duration = Duration::from_mins(5);

/// How many names a message lists.
const N_SHOWN: usize = 3;

/// What the hub says of a revision.
#[derive(serde::Deserialize)]
struct Listing {
    sha: String,
    siblings: Vec<Sibling>,
}

/// A file of a revision.
#[derive(serde::Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob: Option<String>,
    lfs: Option<Lfs>,
}

/// A file that is stored by its digest.
#[derive(serde::Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

/// A file to fetch.
#[derive(Debug)]
struct Wanted {
    name: String,
    /// Its name among the blobs.
    blob: String,
    size: u64,
    sha256: Option<Digest>,
}

/// A download of one revision.
pub(super) struct Download<'a> {
    id: &'a RepoId,
    repository: &'a Repository,
    agent: Agent,
    endpoint: String,
    token: Option<String>,
}

impl<'a> Download<'a> {
    pub(super) fn new(id: &'a RepoId, repository: &'a Repository) -> Result<Self> {
        let endpoint = std::env::var("HF_ENDPOINT").unwrap_or_else(|_| ENDPOINT.to_owned());
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            return Err(Error::mismatch(
                "`HF_ENDPOINT`",
                "an address that begins with `https://`",
                endpoint,
            ));
        }
        let agent = Agent::config_builder()
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(CALL_TIMEOUT))
            .user_agent(concat!("gguf-convert/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .build()
            .into();
        Ok(Self {
            id,
            repository,
            agent,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: token(),
        })
    }

    /// Fetches what the cache lacks; returns the folder with the files.
    pub(super) fn run(&self, quiet: bool) -> Result<PathBuf> {
        let (commit, files) = self.listing()?;
        let blobs = self.repository.folder().join("blobs");
        let snapshot = self.repository.snapshot_folder(&commit);
        make_folder(&blobs)?;
        make_folder(&snapshot)?;
        let missing: Vec<&Wanted> = files.iter().filter(|f| !f.is_in(&blobs)).collect();
        check_room(&blobs, &missing)?;
        let total = missing.iter().map(|f| f.size).fold(0, u64::saturating_add);
        let progress = Progress::new("downloading", total, Unit::Bytes, quiet);
        for file in missing {
            self.fetch(&commit, file, &blobs, &progress)?;
        }
        progress.finish();
        for file in &files {
            file.link(&snapshot)?;
        }
        let reference = self.repository.reference(&self.id.revision);
        reference.parent().map_or(Ok(()), make_folder)?;
        refuse_link(&reference)?;
        let mut out = AtomicFile::create_shared(&reference, &[])?;
        out.write_all(commit.as_bytes())
            .map_err(|e| Error::io("write", &reference, e))?;
        out.commit()?;
        Ok(snapshot)
    }

    /// The commit, and those of its files that a conversion reads.
    fn listing(&self) -> Result<(String, Vec<Wanted>)> {
        let RepoId { org, name, revision } = self.id;
        let revision = revision.replace('/', "%2F");
        let url = format!(
            "{}/api/models/{org}/{name}/revision/{revision}?blobs=true",
            self.endpoint
        );
        let bytes = self.get(&url, None, MAX_LIST)?;
        let listing: Listing = serde_json::from_slice(&bytes)
            .map_err(|e| self.failed(&url, format!("the list of files is not as expected: {e}")))?;
        if !is_hex(&listing.sha) {
            return Err(self.failed(&url, "the commit is no hexadecimal number"));
        }
        let mut wanted = Vec::new();
        for file in listing.siblings {
            if is_wanted(&file.rfilename) {
                wanted.push(self.wanted(file)?);
            }
        }
        drop_second_copy(&mut wanted);
        if !wanted.iter().any(|f| is_weights(&f.name)) {
            return Err(self.failed(&url, "the repository has no safetensors"));
        }
        Ok((listing.sha, wanted))
    }

    fn wanted(&self, file: Sibling) -> Result<Wanted> {
        let Sibling {
            rfilename,
            size,
            blob,
            lfs,
        } = file;
        let unsound =
            |what: &str| self.failed(&rfilename, format!("the list of files gives no sound {what}"));
        let sha256 = match &lfs {
            Some(lfs) => Some(Digest::parse(&lfs.sha256).ok_or_else(|| unsound("SHA-256"))?),
            None => None,
        };
        let size = lfs
            .as_ref()
            .map(|l| l.size)
            .or(size)
            .ok_or_else(|| unsound("size"))?;
        let blob = lfs.map(|l| l.sha256).or(blob).filter(|b| is_hex(b));
        Ok(Wanted {
            blob: blob.ok_or_else(|| unsound("digest"))?,
            name: rfilename,
            size,
            sha256,
        })
    }

    #[expect(clippy::disallowed_methods, reason = "a blob gets its name when it is proved")]
    fn fetch(&self, commit: &str, file: &Wanted, blobs: &Path, progress: &Progress) -> Result<()> {
        let RepoId { org, name, .. } = self.id;
        let url = format!("{}/{org}/{name}/resolve/{commit}/{}", self.endpoint, file.name);
        let part = blobs.join(format!("{}.incomplete", file.blob));
        let failed = |action, e: std::io::Error| Error::io(action, &part, e);
        let mut out = open_own(&part, true).map_err(|e| failed("write", e))?;
        out.try_lock()
            .map_err(|_| Error::io("write", &part, "another program is downloading it"))?;
        // The program that had the lock may have come to its end since.
        if file.is_in(blobs) {
            progress.add(file.size);
            return match fs::remove_file(&part) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed("remove", e)),
                _ => Ok(()),
            };
        }
        let mut done = out.metadata().map_err(|e| failed("read", e))?.len();
        if done > file.size {
            out.set_len(0).map_err(|e| failed("write", e))?;
            done = 0;
        }
        out.seek(SeekFrom::Start(done)).map_err(|e| failed("write", e))?;
        progress.add(done);
        while done < file.size {
            let n = PIECE.min(file.size - done);
            let bytes = self.get(&url, Some((done, n)), n)?;
            if bytes.len() as u64 != n {
                let why = format!("expected {n} bytes from {done}, the server sent {}", bytes.len());
                return Err(self.failed(&url, why));
            }
            out.write_all(&bytes).map_err(|e| failed("write", e))?;
            done += n;
            progress.add(n);
        }
        out.sync_all().map_err(|e| failed("write", e))?;
        self.check(file, &part)?;
        let blob = blobs.join(&file.blob);
        fs::rename(&part, &blob).map_err(|e| Error::io("rename", &part, e))
    }

    /// Proves that a file is what the hub says; else it goes, so that the next run begins anew.
    fn check(&self, file: &Wanted, part: &Path) -> Result<()> {
        let Some(expected) = file.sha256 else {
            return Ok(());
        };
        let source = gguf::source::open(part)?;
        let found = digest::of_source(&*source, 0..source.len(), &mut |_| Ok(()))?;
        if found == expected {
            return Ok(());
        }
        // What is wrong is of no use; that it cannot be removed shows in the next run.
        let _ = fs::remove_file(part);
        Err(Error::mismatch(
            format!("SHA-256 of `{}` of `{}`", file.name, self.id),
            expected,
            format!("{found}; it was removed, run again to download it anew"),
        ))
    }

    /// The answer's bytes, at most `max`: all, or `n` from a place on.
    fn get(&self, url: &str, range: Option<(u64, u64)>, max: u64) -> Result<Vec<u8>> {
        let mut last = String::new();
        for attempt in 0..TRIES {
            if attempt > 0 {
                std::thread::sleep(Duration::from_millis(200 << attempt));
            }
            let mut request = self.agent.get(url);
            if let Some(token) = &self.token {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            if let Some((at, n)) = range {
                request = request.header(header::RANGE, format!("bytes={at}-{}", at + n - 1));
            }
            let answer = match request.call() {
                Ok(answer) => answer,
                Err(e @ ureq::Error::BadUri(_)) => return Err(self.failed(url, e.to_string())),
                Err(e) => {
                    last = e.to_string();
                    continue;
                }
            };
            let busy = answer.status() == StatusCode::TOO_MANY_REQUESTS || answer.status().is_server_error();
            if busy {
                last = answer.status().to_string();
                continue;
            }
            self.accept(url, &answer, range)?;
            let mut bytes = Vec::new();
            match answer
                .into_body()
                .into_reader()
                .take(max + 1)
                .read_to_end(&mut bytes)
            {
                Ok(_) if bytes.len() as u64 <= max => return Ok(bytes),
                Ok(_) => return Err(self.failed(url, format!("the server sends more than {max} bytes"))),
                Err(e) => last = e.to_string(),
            }
        }
        let host = &self.endpoint;
        Err(self.failed(
            url,
            format!("{last} ({TRIES} tries of `{host}`; `HF_ENDPOINT` names another)"),
        ))
    }

    fn accept(&self, url: &str, answer: &Response<ureq::Body>, range: Option<(u64, u64)>) -> Result<()> {
        let whole = range.is_none_or(|(at, _)| at == 0);
        match answer.status() {
            StatusCode::PARTIAL_CONTENT => Ok(()),
            StatusCode::OK if whole => Ok(()),
            StatusCode::OK => {
                Err(self.failed(url, "the server ignores `Range`, so a file cannot be resumed"))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
                let status = answer.status().as_u16();
                let hint = "there is no such repository or file, or it needs a token in `HF_TOKEN`";
                Err(self.failed(url, format!("{hint} ({status})")))
            }
            other => Err(self.failed(url, format!("the server answers {other}"))),
        }
    }

    fn failed(&self, what: &str, why: impl std::fmt::Display) -> Error {
        let what = what.strip_prefix(&self.endpoint).unwrap_or(what);
        Error::io("fetch", Path::new(what), why)
    }
}

impl Wanted {
    fn is_in(&self, blobs: &Path) -> bool {
        let blob = blobs.join(&self.blob);
        blob.metadata().is_ok_and(|m| m.is_file() && m.len() == self.size)
    }

    /// Gives the blob its name in a snapshot.
    fn link(&self, snapshot: &Path) -> Result<()> {
        let path = snapshot.join(&self.name);
        let Some(folder) = path.parent() else {
            return Ok(());
        };
        make_folder(folder)?;
        let up = "../".repeat(Path::new(&self.name).components().count() + 1);
        let target = PathBuf::from(format!("{up}blobs/{}", self.blob));
        if fs::read_link(&path).is_ok_and(|there| there == target) {
            return Ok(());
        }
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).map_err(|e| Error::io("replace", &path, e))?;
        }
        std::os::unix::fs::symlink(&target, &path).map_err(|e| Error::io("write", &path, e))
    }
}

/// The user's token, which the hub asks for where a repository is not open to all.
fn token() -> Option<String> {
    let of_file = || fs::read_to_string(cache::home()?.join("token")).ok();
    let token = std::env::var("HF_TOKEN").ok().or_else(of_file)?;
    let token = token.trim();
    let plain = !token.is_empty() && token.chars().all(|c| c.is_ascii_graphic());
    plain.then(|| token.to_owned())
}

fn is_weights(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|e| e == "safetensors")
}

/// Files that a conversion reads: settings, tokenizers, templates, weights in safetensors. Code never is.
fn is_wanted(name: &str) -> bool {
    let path = Path::new(name);
    let plain = path.components().all(|c| matches!(c, Component::Normal(_)));
    let templates = path
        .parent()
        .is_some_and(|p| p.as_os_str() == "additional_chat_templates");
    let top = path.components().count() == 1;
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    match ending {
        "jinja" => plain && (top || templates),
        "json" | "safetensors" | "model" | "txt" | "tiktoken" => plain && top,
        _ => false,
    }
}

/// Repositories that hold the weights in two forms: the one with an index, or with the usual names, is read.
fn drop_second_copy(files: &mut Vec<Wanted>) {
    let usual = |f: &Wanted| is_weights(&f.name) && !f.name.starts_with("consolidated");
    if files.iter().any(usual) {
        files.retain(|f| !is_weights(&f.name) || usual(f));
    }
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|e| Error::io("make", path, e))
}

/// Refuses a download that the disk has no room for.
fn check_room(blobs: &Path, missing: &[&Wanted]) -> Result<()> {
    let there = |f: &Wanted| {
        let part = blobs.join(format!("{}.incomplete", f.blob));
        part.symlink_metadata().map_or(0, |m| m.len())
    };
    let sizes = missing.iter().map(|f| f.size.saturating_sub(there(f)));
    // Sizes are what the server says.
    let needed = sizes.fold(0, u64::saturating_add);
    match gguf::atomic::free_bytes(blobs) {
        Some(free) if free < needed => {
            let names: Vec<_> = missing.iter().map(|f| f.name.clone()).collect();
            let why = format!(
                "{} needed for {}, {} free",
                human_bytes(needed),
                listed(&names, N_SHOWN, ", "),
                human_bytes(free)
            );
            Err(Error::io("download into", blobs, why))
        }
        _ => Ok(()),
    }
}

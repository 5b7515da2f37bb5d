//! A file on a server, read by HTTP range requests: only the pieces that are asked for are fetched.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ureq::Agent;
use ureq::http::{HeaderMap, Response, StatusCode, header};

use super::{Source, check_range};
use crate::{Error, Result};

/// Bytes of a request. A head of usual size comes in one.
const BLOCK: usize = 1 << 20;

/// Blocks that are kept. The parser goes forward, so a few are enough.
const MAX_BLOCKS: usize = 8;

/// Tries of a request that fails for a reason that may pass.
const TRIES: u32 = 3;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// For one block, so that a server that sends nothing ends the run.
const CALL_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct HttpSource {
    agent: Agent,
    url: String,
    path: PathBuf,
    len: u64,
    /// What the server says of the file's state; a change means another file.
    version: Option<String>,
    /// The blocks fetched last, by number.
    blocks: Mutex<VecDeque<(u64, Arc<Vec<u8>>)>>,
}

impl HttpSource {
    /// Fetches the first block, which shows whether the server serves ranges and how long the file is.
    pub(super) fn new(path: &Path) -> Result<Self> {
        let agent: Agent = Agent::config_builder()
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(CALL_TIMEOUT))
            .user_agent(concat!("gguf/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .build()
            .into();
        let mut source = Self {
            agent,
            url: path.to_string_lossy().into_owned(),
            path: path.to_owned(),
            len: u64::MAX,
            version: None,
            blocks: Mutex::default(),
        };
        let answer = source.request(0, BLOCK as u64)?;
        let range = content_range(answer.headers()).ok_or_else(|| {
            source.failed("the server's answer does not say which bytes it holds: expected `Content-Range`")
        })?;
        source.len = range.total;
        source.version = version(answer.headers());
        let first = source.body(answer, 0, source.len.min(BLOCK as u64))?;
        source.blocks = Mutex::new(VecDeque::from([(0, Arc::new(first))]));
        Ok(source)
    }

    fn failed(&self, why: impl Into<String>) -> Error {
        Error::Io {
            action: "fetch",
            path: self.path.clone(),
            source: std::io::Error::other(why.into()),
        }
    }

    /// Asks for `n` bytes from `at`; the answer has them, or fewer at the end of the file.
    fn request(&self, at: u64, n: u64) -> Result<Response<ureq::Body>> {
        let range = format!("bytes={at}-{}", at + n - 1);
        let mut last = String::new();
        for attempt in 0..TRIES {
            if attempt > 0 {
                std::thread::sleep(Duration::from_millis(200 << attempt));
            }
            match self.agent.get(&self.url).header(header::RANGE, &range).call() {
                Ok(answer) if answer.status().is_server_error() => last = answer.status().to_string(),
                Ok(answer) => return self.accept(answer),
                Err(e @ (ureq::Error::BadUri(_) | ureq::Error::HostNotFound)) => {
                    return Err(self.failed(e.to_string()));
                }
                Err(e) => last = e.to_string(),
            }
        }
        Err(self.failed(format!("{last} ({TRIES} tries)")))
    }

    /// Refuses answers that are not the part of the file asked for.
    fn accept(&self, answer: Response<ureq::Body>) -> Result<Response<ureq::Body>> {
        match answer.status() {
            StatusCode::PARTIAL_CONTENT => Ok(answer),
            StatusCode::OK => Err(self
                .failed("the server sends whole files only (it ignores `Range`): download the file first")),
            StatusCode::RANGE_NOT_SATISFIABLE => Err(self.failed("the file is empty or was cut")),
            StatusCode::NOT_FOUND => Err(self.failed("there is no such file (404)")),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.failed(format!(
                "the server refuses access ({}): download the file with your account first",
                answer.status().as_u16()
            ))),
            other => Err(self.failed(format!("the server answers {other}"))),
        }
    }

    /// The body of an answer, which must be bytes `at .. at + n` of the same file as before.
    fn body(&self, answer: Response<ureq::Body>, at: u64, n: u64) -> Result<Vec<u8>> {
        let range = content_range(answer.headers());
        if range.is_none_or(|r| (r.start, r.end, r.total) != (at, at + n, self.len)) {
            return Err(self.failed(format!(
                "the server sent other bytes than asked: expected {at} to {} of {}",
                at + n,
                self.len
            )));
        }
        if version(answer.headers()) != self.version {
            return Err(self.failed("the file changed on the server while it was read: start again"));
        }
        let mut bytes = Vec::new();
        // One byte more than expected shows a body that is too long.
        answer
            .into_body()
            .into_reader()
            .take(n + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| self.failed(e.to_string()))?;
        if bytes.len() as u64 != n {
            return Err(self.failed(format!(
                "expected {n} bytes from {at}, the server sent {}",
                bytes.len()
            )));
        }
        Ok(bytes)
    }

    fn block(&self, number: u64) -> Result<Arc<Vec<u8>>> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, block)) = blocks.iter().find(|(n, _)| *n == number) {
            return Ok(block.clone());
        }
        let at = number * BLOCK as u64;
        let n = (self.len - at).min(BLOCK as u64);
        let block = Arc::new(self.body(self.request(at, n)?, at, n)?);
        if blocks.len() == MAX_BLOCKS {
            blocks.pop_front();
        }
        blocks.push_back((number, block.clone()));
        Ok(block)
    }
}

impl Source for HttpSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        check_range(&self.path, self.len, at, buf.len())?;
        let mut at = at;
        let mut left = buf;
        while !left.is_empty() {
            let block = self.block(at / BLOCK as u64)?;
            let start = usize::try_from(at % BLOCK as u64).expect("below a block");
            let n = left.len().min(block.len() - start);
            let (now, rest) = left.split_at_mut(n);
            now.copy_from_slice(&block[start..start + n]);
            at += n as u64;
            left = rest;
        }
        Ok(())
    }

    fn slice(&self, at: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        check_range(&self.path, self.len, at, len)?;
        let mut buf = vec![0; len];
        self.read_at(at, &mut buf)?;
        Ok(Cow::Owned(buf))
    }
}

struct ContentRange {
    start: u64,
    end: u64,
    total: u64,
}

/// `bytes 0-99/1000` as 0, 100, 1000.
fn content_range(headers: &HeaderMap) -> Option<ContentRange> {
    let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (start, last) = range.split_once('-')?;
    Some(ContentRange {
        start: start.parse().ok()?,
        end: last.parse::<u64>().ok()?.checked_add(1)?,
        total: total.parse().ok()?,
    })
}

fn version(headers: &HeaderMap) -> Option<String> {
    [header::ETAG, header::LAST_MODIFIED]
        .iter()
        .find_map(|name| Some(headers.get(name)?.to_str().ok()?.to_owned()))
}

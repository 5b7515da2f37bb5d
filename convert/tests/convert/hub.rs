//! Names that stand for checkpoints: the hub's cache, and a download from a server of this test.

#![cfg(feature = "hub")]
#![expect(clippy::disallowed_methods, reason = "inputs of tests need no atomic writes")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::{carried, convert_ok, stderr, text};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the server does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Ends the first answer with weights in its middle, and the next ones too.
    Cuts,
    /// Sends a byte of the weights that is another.
    Damages,
}

struct Hub {
    endpoint: String,
    /// Bytes of weights that were sent.
    sent: Arc<AtomicU64>,
    fault: Arc<Mutex<Fault>>,
}

impl Hub {
    fn start(dir: PathBuf, fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let (sent, fault) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(fault)));
        let hub = Self {
            endpoint,
            sent: sent.clone(),
            fault: fault.clone(),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let fault = *fault.lock().expect("no panic");
                // A client that has seen enough hangs up: no concern of the server's.
                drop(answer(&stream.expect("a connection"), &dir, fault, &sent));
            }
        });
        hub
    }

    fn convert(&self, cache: &Path, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_gguf-convert"))
            .args(args)
            .env("HF_ENDPOINT", &self.endpoint)
            .env("HF_HUB_CACHE", cache)
            .env("HF_TOKEN", "secret")
            .output()
            .expect("the program starts")
    }
}

fn answer(stream: &TcpStream, dir: &Path, fault: Fault, sent: &AtomicU64) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().expect("a request")?;
    let mut start = 0;
    let mut has_token = false;
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        has_token |= line == "authorization: bearer secret";
        if let Some(range) = line.strip_prefix("range: bytes=") {
            start = range
                .split_once('-')
                .expect("a range")
                .0
                .parse()
                .expect("a number");
        }
    }
    let mut out = stream;
    let path = request.split(' ').nth(1).expect("a path").to_owned();
    let status = |mut out: &TcpStream, status: &str, more: &str| {
        write!(
            out,
            "HTTP/1.1 {status}\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n"
        )
    };
    if !has_token {
        return status(out, "401 Unauthorized", "");
    }
    if path == "/api/models/org/tiny/revision/main?blobs=true" {
        let body = listing(dir);
        write!(
            out,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )?;
        return Ok(());
    }
    // Contents are at another address, as on the real hub.
    if let Some(name) = path.strip_prefix(&format!("/org/tiny/resolve/{COMMIT}/")) {
        return status(out, "302 Found", &format!("Location: /contents/{name}\r\n"));
    }
    let Some(name) = path.strip_prefix("/contents/") else {
        return status(out, "404 Not Found", "");
    };
    let mut bytes = fs::read(dir.join(name))?;
    let is_weights = name.ends_with(".safetensors");
    if is_weights && fault == Fault::Damages {
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
    }
    let mut body = &bytes[start..];
    write!(
        out,
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {start}-{}/{}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        bytes.len() - 1,
        bytes.len(),
        body.len()
    )?;
    if is_weights && fault == Fault::Cuts {
        body = &body[..body.len() / 2];
    }
    if is_weights {
        sent.fetch_add(body.len() as u64, Ordering::Relaxed);
    }
    out.write_all(body)
}

/// The list of files, with some that a conversion has no use for.
fn listing(dir: &Path) -> String {
    let mut siblings = Vec::new();
    let entries = fs::read_dir(dir).expect("a folder");
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        let bytes = fs::read(&path).expect("a file");
        let sha = gguf::digest::Digest::of(&bytes).to_string();
        let name = path.file_name().and_then(|n| n.to_str()).expect("a name");
        siblings.push(if name.ends_with(".safetensors") {
            serde_json::json!({"rfilename": name, "size": bytes.len(), "blobId": "00ff",
                "lfs": {"sha256": sha, "size": bytes.len()}})
        } else {
            serde_json::json!({"rfilename": name, "size": bytes.len(), "blobId": sha[..40]})
        });
    }
    for unwanted in [
        "modeling_tiny.py",
        "onnx/model.onnx",
        "../../evil.json",
        "consolidated.safetensors",
    ] {
        siblings.push(serde_json::json!({"rfilename": unwanted, "size": 1, "blobId": "00aa"}));
    }
    serde_json::json!({"sha": COMMIT, "siblings": siblings}).to_string()
}

/// Bytes of a shard of the weights, and of all.
fn n_weights() -> (u64, u64) {
    let sizes = (1..=3).map(|i| fs::metadata(carried().join(shard(i))).expect("weights").len());
    let sizes: Vec<u64> = sizes.collect();
    (sizes[0], sizes.iter().sum())
}

fn shard(i: usize) -> String {
    format!("model-{i:05}-of-00003.safetensors")
}

#[test]
fn an_id_is_downloaded_once_and_then_found_in_the_cache() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().join("cache");
    let [out, again, local] = ["a.gguf", "b.gguf", "c.gguf"].map(|n| folder.path().join(n));
    let hub = Hub::start(carried(), Fault::None);
    let args = |out| ["org/tiny", "--model-name", "Tiny", "-q", "-o", text(out)];
    let absent = hub.convert(&cache, &args(&out));
    assert_eq!(absent.status.code(), Some(2));
    assert!(stderr(&absent).contains("`--download`"), "{}", stderr(&absent));

    let run = hub.convert(&cache, &[&args(&out)[..], &["--download"]].concat());
    assert!(run.status.success(), "{}", stderr(&run));
    assert_eq!(hub.sent.load(Ordering::Relaxed), n_weights().1);
    let run = hub.convert(&cache, &args(&again));
    assert!(run.status.success(), "{}", stderr(&run));
    let run = hub.convert(&cache, &[&args(&again)[..], &["--download", "--force"]].concat());
    assert!(run.status.success(), "{}", stderr(&run));
    assert_eq!(hub.sent.load(Ordering::Relaxed), n_weights().1);

    convert_ok(&carried(), &local, &["--model-name", "Tiny"]);
    let bytes = fs::read(&local).expect("an output");
    assert_eq!(fs::read(&out).expect("an output"), bytes);
    assert_eq!(fs::read(&again).expect("an output"), bytes);
    // The repository's folder in the cache stands for the same.
    let repository = cache.join("models--org--tiny");
    convert_ok(&repository, &local, &["--model-name", "Tiny", "--force"]);
    assert_eq!(fs::read(&local).expect("an output"), bytes);
    assert!(!folder.path().join("evil.json").exists());
    let snapshot = repository.join("snapshots").join(COMMIT);
    let there = |name: &str| snapshot.join(name).symlink_metadata().is_ok();
    assert!(there("config.json") && !there("modeling_tiny.py") && !there("consolidated.safetensors"));
}

#[test]
fn a_download_goes_on_where_it_was_and_is_proved() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().join("cache");
    let out = folder.path().join("a.gguf");
    let args = ["org/tiny", "--download", "-q", "-o", text(&out)];
    let blobs = cache.join("models--org--tiny/blobs");
    let incomplete = || -> Vec<PathBuf> {
        let all = fs::read_dir(&blobs)
            .expect("blobs")
            .map(|e| e.expect("an entry").path());
        all.filter(|p| p.extension().is_some_and(|e| e == "incomplete"))
            .collect()
    };

    let hub = Hub::start(carried(), Fault::Cuts);
    let run = hub.convert(&cache, &args);
    assert_eq!(run.status.code(), Some(2), "{}", stderr(&run));
    assert!(
        stderr(&run).contains("4 tries") && !out.exists(),
        "{}",
        stderr(&run)
    );

    // A part of the weights from an earlier run.
    let [part] = <[PathBuf; 1]>::try_from(incomplete()).expect("one file was begun");
    let weights = fs::read(carried().join(shard(1))).expect("weights");
    fs::write(&part, &weights[..1000]).expect("a file");
    *hub.fault.lock().expect("no panic") = Fault::Damages;
    hub.sent.store(0, Ordering::Relaxed);
    let run = hub.convert(&cache, &args);
    assert_eq!(run.status.code(), Some(1), "{}", stderr(&run));
    assert!(
        stderr(&run).contains("SHA-256 of `model-00001-of-00003.safetensors`"),
        "{}",
        stderr(&run)
    );
    assert_eq!(hub.sent.load(Ordering::Relaxed), n_weights().0 - 1000);
    assert!(incomplete().is_empty() && !out.exists());

    *hub.fault.lock().expect("no panic") = Fault::None;
    let run = hub.convert(&cache, &args);
    assert!(run.status.success() && out.exists(), "{}", stderr(&run));
}

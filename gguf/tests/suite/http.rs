//! Files on a server, against servers of this test that behave and misbehave.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::sound;
use gguf::{GgufFile, Outline};

/// What a server does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Sends the whole file with status 200.
    NoRanges,
    /// Sends one byte too few, as a wrong reading of inclusive ranges does.
    OffByOne,
    /// Says another `ETag` from the second request on.
    Changes,
    /// Closes the connection in the middle of the second answer.
    Cuts,
    /// Fails with 503 the first time.
    BusyOnce,
}

/// A server of one file, which is `front` and then zeros up to `len` bytes.
struct Server {
    url: PathBuf,
    sent: Arc<AtomicU64>,
}

impl Server {
    fn start(front: Vec<u8>, len: u64, fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let sent = Arc::new(AtomicU64::new(0));
        let count = sent.clone();
        std::thread::spawn(move || {
            for (n, stream) in listener.incoming().enumerate() {
                let stream = stream.expect("a connection");
                // A client that has seen enough hangs up: no concern of the server's.
                drop(answer(&stream, &front, len, fault, n, &count));
            }
        });
        Self {
            url: format!("http://{address}/models/m.gguf").into(),
            sent,
        }
    }
}

fn answer(
    stream: &TcpStream,
    front: &[u8],
    len: u64,
    fault: Fault,
    n: usize,
    sent: &AtomicU64,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().expect("a request")?;
    let mut range = None;
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(r) = line.strip_prefix("range: bytes=") {
            let (a, b) = r.split_once('-').expect("a range");
            range = Some((
                a.parse::<u64>().expect("a number"),
                b.parse::<u64>().expect("a number"),
            ));
        }
    }
    let mut out = stream;
    if !request.starts_with("GET /models/m.gguf ") {
        return write!(
            out,
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    if fault == Fault::BusyOnce && n == 0 {
        return write!(
            out,
            "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    let (start, last) = range.expect("every request names a range");
    if fault == Fault::NoRanges {
        write!(
            out,
            "HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n"
        )?;
        return send(&mut out, front, 0, len, sent);
    }
    let mut end = (last + 1).min(len);
    if fault == Fault::OffByOne {
        end -= 1;
    }
    let tag = if fault == Fault::Changes { n } else { 0 };
    write!(
        out,
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {start}-{}/{len}\r\nETag: \"{tag}\"\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        end - 1,
        end - start
    )?;
    if fault == Fault::Cuts && n > 0 {
        end = start + (end - start) / 2;
    }
    send(&mut out, front, start, end, sent)
}

fn send(out: &mut impl Write, front: &[u8], start: u64, end: u64, sent: &AtomicU64) -> std::io::Result<()> {
    let mut at = start;
    while at < end {
        let n = (end - at).min(1 << 16);
        let bytes: Vec<u8> = (at..at + n)
            .map(|i| {
                usize::try_from(i)
                    .ok()
                    .and_then(|i| front.get(i))
                    .copied()
                    .unwrap_or(0)
            })
            .collect();
        out.write_all(&bytes)?;
        sent.fetch_add(n, Ordering::Relaxed);
        at += n;
    }
    Ok(())
}

/// A head of some 3 MiB.
fn long_head() -> Vec<u8> {
    let words: Vec<String> = (0..150_000).map(|i| format!("word {i}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    sound().strings("words", &words).build()
}

#[test]
fn a_file_on_a_server_is_the_file() {
    let bytes = long_head();
    let server = Server::start(bytes.clone(), bytes.len() as u64, Fault::None);
    let there = GgufFile::open(&server.url).expect("opens");
    let here = crate::common::parse(bytes).expect("opens");
    assert_eq!(there.metadata, here.metadata);
    assert_eq!(there.tensors, here.tensors);
    for tensor in &there.tensors {
        assert_eq!(
            there.tensor_bytes(tensor).expect("inside"),
            here.tensor_bytes(tensor).expect("inside")
        );
    }
    there.require_sound().expect("sound");
    assert!(GgufFile::open_mapped(&server.url).is_err());
}

#[test]
fn of_a_large_file_only_the_head_is_fetched() {
    let head = sound()
        .tensor("large", &[1 << 20, 2_500], crate::common::F32, 128)
        .build();
    let server = Server::start(head, 10 << 30, Fault::None);
    let file = Outline::open(&server.url, 4).expect("opens");
    assert_eq!(file.file().tensors.len(), 3);
    let sent = server.sent.load(Ordering::Relaxed);
    assert!(sent < 8 << 20, "{sent} bytes were fetched");
}

#[test]
fn servers_that_misbehave_are_named() {
    let refusal = |fault| {
        let server = Server::start(long_head(), 256 << 20, fault);
        let text = GgufFile::open(&server.url).expect_err("must fail").to_string();
        assert!(text.contains("http://127.0.0.1"), "{text}");
        (text, server.sent.load(Ordering::Relaxed))
    };
    let (text, sent) = refusal(Fault::NoRanges);
    assert!(text.contains("whole files only"), "{text}");
    // What the system takes in before the program hangs up.
    assert!(sent < 64 << 20, "{sent} bytes were fetched");
    assert!(refusal(Fault::OffByOne).0.contains("other bytes than asked"));
    assert!(refusal(Fault::Changes).0.contains("changed on the server"));
    let text = refusal(Fault::Cuts).0;
    assert!(text.contains("cannot fetch"), "{text}");
}

#[test]
fn a_busy_server_is_asked_again_and_an_absent_file_is_named() {
    let bytes = sound().build();
    let n = bytes.len() as u64;
    let server = Server::start(bytes, n, Fault::BusyOnce);
    assert!(GgufFile::open(&server.url).is_ok());
    let other = server.url.with_file_name("other.gguf");
    let text = GgufFile::open(&other).expect_err("must fail").to_string();
    assert!(text.contains("other.gguf") && text.contains("404"), "{text}");
}

//! Data to stdout, talk to stderr.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::screen::{Kind, Screen, printable, visible};
use crate::{Failure, Result};

/// Writes a text for people to stdout, a line break behind it; a closed pipe ends the program quietly. Controls are
/// escaped.
pub fn print_data(text: &str) -> Result<()> {
    write_report(|out| writeln!(out, "{text}"))
}

/// Writes a value as indented JSON to stdout; a closed pipe ends the program quietly.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    to_stdout(Some(Kind::Json), |out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)
    })
}

/// As [`print_json`], on one line.
pub fn print_json_line(value: &impl Serialize) -> Result<()> {
    to_stdout(Some(Kind::Json), |out| {
        serde_json::to_writer(&mut *out, value)?;
        writeln!(out)
    })
}

/// Writes data to stdout through a buffer, as they are where it is no terminal; a closed pipe ends the program quietly.
pub fn write_data(f: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    to_stdout(io::stdout().is_terminal().then_some(Kind::Data), f)
}

/// As [`write_data`], for what people read: controls in names and texts from files are escaped wherever it goes.
pub fn write_report(f: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    to_stdout(Some(Kind::Text), f)
}

/// `kind`: what the bytes are, if they are not to stay as they are.
fn to_stdout(kind: Option<Kind>, f: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let stdout = Stdout(io::stdout().lock());
    let written = match kind {
        None => {
            let mut out = io::BufWriter::with_capacity(BUFFER, stdout);
            f(&mut out).and_then(|()| out.flush())
        }
        Some(kind) => {
            let mut out = io::BufWriter::with_capacity(BUFFER, Screen::new(stdout, kind));
            f(&mut out)
                .and_then(|()| out.into_inner().map_err(io::IntoInnerError::into_error))
                .and_then(Screen::finish)
        }
    };
    written.map_err(|e| not_written(&e))
}

/// What becomes of a write to stdout that failed.
pub(crate) fn not_written(e: &io::Error) -> Failure {
    match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::Usage(format!("cannot write to the standard output: {e}")),
    }
}

/// Whether what was written to stdout ends in the middle of a line.
static MID_LINE: AtomicBool = AtomicBool::new(false);

/// Stdout, which remembers that.
struct Stdout(io::StdoutLock<'static>);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.0.write(bytes)?;
        if let Some(last) = bytes[..n].last() {
            MID_LINE.store(*last != b'\n', Ordering::Relaxed);
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Ends the line that stdout is in the middle of, if it is, so that an error does not stand behind data on a terminal
/// or in a pipe that both go to.
pub(crate) fn end_line() {
    if MID_LINE.swap(false, Ordering::Relaxed) {
        let mut out = io::stdout().lock();
        // What cannot be written now was said before, or is what is being said.
        drop(out.write_all(b"\n").and_then(|()| out.flush()));
    }
}

/// Bytes that are gathered before a write to stdout.
const BUFFER: usize = 64 << 10;

/// Writes `warning: ..` to stderr, on one line.
pub fn warn(line: &str) {
    say(&format!("warning: {}", printable(line)));
}

/// Writes a line, or several, to stderr, controls escaped. There is nobody to tell if that fails.
pub fn say(line: &str) {
    drop(writeln!(io::stderr().lock(), "{}", visible(line)));
}

//! Data to stdout, talk to stderr.

use std::io::{self, IsTerminal, Write};

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
    let stdout = io::stdout().lock();
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
    written.map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::Usage(format!("cannot write to the standard output: {e}")),
    })
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

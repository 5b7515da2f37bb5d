//! Data to stdout, talk to stderr.

use std::io::{self, Write};

use serde::Serialize;

use crate::{Failure, Result};

/// Writes a line of data to stdout; a closed pipe ends the program quietly.
pub fn print_data(text: &str) -> Result<()> {
    write_data(|out| writeln!(out, "{text}"))
}

/// Writes a value as indented JSON to stdout; a closed pipe ends the program quietly.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    write_data(|out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)
    })
}

/// Writes to stdout through a buffer; a closed pipe ends the program quietly.
pub fn write_data(f: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = io::BufWriter::with_capacity(64 << 10, io::stdout().lock());
    f(&mut out)
        .and_then(|()| out.flush())
        .map_err(|e| match e.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Usage(format!("cannot write to the standard output: {e}")),
        })
}

/// Writes `warning: ..` to stderr.
pub fn warn(line: &str) {
    say(&format!("warning: {line}"));
}

/// Writes a line to stderr. There is nobody to tell if that fails.
pub fn say(line: &str) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}

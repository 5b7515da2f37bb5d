//! Templates in a process of their own: what they take of memory and time ends it, and not the program.
//!
//! The process is this program again, with one argument. It reads a [`Request`] from its standard input and writes an answer,
//! both as JSON, and can open no file for writing that would come to have a byte.

use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::date::EPOCH;
use super::engine::{self, FUEL};
use super::{Refusal, Request};

/// The argument of a process that runs a template.
const ARGUMENT: &str = "--interpret-template";
/// The exit status of a program that gets no more memory: `gguf_cli::Allocator`.
const NO_MEMORY: i32 = 2;
/// Seconds of a processor for [`FUEL`] steps, which take less than one.
const SECONDS: u64 = 5;
/// Bytes of memory for each step beside the stack: a few times what a step pays for.
const BYTES_PER_STEP: u64 = 256;
/// Bytes of memory for the program itself, the question and the answer.
const BYTES: u64 = 512 << 20;
/// Bytes of JSON for each byte of text at most: a control is `\u0001`.
const JSON_PER_BYTE: u64 = 6;
/// Bytes of JSON around the text, or of a refusal.
const JSON: u64 = 1 << 16;

type Answer = Result<String, Refusal>;

impl Request<'_> {
    /// Seconds of a processor that it may take.
    fn seconds(&self) -> u64 {
        SECONDS.saturating_mul((self.fuel() / FUEL).max(1))
    }

    /// Bytes of address space that it may take.
    fn memory(&self) -> u64 {
        self.fuel()
            .saturating_mul(BYTES_PER_STEP)
            .saturating_add(self.stack())
            .saturating_add(BYTES)
    }
}

/// Asks a process of `program`.
pub(super) fn ask(program: &Path, request: &Request<'_>) -> Answer {
    let refused = |e: &dyn std::fmt::Display| Refusal::of_machine(format!("no process to read it: {e}"));
    let question = serde_json::to_vec(request).map_err(|e| refused(&e))?;
    let mut process = Command::new(program)
        .arg(ARGUMENT)
        .env_clear()
        // The time that `strftime_now` tells.
        .envs(std::env::var_os(EPOCH).map(|time| (EPOCH, time)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // What broke it is told by how it ended.
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| refused(&e))?;
    if let Some(mut stdin) = process.stdin.take() {
        // It reads all before it writes. If it ends earlier, how it did says more than this write.
        let _ = stdin.write_all(&question);
    }
    let mut answer = Vec::new();
    if let Some(stdout) = process.stdout.take() {
        let most = request
            .max_text()
            .saturating_mul(JSON_PER_BYTE)
            .saturating_add(JSON);
        let read = stdout.take(most).read_to_end(&mut answer);
        read.map_err(|e| refused(&e))?;
    }
    // Nothing reads what may be left, so that it ends.
    let status = process.wait().map_err(|e| refused(&e))?;
    serde_json::from_slice(&answer).unwrap_or_else(|_| Err(ended(status, request)))
}

/// What is said of a process that ended without an answer.
fn ended(status: ExitStatus, request: &Request<'_>) -> Refusal {
    let by = |signal: Signal| status.signal() == Some(signal.as_raw());
    Refusal::new(if by(Signal::XCPU) {
        format!(
            "it takes more than {} seconds, as no conversation does",
            request.seconds()
        )
    } else if status.code() == Some(NO_MEMORY) || by(Signal::ABORT) {
        format!(
            "it takes more than {} MiB of memory, or has values without end, as no conversation does",
            request.memory() >> 20
        )
    } else {
        format!("the process that ran it ended without an answer ({status})")
    })
}

/// Runs a template if that is what this process was started for by [`super::Interpreter::Apart`], and says how to end.
/// A program calls it before all else.
pub fn interpret() -> Option<ExitCode> {
    if std::env::args_os().nth(1)? != ARGUMENT {
        return None;
    }
    let answered = answer().is_ok();
    Some(if answered {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn answer() -> std::io::Result<()> {
    limit(Resource::Core, 0, 0);
    limit(Resource::Fsize, 0, 0);
    let mut question = Vec::new();
    std::io::stdin().read_to_end(&mut question)?;
    let request: Request<'_> = serde_json::from_slice(&question)?;
    limit(Resource::As, request.memory(), request.memory());
    // At the first a signal says that it was time.
    limit(Resource::Cpu, request.seconds(), request.seconds() + 1);
    let answer: Answer = engine::answer(&request);
    let mut stdout = std::io::stdout().lock();
    serde_json::to_writer(&mut stdout, &answer)?;
    stdout.flush()
}

/// Lowers a limit of this process and the most that it may be raised to. One that is lower already stays.
fn limit(resource: Resource, current: u64, maximum: u64) {
    let now = getrlimit(resource);
    let least = |limit: Option<u64>, most: u64| Some(limit.map_or(most, |l| l.min(most)));
    let limits = Rlimit {
        current: least(now.current, current),
        maximum: least(now.maximum, maximum),
    };
    // What the system does not limit, such as address space on some, is left to the others.
    let _ = setrlimit(resource, limits);
}

//! Progress of long work.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::screen::printable;
use crate::talk::say;
use crate::{count, human_bytes, human_time};

/// Time between two lines where there is no terminal.
const INTERVAL: Duration = Duration::from_secs(5);

/// Progress of long work on stderr: a bar with rate and time left on a terminal, else a plain line every few
/// seconds; silent when `quiet`.
#[derive(Debug)]
pub struct Progress {
    form: Form,
}

#[derive(Debug)]
enum Form {
    Quiet,
    Bar(ProgressBar),
    Lines(Lines),
}

/// What the steps of a progress are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum Unit {
    Bytes,
    Chunks,
    Steps,
    Tasks,
    Tensors,
    Tokens,
}

impl Unit {
    fn template(self) -> &'static str {
        match self {
            Self::Bytes => {
                "{prefix} [{bar:30}] {percent}% of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left{msg}"
            }
            Self::Chunks => "{prefix} [{bar:30}] {pos} of {len} chunks, {per_sec}, {eta} left{msg}",
            Self::Steps => "{prefix} [{bar:30}] {pos} of {len} steps, {per_sec}, {eta} left{msg}",
            Self::Tasks => "{prefix} [{bar:30}] {pos} of {len} tasks, {per_sec}, {eta} left{msg}",
            Self::Tensors => "{prefix} [{bar:30}] {pos} of {len} tensors, {per_sec}, {eta} left{msg}",
            Self::Tokens => "{prefix} [{bar:30}] {pos} of {len} tokens, {per_sec}, {eta} left{msg}",
        }
    }

    fn amount(self, n: u64) -> String {
        match self {
            Self::Bytes => human_bytes(n),
            Self::Chunks => count(n, "chunk"),
            Self::Steps => count(n, "step"),
            Self::Tasks => count(n, "task"),
            Self::Tensors => count(n, "tensor"),
            Self::Tokens => count(n, "token"),
        }
    }

    fn rate(self, per_second: f64) -> String {
        match self {
            Self::Bytes => format!("{}/s", human_bytes(per_second as u64)),
            Self::Chunks => format!("{per_second:.2} chunks/s"),
            Self::Steps => format!("{per_second:.2} steps/s"),
            Self::Tasks => format!("{per_second:.2} tasks/s"),
            Self::Tensors => format!("{per_second:.2} tensors/s"),
            Self::Tokens => format!("{per_second:.2} tokens/s"),
        }
    }
}

/// Plain lines, at most one every [`INTERVAL`].
#[derive(Debug)]
struct Lines {
    label: String,
    total: u64,
    unit: Unit,
    start: Instant,
    done: AtomicU64,
    last: Mutex<Instant>,
    /// What stands behind the numbers.
    status: Mutex<String>,
}

impl Lines {
    fn add(&self, n: u64) {
        let done = self.done.fetch_add(n, Ordering::Relaxed) + n;
        // Another thread that is at it prints the line.
        let Ok(mut last) = self.last.try_lock() else {
            return;
        };
        if last.elapsed() >= INTERVAL {
            *last = Instant::now();
            say(&self.line(done, self.start.elapsed()));
        }
    }

    fn line(&self, done: u64, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let rate = done as f64 / seconds;
        let left = self.total.saturating_sub(done);
        let percent = if self.total == 0 {
            100.0
        } else {
            done as f64 * 100.0 / self.total as f64
        };
        let outlook = if left == 0 {
            format!(", took {}", human_time(elapsed))
        } else if rate > 0.0 {
            let left = Duration::try_from_secs_f64(left as f64 / rate).unwrap_or(Duration::MAX);
            format!(", {} left", human_time(left))
        } else {
            String::new()
        };
        let (total, rate) = (self.unit.amount(self.total), self.unit.rate(rate));
        let status = self.status.lock().map(|s| s.clone()).unwrap_or_default();
        format!(
            "{}: {percent:.0} % of {total}, {rate}{outlook}{status}",
            self.label
        )
    }
}

impl Progress {
    /// Starts `total` steps under a short label.
    pub fn new(label: &str, total: u64, unit: Unit, quiet: bool) -> Self {
        if quiet {
            return Self { form: Form::Quiet };
        }
        let label = printable(label).into_owned();
        if std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template(unit.template()).expect("a valid template");
            let bar = ProgressBar::new(total).with_style(style.progress_chars("=> "));
            return Self {
                form: Form::Bar(bar.with_prefix(label)),
            };
        }
        let now = Instant::now();
        let lines = Lines {
            label,
            total,
            unit,
            start: now,
            done: AtomicU64::new(0),
            last: Mutex::new(now),
            status: Mutex::default(),
        };
        Self {
            form: Form::Lines(lines),
        }
    }

    /// Adds steps done.
    pub fn add(&self, n: u64) {
        match &self.form {
            Form::Quiet => {}
            Form::Bar(bar) => bar.inc(n),
            Form::Lines(lines) => lines.add(n),
        }
    }

    /// Shows the state of the work behind rate and time left, from the next step on: `PPL 6.1 ± 0.1`.
    pub fn status(&self, text: &str) {
        let text = printable(text);
        match &self.form {
            Form::Quiet => {}
            Form::Bar(bar) => bar.set_message(format!("; {text}")),
            Form::Lines(lines) => {
                if let Ok(mut status) = lines.status.lock() {
                    *status = format!("; {text}");
                }
            }
        }
    }

    /// Runs what writes whole lines to the terminal, without the bar in the way.
    pub fn suspend<T>(&self, f: impl FnOnce() -> T) -> T {
        match &self.form {
            Form::Bar(bar) => bar.suspend(f),
            Form::Quiet | Form::Lines(_) => f(),
        }
    }

    /// A line of talk that does not tear the bar.
    pub fn note(&self, line: &str) {
        match &self.form {
            Form::Quiet => {}
            Form::Bar(bar) => bar.suspend(|| say(line)),
            Form::Lines(_) => say(line),
        }
    }

    /// Ends it.
    pub fn finish(self) {
        match &self.form {
            Form::Quiet => {}
            Form::Bar(bar) => bar.finish_and_clear(),
            Form::Lines(lines) => {
                let elapsed = lines.start.elapsed();
                // Short work that never had a line does not get one now.
                if elapsed >= INTERVAL {
                    say(&lines.line(lines.done.load(Ordering::Relaxed), elapsed));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;
    use std::time::{Duration, Instant};

    use super::{Form, Lines, Progress, Unit};

    fn lines(total: u64, unit: Unit) -> Lines {
        let (start, last) = (Instant::now(), Mutex::new(Instant::now()));
        Lines {
            label: "work".to_owned(),
            total,
            unit,
            start,
            done: AtomicU64::new(0),
            last,
            status: Mutex::default(),
        }
    }

    #[test]
    fn lines_tell_share_rate_and_time_left() {
        let text = lines(100 << 20, Unit::Bytes).line(25 << 20, Duration::from_secs(10));
        assert_eq!(text, "work: 25 % of 100 MiB, 2.50 MiB/s, 30 s left");
        let text = lines(80, Unit::Chunks).line(80, Duration::from_secs(160));
        assert_eq!(text, "work: 100 % of 80 chunks, 0.50 chunks/s, took 2 min 40 s");
        assert_eq!(
            lines(0, Unit::Tensors).line(0, Duration::ZERO),
            "work: 100 % of 0 tensors, 0.00 tensors/s, took 0.0 s"
        );
        let progress = Progress {
            form: Form::Lines(lines(4, Unit::Tasks)),
        };
        progress.status("PPL 6.1");
        let Form::Lines(work) = &progress.form else {
            panic!("lines")
        };
        assert!(work.line(1, Duration::from_secs(2)).ends_with("left; PPL 6.1"));
        assert!(!lines(10, Unit::Tensors).line(0, Duration::ZERO).contains("left"));
    }
}

//! Tasks: questions with answers to choose from, of which the model takes the likeliest.
//!
//! Every answer is evaluated behind its question as a sequence of its own, many sequences together. An answer's
//! score is the mean log probability of its scored tokens; the highest wins, the first of equals.

mod questions;
mod random;
mod statistics;

use gguf_cli::{Failure, Result, Unit, file_name};
use serde_json::json;

use self::questions::{Question, Sequence};
use self::statistics::Share;
use super::args::{Args, TaskKind};
use super::locate::{self, BadLogit};
use super::score::LogSum;
use super::texts;
use super::view::View;
use crate::pool;
use crate::{Error, Session, Settings, Token, Tokenizer};

/// Sequences that are evaluated together at most.
const MAX_SEQ: usize = 64;
/// Tasks below which a final score is not worth showing.
const MIN_TASKS: usize = 100;

impl TaskKind {
    fn name(self) -> &'static str {
        match self {
            Self::HellaSwag => "hellaswag",
            Self::Winogrande => "winogrande",
            Self::MultipleChoice => "multiple-choice",
        }
    }
}

/// A question ready to be evaluated.
struct Task {
    /// Place in the file, counted from 1.
    number: usize,
    sequences: Vec<Sequence>,
    right: Vec<bool>,
    /// Score of each sequence that is done.
    scores: Vec<f64>,
}

impl Task {
    /// The answer with the highest score, the first of equals.
    fn chosen(&self) -> usize {
        let mut best = 0;
        for (i, &score) in self.scores.iter().enumerate() {
            if score > self.scores[best] {
                best = i;
            }
        }
        best
    }

    fn is_right(&self) -> bool {
        self.right[self.chosen()]
    }
}

/// Scores up to `limit` tasks of the file.
pub(super) fn run(args: &Args, kind: TaskKind, limit: usize) -> Result<()> {
    let path = &args.file[0];
    let questions = questions::read(path, kind)?;
    let in_file = questions.len();
    let (model, tokenizer) = texts::open(args)?;
    let mut tasks = Vec::new();
    for i in random::choose(in_file, limit) {
        tasks.push(prepare(&questions[i], i + 1, &tokenizer, args)?);
    }
    let longest = tasks.iter().flat_map(|t| &t.sequences).map(|s| s.ids.len()).max();
    let n_ctx = longest.unwrap_or(1);
    texts::warn_of_length(&model, n_ctx);
    let settings = args.exactness.apply(Settings {
        n_ctx,
        n_seq: (args.chunks.batch_size / n_ctx).clamp(1, MAX_SEQ),
        n_ubatch: args.chunks.ubatch.ubatch_size,
        ..Settings::default()
    });
    let mut session = Session::new(&model, settings)?;
    let mut runner = Runner {
        kind,
        done: Share::default(),
        view: View::new(args, kind.name(), tasks.len(), Unit::Tasks),
    };
    runner.run(&mut tasks, &mut session)?;
    let Runner { done, view, .. } = runner;
    view.finish();
    if args.json {
        return gguf_cli::print_json(&object(args, kind, in_file, &tasks, &done, n_ctx));
    }
    match summary(kind, &tasks, &done) {
        Some(text) => gguf_cli::print_data(&text),
        None => Ok(()),
    }
}

/// Makes tokens of a question and checks that they fit.
fn prepare(question: &Question, number: usize, tokenizer: &Tokenizer, args: &Args) -> Result<Task> {
    let refuse = |what: String| {
        let path = args.file[0].display();
        Failure::Input(format!("`{path}`, task {number}: {what}"))
    };
    let sequences = question.sequences(tokenizer)?;
    if let Some(i) = sequences.iter().position(|s| s.scored.is_empty()) {
        return Err(refuse(format!(
            "answer {}: expected a token to score, found none",
            i + 1
        )));
    }
    let longest = sequences.iter().map(|s| s.ids.len()).max().unwrap_or(0);
    if let Some(n_ctx) = args.chunks.ctx_size.filter(|&n| n < longest) {
        return Err(Failure::Usage(format!(
            "`-c {n_ctx}`: task {number} needs {longest} tokens; leave `-c` out to take as many as the tasks need"
        )));
    }
    Ok(Task {
        number,
        sequences,
        right: question.right(),
        scores: Vec::new(),
    })
}

struct Runner {
    kind: TaskKind,
    done: Share,
    view: View,
}

impl Runner {
    fn run(&mut self, tasks: &mut [Task], session: &mut Session<'_>) -> Result<()> {
        if self.kind != TaskKind::Winogrande {
            let done = self.view.line("task\tacc_norm\t95% confidence interval");
            self.view.outcome(done, Failure::from)?;
        }
        let places: Vec<(usize, usize)> = tasks
            .iter()
            .enumerate()
            .flat_map(|(t, task)| (0..task.sequences.len()).map(move |s| (t, s)))
            .collect();
        let n_seq = session.settings().n_seq;
        for group in places.chunks(n_seq) {
            let sequences: Vec<&Sequence> = group.iter().map(|&(t, s)| &tasks[t].sequences[s]).collect();
            let scores = evaluate(session, &sequences).map_err(|e| explain(e, tasks, group, session))?;
            for (&(t, _), score) in group.iter().zip(scores) {
                tasks[t].scores.push(score);
                if tasks[t].scores.len() == tasks[t].sequences.len() {
                    let done = self.end(&tasks[t]);
                    self.view.outcome(done, Failure::from)?;
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, task: &Task) -> crate::Result<()> {
        self.done.add(task.is_right());
        let (n, percent) = (self.done.n, self.done.percent());
        let [low, high] = self.done.interval();
        let line = match self.kind {
            TaskKind::Winogrande => format!(
                "{n}\t{percent:.4}\t{:10.6}  {:10.6}  {}  {}",
                task.scores[0],
                task.scores[1],
                task.chosen() + 1,
                if task.right[0] { 1 } else { 2 }
            ),
            _ => format!("{n}\t{percent:.8}%\t[{low:.4}%, {high:.4}%]"),
        };
        self.view.line(&line)?;
        self.view.step(&format!(
            "{percent:.2} % right, 95 % interval {low:.1} to {high:.1}"
        ));
        Ok(())
    }
}

/// The mean log probability of each sequence's scored tokens.
fn evaluate(session: &mut Session<'_>, sequences: &[&Sequence]) -> crate::Result<Vec<f64>> {
    session.clear();
    let (mut batch, mut places) = (Vec::new(), Vec::new());
    for (seq, sequence) in sequences.iter().enumerate() {
        for (pos, &id) in sequence.ids.iter().enumerate() {
            batch.push(Token {
                id,
                seq: seq as u32,
                pos: pos as u32,
                logits: sequence.scored.contains(&(pos + 1)),
            });
            places.push((seq, pos));
        }
    }
    let mut sums = vec![0.0; sequences.len()];
    session.decode_with(&batch, None, &mut |logits| {
        let rows = logits.index.iter().zip(logits.rows.chunks(logits.n_vocab));
        let each = pool::map(rows, |(&i, row)| {
            let (seq, pos) = places[i];
            let sum = LogSum::of(row).map_err(|token| Error::NonFinite {
                chunk: seq + 1,
                pos,
                token,
                value: row[token],
            })?;
            Ok::<_, Error>((seq, -sum.nll(row[sequences[seq].ids[pos + 1] as usize])))
        });
        for score in each {
            let (seq, score) = score?;
            sums[seq] += score;
        }
        Ok(())
    })?;
    let mean = |(sum, s): (f64, &&Sequence)| sum / s.scored.len() as f64;
    Ok(sums.into_iter().zip(sequences).map(mean).collect())
}

/// The failure of a group of sequences; a value that is no number is looked into.
fn explain(e: Error, tasks: &[Task], group: &[(usize, usize)], session: &Session<'_>) -> Failure {
    let Error::NonFinite {
        chunk: sequence,
        pos,
        token,
        value,
    } = e
    else {
        return e.into();
    };
    let (t, s) = group[sequence - 1];
    let bad = BadLogit {
        place: format!("task {}, answer {}", tasks[t].number, s + 1),
        pos,
        token,
        value,
    };
    let ids = &tasks[t].sequences[s].ids[..=pos];
    locate::explain(&bad, session.model(), ids, session.settings())
}

/// What guessing gets right.
fn chance(tasks: &[Task]) -> Share {
    let right = |t: &Task| t.right.iter().filter(|&&r| r).count() as f64 / t.right.len() as f64;
    Share {
        n: tasks.len(),
        right: tasks.iter().map(right).sum(),
    }
}

/// The lines at the end.
fn summary(kind: TaskKind, tasks: &[Task], done: &Share) -> Option<String> {
    let n = tasks.len();
    let [score, error] = [done.percent(), done.stderr()];
    match kind {
        TaskKind::HellaSwag => None,
        _ if n < MIN_TASKS => None,
        TaskKind::Winogrande => Some(format!(
            "\nFinal Winogrande score({n} tasks): {score:.4} +/- {error:.4}"
        )),
        TaskKind::MultipleChoice => {
            let chance = chance(tasks);
            Some(format!(
                "\nFinal result: {score:.4} +/- {error:.4}\nRandom chance: {:.4} +/- {:.4}",
                chance.percent(),
                chance.stderr()
            ))
        }
    }
}

fn object(
    args: &Args,
    kind: TaskKind,
    in_file: usize,
    tasks: &[Task],
    done: &Share,
    n_ctx: usize,
) -> serde_json::Value {
    let result = |t: &Task| {
        json!({
            "task": t.number,
            "log_probs": t.scores,
            "chosen": t.chosen(),
            "right": t.right.iter().enumerate().filter(|(_, r)| **r).map(|(i, _)| i).collect::<Vec<_>>(),
        })
    };
    json!({
        "model": file_name(&args.model),
        "kind": kind.name(),
        "file": file_name(&args.file[0]),
        "tasks_in_file": in_file,
        "tasks": tasks.len(),
        "correct": done.right,
        "score_percent": done.percent(),
        "score_stderr_percent": done.stderr(),
        "interval_95_percent": done.interval(),
        "chance_percent": chance(tasks).percent(),
        "n_ctx": n_ctx,
        "cache_type_k": args.exactness.cache_type_k.name(),
        "cache_type_v": args.exactness.cache_type_v.name(),
        "compute": args.exactness.compute.name(),
        "cpu": gguf_blocks::Cpu::best().level().name(),
        "threads": pool::n_threads(),
        "results": tasks.iter().map(result).collect::<Vec<_>>(),
    })
}

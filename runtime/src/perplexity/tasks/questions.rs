//! The files of tasks, and their questions as tokens.

use std::ops::Range;
use std::path::Path;

use gguf_cli::{Failure, Result};

use super::super::args::TaskKind;
use crate::Tokenizer;

mod binary;

/// One question with its answers.
#[derive(Debug, PartialEq)]
pub(super) enum Question {
    /// What follows the context.
    Endings {
        context: String,
        endings: Vec<String>,
        right: Vec<bool>,
    },
    /// What fills the gap of a sentence.
    Gap {
        before: String,
        after: String,
        choices: [String; 2],
        /// 0 or 1.
        right: usize,
    },
}

/// One answer behind its question.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) ids: Vec<u32>,
    /// The tokens whose probability counts. Never the first, which nothing predicts.
    pub(super) scored: Range<usize>,
}

/// Reads all questions of a file, at least one.
pub(super) fn read(path: &Path, kind: TaskKind) -> Result<Vec<Question>> {
    let questions = match kind {
        TaskKind::MultipleChoice => binary::read(path)?,
        TaskKind::HellaSwag => hellaswag(&gguf_cli::read_text(path)?).map_err(|e| in_file(path, &e))?,
        TaskKind::Winogrande => winogrande(&gguf_cli::read_text(path)?).map_err(|e| in_file(path, &e))?,
    };
    if questions.is_empty() {
        return Err(in_file(path, "expected at least one task, found an empty file"));
    }
    Ok(questions)
}

fn in_file(path: &Path, what: &str) -> Failure {
    Failure::Input(format!("`{}`: {what}", path.display()))
}

/// Six lines a task: context, number of the right ending from 0, four endings.
fn hellaswag(text: &str) -> std::result::Result<Vec<Question>, String> {
    const LINES: usize = 6;
    let lines: Vec<&str> = text.trim_end().lines().collect();
    if !lines.len().is_multiple_of(LINES) {
        return Err(format!(
            "expected {LINES} lines a HellaSwag task, found {} lines in all",
            lines.len()
        ));
    }
    let task = |(i, lines): (usize, &[&str])| {
        let line = |j: usize| i * LINES + j + 1;
        if let Some(j) = lines.iter().position(|l| l.trim().is_empty()) {
            return Err(format!("line {}: expected a text, found an empty line", line(j)));
        }
        let right = lines[1].trim().parse::<usize>().ok().filter(|&n| n < 4);
        let right = right.ok_or_else(|| {
            let found = gguf_cli::printable(lines[1]);
            format!(
                "line {}: expected the number of the right ending, 0 to 3, found `{found}`",
                line(1)
            )
        })?;
        Ok(Question::Endings {
            context: lines[0].to_owned(),
            endings: lines[2..].iter().map(|&l| l.to_owned()).collect(),
            right: (0..4).map(|i| i == right).collect(),
        })
    };
    lines.chunks(LINES).enumerate().map(task).collect()
}

/// One line a task: number, sentence with `_`, two choices, 1 or 2. Fields may be quoted. A heading is passed over.
fn winogrande(text: &str) -> std::result::Result<Vec<Question>, String> {
    let mut questions = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let fields = fields(line);
        if line.trim().is_empty() || (i == 0 && fields.last().is_some_and(|f| f == "answer")) {
            continue;
        }
        let at = |what: String| format!("line {}: {what}", i + 1);
        // A sentence that is not quoted may have commas: the fields around it are counted from both ends.
        let [_, part, more @ .., first, second, answer] = fields.as_slice() else {
            return Err(at(format!(
                "expected number, sentence, two choices and answer, found {} fields",
                fields.len()
            )));
        };
        let sentence = [std::slice::from_ref(part), more].concat().join(",");
        let Some((before, after)) = sentence.split_once('_') else {
            return Err(at("expected a sentence with `_` for the gap, found none".into()));
        };
        let right = match answer.trim() {
            "1" => 0,
            "2" => 1,
            other => {
                let other = gguf_cli::printable(other);
                return Err(at(format!("expected the answer 1 or 2, found `{other}`")));
            }
        };
        questions.push(Question::Gap {
            before: before.to_owned(),
            after: after.to_owned(),
            choices: [first.clone(), second.clone()],
            right,
        });
    }
    Ok(questions)
}

/// The fields of a line of CSV: parted by commas, quotes around one keep its commas, two quotes in it are one.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let field = fields.last_mut().expect("there is always one");
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' if quoted => quoted = false,
            '"' if field.is_empty() => quoted = true,
            ',' if !quoted => fields.push(String::new()),
            c => field.push(c),
        }
    }
    fields
}

impl Question {
    /// Which answers are right.
    pub(super) fn right(&self) -> Vec<bool> {
        match self {
            Self::Endings { right, .. } => right.clone(),
            Self::Gap { right, .. } => vec![*right == 0, *right == 1],
        }
    }

    /// Each answer behind the question, and which tokens of it count.
    pub(super) fn sequences(&self, tokenizer: &Tokenizer) -> crate::Result<Vec<Sequence>> {
        let encode = |text: String| tokenizer.encode(&text, true, false);
        match self {
            Self::Endings { context, endings, .. } => {
                let ids = endings.iter().map(|e| encode(format!("{context} {e}")));
                let ids = ids.collect::<crate::Result<Vec<_>>>()?;
                let common = common_prefix(&ids);
                let scored = |ids: Vec<u32>| Sequence {
                    scored: common.max(1)..ids.len(),
                    ids,
                };
                Ok(ids.into_iter().map(scored).collect())
            }
            Self::Gap {
                before,
                after,
                choices,
                ..
            } => {
                let whole = choices.iter().map(|c| encode(format!("{before}{c}{after}")));
                let whole = whole.collect::<crate::Result<Vec<_>>>()?;
                let start = choices.iter().map(|c| Ok(encode(format!("{before}{c}"))?.len()));
                let start = start.collect::<crate::Result<Vec<_>>>()?;
                Ok(behind_gap(whole, &start))
            }
        }
    }
}

/// Tokens that all sequences begin with, but for the last of the shortest.
fn common_prefix(ids: &[Vec<u32>]) -> usize {
    let shortest = ids.iter().map(Vec::len).min().unwrap_or(0);
    let same = |i: &usize| ids.iter().all(|s| s[*i] == ids[0][*i]);
    let n = (0..shortest).take_while(same).count();
    n.min(shortest.saturating_sub(1))
}

/// Tokens behind the choice count, or from the choice on where one of the rests has three or fewer; the last one
/// (a full stop mostly) does not, if there is another.
fn behind_gap(ids: Vec<Vec<u32>>, start: &[usize]) -> Vec<Sequence> {
    const MIN_REST: usize = 3;
    let common = common_prefix(&ids);
    let skips_choice = ids
        .iter()
        .zip(start)
        .all(|(s, &n)| s.len().saturating_sub(n) > MIN_REST);
    let sequence = |(ids, &start): (Vec<u32>, &usize)| {
        let first = if skips_choice { start } else { common }.max(1);
        let last = ids.len() - usize::from(ids.len().saturating_sub(first) > 1);
        Sequence {
            ids,
            scored: first..last,
        }
    };
    ids.into_iter().zip(start).map(sequence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hellaswag_tasks_are_six_lines() {
        let good = "He runs\n2\na\nb\nc\nd\nShe sits\n0\ne\nf\ng\nh\n\n";
        let found = hellaswag(good).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].right(), [false, false, true, false]);
        for (bad, part) in [
            ("He runs\n2\na\nb\nc", "5 lines"),
            ("He runs\n4\na\nb\nc\nd", "line 2: expected the number"),
            ("He runs\n1\na\nb\n\nd", "line 5: expected a text"),
        ] {
            let e = hellaswag(bad).unwrap_err();
            assert!(e.contains(part), "{e}");
        }
    }

    #[test]
    fn winogrande_lines_may_be_quoted() {
        let text =
            "idx,sentence,choice1,choice2,answer\n1,\"A, \"\"x\"\" _ b.\",c,d,2\n\n2,A, b, _ c.,d,e,1\r\n";
        let found = winogrande(text).unwrap();
        let gap = |before: &str, after: &str, choices: [&str; 2], right| Question::Gap {
            before: before.into(),
            after: after.into(),
            choices: choices.map(str::to_owned),
            right,
        };
        assert_eq!(found[0], gap("A, \"x\" ", " b.", ["c", "d"], 1));
        assert_eq!(found[1], gap("A, b, ", " c.", ["d", "e"], 0));
        for (bad, part) in [
            ("1,a _ b,c,2", "found 4 fields"),
            ("1,a b,c,d,2", "line 1: expected a sentence"),
            ("1,a _ b,c,d,3", "answer 1 or 2, found `3`"),
        ] {
            let e = winogrande(bad).unwrap_err();
            assert!(e.contains(part), "{e}");
        }
    }

    #[test]
    fn short_rests_score_the_choice_too() {
        let range = |ids: [&[u32]; 2], start: [usize; 2]| -> Vec<Range<usize>> {
            let found = behind_gap(ids.map(<[u32]>::to_vec).to_vec(), &start);
            found.into_iter().map(|s| s.scored).collect()
        };
        let long = range([&[1, 2, 3, 4, 5, 6, 7], &[1, 2, 9, 9, 4, 5, 6, 7]], [3, 4]);
        assert_eq!(long, [3..6, 4..7]);
        let short = range([&[1, 2, 3, 4, 5, 6, 7], &[1, 2, 9, 9, 5, 6, 7]], [3, 4]);
        assert_eq!(short, [2..6, 2..6]);
        assert_eq!(common_prefix(&[vec![1, 2, 3], vec![1, 2]]), 1);
    }
}

//! Multiple-choice tasks in a binary file, little-endian: the number of tasks and their offsets (u32), then
//! for each task the question and two sets of answers. A set has a number (u32), texts, and a label a text (i32,
//! 1 where it is right); a text has its length (u32) and its bytes. The first set is used, which has one right
//! answer in the known files.

use std::path::Path;

use gguf::source;
use gguf_cli::{Failure, Result};

use super::Question;

/// The largest file: known ones have some MB.
const MAX_BYTES: u64 = 1 << 30;
/// Answers of a set at most.
const MAX_ANSWERS: u32 = 100;

/// Reads all tasks.
pub(super) fn read(path: &Path) -> Result<Vec<Question>> {
    let source = source::open(path)?;
    if source.len() > MAX_BYTES {
        return Err(super::in_file(
            path,
            "expected tasks of at most 1 GiB, found more",
        ));
    }
    let mut bytes = vec![0; source.len() as usize];
    source.read_at(0, &mut bytes)?;
    let mut reader = Reader { bytes: &bytes, at: 0 };
    reader.tasks().map_err(|what| {
        let file = path.display();
        Failure::Input(format!("`{file}` at byte {}: {what}", reader.at))
    })
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

type Read<T> = std::result::Result<T, String>;

impl Reader<'_> {
    fn tasks(&mut self) -> Read<Vec<Question>> {
        let n = self.number("the number of tasks")?;
        let offsets = (n as usize)
            .checked_mul(4)
            .filter(|&b| b <= self.bytes.len() - self.at);
        let offsets = offsets.ok_or_else(|| {
            format!("expected the offsets of {n} tasks, found the end of the file; is this a file of multiple-choice tasks")
        })?;
        self.at += offsets;
        let mut tasks = Vec::new();
        for i in 1..=n {
            let context = self.text(i, "the question")?;
            let (endings, right) = self.answers(i)?;
            self.answers(i)?;
            if endings.len() < 2 || !right.contains(&true) {
                return Err(format!("task {i}: expected several answers with a right one"));
            }
            tasks.push(Question::Endings {
                context,
                endings,
                right,
            });
        }
        let left = self.bytes.len() - self.at;
        if left > 0 {
            return Err(format!(
                "expected the end behind {n} tasks, found {left} bytes more"
            ));
        }
        Ok(tasks)
    }

    fn answers(&mut self, task: u32) -> Read<(Vec<String>, Vec<bool>)> {
        let n = self.number("a number of answers")?;
        if n > MAX_ANSWERS {
            return Err(format!(
                "task {task}: expected at most {MAX_ANSWERS} answers, found {n}"
            ));
        }
        let texts = (0..n)
            .map(|_| self.text(task, "an answer"))
            .collect::<Read<_>>()?;
        let label = |_| match self.number("a label")? {
            n @ (0 | 1) => Ok(n == 1),
            n => Err(format!(
                "task {task}: expected the label 0 or 1, found {}",
                n as i32
            )),
        };
        let right = (0..n).map(label).collect::<Read<_>>()?;
        Ok((texts, right))
    }

    fn text(&mut self, task: u32, what: &str) -> Read<String> {
        let n = self.number("the length of a text")? as usize;
        let bytes = self
            .take(n)
            .ok_or_else(|| format!("task {task}: expected {what} of {n} bytes, found the end"))?;
        String::from_utf8(bytes.to_vec())
            .map_err(|_| format!("task {task}: expected {what} in UTF-8, found other bytes"))
    }

    fn number(&mut self, what: &str) -> Read<u32> {
        let bytes = self
            .take(4)
            .ok_or_else(|| format!("expected {what}, found the end of the file"))?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn take(&mut self, n: usize) -> Option<&[u8]> {
        let bytes = self.bytes.get(self.at..self.at.checked_add(n)?)?;
        self.at += n;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(n: u32) -> Vec<u8> {
        n.to_le_bytes().to_vec()
    }

    fn text(s: &str) -> Vec<u8> {
        [number(s.len() as u32), s.as_bytes().to_vec()].concat()
    }

    fn file(label: u32) -> Vec<u8> {
        let set = [number(2), text("is"), text("was"), number(0), number(label)].concat();
        let other = [number(1), text("be"), number(1)].concat();
        [number(1), number(8), text("It"), set, other].concat()
    }

    fn parse(bytes: &[u8]) -> Read<Vec<Question>> {
        Reader { bytes, at: 0 }.tasks()
    }

    #[test]
    fn the_first_set_is_taken() {
        let good = file(1);
        let expected = Question::Endings {
            context: "It".into(),
            endings: vec!["is".into(), "was".into()],
            right: vec![false, true],
        };
        assert_eq!(parse(&good).unwrap(), [expected]);
        assert!(parse(&number(0)).unwrap().is_empty());
    }

    #[test]
    fn damage_is_told() {
        let good = file(1);
        for n in 0..good.len() {
            assert!(parse(&good[..n]).is_err(), "{n} bytes");
        }
        let change = |at: usize, n: u32| {
            let mut bytes = good.clone();
            bytes[at..at + 4].copy_from_slice(&n.to_le_bytes());
            parse(&bytes).unwrap_err()
        };
        assert!(change(0, u32::MAX).contains("offsets"));
        assert!(change(8, u32::MAX).contains("the end"));
        assert!(change(14, 101).contains("at most 100"));
        assert!(parse(&file(7)).unwrap_err().contains("label"));
        assert!(parse(&file(0)).unwrap_err().contains("right one"));
        assert!(
            parse(&[good.clone(), vec![0]].concat())
                .unwrap_err()
                .contains("1 bytes more")
        );
        let mut bytes = good.clone();
        bytes[12] = 0xFF;
        assert!(parse(&bytes).unwrap_err().contains("UTF-8"));
    }
}

//! Lists of values on the command line: `1,2,4`, `1-4`, `0-4096+1024`, `64-512*2`, and options given several times.

use std::str::FromStr;

/// Values that one option may give.
const MAX_VALUES: u64 = 1000;

/// The values of one option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct List<T>(pub(super) Vec<T>);

/// All values of an option that may be given several times; `usual` where it was not given.
pub(super) fn all<T: Clone>(given: &[List<T>], usual: &[T]) -> Vec<T> {
    if given.is_empty() {
        return usual.to_vec();
    }
    given.iter().flat_map(|list| list.0.iter().cloned()).collect()
}

/// Whole numbers and ranges of them, apart by commas.
pub(super) fn numbers(text: &str) -> Result<List<usize>, String> {
    let mut values = Vec::new();
    for item in text.split(',') {
        Range::parse(item)?.extend(&mut values)?;
    }
    Ok(List(values))
}

/// As [`numbers`], and -1 for 0, as llama.cpp has it.
pub(super) fn threads(text: &str) -> Result<List<usize>, String> {
    let items = text.split(',').map(|item| if item == "-1" { "0" } else { item });
    numbers(&items.collect::<Vec<_>>().join(","))
}

/// As [`numbers`], but 0 is refused.
pub(super) fn positive(text: &str) -> Result<List<usize>, String> {
    let list = numbers(text)?;
    if list.0.contains(&0) {
        return Err("expected numbers above 0".into());
    }
    Ok(list)
}

/// Names apart by commas.
pub(super) fn names<T: FromStr<Err = String>>(text: &str) -> Result<List<T>, String> {
    text.split(',')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .map(List)
}

/// `P,N`: tokens of a prompt and tokens generated behind it.
pub(super) fn pair(text: &str) -> Result<(usize, usize), String> {
    let wrong = || "expected two numbers above 0, as `512,128`".to_owned();
    let (p, n) = text.split_once(',').ok_or_else(wrong)?;
    match (number(p), number(n)) {
        (Ok(p), Ok(n)) if p > 0 && n > 0 => Ok((p, n)),
        _ => Err(wrong()),
    }
}

fn number(text: &str) -> Result<usize, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let n = text
        .parse::<u32>()
        .ok()
        .filter(|&n| digits && i32::try_from(n).is_ok());
    n.map(|n| n as usize).ok_or_else(|| {
        format!(
            "`{text}`: expected a number of at most {}, or a range as `1-4`, `0-4096+1024`, `64-512*2`",
            i32::MAX
        )
    })
}

/// How a range goes on from one value to the next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Plus(usize),
    Times(usize),
}

#[derive(Clone, Copy, Debug)]
struct Range<'a> {
    text: &'a str,
    first: usize,
    last: usize,
    step: Step,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let Some((first, rest)) = text.split_once('-') else {
            let n = number(text)?;
            return Ok(Self {
                text,
                first: n,
                last: n,
                step: Step::Plus(1),
            });
        };
        let (last, step) = match rest.find(['+', '*']) {
            None => (rest, Step::Plus(1)),
            Some(at) if rest.as_bytes()[at] == b'+' => (&rest[..at], Step::Plus(number(&rest[at + 1..])?)),
            Some(at) => (&rest[..at], Step::Times(number(&rest[at + 1..])?)),
        };
        let range = Self {
            text,
            first: number(first)?,
            last: number(last)?,
            step,
        };
        range.check()?;
        Ok(range)
    }

    fn check(&self) -> Result<(), String> {
        let text = self.text;
        if self.last < self.first {
            return Err(format!("`{text}`: expected the smaller number first"));
        }
        match self.step {
            Step::Plus(0) => Err(format!("`{text}`: expected a step of at least 1")),
            Step::Times(0 | 1) => Err(format!("`{text}`: expected a factor of at least 2")),
            Step::Times(_) if self.first == 0 => {
                Err(format!("`{text}`: a range by a factor cannot start at 0"))
            }
            _ => Ok(()),
        }
    }

    fn extend(&self, values: &mut Vec<usize>) -> Result<(), String> {
        let mut next = Some(self.first);
        while let Some(n) = next.filter(|&n| n <= self.last) {
            if values.len() as u64 == MAX_VALUES {
                return Err(format!("`{}`: expected at most {MAX_VALUES} values", self.text));
            }
            values.push(n);
            next = match self.step {
                Step::Plus(step) => n.checked_add(step),
                Step::Times(factor) => n.checked_mul(factor),
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_numbers_and_ranges() {
        let of = |text| numbers(text).map(|l| l.0);
        assert_eq!(of("512"), Ok(vec![512]));
        assert_eq!(of("4,0,4"), Ok(vec![4, 0, 4]));
        assert_eq!(of("1-3,8"), Ok(vec![1, 2, 3, 8]));
        assert_eq!(of("0-10+4"), Ok(vec![0, 4, 8]));
        assert_eq!(of("64-600*2"), Ok(vec![64, 128, 256, 512]));
        assert_eq!(of("2147483647-2147483647*2"), Ok(vec![2_147_483_647]));
        for (text, part) in [
            ("", "``"),
            ("1,", "``"),
            ("x", "`x`"),
            ("-3", "``"),
            ("+3", "`+3`"),
            ("1.5", "`1.5`"),
            ("2147483648", "2147483647"),
            ("3-1", "smaller"),
            ("1-9+0", "step"),
            ("1-9*1", "factor"),
            ("0-9*2", "start at 0"),
            ("1-9+", "``"),
            ("0-2000000000", "at most 1000 values"),
        ] {
            let e = of(text).unwrap_err();
            assert!(e.contains(part), "{text}: {e}");
        }
        assert!(positive("1,0").is_err());
        assert_eq!(threads("-1"), Ok(List(vec![0])));
        assert_eq!(threads("2,4"), numbers("2,4"));
        assert_eq!(threads("2,-1"), numbers("2,0"));
        assert!(threads("2,-2").is_err());
    }

    #[test]
    fn pairs_are_two_numbers() {
        assert_eq!(pair("512,128"), Ok((512, 128)));
        for text in ["512", "512,0", "0,1", "1,2,3", "a,b"] {
            assert!(pair(text).is_err(), "{text}");
        }
    }

    #[test]
    fn options_given_several_times_add_up() {
        let given = [List(vec![1, 2]), List(vec![3])];
        assert_eq!(all(&given, &[9]), [1, 2, 3]);
        assert_eq!(all(&[], &[9]), [9]);
    }
}

//! What the `tokenizers` library takes for granted of a file. It panics, or takes time or memory that the file does not
//! back, where that does not hold, so it is shown to be so before the library sees the file.

use std::collections::VecDeque;

use serde_json::Value as Json;

use super::growth::{Growth, check_growth};
use super::lengths;
use super::patterns::Patterns;
use crate::vocab::base64;
use crate::vocab::tokenizer::AddedToken;

/// Where a table of replacements stands.
const TABLE: &str = "precompiled_charsmap";

/// Steps of a tokenizer, each of which goes over every text: real ones have ten.
const MAX_STEPS: usize = 64;

/// The steps of a tokenizer.json that the library reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps<'a> {
    pub(super) normalizer: Option<&'a Json>,
    pub(super) pre_tokenizer: Option<&'a Json>,
    /// It is read, but never run.
    pub(super) decoder: Option<&'a Json>,
}

/// Looks through all steps and added tokens: tables stay inside of themselves, patterns run in time that is linear in the
/// text, and texts are short and do not grow beyond a bound.
///
/// # Errors
/// In words, what the library could not read or run.
pub(super) fn check(steps: Steps<'_>, added: &[AddedToken]) -> Result<(), String> {
    lengths::check_added(added)?;
    let mut found = Found::default();
    let normalized = found.look(steps.normalizer)?;
    let cut = found.look(steps.pre_tokenizer)?;
    found.look(steps.decoder)?;
    if found.n_steps > MAX_STEPS {
        return Err(format!(
            "expected at most {MAX_STEPS} steps, found {}",
            found.n_steps
        ));
    }
    found.patterns.check_sizes()?;
    found.patterns.check_time()?;
    check_growth(added, normalized, normalized.then(cut))
}

/// What steps hold.
#[derive(Debug, Default)]
struct Found<'a> {
    n_steps: usize,
    patterns: Patterns<'a>,
}

impl<'a> Found<'a> {
    /// The growth by a step and the steps inside of it. The library tells steps without a type by their keys, so keys
    /// count whatever the type.
    fn look(&mut self, step: Option<&'a Json>) -> Result<Growth, String> {
        let Some(Json::Object(all)) = step else {
            return Ok(Growth::NONE);
        };
        self.n_steps += 1;
        if let Some(pattern) = all.get("pattern") {
            self.patterns.add(pattern);
        }
        let mut growth = Growth::by_keys(all);
        if all.get("type").is_some_and(|kind| kind == "Precompiled") || all.contains_key(TABLE) {
            let table = all.get(TABLE).and_then(Json::as_str).and_then(base64::decode);
            let table = table.ok_or_else(|| format!("expected `{TABLE}` in base64, found something else"))?;
            growth = growth.then(Growth::times(check_table(&table)?));
        }
        for list in all.values().filter_map(Json::as_array) {
            for step in list {
                growth = growth.then(self.look(Some(step))?);
            }
        }
        Ok(growth)
    }
}

/// Every path through a table of replacements must stay in it, whatever text is looked up; its form is told in the
/// runtime's `tokenizer/charsmap.rs`. Gives how many bytes come of each byte at most.
fn check_table(table: &[u8]) -> Result<u64, String> {
    let bad = |what: &str| format!("expected a table of replacements, found {what}");
    let (n_bytes, rest) = table
        .split_first_chunk()
        .ok_or_else(|| bad("less than its length"))?;
    let n_units = u32::from_le_bytes(*n_bytes) as usize / 4;
    if n_units == 0 || n_units > rest.len() / 4 {
        return Err(bad(&format!("{n_units} units in {} bytes", rest.len())));
    }
    let (units, replacements) = rest.split_at(n_units * 4);
    let replacements = std::str::from_utf8(replacements).map_err(|e| bad(&e.to_string()))?;
    let unit = |at: usize| units.as_chunks::<4>().0.get(at).map(|u| u32::from_le_bytes(*u));
    let children = |node: usize, unit: u32| node ^ ((unit >> 10) as usize) << ((unit & 1 << 9) >> 6);
    let beyond = |node: usize| bad(&format!("a reference to unit {node} of {n_units}"));
    let ends: Vec<usize> = replacements
        .bytes()
        .enumerate()
        .filter(|(_, b)| *b == 0)
        .map(|(at, _)| at)
        .collect();
    let end = |at: usize| {
        ends.get(ends.partition_point(|&e| e < at))
            .copied()
            .unwrap_or(replacements.len())
    };
    let mut most = 1;
    let mut seen = vec![false; n_units];
    // The shortest path to a node first, as its replacement grows the most.
    let mut open = VecDeque::from([(children(0, unit(0).ok_or_else(|| beyond(0))?), 1)]);
    while let Some((node, depth)) = open.pop_front() {
        // Any byte may be asked for.
        if node | 0xFF >= n_units {
            return Err(beyond(node | 0xFF));
        }
        if std::mem::replace(&mut seen[node], true) {
            continue;
        }
        for byte in 1..=0xFF {
            let child = node ^ byte;
            let Some(found) = unit(child).filter(|u| u & 0x8000_00FF == byte as u32) else {
                continue;
            };
            let next = children(child, found);
            if found >> 8 & 1 == 1 {
                let at = (unit(next).ok_or_else(|| beyond(next))? & 0x7FFF_FFFF) as usize;
                if !replacements.is_char_boundary(at) {
                    return Err(bad(&format!("a reference to byte {at} of the replacements")));
                }
                most = most.max((end(at) - at).div_ceil(depth));
            }
            open.push_back((next, depth + 1));
        }
    }
    Ok(most as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A table of `n` units, of which some are set, and replacements.
    fn table(n: usize, units: &[(usize, u32)], replacements: &[u8]) -> Vec<u8> {
        let mut all = vec![0u32; n];
        for &(at, unit) in units {
            all[at] = unit;
        }
        let all = all.into_iter().flat_map(u32::to_le_bytes);
        (n as u32 * 4)
            .to_le_bytes()
            .into_iter()
            .chain(all)
            .chain(replacements.iter().copied())
            .collect()
    }

    /// `a` becomes the replacement at a byte.
    fn one(value: u32) -> Vec<u8> {
        let a = 0x100 ^ usize::from(b'a');
        // The root's children are at 0x100, the value of `a` at 0x200 and its children nowhere else.
        let unit = |to: usize, from: usize, rest: u32| ((to ^ from) as u32) << 10 | rest;
        table(
            0x300,
            &[
                (0, unit(0x100, 0, 0)),
                (a, unit(0x200, a, 0x100 | u32::from(b'a'))),
                (0x200, 1 << 31 | value),
            ],
            b"x\0",
        )
    }

    #[test]
    fn tables_that_lead_out_of_themselves_are_refused() {
        assert_eq!(check_table(&one(0)), Ok(1));
        assert_eq!(check_table(&one(2)), Ok(1));
        for (bad, words) in [
            (one(3), "byte 3"),
            (vec![1, 2, 3], "less than"),
            (vec![0; 4], "0 units"),
            (vec![0xFF; 64], "1073741823 units in 60 bytes"),
            (table(0x100, &[(0, 0x100 << 10)], b""), "unit 511 of 256"),
            (table(0x100, &[], &[0xFF]), "utf-8"),
        ] {
            let found = check_table(&bad).unwrap_err();
            assert!(found.contains(words), "{found}");
        }
    }

    fn normalizer(steps: &Json) -> Result<(), String> {
        let steps = json!({"type": "Sequence", "normalizers": steps});
        let steps = Steps {
            normalizer: Some(&steps),
            ..Steps::default()
        };
        check(steps, &[])
    }

    #[test]
    fn steps_are_looked_through() {
        assert_eq!(
            normalizer(&json!([{"type": "NFC"}, {"type": "Lowercase"}])),
            Ok(())
        );
        for table in [
            json!({"type": "Precompiled"}),
            json!({"type": "Precompiled", "precompiled_charsmap": 7}),
            json!({"type": "Precompiled", "precompiled_charsmap": "AQID"}),
            json!({"precompiled_charsmap": "/////w=="}),
        ] {
            assert!(normalizer(&json!([{"type": "NFC"}, table])).is_err(), "{table}");
        }
    }

    fn replace(pattern: &Json, n: usize) -> Json {
        json!({"type": "Replace", "pattern": pattern, "content": "e".repeat(n)})
    }

    #[test]
    fn real_normalizers_grow_little() {
        let blank = json!({"String": " "});
        let blanks = json!({"Regex": " {2,}"});
        let sign = json!({"type": "Replace", "pattern": blank, "content": "\u{2581}"});
        for steps in [
            json!([{"type": "Prepend", "prepend": "\u{2581}"}, sign]),
            json!([{"type": "NFKC"}, {"type": "Lowercase"}, replace(&blanks, 1), sign]),
            json!([{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true}]),
            json!([replace(&json!({"String": "``"}), 1), {"type": "NFKD"}, {"type": "StripAccents"}]),
        ] {
            assert_eq!(normalizer(&steps), Ok(()), "{steps}");
        }
    }

    #[test]
    fn normalizers_that_grow_without_measure_are_refused() {
        let e = json!({"String": "e"});
        let twice = replace(&e, 2);
        let prepend = |n: usize| json!({"type": "Prepend", "prepend": "e".repeat(n)});
        for steps in [
            vec![replace(&e, 1000); 4],
            vec![twice.clone(); 20],
            vec![replace(&json!({"Regex": "x*"}), 20); 2],
            vec![replace(&json!({"String": ""}), 300)],
            vec![prepend(100_000)],
            vec![prepend(100); 50],
            vec![json!({"prepend": "e".repeat(100_000)})],
            vec![json!({"pattern": e, "content": "e".repeat(1000)})],
            vec![json!({"type": "NFKD"}); 3],
            vec![json!({"type": "Newer"}); 3],
            vec![json!({"type": "Lowercase"}); 9],
            vec![json!({"type": "ByteLevel"}); 9],
            vec![json!({"type": "Sequence", "normalizers": [twice.clone(), twice.clone()]}); 5],
        ] {
            let found = normalizer(&Json::Array(steps)).unwrap_err();
            assert!(found.contains("bytes"), "{found}");
        }
        let many = vec![json!({"type": "Strip"}); MAX_STEPS];
        assert!(normalizer(&Json::Array(many)).unwrap_err().contains("65"));
    }

    #[test]
    fn pre_tokenizers_that_grow_without_measure_are_refused() {
        let cut = |steps: Vec<Json>| {
            let steps = json!({"type": "Sequence", "pretokenizers": steps});
            let steps = Steps {
                pre_tokenizer: Some(&steps),
                ..Steps::default()
            };
            check(steps, &[])
        };
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": true});
        let blanks = json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always"});
        let words = json!({"type": "WhitespaceSplit"});
        for step in [bytes, blanks] {
            assert_eq!(cut(vec![words.clone(), step.clone()]), Ok(()), "{step}");
            assert!(cut(vec![step.clone(); 9]).is_err(), "{step}");
        }
    }

    #[test]
    fn many_added_tokens_may_grow_less() {
        let token = |n: usize| AddedToken {
            id: 0,
            content: "a".repeat(n),
            special: false,
        };
        let steps = replace(&json!({"String": " "}), 100);
        let steps = Steps {
            normalizer: Some(&steps),
            ..Steps::default()
        };
        assert_eq!(check(steps, &[token(500)]), Ok(()));
        // All of them are normalized when the library reads them.
        let many: Vec<AddedToken> = (0..100).map(|_| token(500)).collect();
        assert!(check(steps, &many).is_err());
        assert_eq!(check(Steps::default(), &many), Ok(()));
        assert!(check(Steps::default(), &[token(1000)]).is_err());
    }

    #[test]
    fn replacements_of_a_table_count_by_the_bytes_that_they_replace() {
        let grown = |replacement: &str| {
            let mut all = one(0);
            all.truncate(all.len() - 2);
            all.extend_from_slice(replacement.as_bytes());
            check_table(&all)
        };
        assert_eq!(grown("twelve bytes\0more\0"), Ok(12));
        assert_eq!(grown("twelve bytes"), Ok(12));
        assert_eq!(grown("\0"), Ok(1));
    }
}

//! What the `tokenizers` library takes for granted of a file. It panics, or takes memory that the file does not back,
//! where that does not hold, so it is shown to be so before the library sees the file.

use serde_json::Value as Json;

use crate::vocab::base64;

/// Where a table of replacements stands.
const TABLE: &str = "precompiled_charsmap";

/// Looks through the steps of a normalizer.
///
/// # Errors
/// In words, a step that the library could not read or run.
pub(super) fn check(step: &Json) -> Result<(), String> {
    match step {
        Json::Object(all) => {
            if all.get("type").is_some_and(|kind| kind == "Precompiled") || all.contains_key(TABLE) {
                let table = all.get(TABLE).and_then(Json::as_str).and_then(base64::decode);
                let table =
                    table.ok_or_else(|| format!("expected `{TABLE}` in base64, found something else"))?;
                check_table(&table)?;
            }
            all.values().try_for_each(check)
        }
        Json::Array(all) => all.iter().try_for_each(check),
        _ => Ok(()),
    }
}

/// Every path through a table of replacements must stay in it, whatever text is looked up; its form is told in the
/// runtime's `tokenizer/charsmap.rs`.
pub(super) fn check_table(table: &[u8]) -> Result<(), String> {
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
    let mut seen = vec![false; n_units];
    let mut open = vec![children(0, unit(0).ok_or_else(|| beyond(0))?)];
    while let Some(node) = open.pop() {
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
                let at = unit(next).ok_or_else(|| beyond(next))? & 0x7FFF_FFFF;
                if !replacements.is_char_boundary(at as usize) {
                    return Err(bad(&format!("a reference to byte {at} of the replacements")));
                }
            }
            open.push(next);
        }
    }
    Ok(())
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
        assert_eq!(check_table(&one(0)), Ok(()));
        assert_eq!(check_table(&one(2)), Ok(()));
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

    #[test]
    fn steps_are_looked_through() {
        let step = |table: Json| json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, table]});
        assert_eq!(check(&step(json!({"type": "Lowercase"}))), Ok(()));
        for table in [
            json!({"type": "Precompiled"}),
            json!({"type": "Precompiled", "precompiled_charsmap": 7}),
            json!({"type": "Precompiled", "precompiled_charsmap": "AQID"}),
            json!({"precompiled_charsmap": "/////w=="}),
        ] {
            assert!(check(&step(table.clone())).is_err(), "{table}");
        }
    }
}

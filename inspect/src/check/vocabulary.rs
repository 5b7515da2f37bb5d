//! Whether the tokens, their types and the merges agree.

use foldhash::{HashSet, HashSetExt};

use gguf::validate::{Finding, Findings};
use gguf::{Array, Metadata, Strings, Value, key, short};

const CONVERT: &str = "convert the model again from its original tokenizer";

/// Numbers of token types: normal, unknown, control, user-defined, unused, byte.
const TOKEN_TYPES: std::ops::RangeInclusive<i64> = 1..=6;

pub(super) fn check(metadata: &Metadata, findings: &mut Findings) {
    let Some(Value::Array(Array::String(tokens))) = metadata.get(key::TOKENS) else {
        return;
    };
    let known: HashSet<&[u8]> = tokens.iter_bytes().collect();
    check_doubles(tokens, &known, findings);
    if let Some(Value::Array(types)) = metadata.get(key::TOKEN_TYPE) {
        check_types(types, findings);
    }
    if let Some(Value::Array(Array::String(merges))) = metadata.get(key::MERGES) {
        check_merges(merges, &known, findings);
    }
}

/// Empty tokens are left out: readers give each a name of its own.
fn check_doubles(tokens: &Strings, known: &HashSet<&[u8]>, findings: &mut Findings) {
    let n_empty = tokens.iter_bytes().filter(|t| t.is_empty()).count();
    let n_doubles = tokens.len() - known.len() - n_empty.saturating_sub(1);
    if n_doubles == 0 {
        return;
    }
    let mut seen = HashSet::new();
    let first = tokens.iter_bytes().position(|t| !t.is_empty() && !seen.insert(t));
    let first = first.unwrap_or(0);
    let what = format!(
        "{n_doubles} tokens have the text of another, the first is {first}, `{}`: llama.cpp refuses the model",
        short(&tokens.get(first).unwrap_or_default()).escape_debug()
    );
    findings.one(Finding::severe(Finding::key(key::TOKENS), None, what, CONVERT));
}

fn check_types(types: &Array, findings: &mut Findings) {
    let numbers: Vec<i64> = match types {
        Array::I32(v) => v.iter().map(|&x| x.into()).collect(),
        Array::U32(v) => v.iter().map(|&x| x.into()).collect(),
        other => {
            let what = format!("expected an array of i32, found one of {}", other.element_type());
            findings.one(Finding::severe(
                Finding::key(key::TOKEN_TYPE),
                None,
                what,
                CONVERT,
            ));
            return;
        }
    };
    if let Some(i) = numbers.iter().position(|n| !TOKEN_TYPES.contains(n)) {
        let what = format!("token {i} has type {}: expected 1 to 6", numbers[i]);
        findings.one(Finding::unusual(
            Finding::key(key::TOKEN_TYPE),
            None,
            what,
            CONVERT,
        ));
    }
}

/// A merge is two tokens with a space between; the first of them may itself begin with one.
fn check_merges(merges: &Strings, known: &HashSet<&[u8]>, findings: &mut Findings) {
    let mut n_useless = 0_usize;
    let mut first = None;
    let mut joined = Vec::new();
    for (i, merge) in merges.iter_bytes().enumerate() {
        let space = merge.iter().skip(1).position(|&b| b == b' ').map(|p| p + 1);
        let Some(at) = space else {
            let what = format!(
                "merge {i}, `{}`: expected two parts with a space between",
                short(&String::from_utf8_lossy(merge)).escape_debug()
            );
            findings.one(Finding::severe(Finding::key(key::MERGES), None, what, CONVERT));
            return;
        };
        let (left, right) = (&merge[..at], &merge[at + 1..]);
        joined.clear();
        joined.extend_from_slice(left);
        joined.extend_from_slice(right);
        if ![left, right, &joined].iter().all(|t| known.contains(t)) {
            n_useless += 1;
            first.get_or_insert(i);
        }
    }
    if let Some(first) = first {
        let what = format!(
            "{n_useless} merges have a part or a result that is no token and never apply, the first is {first}, `{}`",
            short(&merges.get(first).unwrap_or_default()).escape_debug()
        );
        findings.one(Finding::unusual(Finding::key(key::MERGES), None, what, CONVERT));
    }
}

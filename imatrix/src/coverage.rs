//! Which experts the text did not reach.

use std::collections::BTreeMap;

use gguf_imatrix_format::Entry;

/// Tokens below which an expert's mean squares are mostly chance.
const FEW: u64 = 64;

/// One line for each layer in which an expert saw fewer than [`FEW`] tokens.
pub(crate) fn lines(entries: &BTreeMap<String, Entry>) -> Vec<String> {
    // The stacks of a layer are reached by the same tokens, so one of them speaks for all.
    let mut by_layer: BTreeMap<(usize, &str), &[u64]> = BTreeMap::new();
    for (name, e) in entries.iter().filter(|(_, e)| e.counts.len() > 1) {
        let layer = name.strip_prefix("blk.").and_then(|r| r.split_once('.'));
        let place = layer.map_or((usize::MAX, name.as_str()), |(n, _)| {
            (n.parse().unwrap_or(usize::MAX), n)
        });
        by_layer.entry(place).or_insert(&e.counts);
    }
    by_layer
        .into_iter()
        .filter_map(|((_, label), counts)| line(label, counts))
        .collect()
}

fn line(layer: &str, counts: &[u64]) -> Option<String> {
    let (fewest, least) = counts.iter().copied().enumerate().min_by_key(|&(_, c)| c)?;
    if least >= FEW {
        return None;
    }
    let unseen = counts.iter().filter(|&&c| c == 0).count();
    let few = counts.iter().filter(|&&c| c < FEW).count();
    let advice = match (unseen, FEW.checked_div(least)) {
        (0, Some(times)) => format!(
            "the fewest expert {fewest} with {least}: about {} times as much text is needed",
            times + 1
        ),
        _ => format!("{unseen} of them none: more text, or of other kinds, is needed"),
    };
    let n = counts.len();
    Some(format!(
        "layer {layer}: {few} of {n} experts saw fewer than {FEW} tokens, {advice}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(counts: &[u64]) -> Entry {
        Entry {
            sums: vec![0.0; counts.len()],
            means: vec![],
            counts: counts.to_vec(),
        }
    }

    #[test]
    fn layers_in_need_are_told_in_order() {
        let entries = [
            ("blk.10.ffn_up_exps.weight", entry(&[500, 20])),
            ("blk.10.ffn_down_exps.weight", entry(&[500, 20])),
            ("blk.2.ffn_up_exps.weight", entry(&[0, 0, 3, 900])),
            ("blk.3.ffn_up_exps.weight", entry(&[64, 456])),
            ("blk.3.attn_q.weight", entry(&[4])),
        ];
        let entries = entries.into_iter().map(|(n, e)| (n.to_owned(), e)).collect();
        assert_eq!(
            lines(&entries),
            [
                "layer 2: 3 of 4 experts saw fewer than 64 tokens, 2 of them none: more text, or of other kinds, is needed",
                "layer 10: 1 of 2 experts saw fewer than 64 tokens, the fewest expert 1 with 20: about 4 times as much text is needed",
            ]
        );
    }
}

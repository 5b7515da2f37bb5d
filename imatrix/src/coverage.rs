//! How many tokens each expert saw.

use std::collections::BTreeMap;

use gguf_cli::count;
use gguf_imatrix_format::{Entry, is_experts};
use gguf_models::component::layer_of;
use serde::Serialize;

/// Tokens that an expert should have seen. The mean square of a normally distributed column is known to a relative
/// error of `sqrt(2 / n)`: 18 % with 64 tokens, which is small against the differences between columns, and half as
/// much only with four times the text.
pub(crate) const ENOUGH: u64 = 64;

/// Layers that the warning names.
const SOME_LAYERS: usize = 8;

/// What all layers with experts saw.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Coverage {
    /// Tokens that each expert should see.
    min_expert_tokens: u64,
    experts: usize,
    /// Experts that saw a token.
    reached: usize,
    /// Experts that saw fewer tokens than they should.
    below: usize,
    layers: Vec<Stack>,
}

/// What the experts of one layer saw.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Stack {
    /// Number of the layer, or the weight's name outside of layers.
    layer: String,
    experts: usize,
    reached: usize,
    below: usize,
    least_tokens: u64,
    /// The expert that saw the fewest.
    least_expert: usize,
    median_tokens: u64,
    /// How many times the text is needed, if its kind stays the same; `None` if some expert saw nothing.
    text_needed: Option<f64>,
}

impl Stack {
    fn of(layer: String, counts: &[u64], min: u64) -> Self {
        let fewest = counts.iter().copied().enumerate().min_by_key(|&(_, c)| c);
        let (least_expert, least_tokens) = fewest.unwrap_or_default();
        let mut sorted = counts.to_vec();
        sorted.sort_unstable();
        let factor = (min as f64 / least_tokens as f64).max(1.0);
        Self {
            layer,
            experts: counts.len(),
            reached: counts.iter().filter(|&&c| c > 0).count(),
            below: counts.iter().filter(|&&c| c < min).count(),
            least_tokens,
            least_expert,
            median_tokens: sorted.get(sorted.len() / 2).copied().unwrap_or(0),
            text_needed: (least_tokens > 0 || min == 0).then_some(if min == 0 { 1.0 } else { factor }),
        }
    }
}

impl Coverage {
    /// Of the experts of all layers, where each should see `min` tokens. The stacks of a layer are reached by the same
    /// tokens, so the one that saw the fewest speaks for all.
    pub(crate) fn of(entries: &BTreeMap<String, Entry>, min: u64) -> Self {
        // With the least count beside them: a layer may have any number of stacks.
        let mut by_layer: BTreeMap<(usize, &str), (u64, &[u64])> = BTreeMap::new();
        let stacks = entries
            .iter()
            .filter(|(name, e)| is_experts(name) && e.counts.len() > 1);
        for (name, e) in stacks {
            let place = match layer_of(name) {
                Some(layer) => (layer, ""),
                None => (usize::MAX, name.as_str()),
            };
            let own = (e.counts.iter().copied().min().unwrap_or(0), e.counts.as_slice());
            let kept = by_layer.entry(place).or_insert(own);
            if own.0 < kept.0 {
                *kept = own;
            }
        }
        let layers: Vec<Stack> = by_layer
            .into_iter()
            .map(|((layer, name), (_, counts))| {
                let label = if name.is_empty() {
                    layer.to_string()
                } else {
                    name.to_owned()
                };
                Stack::of(label, counts, min)
            })
            .collect();
        let sum = |f: fn(&Stack) -> usize| layers.iter().map(f).sum();
        Self {
            min_expert_tokens: min,
            experts: sum(|l| l.experts),
            reached: sum(|l| l.reached),
            below: sum(|l| l.below),
            layers,
        }
    }

    /// Whether there are counts of single experts.
    pub(crate) fn has_experts(&self) -> bool {
        self.experts > 0
    }

    /// Experts, of all layers together, that saw fewer tokens than they should.
    pub(crate) fn below(&self) -> usize {
        self.below
    }

    /// The fewest tokens that an expert saw.
    pub(crate) fn least(&self) -> u64 {
        self.layers.iter().map(|l| l.least_tokens).min().unwrap_or(0)
    }

    /// The layers as a table for people.
    pub(crate) fn table(&self) -> String {
        let row = |l: &Stack| {
            let needed = match l.text_needed {
                None => "other kinds".to_owned(),
                Some(factor) if factor > 1.0 => format!("{factor:.1} times"),
                Some(_) => "enough".to_owned(),
            };
            vec![
                gguf::short(&l.layer).into_owned(),
                l.experts.to_string(),
                l.reached.to_string(),
                l.below.to_string(),
                l.least_tokens.to_string(),
                l.least_expert.to_string(),
                l.median_tokens.to_string(),
                needed,
            ]
        };
        let below = format!("below {}", self.min_expert_tokens);
        gguf_cli::table(
            &[
                "layer",
                "experts",
                "reached",
                &below,
                "least tokens",
                "of expert",
                "median",
                "text needed",
            ],
            &self.layers.iter().map(row).collect::<Vec<_>>(),
            &[0, 1, 2, 3, 4, 5, 6, 7],
        )
    }

    /// The same for programs.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("numbers and texts are JSON")
    }

    /// One line if experts saw too little.
    pub(crate) fn warning(&self) -> Option<String> {
        let short: Vec<&Stack> = self.layers.iter().filter(|l| l.below > 0).collect();
        if short.is_empty() {
            return None;
        }
        let unseen = self.experts - self.reached;
        let names = short.iter().take(SOME_LAYERS).map(|l| gguf::short(&l.layer));
        let more = if short.len() > SOME_LAYERS { ", .." } else { "" };
        let names = format!("{}{more}", names.collect::<Vec<_>>().join(", "));
        let needed = short.iter().filter_map(|l| l.text_needed).fold(1.0, f64::max);
        let advice = if unseen > 0 {
            format!("{unseen} of them none: more text, or of other kinds, is needed")
        } else {
            format!("about {needed:.1} times as much text is needed")
        };
        Some(format!(
            "{} of {} in {} ({names}) saw fewer than {} tokens, {advice}",
            self.below,
            count(self.experts as u64, "expert"),
            count(short.len() as u64, "layer"),
            self.min_expert_tokens,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage(entries: &[(&str, &[u64])], min: u64) -> Coverage {
        let entry = |counts: &[u64]| Entry {
            sums: vec![0.0; counts.len()],
            means: vec![],
            counts: counts.to_vec(),
        };
        let entries = entries.iter().map(|(n, c)| ((*n).to_owned(), entry(c)));
        Coverage::of(&entries.collect(), min)
    }

    #[test]
    fn layers_come_in_order_with_what_they_lack() {
        let seen: [(&str, &[u64]); 5] = [
            ("blk.10.ffn_up_exps.weight", &[500, 20]),
            ("blk.10.ffn_down_exps.weight", &[500, 20]),
            ("blk.2.ffn_up_exps.weight", &[0, 0, 3, 900]),
            ("blk.3.ffn_up_exps.weight", &[64, 456]),
            ("blk.3.attn_k_b.weight", &[4, 4]),
        ];
        let found = coverage(&seen, 64);
        assert_eq!((found.experts, found.reached, found.below()), (8, 6, 4));
        let lines: Vec<Vec<String>> = found
            .table()
            .lines()
            .skip(2)
            .map(|l| l.split_whitespace().map(str::to_owned).collect())
            .collect();
        assert_eq!(lines[0], ["2", "4", "2", "3", "0", "0", "3", "other", "kinds"]);
        assert_eq!(lines[1], ["3", "2", "2", "0", "64", "0", "456", "enough"]);
        assert_eq!(lines[2], ["10", "2", "2", "1", "20", "1", "500", "3.2", "times"]);
        assert_eq!(
            found.warning().as_deref(),
            Some(
                "4 of 8 experts in 2 layers (2, 10) saw fewer than 64 tokens, 2 of them none: more text, or of other \
                 kinds, is needed"
            )
        );
        let text = coverage(&seen[..2], 64).warning().unwrap();
        assert!(text.ends_with("about 3.2 times as much text is needed"), "{text}");
        assert_eq!(coverage(&seen, 0).warning(), None);
        assert!(!coverage(&seen[4..], 64).has_experts());
    }

    #[test]
    fn the_first_stack_that_saw_the_fewest_speaks_for_its_layer() {
        let names: Vec<String> = (0..300).map(|i| format!("blk.0.{i:03}_exps.weight")).collect();
        let counts: Vec<[u64; 2]> = (0_u64..300).map(|i| [900 + i, 500 - i.min(200)]).collect();
        let seen: Vec<(&str, &[u64])> = names
            .iter()
            .zip(&counts)
            .map(|(name, counts)| (name.as_str(), counts.as_slice()))
            .collect();
        let found = coverage(&seen, 64);
        let [layer] = found.layers.as_slice() else {
            panic!("one layer")
        };
        assert_eq!(
            (layer.least_tokens, layer.least_expert, layer.median_tokens),
            (300, 1, 1100)
        );
    }

    #[test]
    fn long_names_are_cut() {
        let name = format!("{}_exps.weight", "x".repeat(50_000));
        let seen: [(&str, &[u64]); 1] = [(name.as_str(), &[1, 9])];
        let found = coverage(&seen, 64);
        for text in [found.table(), found.warning().unwrap()] {
            assert!(text.contains(".. (50012 bytes)") && text.len() < 2000, "{text}");
        }
        assert_eq!(found.json()["layers"][0]["layer"], name.as_str());
    }
}

//! Experts that a checkpoint has a tensor each of, until all of a layer have been seen.

use std::collections::BTreeMap;

use gguf_models::hf::{Match, TensorRule};

use super::{Mapper, N_SHOWN, Output};
use crate::Result;
use crate::error::Error;
use crate::source::SourceTensor;

/// What is written together: a group of rules and a layer.
type Key = (usize, usize);

/// By the rule's place in its group, then by expert.
type Stack<'a> = BTreeMap<(usize, usize), (&'a SourceTensor, Match)>;

/// The experts seen so far.
pub(super) struct Stacks<'a> {
    mapper: Mapper<'a>,
    stacks: BTreeMap<Key, Stack<'a>>,
}

impl<'a> Stacks<'a> {
    pub(super) fn new(mapper: Mapper<'a>) -> Self {
        Self {
            mapper,
            stacks: BTreeMap::new(),
        }
    }

    /// Takes an expert. The stacks of its layer, in the order of the rules, if it was the last.
    ///
    /// # Errors
    /// An expert beyond the config's number, or one that is there twice, and shapes that differ.
    pub(super) fn add(&mut self, found: &Match, tensor: &'a SourceTensor) -> Result<Vec<Output>> {
        let n_expert = self.mapper.hparams.n_expert;
        let expert = found.expert.unwrap_or(0);
        if expert >= n_expert {
            let object = format!("expert of tensor `{}`", tensor.name);
            let expected = format!("below the {n_expert} experts of config.json");
            return Err(Error::mismatch(object, expected, expert));
        }
        let key = (found.group, found.layer.unwrap_or(0));
        let rules: Vec<_> = self.rules(found.group).collect();
        let place = rules
            .iter()
            .position(|rule| std::ptr::eq(*rule, found.rule))
            .unwrap_or(0);
        let stack = self.stacks.entry(key).or_default();
        if let Some((other, _)) = stack.insert((place, expert), (tensor, *found)) {
            let found = format!("`{}` and `{}`", other.name, tensor.name);
            return Err(Error::mismatch(
                format!("tensors for expert {expert}"),
                "one",
                found,
            ));
        }
        if stack.len() < rules.len() * n_expert {
            return Ok(Vec::new());
        }
        let stack = self.stacks.remove(&key).unwrap_or_default();
        let mut outputs = Vec::new();
        for place in 0..rules.len() {
            let experts: Vec<_> = stack.range((place, 0)..=(place, usize::MAX)).collect();
            let Some((_, (first, found))) = experts.first() else {
                continue;
            };
            let tensors: Vec<_> = experts.iter().map(|(_, (tensor, _))| *tensor).collect();
            if let Some(odd) = tensors.iter().find(|t| t.shape != first.shape) {
                let object = format!("shape of tensor `{}`", odd.name);
                let expected = format!("{:?} as of `{}`", first.shape, first.name);
                return Err(Error::mismatch(object, expected, format!("{:?}", odd.shape)));
            }
            outputs.extend(self.mapper.outputs(found, &tensors)?);
        }
        Ok(outputs)
    }

    /// # Errors
    /// Experts that never came.
    pub(super) fn require_complete(&self) -> Result<()> {
        match self.stacks.first_key_value() {
            Some((key, stack)) => Err(self.missing(*key, stack)),
            None => Ok(()),
        }
    }

    /// The rules of a group whose stacks belong together.
    fn rules(&self, group: usize) -> impl Iterator<Item = &'static TensorRule> + use<> {
        let rules: &'static [TensorRule] = self
            .mapper
            .arch
            .hf_tensors
            .get(group)
            .copied()
            .unwrap_or_default();
        rules.iter().filter(|rule| rule.is_stacked())
    }

    fn missing(&self, (group, layer): Key, stack: &Stack<'_>) -> Error {
        let n_expert = self.mapper.hparams.n_expert;
        let mut missing = Vec::new();
        for (place, rule) in self.rules(group).enumerate() {
            let experts = (0..n_expert).filter(|&e| !stack.contains_key(&(place, e)));
            missing.extend(experts.take(N_SHOWN).map(|expert| {
                let name = rule.pattern.replace("{layer}", &layer.to_string());
                format!("`{}`", name.replace("{expert}", &expert.to_string()))
            }));
        }
        let n = self.rules(group).count() * n_expert - stack.len();
        missing.truncate(N_SHOWN);
        let found = format!("none of {n} tensors");
        Error::mismatch(format!("experts of layer {layer}"), missing.join(", "), found)
    }
}

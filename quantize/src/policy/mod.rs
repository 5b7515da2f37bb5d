//! Which type each tensor gets: the file type's mixture, overrides and fallbacks.
//!
//! A file type names a base type and a mixture around it: some tensors get more bits because the output
//! depends on them more, some get fewer. [`Policy`] sees the quantizable tensors in processing order (see
//! [`order_key`]), because a few rules count. The decisions, first that applies:
//!
//! 1. tensors that are never quantized are kept ([`is_quantized`]),
//! 2. the type asked for token embeddings or output,
//! 3. the first rule of the user whose pattern is found in the name,
//! 4. the mixture, unless only the base type is wanted,
//! 5. if rows are not whole blocks of what 4 chose: the fallback.
//!
//! Types are named, not numbered, because a mix may name types that this build has no codec for.

mod allow;
mod category;
mod fallback;
mod mixture;
mod rules;

use std::collections::HashMap;

use gguf::{Array, Metadata, Shape, Value};
use gguf_models::file_type::FileType;

use crate::pattern::Pattern;

pub(crate) use allow::is_quantized;
pub(crate) use category::{Category, order_key};
pub(crate) use fallback::{fits, is_weighted, raised};
pub(crate) use mixture::Row as MixtureRow;

/// What the rules need to know of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// `general.architecture`.
    pub(crate) arch: String,
    /// Layers, those for further predictions included.
    pub(crate) n_layer: usize,
    /// Experts of a layer, 0 if there are none.
    pub(crate) n_expert: usize,
    /// Query heads of the first layer.
    pub(crate) n_head: usize,
    /// Key and value heads of the first layer.
    pub(crate) n_head_kv: usize,
    /// Tensors that hold values of attention.
    pub(crate) n_v_like: usize,
    /// Whether the token embedding serves as output.
    pub(crate) tied: bool,
}

impl Facts {
    /// Reads `{arch}.*` keys and looks through the names of all tensors.
    pub(crate) fn new<'a>(metadata: &Metadata, names: impl Iterator<Item = &'a str>) -> gguf::Result<Self> {
        let arch = metadata
            .string(gguf::key::ARCHITECTURE)?
            .ok_or_else(|| gguf::Error::Key {
                key: gguf::key::ARCHITECTURE.into(),
                expected: "the name of an architecture".into(),
                found: "nothing".into(),
            })?;
        let number = |key: &str| first_uint(metadata, &format!("{arch}.{key}"));
        let n_head = number("attention.head_count")?.unwrap_or(0);
        let mut facts = Self {
            arch: arch.to_owned(),
            n_layer: number("block_count")?.unwrap_or(0),
            n_expert: number("expert_count")?.unwrap_or(0),
            n_head,
            n_head_kv: number("attention.head_count_kv")?.unwrap_or(n_head),
            n_v_like: 0,
            tied: true,
        };
        for name in names {
            let category = Category::of(name);
            facts.n_v_like += usize::from(category.is_v_like());
            facts.tied &= category != Category::Output;
        }
        Ok(facts)
    }

    /// Query heads that share a key head.
    fn n_gqa(&self) -> usize {
        self.n_head.checked_div(self.n_head_kv).unwrap_or(0)
    }

    /// Models of 80 layers whose values are shared by eight queries, so that more bits for them cost little.
    fn is_70b(&self) -> bool {
        let kind = match self.arch.as_str() {
            "llama" => self.n_head != self.n_head_kv,
            "qwen2" | "deci" | "olmo" => true,
            _ => false,
        };
        kind && self.n_layer == 80
    }
}

/// An unsigned integer, or the first of an array of them.
fn first_uint(metadata: &Metadata, key: &str) -> gguf::Result<Option<usize>> {
    let value = match metadata.get(key) {
        Some(Value::Array(Array::U32(a))) => a.first().map(|&v| u64::from(v)),
        Some(Value::Array(Array::I32(a))) => a.first().and_then(|&v| u64::try_from(v).ok()),
        Some(Value::Array(Array::U64(a))) => a.first().copied(),
        _ => metadata.uint(key)?,
    };
    let too_big = |v: u64| gguf::Error::Key {
        key: key.into(),
        expected: "a number of 32 bits".into(),
        found: v.to_string().into(),
    };
    value
        .map(|v| u32::try_from(v).map(|v| v as usize).map_err(|_| too_big(v)))
        .transpose()
}

/// A pattern and the type that tensors whose name it is found in get.
#[derive(Clone, Debug)]
pub(crate) struct Override {
    /// The rule as the user wrote it.
    pub(crate) text: String,
    /// Where it was given, for messages.
    pub(crate) place: String,
    /// Searched in the name.
    pub(crate) pattern: Pattern,
    /// Name of the tensor type.
    pub(crate) type_name: &'static str,
}

/// What the user wants.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// The file type; `None` keeps every tensor that no other wish names.
    pub(crate) file_type: Option<&'static FileType>,
    /// Whether importance is at hand: a few rules spend fewer bits then.
    pub(crate) has_imatrix: bool,
    /// The base type for everything instead of the mixture.
    pub(crate) pure: bool,
    /// Whether the output head is kept as it is.
    pub(crate) leave_output: bool,
    /// Type of `output.weight`.
    pub(crate) output_type: Option<&'static str>,
    /// Type of the token embeddings.
    pub(crate) token_embd_type: Option<&'static str>,
    /// Rules in order; the first that matches decides.
    pub(crate) overrides: Vec<Override>,
}

/// Why a tensor gets its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Never quantized, or left alone by request.
    Kept,
    /// The file type's base type.
    Base,
    /// This row of the mixtures gives it another type than the base.
    Mixture(&'static MixtureRow),
    /// Asked for, by `--output-tensor-type` or `--token-embedding-type`.
    Asked,
    /// The rule of this number.
    Override(usize),
    /// Rows are not whole blocks of the type named here.
    Fallback(&'static str),
    /// The type named here needs importance, and there is none for the tensor or for some of its experts.
    Raised(&'static str),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kept => f.write_str("kept"),
            Self::Base => f.write_str("base"),
            Self::Mixture(row) => write!(f, "mixture: {row}"),
            Self::Asked => f.write_str("asked for"),
            Self::Override(i) => write!(f, "rule {}", i + 1),
            Self::Fallback(from) => write!(f, "fallback from {from}"),
            Self::Raised(from) => write!(f, "raised from {from}"),
        }
    }
}

/// Whether there is a type to be chosen for a tensor.
fn is_chosen(facts: &Facts, wish: &Wish, name: &str, shape: &Shape) -> bool {
    let left = wish.leave_output && Category::of(name) == Category::Output;
    !left && is_quantized(&facts.arch, name, shape)
}

/// The decision for one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The type's name; `None` keeps what it has.
    pub(crate) type_name: Option<&'static str>,
    /// Why.
    pub(crate) reason: Reason,
}

/// Decides tensor after tensor, in processing order.
#[derive(Debug)]
pub(crate) struct Policy<'a> {
    facts: &'a Facts,
    wish: &'a Wish,
    counts: rules::Counts,
    matches: Vec<bool>,
    /// For each tensor that an override matches the first of these, by its place among them.
    first: HashMap<String, usize>,
}

impl<'a> Policy<'a> {
    /// Nothing decided yet, but which of these tensors the overrides match: names and shapes.
    pub(crate) fn new(facts: &'a Facts, wish: &'a Wish, tensors: &[(&str, &Shape)]) -> Self {
        let chosen = tensors
            .iter()
            .filter(|(name, shape)| is_chosen(facts, wish, name, shape));
        let names: Vec<&str> = chosen.map(|&(name, _)| name).collect();
        let mut first = vec![None; names.len()];
        let mut matches = vec![false; wish.overrides.len()];
        // One override after the other, since a pattern is fast as long as what it has compiled is in cache.
        for (i, rule) in wish.overrides.iter().enumerate() {
            for (first, name) in first.iter_mut().zip(&names) {
                // Behind the one that decides it matters only which match nothing at all.
                if (first.is_none() || !matches[i]) && rule.pattern.is_in(name) {
                    matches[i] = true;
                    first.get_or_insert(i);
                }
            }
        }
        let first = names.into_iter().zip(first);
        Self {
            facts,
            wish,
            counts: rules::Counts::default(),
            matches,
            first: first
                .filter_map(|(name, i)| Some((name.to_owned(), i?)))
                .collect(),
        }
    }

    /// Whether each override's pattern was found in a quantizable tensor's name, whether it decided or not.
    pub(crate) fn matches(&self) -> &[bool] {
        &self.matches
    }

    /// The type for a tensor, one of those that the overrides were tried on (dimensions row length first). Errors name
    /// the tensor.
    pub(crate) fn choose(&mut self, name: &str, shape: &Shape) -> Result<Choice, String> {
        let wish = self.wish;
        let category = Category::of(name);
        let kept = Choice {
            type_name: None,
            reason: Reason::Kept,
        };
        if !is_chosen(self.facts, wish, name, shape) {
            return Ok(kept);
        }
        let first = self.first.get(name).map(|&i| (i, wish.overrides[i].type_name));
        let asked = match category {
            Category::Output => wish.output_type,
            // A tied embedding is the output too; the embedding's own type comes first.
            Category::TokenEmbd if name == "token_embd.weight" => wish
                .token_embd_type
                .or(wish.output_type.filter(|_| self.facts.tied)),
            Category::TokenEmbd if first.is_none() => wish.token_embd_type,
            _ => None,
        };
        let (type_name, reason) = match (asked, first) {
            (Some(t), _) => (t, Reason::Asked),
            (None, Some((i, t))) => (t, Reason::Override(i)),
            (None, None) => {
                return match wish.file_type {
                    Some(t) => self.by_file_type(t, category, name, shape),
                    None => Ok(kept),
                };
            }
        };
        check_asked(name, shape, type_name)?;
        Ok(Choice {
            type_name: Some(type_name),
            reason,
        })
    }

    fn by_file_type(
        &mut self,
        file_type: &FileType,
        category: Category,
        name: &str,
        shape: &Shape,
    ) -> Result<Choice, String> {
        let wish = self.wish;
        let base = file_type.base;
        let context = rules::Context {
            facts: self.facts,
            ftype: file_type.name,
            base,
            has_imatrix: wish.has_imatrix,
        };
        let plain = wish.pure || matches!(base, "F32" | "F16" | "BF16");
        let row = if plain {
            None
        } else {
            context.choose(category, name, shape, &mut self.counts)?
        };
        let chosen = row.map_or(base, |r| r.to);
        let fitted = fallback::fit(shape.n_cols(), chosen).ok_or_else(|| {
            format!(
                "tensor `{name}`: rows of {} elements are not whole blocks of `{chosen}` and no fallback is \
                 defined for it",
                shape.n_cols()
            )
        })?;
        let reason = match () {
            () if fitted != chosen || !fits(shape.n_cols(), chosen) => Reason::Fallback(chosen),
            () => row.filter(|r| r.to != base).map_or(Reason::Base, Reason::Mixture),
        };
        Ok(Choice {
            type_name: Some(fitted),
            reason,
        })
    }
}

/// A type that was asked for by name is not replaced in silence: it fits or the plan is refused.
fn check_asked(name: &str, shape: &Shape, type_name: &'static str) -> Result<(), String> {
    let n_cols = shape.n_cols();
    let legal = |f: &&&gguf_blocks::Format| f.encode.is_some() && f.geometry.row_bytes(n_cols).is_some();
    let format = gguf_blocks::registry::by_name(type_name);
    if format.is_some_and(|f| f.geometry.row_bytes(n_cols).is_some()) {
        return Ok(());
    }
    let names: Vec<_> = gguf_blocks::registry::all()
        .iter()
        .filter(legal)
        .map(|f| f.name)
        .collect();
    Err(format!(
        "tensor `{name}`: rows of {n_cols} elements are not whole blocks of `{type_name}`; types that fit: {}",
        names.join(", ")
    ))
}

#[cfg(test)]
mod cases;
#[cfg(test)]
mod tests;

//! The mixtures: which type each tensor gets under a file type.
//!
//! Pure functions of the file type, the tensor's category and the running counts. The order of the branches
//! is part of the definition: the first that applies decides.

use super::category::{Category, layer_of};
use super::{Facts, fallback};
use gguf::Shape;

/// File types whose base is so small that only a few tensors get more than it.
const TINY: &[&str] = &["IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ2_S", "IQ2_M", "IQ1_M"];

/// File types under which the output of attention is worth more when there are eight experts.
const EIGHT_EXPERT_OUTPUT: &[&str] = &[
    "Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS",
];

/// Tensors of a category seen so far, in processing order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    v: usize,
    down: usize,
    gate: usize,
    up: usize,
}

/// What the rules look at besides the tensor.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) facts: &'a Facts,
    /// Name of the file type.
    pub(super) ftype: &'a str,
    /// The type that the file type gives to most tensors.
    pub(super) base: &'static str,
    pub(super) has_imatrix: bool,
}

/// Whether layer `i` of `n` is one of those that get more bits: the first and last eighth and every third
/// between.
fn more_bits(i: usize, n: usize) -> bool {
    i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2
}

impl Context<'_> {
    fn is(&self, names: &[&str]) -> bool {
        names.contains(&self.ftype)
    }

    fn is_falcon(&self) -> bool {
        self.facts.arch == "falcon"
    }

    /// The layer that a tensor counts as: with experts it stands in the name, because the numbers of tensors
    /// and layers differ; else it is the running count.
    fn layer(&self, name: &str, count: usize) -> Result<usize, String> {
        if self.facts.n_expert <= 1 {
            return Ok(count);
        }
        let layer = layer_of(name).ok_or_else(|| {
            format!("tensor `{name}`: expected a layer number (`blk.N.`) in a model with experts")
        })?;
        if layer >= self.facts.n_layer {
            return Err(format!(
                "tensor `{name}`: expected a layer below {} (`block_count`), found {layer}",
                self.facts.n_layer
            ));
        }
        Ok(layer)
    }

    /// The type for a tensor by the mixture; `counts` moves on.
    pub(super) fn choose(
        &self,
        category: Category,
        name: &str,
        shape: &Shape,
        counts: &mut Counts,
    ) -> Result<&'static str, String> {
        let f = self.facts;
        if f.arch == "glm5-next"
            && ["attn_q_a", "attn_q_b", "nextn.eh_proj"]
                .iter()
                .any(|p| name.contains(p))
        {
            return Ok("Q8_0");
        }
        if category == Category::Output || (category == Category::TokenEmbd && f.tied) {
            return Ok(self.output(shape));
        }
        if self.ftype == "MXFP4_MOE" {
            return Ok(self.mxfp4_moe(category, shape));
        }
        if category == Category::TokenEmbd {
            return Ok(self.token_embd());
        }
        if self.is(TINY) {
            return Ok(self.tiny(category, counts));
        }
        let chosen = match category {
            c if c.is_v_like() => self.v_like(counts),
            Category::AttnK if f.n_expert == 8 => Some("Q8_0"),
            Category::AttnK | Category::AttnQ => match self.ftype {
                "IQ3_XS" => Some("IQ3_XXS"),
                "IQ3_XXS" => Some("IQ2_S"),
                _ => None,
            },
            Category::FfnDown => {
                let layer = self.layer(name, counts.down)?;
                counts.down += 1;
                self.down(layer)
            }
            Category::AttnOutput => self.attn_output(),
            Category::FfnGate | Category::FfnUp => {
                let count = if category == Category::FfnGate {
                    &mut counts.gate
                } else {
                    &mut counts.up
                };
                let (layer, n) = (self.layer(name, *count)?, f.n_layer);
                *count += 1;
                (self.ftype == "IQ3_XS" && (n / 8..7 * n / 8).contains(&layer)).then_some("IQ3_XXS")
            }
            _ => None,
        };
        Ok(chosen.unwrap_or(self.base))
    }

    fn output(&self, shape: &Shape) -> &'static str {
        if self.ftype == "MXFP4_MOE" || self.is_falcon() || !fallback::fits(shape.n_cols(), self.base) {
            "Q8_0"
        } else if self.is(TINY) || self.ftype == "IQ3_XXS" {
            "Q5_K"
        } else if self.base == "Q8_0" {
            self.base
        } else {
            "Q6_K"
        }
    }

    fn mxfp4_moe(&self, category: Category, shape: &Shape) -> &'static str {
        let ffn = matches!(category, Category::FfnUp | Category::FfnGate | Category::FfnDown);
        let stacked = shape.dim(2) > 1;
        if stacked && (ffn || self.facts.arch != "bailingmoe3") {
            "MXFP4"
        } else {
            "Q8_0"
        }
    }

    fn token_embd(&self) -> &'static str {
        match self.ftype {
            "IQ2_XXS" | "IQ2_XS" | "IQ1_S" | "IQ1_M" => "Q2_K",
            "IQ2_S" | "IQ2_M" | "IQ3_XXS" => "IQ3_S",
            "TQ1_0" | "TQ2_0" | "Q2_0" => "Q4_K",
            _ => self.base,
        }
    }

    fn tiny(&self, category: Category, counts: &mut Counts) -> &'static str {
        let f = self.facts;
        let medium = self.is(&["IQ2_S", "IQ2_M"]);
        let small = if medium { "IQ3_S" } else { "Q2_K" };
        match category {
            c if c.is_v_like() => {
                counts.v += 1;
                if f.n_gqa() >= 4 || f.n_expert >= 4 {
                    "Q4_K"
                } else {
                    small
                }
            }
            Category::AttnK if f.n_expert == 8 => "Q4_K",
            Category::FfnDown => {
                counts.down += 1;
                if counts.down <= f.n_layer / 8 {
                    small
                } else {
                    self.base
                }
            }
            Category::AttnOutput if f.n_expert == 8 => "Q5_K",
            Category::AttnOutput if self.is(&["IQ1_S", "IQ1_M"]) => "IQ2_XXS",
            Category::AttnOutput if medium => "IQ3_S",
            _ => self.base,
        }
    }

    fn v_like(&self, counts: &mut Counts) -> Option<&'static str> {
        let f = self.facts;
        let i = counts.v;
        counts.v += 1;
        let many_queries = f.n_gqa() >= 4;
        let mut chosen = match self.ftype {
            "Q2_K" => Some(if many_queries { "Q4_K" } else { "Q3_K" }),
            "Q2_K_S" | "IQ3_XXS" | "IQ3_XS" | "IQ3_S" if many_queries => Some("Q4_K"),
            "IQ3_XXS" => Some(if self.has_imatrix { "IQ3_XXS" } else { "IQ3_S" }),
            "IQ3_M" => Some("Q4_K"),
            "Q3_K_M" => Some(if i < 2 { "Q5_K" } else { "Q4_K" }),
            "Q3_K_L" => Some("Q5_K"),
            "IQ4_NL" | "IQ4_XS" if many_queries => Some("Q5_K"),
            "Q4_K_M" | "Q5_K_M" if more_bits(i, f.n_v_like) => Some("Q6_K"),
            "Q4_K_S" if i < 4 => Some("Q5_K"),
            _ => None,
        };
        if f.is_70b() && matches!(chosen.unwrap_or(self.base), "Q3_K" | "Q4_K") {
            chosen = Some("Q5_K");
        }
        if f.n_expert == 8 { Some("Q8_0") } else { chosen }
    }

    fn down(&self, i: usize) -> Option<&'static str> {
        let n = self.facts.n_layer;
        let early = i < n / 8;
        let more = more_bits(i, n);
        match self.ftype {
            "Q2_K" => Some("Q3_K"),
            "Q2_K_S" if early => Some("Q4_K"),
            "IQ3_XXS" if !self.has_imatrix => Some(if early { "Q4_K" } else { "Q3_K" }),
            "Q3_K_M" if i < n / 16 => Some("Q5_K"),
            "Q3_K_M" => Some(if !self.is_falcon() || more { "Q4_K" } else { "Q3_K" }),
            "IQ3_M" if early || (self.facts.n_expert == 8 && more) => Some("Q4_K"),
            "Q3_K_L" => Some(if self.is_falcon() { "Q4_K" } else { "Q5_K" }),
            "Q4_K_M" if self.is_falcon() => Some(match () {
                () if i < n / 16 => "Q6_K",
                () if more => "Q5_K",
                () => "Q4_K",
            }),
            "Q4_K_M" | "Q5_K_M" if more => Some("Q6_K"),
            "IQ4_NL" | "IQ4_XS" if early && !self.has_imatrix => Some("Q5_K"),
            "Q4_K_S" if early && !self.is_falcon() => Some("Q5_K"),
            "Q4_0" if early && self.has_imatrix => Some("Q4_1"),
            "Q5_0" if early && self.has_imatrix => Some("Q5_1"),
            _ => None,
        }
    }

    fn attn_output(&self) -> Option<&'static str> {
        match self.ftype {
            "Q3_K_L" if self.is_falcon() => Some("Q4_K"),
            _ if self.is_falcon() => None,
            _ if self.facts.n_expert == 8 => self.is(EIGHT_EXPERT_OUTPUT).then_some("Q5_K"),
            "Q2_K" => Some("Q3_K"),
            "IQ3_XXS" => Some("IQ3_S"),
            "Q3_K_M" | "IQ3_M" => Some("Q4_K"),
            "Q3_K_L" => Some("Q5_K"),
            _ => None,
        }
    }
}

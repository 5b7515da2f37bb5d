//! Tensor roles and their names in GGUF.

/// What a tensor is in its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the variants are named as the GGUF tensors")]
pub enum Role {
    TokenEmbd,
    OutputNorm,
    Output,
    RopeFreqs,
    RopeFactorsLong,
    RopeFactorsShort,
    AttnNorm,
    AttnQ,
    AttnK,
    AttnV,
    AttnQkv,
    AttnGate,
    AttnOutput,
    AttnQNorm,
    AttnKNorm,
    AttnSinks,
    AttnQA,
    AttnQANorm,
    AttnQB,
    AttnKvAMqa,
    AttnKvANorm,
    AttnKvB,
    AttnKB,
    AttnVB,
    PostAttnNorm,
    SsmIn,
    SsmConv1d,
    SsmA,
    SsmDt,
    SsmBetaAlpha,
    SsmNorm,
    SsmOut,
    FfnNorm,
    PostFfnNorm,
    FfnGate,
    FfnUp,
    FfnDown,
    FfnGateInp,
    ExpProbsB,
    FfnGateExps,
    FfnUpExps,
    FfnDownExps,
    FfnGateUpExps,
    FfnGateInpShexp,
    FfnGateShexp,
    FfnUpShexp,
    FfnDownShexp,
    NextnEhProj,
    NextnEmbedTokens,
    NextnEnorm,
    NextnHnorm,
    NextnHead,
    NextnHeadNorm,
}

/// Which of the tensors of a role: its numbers, or what goes with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The numbers themselves.
    Main,
    /// Added to the product.
    Bias,
    /// Factor of the product, one number or one for each expert.
    Scale,
    /// Factor of quantized inputs, one number or one for each expert.
    InputScale,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 4] = [Self::Main, Self::Bias, Self::Scale, Self::InputScale];

    /// The last component of a name, except for [`Self::Main`], where it is the role's.
    fn ending(self) -> Option<&'static str> {
        match self {
            Self::Main => None,
            Self::Bias => Some("bias"),
            Self::Scale => Some("scale"),
            Self::InputScale => Some("input_scale"),
        }
    }
}

/// What names inside layers start with; the layer's number and a dot follow.
const LAYER_PREFIX: &str = "blk.";

/// One role: its name (without `blk.N.` for roles inside layers), whether it is inside a layer, and whether
/// converters keep it in F32.
#[derive(Clone, Copy)]
struct Name {
    role: Role,
    stem: &'static str,
    in_layer: bool,
    f32: bool,
}

impl Name {
    /// The stem without its last component, which other parts replace.
    #[cfg(test)]
    fn base(&self) -> Option<&'static str> {
        self.stem.strip_suffix(".weight")
    }
}

const fn whole(role: Role, stem: &'static str) -> Name {
    Name {
        role,
        stem,
        in_layer: false,
        f32: false,
    }
}

const fn layer(role: Role, stem: &'static str) -> Name {
    Name {
        in_layer: true,
        ..whole(role, stem)
    }
}

/// Small and sensitive: norms and routers.
const fn in_f32(name: Name) -> Name {
    Name { f32: true, ..name }
}

static NAMES: &[Name] = &[
    whole(Role::TokenEmbd, "token_embd.weight"),
    in_f32(whole(Role::OutputNorm, "output_norm.weight")),
    whole(Role::Output, "output.weight"),
    in_f32(whole(Role::RopeFreqs, "rope_freqs.weight")),
    in_f32(whole(Role::RopeFactorsLong, "rope_factors_long.weight")),
    in_f32(whole(Role::RopeFactorsShort, "rope_factors_short.weight")),
    in_f32(layer(Role::AttnNorm, "attn_norm.weight")),
    layer(Role::AttnQ, "attn_q.weight"),
    layer(Role::AttnK, "attn_k.weight"),
    layer(Role::AttnV, "attn_v.weight"),
    layer(Role::AttnQkv, "attn_qkv.weight"),
    layer(Role::AttnGate, "attn_gate.weight"),
    layer(Role::AttnOutput, "attn_output.weight"),
    in_f32(layer(Role::AttnQNorm, "attn_q_norm.weight")),
    in_f32(layer(Role::AttnKNorm, "attn_k_norm.weight")),
    in_f32(layer(Role::AttnSinks, "attn_sinks.weight")),
    layer(Role::AttnQA, "attn_q_a.weight"),
    in_f32(layer(Role::AttnQANorm, "attn_q_a_norm.weight")),
    layer(Role::AttnQB, "attn_q_b.weight"),
    layer(Role::AttnKvAMqa, "attn_kv_a_mqa.weight"),
    in_f32(layer(Role::AttnKvANorm, "attn_kv_a_norm.weight")),
    layer(Role::AttnKvB, "attn_kv_b.weight"),
    layer(Role::AttnKB, "attn_k_b.weight"),
    layer(Role::AttnVB, "attn_v_b.weight"),
    in_f32(layer(Role::PostAttnNorm, "post_attention_norm.weight")),
    layer(Role::SsmIn, "ssm_in.weight"),
    in_f32(layer(Role::SsmConv1d, "ssm_conv1d.weight")),
    in_f32(layer(Role::SsmA, "ssm_a")),
    in_f32(layer(Role::SsmDt, "ssm_dt.bias")),
    layer(Role::SsmBetaAlpha, "ssm_ba.weight"),
    in_f32(layer(Role::SsmNorm, "ssm_norm.weight")),
    layer(Role::SsmOut, "ssm_out.weight"),
    in_f32(layer(Role::FfnNorm, "ffn_norm.weight")),
    in_f32(layer(Role::PostFfnNorm, "post_ffw_norm.weight")),
    layer(Role::FfnGate, "ffn_gate.weight"),
    layer(Role::FfnUp, "ffn_up.weight"),
    layer(Role::FfnDown, "ffn_down.weight"),
    in_f32(layer(Role::FfnGateInp, "ffn_gate_inp.weight")),
    in_f32(layer(Role::ExpProbsB, "exp_probs_b.bias")),
    layer(Role::FfnGateExps, "ffn_gate_exps.weight"),
    layer(Role::FfnUpExps, "ffn_up_exps.weight"),
    layer(Role::FfnDownExps, "ffn_down_exps.weight"),
    layer(Role::FfnGateUpExps, "ffn_gate_up_exps.weight"),
    in_f32(layer(Role::FfnGateInpShexp, "ffn_gate_inp_shexp.weight")),
    layer(Role::FfnGateShexp, "ffn_gate_shexp.weight"),
    layer(Role::FfnUpShexp, "ffn_up_shexp.weight"),
    layer(Role::FfnDownShexp, "ffn_down_shexp.weight"),
    layer(Role::NextnEhProj, "nextn.eh_proj.weight"),
    layer(Role::NextnEmbedTokens, "nextn.embed_tokens.weight"),
    in_f32(layer(Role::NextnEnorm, "nextn.enorm.weight")),
    in_f32(layer(Role::NextnHnorm, "nextn.hnorm.weight")),
    layer(Role::NextnHead, "nextn.shared_head_head.weight"),
    in_f32(layer(Role::NextnHeadNorm, "nextn.shared_head_norm.weight")),
];

impl Role {
    /// Every role, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|n| n.role)
    }

    /// The full GGUF name: `blk.{layer}.attn_q.weight`, or `output.weight` for roles outside layers.
    pub fn gguf_name(self, layer: usize) -> String {
        let name = self.name();
        if name.in_layer {
            format!("{LAYER_PREFIX}{layer}.{}", name.stem)
        } else {
            name.stem.to_owned()
        }
    }

    /// The full GGUF name of a part: `blk.{layer}.attn_q.bias`. Roles whose name does not end in `.weight` have no
    /// further parts; theirs is the name of [`Part::Main`].
    pub fn part_name(self, part: Part, layer: usize) -> String {
        let main = self.gguf_name(layer);
        match part.ending().zip(main.strip_suffix(".weight")) {
            Some((ending, base)) => format!("{base}.{ending}"),
            None => main,
        }
    }

    /// The role, part and layer of a GGUF name; `None` for names that no role has.
    pub fn parse(name: &str) -> Option<(Self, Part, Option<usize>)> {
        if let Some((role, layer)) = Self::from_gguf(name) {
            return Some((role, Part::Main, layer));
        }
        let (base, ending) = name.rsplit_once('.')?;
        let part = Part::ALL.into_iter().find(|p| p.ending() == Some(ending))?;
        let (role, layer) = Self::from_gguf(&format!("{base}.weight"))?;
        Some((role, part, layer))
    }

    /// The role and layer of a GGUF name; `None` for names that no role has, and for biases and scales.
    pub fn from_gguf(name: &str) -> Option<(Self, Option<usize>)> {
        let (stem, layer) = match name.strip_prefix(LAYER_PREFIX) {
            Some(rest) => {
                let (number, stem) = rest.split_once('.')?;
                (stem, Some(plain_number(number)?))
            }
            None => (name, None),
        };
        NAMES
            .iter()
            .find(|n| n.stem == stem && n.in_layer == layer.is_some())
            .map(|n| (n.role, layer))
    }

    /// Whether tensors of this role are inside layers.
    pub fn in_layer(self) -> bool {
        self.name().in_layer
    }

    /// Whether converters keep tensors of this role in F32 whatever type was asked for: norms and routers.
    pub fn stays_f32(self) -> bool {
        self.name().f32
    }

    fn name(self) -> &'static Name {
        NAMES
            .iter()
            .find(|n| n.role == self)
            .expect("every role is in the table")
    }
}

/// A decimal number as names have it: digits only, no leading zero, so that a name has one spelling.
pub(crate) fn plain_number(text: &str) -> Option<usize> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_survives_the_round_trip() {
        for role in Role::all() {
            for layer in [0, 7, 123] {
                let back = Role::from_gguf(&role.gguf_name(layer));
                assert_eq!(back, Some((role, role.in_layer().then_some(layer))));
                for part in Part::ALL.into_iter().filter(|_| role.name().base().is_some()) {
                    let back = Role::parse(&role.part_name(part, layer));
                    assert_eq!(back, Some((role, part, role.in_layer().then_some(layer))));
                }
            }
        }
    }

    #[test]
    fn a_name_has_one_spelling() {
        assert_eq!(
            Role::from_gguf("blk.3.attn_q.weight"),
            Some((Role::AttnQ, Some(3)))
        );
        for bad in [
            "blk.03.attn_q.weight",
            "blk.+3.attn_q.weight",
            "blk..attn_q.weight",
            "blk.3.output.weight",
            "attn_q.weight",
            "blk.3.attn_q.bias",
            "blk.99999999999999999999999.attn_q.weight",
            "",
        ] {
            assert_eq!(Role::from_gguf(bad), None, "{bad}");
        }
    }
}

//! Tensor roles and their names in GGUF.

/// What a tensor is in its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the variants are named as the GGUF tensors")]
pub enum Role {
    TokenEmbd,
    OutputNorm,
    Output,
    AttnNorm,
    AttnQ,
    AttnK,
    AttnV,
    AttnOutput,
    AttnQNorm,
    AttnKNorm,
    FfnNorm,
    FfnGate,
    FfnUp,
    FfnDown,
    FfnGateInp,
    FfnGateExps,
    FfnUpExps,
    FfnDownExps,
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
    in_f32(layer(Role::AttnNorm, "attn_norm.weight")),
    layer(Role::AttnQ, "attn_q.weight"),
    layer(Role::AttnK, "attn_k.weight"),
    layer(Role::AttnV, "attn_v.weight"),
    layer(Role::AttnOutput, "attn_output.weight"),
    in_f32(layer(Role::AttnQNorm, "attn_q_norm.weight")),
    in_f32(layer(Role::AttnKNorm, "attn_k_norm.weight")),
    in_f32(layer(Role::FfnNorm, "ffn_norm.weight")),
    layer(Role::FfnGate, "ffn_gate.weight"),
    layer(Role::FfnUp, "ffn_up.weight"),
    layer(Role::FfnDown, "ffn_down.weight"),
    in_f32(layer(Role::FfnGateInp, "ffn_gate_inp.weight")),
    layer(Role::FfnGateExps, "ffn_gate_exps.weight"),
    layer(Role::FfnUpExps, "ffn_up_exps.weight"),
    layer(Role::FfnDownExps, "ffn_down_exps.weight"),
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

    /// The role and layer of a GGUF name; `None` for names that no role has.
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

//! How a Hugging Face checkpoint becomes GGUF: config values and tensor names, all as data.

mod config;

pub use config::*;

use crate::arch::Architecture;
use crate::{HParams, Part, Role};

/// Some indices of an axis of a stored matrix: groups of neighbours at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The first index.
    pub first: usize,
    /// Neighbours in a group, at least 1.
    pub len: usize,
    /// From the start of a group to the start of the next.
    pub step: usize,
    /// Groups.
    pub n: usize,
}

impl Groups {
    /// `n` neighbours from `first` on.
    pub const fn span(first: usize, n: usize) -> Self {
        Self {
            first,
            len: n,
            step: n,
            n: 1,
        }
    }
}

/// Parts of an axis of equal length, one for each head, each with a stretch that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Heads.
    pub n: usize,
    /// Indices of a head.
    pub step: usize,
    /// First index that is taken, counted in the head.
    pub first: usize,
    /// Indices that are taken.
    pub len: usize,
}

/// Which indices of an axis of a stored matrix are taken, and in what order.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// All.
    All,
    /// The first half or the second one (0 or 1).
    Half(u64),
    /// The even ones or the odd ones (0 or 1).
    EverySecond(u64),
    /// All, with the halves of each head interleaved: a head of so many rows for rotation of halves becomes one for
    /// rotation of neighbours.
    Interleaved(fn(&HParams) -> usize),
    /// Some groups, behind each other.
    Groups(&'static [fn(&HParams) -> Groups]),
    /// A stretch of each head, which becomes a matrix of a stack.
    Heads(fn(&HParams) -> Heads),
}

/// What happens to every value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Nothing.
    Keep,
    /// `x + 1`: norms that are stored as the difference from one.
    AddOne,
    /// `-exp(x)`: decay rates that are stored as logarithms.
    NegExp,
}

/// A tensor that a tensor of a checkpoint becomes. Rows and columns are those of the stored matrices, the last two
/// dimensions; a vector is one row.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// What it is.
    pub role: Role,
    /// Which part of it.
    pub part: Part,
    /// Rows of each stored matrix.
    pub rows: Cut,
    /// Columns of each stored matrix.
    pub cols: Cut,
    /// Whether the columns become rows.
    pub transpose: bool,
    /// What happens to every value.
    pub op: Op,
    /// Whether dimensions of 1 are left out.
    pub squeeze: bool,
}

impl Piece {
    /// A tensor as it is.
    pub const fn whole(role: Role) -> Self {
        Self {
            role,
            part: Part::Main,
            rows: Cut::All,
            cols: Cut::All,
            transpose: false,
            op: Op::Keep,
            squeeze: false,
        }
    }

    /// A bias as it is.
    pub const fn bias(role: Role) -> Self {
        Self {
            part: Part::Bias,
            ..Self::whole(role)
        }
    }

    /// The same with only some rows.
    #[must_use]
    pub const fn rows(self, rows: Cut) -> Self {
        Self { rows, ..self }
    }

    /// The same with only some columns.
    #[must_use]
    pub const fn cols(self, cols: Cut) -> Self {
        Self { cols, ..self }
    }

    /// The same with columns as rows.
    #[must_use]
    pub const fn transposed(self) -> Self {
        Self {
            transpose: true,
            ..self
        }
    }

    /// The same with an operation on every value.
    #[must_use]
    pub const fn with(self, op: Op) -> Self {
        Self { op, ..self }
    }

    /// The same without dimensions of 1.
    #[must_use]
    pub const fn squeezed(self) -> Self {
        Self {
            squeeze: true,
            ..self
        }
    }
}

/// Why a tensor is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Skip {
    /// Encoders of images and what connects them to the model.
    Vision,
    /// Encoders of sound and what connects them to the model.
    Audio,
    /// Layers that predict further tokens.
    Mtp,
    /// A copy of the embedding.
    TiedOutput,
    /// Buffers that are computed anew.
    Buffer,
}

impl Skip {
    /// What the tensors are, for a message that counts them.
    pub fn words(self) -> &'static str {
        match self {
            Self::Vision => "vision",
            Self::Audio => "audio",
            Self::Mtp => "multi-token prediction",
            Self::TiedOutput => "tied output",
            Self::Buffer => "buffer",
        }
    }
}

/// What becomes of a tensor of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub enum Becomes {
    /// These tensors, in this order. With `{expert}` in the pattern each is a stack of all experts; all stacks of a
    /// layer are written when the last of their experts has been seen, in the order of the rules.
    Tensors(&'static [Piece]),
    /// The first where the checkpoint has plain numbers, the second where it has quantized blocks, whose rows are
    /// along the inputs whatever the layout of plain numbers.
    ByStorage {
        /// Of plain numbers.
        plain: &'static [Piece],
        /// Of quantized blocks.
        blocks: &'static [Piece],
    },
    /// Nothing.
    Nothing(Skip),
}

/// One kind of tensor of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct TensorRule {
    /// The name, with `{layer}` and `{expert}` for the numbers in it. `{rest}` at the end stands for any further
    /// components.
    pub pattern: &'static str,
    /// What becomes of it.
    pub becomes: Becomes,
}

impl TensorRule {
    /// A tensor that becomes some tensors.
    pub const fn new(pattern: &'static str, pieces: &'static [Piece]) -> Self {
        Self {
            pattern,
            becomes: Becomes::Tensors(pieces),
        }
    }

    /// Tensors that are left out.
    pub const fn skip(pattern: &'static str, why: Skip) -> Self {
        Self {
            pattern,
            becomes: Becomes::Nothing(why),
        }
    }

    /// Every tensor that it may become.
    pub fn pieces(&self) -> impl Iterator<Item = &'static Piece> + use<> {
        let (first, second): (&[Piece], &[Piece]) = match self.becomes {
            Becomes::Tensors(pieces) => (pieces, &[]),
            Becomes::ByStorage { plain, blocks } => (plain, blocks),
            Becomes::Nothing(_) => (&[], &[]),
        };
        first.iter().chain(second)
    }

    /// Whether its tensors are one expert's.
    pub fn is_stacked(&self) -> bool {
        self.pattern.contains(EXPERT)
    }
}

const LAYER: &str = "{layer}";
const EXPERT: &str = "{expert}";
const REST: &str = "{rest}";

/// What no text model needs: encoders of images and sound, and buffers. Every architecture has these rules.
pub static LEFT_OUT: &[TensorRule] = &[
    TensorRule::skip("vision_tower.{rest}", Skip::Vision),
    TensorRule::skip("vision_model.{rest}", Skip::Vision),
    TensorRule::skip("visual.{rest}", Skip::Vision),
    TensorRule::skip("mm_projector.{rest}", Skip::Vision),
    TensorRule::skip("multi_modal_projector.{rest}", Skip::Vision),
    TensorRule::skip("embed_vision.{rest}", Skip::Vision),
    TensorRule::skip("model.vision_tower.{rest}", Skip::Vision),
    TensorRule::skip("model.vision_model.{rest}", Skip::Vision),
    TensorRule::skip("model.visual.{rest}", Skip::Vision),
    TensorRule::skip("model.multi_modal_projector.{rest}", Skip::Vision),
    TensorRule::skip("model.embed_vision.{rest}", Skip::Vision),
    TensorRule::skip("audio_tower.{rest}", Skip::Audio),
    TensorRule::skip("embed_audio.{rest}", Skip::Audio),
    TensorRule::skip("model.audio_tower.{rest}", Skip::Audio),
    TensorRule::skip("model.embed_audio.{rest}", Skip::Audio),
];

/// Endings of tensors that hold nothing of the model: buffers that are computed anew.
const IGNORED_ENDINGS: &[&str] = &[
    ".attention.masked_bias",
    ".attention.bias",
    ".rotary_emb.inv_freq",
];

/// A checkpoint's tensor name, understood.
#[derive(Clone, Copy, Debug)]
pub struct Match {
    /// The rule that fits.
    pub rule: &'static TensorRule,
    /// The rule's group among the architecture's, which is that of its stacks.
    pub group: usize,
    /// The number in place of `{layer}`.
    pub layer: Option<usize>,
    /// The number in place of `{expert}`.
    pub expert: Option<usize>,
}

/// Why a tensor of this name is left out of every model, if it is.
pub fn ignored(name: &str) -> Option<Skip> {
    IGNORED_ENDINGS
        .iter()
        .any(|ending| name.ends_with(ending))
        .then_some(Skip::Buffer)
}

/// The layer of a text model's tensor, by its name alone, also where no rule fits.
pub fn layer(name: &str) -> Option<usize> {
    let unwrapped = unwrapped(name);
    let rest = unwrapped.strip_prefix("model.layers.")?;
    crate::names::plain_number(rest.split('.').next()?)
}

/// The name in the text model of a wrapper: `language_model.model.norm.weight` or
/// `model.language_model.norm.weight`.
fn unwrapped(name: &str) -> String {
    name.replacen("language_model.", "", 1)
}

/// Every rule of an architecture.
pub fn rules(arch: &Architecture) -> impl Iterator<Item = &'static TensorRule> {
    arch.hf_tensors.iter().copied().flatten()
}

/// The rule that fits a checkpoint's tensor name.
pub fn match_name(arch: &Architecture, name: &str) -> Option<Match> {
    let unwrapped = unwrapped(name);
    let groups = arch.hf_tensors.iter().copied().chain([LEFT_OUT]);
    groups.enumerate().find_map(|(group, rules)| {
        rules
            .iter()
            .find_map(|rule| match_pattern(rule, group, &unwrapped))
    })
}

fn match_pattern(rule: &'static TensorRule, group: usize, name: &str) -> Option<Match> {
    // Checkpoints have names by the hundred thousand, and most rules differ in what stands behind the last number.
    let end = rule.pattern.rsplit('}').next().unwrap_or_default();
    if !name.ends_with(end) {
        return None;
    }
    let mut found = Match {
        rule,
        group,
        layer: None,
        expert: None,
    };
    let mut parts = name.split('.');
    for expected in rule.pattern.split('.') {
        if expected == REST {
            return Some(found);
        }
        let part = parts.next()?;
        match expected {
            LAYER => found.layer = Some(crate::names::plain_number(part)?),
            EXPERT => found.expert = Some(crate::names::plain_number(part)?),
            literal if literal == part => {}
            _ => return None,
        }
    }
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arch() -> &'static Architecture {
        crate::arch::by_name("qwen3moe").expect("known")
    }

    #[test]
    fn names_are_understood() {
        let m = match_name(arch(), "model.layers.12.mlp.experts.7.up_proj.weight").expect("known name");
        let role = m.rule.pieces().next().map(|p| p.role);
        assert_eq!(
            (role, m.layer, m.expert),
            (Some(Role::FfnUpExps), Some(12), Some(7))
        );
        for wrapped in [
            "language_model.model.norm.weight",
            "model.language_model.norm.weight",
        ] {
            let m = match_name(arch(), wrapped).expect("known name");
            assert_eq!(m.rule.pattern, "model.norm.weight");
        }
        assert_eq!(layer("language_model.model.layers.7.made_up"), Some(7));
        assert_eq!(layer("vision_model.model.layers.7.made_up"), None);
        assert!(match_name(arch(), "model.visual.blocks.3.norm.weight").is_some());
        for unknown in [
            "model.layers.x.mlp.gate.weight",
            "model.layers.01.mlp.gate.weight",
            "model.norm.weight.more",
            "model.norm",
            "model.layers.0.self_attn.q_proj.input_scale",
            "",
        ] {
            assert!(match_name(arch(), unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn patterns_say_what_their_pieces_need() {
        for arch in crate::arch::all() {
            for rule in rules(arch) {
                for piece in rule.pieces() {
                    let in_layer = rule.pattern.contains(LAYER);
                    assert_eq!(piece.role.in_layer(), in_layer, "{}", rule.pattern);
                }
                if rule.is_stacked() {
                    assert!(rule.pattern.contains(LAYER), "{}", rule.pattern);
                }
            }
        }
    }
}

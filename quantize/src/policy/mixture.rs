//! The mixtures as a table: which type each tensor gets under a file type.
//!
//! The first row that names the file type and the role, and whose conditions all hold, decides; without one the tensor
//! gets the file type's base type. The order of rows is part of the definition.
//!
//! A recipe is read by going through the rows with its name. `Q4_K_M`: the output head `Q6_K`; values and down
//! projections `Q6_K` in the layers that get more bits; values `Q8_0` with eight experts; the rest `Q4_K`.

use super::category::Category::{
    self, AttnK, AttnKvB, AttnOutput, AttnQ, AttnQkv, AttnV, FfnDown, FfnGate, FfnUp, Output, TokenEmbd,
};
use When::{
    Arch, Early, EarlyCount, Experts, First, FromExperts, Imatrix, Middle, More, Name, NoImatrix, NotArch,
    NotExperts, SharedBy, Stacked, Unfit, Wide,
};

/// Something that must hold for a row to decide. Layers are counted as [`super::rules`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// The architecture.
    Arch(&'static str),
    /// Another architecture than this.
    NotArch(&'static str),
    /// The tensor's name has one of these in it.
    Name(&'static [&'static str]),
    /// A stack of matrices.
    Stacked,
    /// Rows are not whole blocks of the base type.
    Unfit,
    /// Experts of a layer.
    Experts(usize),
    /// Another number of experts.
    NotExperts(usize),
    /// At least so many experts.
    FromExperts(usize),
    /// At least so many query heads share a key head.
    SharedBy(usize),
    /// A model of 80 layers whose keys are shared: more bits for values cost it little.
    Wide,
    /// An importance matrix is at hand.
    Imatrix,
    /// No importance matrix is at hand.
    NoImatrix,
    /// The first so many tensors of the role.
    First(usize),
    /// The first of so many parts of the layers.
    Early(usize),
    /// As [`When::Early`], by the number of tensors of the role before it, whatever the name says.
    EarlyCount(usize),
    /// Neither the first nor the last eighth of the layers.
    Middle,
    /// The first and the last eighth of the layers, and every third between.
    More,
}

impl std::fmt::Display for When {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Arch(arch) => f.write_str(arch),
            NotArch(arch) => write!(f, "not {arch}"),
            Name(parts) => f.write_str(&parts.join("|")),
            Stacked => f.write_str("expert stack"),
            Unfit => f.write_str("rows not whole blocks of the base type"),
            Experts(n) => write!(f, "{n} experts"),
            NotExperts(n) => write!(f, "not {n} experts"),
            FromExperts(n) => write!(f, "{n} experts or more"),
            SharedBy(n) => write!(f, "{n} query heads or more a key head"),
            Wide => f.write_str("80 layers"),
            Imatrix => f.write_str("with imatrix"),
            NoImatrix => f.write_str("without imatrix"),
            First(n) => write!(f, "first {n}"),
            Early(8) | EarlyCount(8) => f.write_str("first eighth"),
            Early(n) | EarlyCount(n) => write!(f, "first of {n} parts"),
            Middle => f.write_str("middle layers"),
            More => f.write_str("more bits"),
        }
    }
}

/// One row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Names of file types; empty for all.
    pub(crate) file_types: &'static [&'static str],
    /// Roles; empty for all. A tied embedding has the role of the output head.
    pub(crate) roles: &'static [Category],
    /// What must hold besides, all of it.
    pub(crate) when: &'static [When],
    /// Name of the tensor type.
    pub(crate) to: &'static str,
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut comma = "";
        for (i, role) in self.roles.iter().enumerate() {
            write!(f, "{}{}", if i > 0 { "|" } else { "" }, role.label())?;
            comma = ", ";
        }
        // What a model is not is no reason to its reader.
        let is_said = |w: &&When| !matches!(w, NotArch(_) | NotExperts(_));
        for when in self.when.iter().filter(is_said) {
            write!(f, "{comma}{when}")?;
            comma = ", ";
        }
        if comma.is_empty() {
            f.write_str("all")?;
        }
        Ok(())
    }
}

const fn row(
    file_types: &'static [&'static str],
    roles: &'static [Category],
    when: &'static [When],
    to: &'static str,
) -> Row {
    Row {
        file_types,
        roles,
        when,
        to,
    }
}

/// Every file type, every role.
const ANY: &[&str] = &[];
const ALL: &[Category] = &[];

/// Values, alone or with others.
const V: &[Category] = &[AttnV, AttnQkv, AttnKvB];
const K: &[Category] = &[AttnK];
const K_Q: &[Category] = &[AttnK, AttnQ];
const O: &[Category] = &[AttnOutput];
const DOWN: &[Category] = &[FfnDown];
const GATE_UP: &[Category] = &[FfnGate, FfnUp];
const FFN: &[Category] = &[FfnUp, FfnGate, FfnDown];
const HEAD: &[Category] = &[Output];
const EMBD: &[Category] = &[TokenEmbd];

/// File types whose base is so small that only a few tensors get more than it.
const TINY: &[&str] = &["IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ2_S", "IQ2_M", "IQ1_M"];
const TINY_HEAD: &[&str] = &["IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ2_S", "IQ2_M", "IQ1_M", "IQ3_XXS"];
const IQ2_SM: &[&str] = &["IQ2_S", "IQ2_M"];
const IQ1: &[&str] = &["IQ1_S", "IQ1_M"];
const MOE: &[&str] = &["MXFP4_MOE"];

/// File types under which the output of attention is worth more when there are eight experts.
const EIGHT_EXPERTS: &[&str] = &[
    "Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS",
];

/// The mixtures.
#[rustfmt::skip]
pub(crate) static ROWS: &[Row] = &[
    row(ANY, ALL, &[Arch("glm5-next"), Name(&["attn_q_a", "attn_q_b", "nextn.eh_proj"])], "Q8_0"),

    // The output head, and the embedding that serves as one.
    row(MOE,       HEAD, &[],               "Q8_0"),
    row(ANY,       HEAD, &[Arch("falcon")], "Q8_0"),
    row(ANY,       HEAD, &[Unfit],          "Q8_0"),
    row(TINY_HEAD, HEAD, &[],               "Q5_K"),
    row(&["Q8_0"], HEAD, &[],               "Q8_0"),
    row(ANY,       HEAD, &[],               "Q6_K"),

    // Expert stacks in four bits, everything else in eight.
    row(MOE, FFN, &[Arch("bailingmoe3"), Stacked], "MXFP4"),
    row(MOE, ALL, &[Arch("bailingmoe3")],          "Q8_0"),
    row(MOE, ALL, &[Stacked],                      "MXFP4"),
    row(MOE, ALL, &[],                             "Q8_0"),

    row(&["IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"], EMBD, &[], "Q2_K"),
    row(&["IQ2_S", "IQ2_M", "IQ3_XXS"],           EMBD, &[], "IQ3_S"),
    row(&["TQ1_0", "TQ2_0", "Q2_0"],              EMBD, &[], "Q4_K"),

    // The smallest file types.
    row(TINY,   V,    &[SharedBy(4)],    "Q4_K"),
    row(TINY,   V,    &[FromExperts(4)], "Q4_K"),
    row(IQ2_SM, V,    &[],               "IQ3_S"),
    row(TINY,   V,    &[],               "Q2_K"),
    row(TINY,   K,    &[Experts(8)],     "Q4_K"),
    row(IQ2_SM, DOWN, &[EarlyCount(8)],  "IQ3_S"),
    row(TINY,   DOWN, &[EarlyCount(8)],  "Q2_K"),
    row(TINY,   O,    &[Experts(8)],     "Q5_K"),
    row(IQ1,    O,    &[],               "IQ2_XXS"),
    row(IQ2_SM, O,    &[],               "IQ3_S"),

    // Values.
    row(ANY,                                              V, &[Experts(8)],            "Q8_0"),
    row(&["Q2_K", "IQ3_M", "Q3_K_S", "Q3_K_M", "Q4_K_S"], V, &[Wide],                  "Q5_K"),
    row(&["Q2_K_S", "IQ3_XXS", "IQ3_XS", "IQ3_S"],        V, &[Wide, SharedBy(4)],     "Q5_K"),
    row(&["Q4_K_M", "Q5_K_M"],                            V, &[More],                  "Q6_K"),
    row(&["Q4_K_M"],                                      V, &[Wide],                  "Q5_K"),
    row(&["Q2_K", "Q2_K_S", "IQ3_XXS", "IQ3_XS", "IQ3_S"], V, &[SharedBy(4)],          "Q4_K"),
    row(&["Q2_K"],                                        V, &[],                      "Q3_K"),
    row(&["IQ3_XXS"],                                     V, &[NoImatrix],             "IQ3_S"),
    row(&["Q3_K_M"],                                      V, &[First(2)],              "Q5_K"),
    row(&["IQ3_M", "Q3_K_M"],                             V, &[],                      "Q4_K"),
    row(&["Q3_K_L"],                                      V, &[],                      "Q5_K"),
    row(&["IQ4_NL", "IQ4_XS"],                            V, &[SharedBy(4)],           "Q5_K"),
    row(&["Q4_K_S"],                                      V, &[First(4)],              "Q5_K"),

    // Keys and queries.
    row(ANY,         K,   &[Experts(8)], "Q8_0"),
    row(&["IQ3_XS"],  K_Q, &[],          "IQ3_XXS"),
    row(&["IQ3_XXS"], K_Q, &[],          "IQ2_S"),

    // Down projections.
    row(&["Q2_K"],             DOWN, &[],                            "Q3_K"),
    row(&["Q2_K_S"],           DOWN, &[Early(8)],                    "Q4_K"),
    row(&["IQ3_XXS"],          DOWN, &[NoImatrix, Early(8)],         "Q4_K"),
    row(&["IQ3_XXS"],          DOWN, &[NoImatrix],                   "Q3_K"),
    row(&["Q3_K_M"],           DOWN, &[Early(16)],                   "Q5_K"),
    row(&["Q3_K_M"],           DOWN, &[NotArch("falcon")],           "Q4_K"),
    row(&["Q3_K_M"],           DOWN, &[More],                        "Q4_K"),
    row(&["IQ3_M"],            DOWN, &[Early(8)],                    "Q4_K"),
    row(&["IQ3_M"],            DOWN, &[Experts(8), More],            "Q4_K"),
    row(&["Q3_K_L"],           DOWN, &[Arch("falcon")],              "Q4_K"),
    row(&["Q3_K_L"],           DOWN, &[],                            "Q5_K"),
    row(&["Q4_K_M"],           DOWN, &[Arch("falcon"), Early(16)],   "Q6_K"),
    row(&["Q4_K_M"],           DOWN, &[Arch("falcon"), More],        "Q5_K"),
    row(&["Q4_K_M"],           DOWN, &[NotArch("falcon"), More],     "Q6_K"),
    row(&["Q5_K_M"],           DOWN, &[More],                        "Q6_K"),
    row(&["IQ4_NL", "IQ4_XS"], DOWN, &[NoImatrix, Early(8)],         "Q5_K"),
    row(&["Q4_K_S"],           DOWN, &[NotArch("falcon"), Early(8)], "Q5_K"),
    row(&["Q4_0"],             DOWN, &[Imatrix, Early(8)],           "Q4_1"),
    row(&["Q5_0"],             DOWN, &[Imatrix, Early(8)],           "Q5_1"),

    // The output of attention.
    row(EIGHT_EXPERTS,        O, &[NotArch("falcon"), Experts(8)],    "Q5_K"),
    row(&["Q2_K"],            O, &[NotArch("falcon"), NotExperts(8)], "Q3_K"),
    row(&["IQ3_XXS"],         O, &[NotArch("falcon"), NotExperts(8)], "IQ3_S"),
    row(&["Q3_K_M", "IQ3_M"], O, &[NotArch("falcon"), NotExperts(8)], "Q4_K"),
    row(&["Q3_K_L"],          O, &[NotArch("falcon"), NotExperts(8)], "Q5_K"),
    row(&["Q3_K_L"],          O, &[Arch("falcon")],                   "Q4_K"),

    row(&["IQ3_XS"], GATE_UP, &[Middle], "IQ3_XXS"),
];

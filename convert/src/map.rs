//! From a checkpoint's tensors to the output's: names, shapes, and for every output the stored matrices that it is made
//! of.

mod cut;
mod stacks;

use std::collections::{BTreeMap, HashSet};

use gguf::{Shape, listed};
use gguf_models::arch::{Architecture, Computed, Mtp};
use gguf_models::hf::{self, Becomes, Match, Piece, Skip};
use gguf_models::{HParams, Part, Role};

use crate::Result;
use crate::error::Error;
use crate::source::{Dtype, SourceTensor, Stored, Weights};
use crate::view::View;

/// How many names a message lists.
const N_SHOWN: usize = 3;

/// Matrices of one tensor: experts, or channels of a convolution. Each costs more memory than a small one has bytes.
const MAX_MATRICES: u64 = 1 << 16;

/// A tensor of the output.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    /// What it is.
    pub(crate) role: Role,
    /// Which part of it.
    pub(crate) part: Part,
    /// GGUF name.
    pub(crate) name: String,
    /// Dimensions, row length first.
    pub(crate) shape: Shape,
    /// Its rows: matrices of a stack, or parts of one matrix, in order.
    pub(crate) views: Vec<View>,
}

impl Output {
    /// Whether it is F32 whatever type was asked for.
    pub(crate) fn stays_f32(&self) -> bool {
        self.shape.dims().len() < 2 || self.part != Part::Main || self.role.stays_f32()
    }
}

/// All tensors of the output, and how many of the checkpoint are left out.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    /// In the output's order.
    pub(crate) outputs: Vec<Output>,
    /// Tensors of the checkpoint that are left out, by reason.
    pub(crate) skipped: BTreeMap<Skip, usize>,
}

impl Mapped {
    /// One line for each reason for which tensors are left out.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.skipped
            .iter()
            .filter(|(why, _)| **why != Skip::Buffer)
            .map(|(why, n)| {
                format!(
                    "skipped: {}",
                    gguf_cli::count(*n as u64, &format!("{} tensor", why.words()))
                )
            })
    }
}

/// What a checkpoint's tensors are mapped by.
#[derive(Clone, Copy)]
pub(crate) struct Mapper<'a> {
    /// The architecture.
    pub(crate) arch: &'a Architecture,
    /// Its hyper-parameters.
    pub(crate) hparams: &'a HParams,
    /// What becomes of layers that predict further tokens.
    pub(crate) mtp: Mtp,
}

impl Mapper<'_> {
    /// Maps every tensor of a checkpoint, in the order in which the reference converter writes them.
    ///
    /// # Errors
    /// Tensors that the architecture has no place for, number formats without a decoder, shapes that a rule cannot
    /// take, and stacks with missing or surplus experts.
    pub(crate) fn map(self, weights: &Weights, computed: Vec<Computed>) -> Result<Mapped> {
        let mut mapped = Mapped {
            outputs: computed.into_iter().map(from_memory).collect::<Result<_>>()?,
            skipped: BTreeMap::new(),
        };
        let mut stacks = stacks::Stacks::new(self);
        let mut unknown = Vec::new();
        for tensor in &weights.tensors {
            let found = hf::match_name(self.arch, &tensor.name);
            if let Some(why) = self.skips(&tensor.name, found.as_ref()) {
                *mapped.skipped.entry(why).or_default() += 1;
                continue;
            }
            let Some(found) = found else {
                unknown.push(format!("`{}`", tensor.name));
                continue;
            };
            require_weights(tensor)?;
            if found.rule.is_stacked() {
                mapped.outputs.extend(stacks.add(&found, tensor)?);
            } else {
                mapped.outputs.extend(self.outputs(&found, &[tensor])?);
            }
        }
        if !unknown.is_empty() {
            let object = format!("tensors that architecture `{}` has no place for", self.arch.name);
            return Err(Error::mismatch(object, "none", listed(&unknown, N_SHOWN, ", ")));
        }
        stacks.require_complete()?;
        check_unique(&mapped.outputs)?;
        Ok(mapped)
    }

    /// Why a tensor is left out, if it is.
    fn skips(self, name: &str, found: Option<&Match>) -> Option<Skip> {
        match found.map(|f| f.rule.becomes) {
            Some(Becomes::Nothing(why)) => Some(why),
            _ if self.mtp != Mtp::Absent && hf::layer(name).is_some_and(|il| il >= self.hparams.n_layer) => {
                Some(Skip::Mtp)
            }
            _ => hf::ignored(name),
        }
    }

    /// What a tensor becomes, or one for every expert of a stack.
    fn outputs(self, found: &Match, tensors: &[&SourceTensor]) -> Result<Vec<Output>> {
        let Some(first) = tensors.first() else {
            return Ok(Vec::new());
        };
        let pieces = pieces(found, first);
        let n_elems: u64 = first.shape.iter().product();
        let mut n_taken: u64 = 0;
        let mut outputs = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let layer = found.layer.unwrap_or(0);
            let output = self.piece(piece, layer, found.expert.is_some(), tensors)?;
            n_taken += output.shape.n_elems();
            outputs.push(output);
        }
        // Each number has one place: rows that no piece takes would be lost in silence.
        let n_stored = n_elems * tensors.len() as u64;
        if n_taken != n_stored {
            let object = format!("shape of tensor `{}`", first.name);
            let expected = format!("{n_taken} elements with the sizes of config.json");
            return Err(Error::mismatch(object, expected, n_stored));
        }
        Ok(outputs)
    }

    fn piece(self, piece: &Piece, layer: usize, stacked: bool, tensors: &[&SourceTensor]) -> Result<Output> {
        let mut views = Vec::new();
        let mut dims = Vec::new();
        for tensor in tensors {
            let cut = cut::Cut::new(piece, self.hparams, tensor)?;
            views.extend(cut.views(tensor));
            dims = cut.dims;
        }
        if stacked {
            dims.insert(0, tensors.len() as u64);
        }
        if piece.squeeze {
            dims.retain(|d| *d != 1);
        }
        output(piece.role, piece.part, layer, &dims, views, tensors)
    }
}

/// The tensors that a checkpoint's tensor becomes, by the form in which it is stored.
fn pieces(found: &Match, tensor: &SourceTensor) -> &'static [Piece] {
    match found.rule.becomes {
        Becomes::Tensors(pieces) => pieces,
        Becomes::ByStorage { plain, .. } if tensor.matrix(0).is_plain() => plain,
        Becomes::ByStorage { blocks, .. } => blocks,
        Becomes::Nothing(_) => &[],
    }
}

fn output(
    role: Role,
    part: Part,
    layer: usize,
    dims: &[u64],
    views: Vec<View>,
    tensors: &[&SourceTensor],
) -> Result<Output> {
    let reversed: Vec<u64> = dims.iter().rev().copied().collect();
    let shape = Shape::new(&reversed).ok_or_else(|| {
        let object = format!("shape of tensor `{}`", tensors.first().map_or("", |t| &t.name));
        Error::mismatch(object, "at most 4 dimensions", format!("{dims:?}"))
    })?;
    Ok(Output {
        role,
        part,
        name: role.part_name(part, layer),
        shape,
        views,
    })
}

/// A tensor whose values are not in the checkpoint.
fn from_memory(computed: Computed) -> Result<Output> {
    let n = computed.values.len() as u64;
    let stored = Stored::computed(computed.values);
    output(computed.role, Part::Main, 0, &[n], vec![View::whole(stored)], &[])
}

/// Two tensors of a checkpoint must not have one role, as with experts that are there alone and fused.
fn check_unique(outputs: &[Output]) -> Result<()> {
    let mut seen = HashSet::new();
    match outputs.iter().find(|o| !seen.insert(o.name.as_str())) {
        Some(twice) => {
            let object = format!("tensors of the checkpoint for `{}`", twice.name);
            Err(Error::mismatch(object, "one", "more"))
        }
        None => Ok(()),
    }
}

/// The checkpoint's tensor of a role that it has as it is.
pub(crate) fn find<'a>(arch: &Architecture, role: Role, weights: &'a Weights) -> Option<&'a SourceTensor> {
    weights.tensors.iter().find(|t| {
        let found = hf::match_name(arch, &t.name);
        found.is_some_and(|m| m.rule.pieces().any(|p| p.role == role))
    })
}

/// The name that a checkpoint has for a role outside layers.
pub(crate) fn hf_name(arch: &Architecture, role: Role) -> &'static str {
    hf::rules(arch)
        .find(|rule| rule.pieces().any(|p| p.role == role))
        .map_or("", |rule| rule.pattern)
}

fn require_weights(tensor: &SourceTensor) -> Result<()> {
    // Beside a 0 no other dimension is bounded by the file's size.
    if tensor.shape.contains(&0) {
        let object = format!("shape of tensor `{}`", tensor.name);
        return Err(Error::mismatch(
            object,
            "dimensions above 0",
            format!("{:?}", tensor.shape),
        ));
    }
    if tensor.n_matrices() > MAX_MATRICES {
        let object = format!("shape of tensor `{}`", tensor.name);
        let expected = format!("at most {MAX_MATRICES} matrices");
        return Err(Error::mismatch(object, expected, format!("{:?}", tensor.shape)));
    }
    if tensor.dtype.format().is_some() {
        return Ok(());
    }
    let hint = format!("weights are read from {}", Dtype::supported());
    Err(Error::unsupported(
        format!("dtype `{}` of tensor `{}`", tensor.dtype.name, tensor.name),
        hint,
    ))
}

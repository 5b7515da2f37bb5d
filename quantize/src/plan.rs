//! Everything that is decided before a weight is read.

use gguf::{GgufFile, Layout, Metadata, TensorInfo, TensorSpec};
use gguf_blocks::{Format, Unit, registry};
use gguf_cli::{Failure, ReserveArgs, Result, count, in_file};
use gguf_models::component::Component;

use crate::guide::Guide;
use crate::metadata;
use crate::policy::{Facts, Policy, Reason, Wish, order_key};

/// Tensors that may go without importance: it is not collected for them as a rule.
const WITHOUT_IMPORTANCE: &[&str] = &[
    "token_embd.weight",
    "per_layer_token_embd.weight",
    "output.weight",
];

/// What the importance matrix says of a tensor that is to be encoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Coverage {
    /// No importance is used: it is kept, or of a type that has no use for it, or there is no matrix.
    Unused,
    /// The matrix has nothing for it.
    Missing,
    /// The share of its matrices that saw tokens.
    Share(f64),
}

/// One tensor.
#[derive(Debug)]
pub struct Step {
    /// The tensor in the source.
    pub source: TensorInfo,
    /// Its type in the source.
    pub from: &'static Format,
    /// Its type in the output.
    pub to: &'static Format,
    /// Why.
    pub reason: Reason,
    /// Whether importance is used for it.
    pub coverage: Coverage,
}

impl Step {
    /// The matrix that a row, counted over all matrices, belongs to: the expert, in a stack of experts.
    pub(crate) fn matrix_of(&self, row: u64) -> usize {
        let shape = &self.source.shape;
        (row / shape.dim(1) % shape.dim(2)) as usize
    }

    /// The part of the model that it belongs to.
    pub(crate) fn role(&self) -> &'static str {
        Component::of(&self.source.name).name()
    }

    /// Whether its bytes are taken as they are.
    pub fn is_copy(&self) -> bool {
        self.from.id == self.to.id
    }
}

/// What will be done, to the byte.
#[derive(Debug)]
pub struct Plan {
    /// Tensors in the output's order.
    pub steps: Vec<Step>,
    /// The output's metadata.
    pub metadata: Metadata,
    /// The output as one file.
    pub layout: Layout,
    /// Things that the user should know, a line each.
    pub warnings: Vec<String>,
    /// Things that may be of interest, a line each.
    pub notes: Vec<String>,
    /// Tensors that the policy gave a new type, or left at the type they had by choice of type.
    pub n_chosen: usize,
    /// Those of them whose rows did not fit the type chosen first.
    pub n_fallback: usize,
}

impl Plan {
    /// Decides everything. Refuses what could fail later: types that cannot be read or written, importance
    /// that is of another shape or missing where it is needed, rules that match nothing.
    pub fn new(
        file: &GgufFile,
        wish: &Wish,
        guide: Option<&Guide>,
        allow_requantize: bool,
        reserve: ReserveArgs,
    ) -> Result<Self> {
        let names = file.tensors.iter().map(|t| t.name.as_str());
        let facts = Facts::new(&file.metadata, names).map_err(in_file(file.path()))?;
        let mut order: Vec<&TensorInfo> = file.tensors.iter().collect();
        order.sort_by_key(|t| order_key(&t.name));

        let mut policy = Policy::new(&facts, wish);
        let mut steps = Vec::with_capacity(order.len());
        let mut warnings = Vec::new();
        for tensor in order {
            steps.push(step(
                tensor,
                &mut policy,
                wish,
                guide,
                allow_requantize,
                &mut warnings,
            )?);
        }
        check_rules(wish, &policy, &steps)?;
        let chosen = || steps.iter().filter(|s| s.reason != Reason::Kept);
        let n_chosen = chosen().count();
        let fallbacks = fallbacks(&steps);
        let n_fallback = fallbacks.len();
        warnings.extend(fallbacks);
        if n_fallback > 0 {
            warnings.push(format!(
                "{n_fallback} of {} required fallback quantization",
                count(n_chosen as u64, "tensor")
            ));
        }
        let mut notes = shadowed_rules(wish, &steps);
        if let Some(g) = guide {
            notes.extend(check_coverage(g, &steps)?);
        }
        let specs = steps
            .iter()
            .map(|s| TensorSpec::new(s.source.name.clone(), s.source.shape, s.to.id));
        let metadata = metadata::of_output(&file.metadata, wish.file_type, guide, reserve);
        let layout = Layout::plan(&metadata, specs.collect())?;
        Ok(Self {
            steps,
            metadata,
            layout,
            warnings,
            notes,
            n_chosen,
            n_fallback,
        })
    }

    /// Bytes of all tensors.
    pub fn data_bytes(&self) -> u64 {
        self.layout.tensors.iter().map(|t| t.n_bytes).sum()
    }

    /// Bits of storage for each weight, over all tensors.
    pub fn bits_per_weight(&self) -> f64 {
        let elems: u64 = self.steps.iter().map(|s| s.source.shape.n_elems()).sum();
        self.data_bytes() as f64 * 8.0 / elems.max(1) as f64
    }

    /// Bytes of all tensors in the source.
    pub fn source_bytes(&self) -> u64 {
        self.steps.iter().map(|s| s.source.n_bytes).sum()
    }
}

/// A line for each tensor whose rows do not fit the type chosen first.
fn fallbacks(steps: &[Step]) -> Vec<String> {
    let line = |s: &Step| match s.reason {
        Reason::Fallback(from) => Some(format!(
            "tensor `{}`: rows of {} are not whole blocks of `{from}`, using `{}`",
            s.source.name,
            count(s.source.shape.n_cols(), "element"),
            s.to.name
        )),
        _ => None,
    };
    steps.iter().filter_map(line).collect()
}

fn step(
    tensor: &TensorInfo,
    policy: &mut Policy<'_>,
    wish: &Wish,
    guide: Option<&Guide>,
    allow_requantize: bool,
    warnings: &mut Vec<String>,
) -> Result<Step> {
    let name = &tensor.name;
    let from = tensor.format().ok_or_else(|| {
        Failure::Input(format!(
            "tensor `{name}`: {} is not known to this build",
            tensor.type_name()
        ))
    })?;
    let choice = policy.choose(name, &tensor.shape).map_err(Failure::Input)?;
    let to = match choice.type_name {
        None => from,
        Some(t) if from.name == t => from,
        Some(t) => registry::by_name(t)
            .filter(|f| f.encode.is_some())
            .ok_or_else(|| {
                let what = wish.file_type.map_or("the request", |t| t.name);
                Failure::Usage(format!(
                    "tensor `{name}`: {what} gives it type `{t}`, which this build cannot encode; \
                 `--tensor-type` can give it another"
                ))
            })?,
    };
    let mut step = Step {
        source: tensor.clone(),
        from,
        to,
        reason: choice.reason,
        coverage: Coverage::Unused,
    };
    if step.is_copy() {
        return Ok(step);
    }
    let by_rows = from.geometry.unit() != Unit::Tensor;
    if from.decode.is_none() || !from.holds_weights() || !by_rows {
        let what = format!(
            "tensor `{name}`: type `{}` cannot be decoded to encode it as `{}`",
            from.name, to.name
        );
        return Err(Failure::Input(what));
    }
    if from.quantized && !allow_requantize {
        return Err(Failure::Input(format!(
            "tensor `{name}`: it is already quantized (`{}`); encoding it again as `{}` needs `--allow-requantize`",
            from.name, to.name
        )));
    }
    if to.quantized {
        step.coverage = coverage(tensor, to, wish, guide, warnings)?;
    }
    Ok(step)
}

/// Looks importance up and refuses where it does not fit or is needed and missing.
fn coverage(
    tensor: &TensorInfo,
    to: &Format,
    wish: &Wish,
    guide: Option<&Guide>,
    warnings: &mut Vec<String>,
) -> Result<Coverage> {
    let name = &tensor.name;
    let found = match guide.map(|g| g.coverage(tensor)) {
        None => Coverage::Unused,
        Some(Ok(Some(share))) => Coverage::Share(share),
        Some(Ok(None)) => Coverage::Missing,
        // The embedding's inputs are tokens, not columns: some tools store counts by token.
        Some(Err(what)) if name.contains("token_embd.weight") => {
            warnings.push(format!("{what}; encoding it without importance"));
            Coverage::Missing
        }
        Some(Err(what)) => return Err(Failure::Input(what)),
    };
    let small = wish.file_type.is_some_and(|t| t.name == "Q2_K_S") && to.name == "Q2_K";
    let needed = (to.requires_importance || small) && !WITHOUT_IMPORTANCE.contains(&name.as_str());
    match found {
        Coverage::Share(_) => Ok(found),
        _ if needed && guide.is_none() => Err(Failure::Input(format!(
            "tensor `{name}`: type `{}` under this file type needs an importance matrix (`--imatrix`)",
            to.name
        ))),
        _ if needed => Err(Failure::Input(format!(
            "tensor `{name}`: type `{}` needs importance and the matrix has no entry for it",
            to.name
        ))),
        _ => Ok(found),
    }
}

/// A rule that matches no tensor that could follow it is a mistake of the user's.
fn check_rules(wish: &Wish, policy: &Policy<'_>, steps: &[Step]) -> Result<()> {
    let unused = wish
        .overrides
        .iter()
        .zip(policy.matches())
        .find(|(_, n)| **n == 0);
    let Some((rule, _)) = unused else { return Ok(()) };
    let kept = steps.iter().find(|s| rule.pattern.is_match(&s.source.name));
    Err(Failure::Usage(match kept {
        None => format!("--tensor-type `{}`: no tensor's name matches", rule.text),
        Some(s) => format!(
            "--tensor-type `{}`: only tensors match that are never quantized, for instance `{}`",
            rule.text, s.source.name
        ),
    }))
}

/// Rules that decided nothing because others came first.
fn shadowed_rules(wish: &Wish, steps: &[Step]) -> Vec<String> {
    let decided = |i: usize| steps.iter().any(|s| s.reason == Reason::Override(i));
    let idle = wish.overrides.iter().enumerate().filter(|(i, _)| !decided(*i));
    idle.map(|(_, r)| {
        format!(
            "--tensor-type `{}`: decides nothing, what comes before it matches first",
            r.text
        )
    })
    .collect()
}

/// Sums up what the matrix covers; a matrix that covers nothing is of another model.
fn check_coverage(guide: &Guide, steps: &[Step]) -> Result<Vec<String>> {
    let used = || steps.iter().filter(|s| s.coverage != Coverage::Unused);
    let missing: Vec<_> = used()
        .filter(|s| s.coverage == Coverage::Missing)
        .map(|s| format!("`{}`", s.source.name))
        .collect();
    let n = used().count();
    if n == 0 {
        return Ok(vec![format!(
            "importance matrix `{}` is not used: no tensor's type looks at it",
            guide.file
        )]);
    }
    if missing.len() == n {
        return Err(Failure::Input(format!(
            "importance matrix `{}` is of another model: expected entries for tensors to encode, found none among {}",
            guide.file,
            count(guide.n_entries() as u64, "entry")
        )));
    }
    let mut notes = vec![format!(
        "importance matrix covers {} of {}",
        n - missing.len(),
        count(n as u64, "tensor")
    )];
    if !missing.is_empty() {
        notes.push(format!("did not find weights for {}", missing.join(", ")));
    }
    let gaps = used().filter(|s| matches!(s.coverage, Coverage::Share(share) if share < 1.0));
    notes.extend(gaps.map(|s| {
        let Coverage::Share(share) = s.coverage else {
            unreachable!("filtered above")
        };
        let name = &s.source.name;
        format!(
            "tensor `{name}`: {:.1} % of its experts saw tokens, the others count all columns alike",
            share * 100.0
        )
    }));
    Ok(notes)
}

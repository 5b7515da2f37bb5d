//! Everything that is decided before a weight is read.

mod importance;
mod opaque;
mod problems;
mod prune;

use gguf::{Metadata, TensorInfo, TensorSpec};
use gguf_blocks::{Format, Unit, registry};
use gguf_cli::{Result, count, in_file, shortened};
use gguf_models::component::Component;

use crate::guide::{self, Guide, Match};
use crate::job::{Arrangement, Job, Kind, Target};
use crate::metadata;
use crate::policy::{Facts, Policy, Reason, Wish, order_key};
use crate::request::Request;

use opaque::opaque;
use problems::Problems;
use prune::Pruning;

/// Kinds of rows whose fallback has a warning of its own.
const SOME_FALLBACKS: usize = 16;

/// What the importance matrix says of a tensor that is to be encoded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Coverage {
    /// No importance is used: it is kept, or of a type that has no use for it, or there is no matrix.
    Unused,
    /// The matrix has nothing for it; it is encoded without importance.
    Missing,
    /// The matrix has nothing for it, its type needs importance, and all columns count alike by request.
    Neutral,
    /// Where its importance is found.
    Found(Match),
}

impl Coverage {
    /// The share of its matrices with importance; `None` where none is used.
    pub(crate) fn share(&self) -> Option<f64> {
        match self {
            Self::Unused => None,
            Self::Missing | Self::Neutral => Some(0.0),
            Self::Found(found) => Some(found.share()),
        }
    }
}

/// One tensor.
#[derive(Debug)]
pub(crate) struct Step {
    /// Its name in the output, which differs from the source's if layers in front of it are left out.
    pub(crate) name: String,
    /// The tensor in the source.
    pub(crate) source: TensorInfo,
    /// Its type in the source.
    pub(crate) from: &'static Format,
    /// Its type in the output.
    pub(crate) to: &'static Format,
    /// Why.
    pub(crate) reason: Reason,
    /// Whether importance is used for it.
    pub(crate) coverage: Coverage,
}

impl Step {
    /// The matrix whose importance a row has, counted over all rows of the tensor: the expert, in a stack of experts;
    /// the first for all rows where all matrices share one importance.
    pub(crate) fn matrix_of(&self, row: u64) -> usize {
        match &self.coverage {
            Coverage::Found(found) if found.is_shared() => 0,
            _ => guide::matrix_of(&self.source.shape, row),
        }
    }

    /// Whether its rows are encoded with importance.
    pub(crate) fn is_weighted(&self) -> bool {
        matches!(self.coverage, Coverage::Found(_) | Coverage::Neutral)
    }

    /// The part of the model that it belongs to.
    pub(crate) fn role(&self) -> &'static str {
        Component::of(&self.source.name).name()
    }

    /// Whether its bytes are taken as they are.
    pub(crate) fn is_copy(&self) -> bool {
        self.from.id == self.to.id
    }

    /// The importance of a matrix's columns, or nothing where none is used.
    ///
    /// # Errors
    /// A read of the importance matrix that fails.
    pub(crate) fn weights(&self, guide: Option<&Guide>, matrix: usize) -> Result<Vec<f32>> {
        match (&self.coverage, guide) {
            (Coverage::Found(found), Some(guide)) => guide.matrix(found, matrix),
            (Coverage::Neutral, _) => Ok(vec![1.0; self.source.shape.n_cols() as usize]),
            _ => Ok(Vec::new()),
        }
    }

    /// Bytes in the output.
    pub(crate) fn n_bytes(&self) -> u64 {
        if self.is_copy() {
            return self.source.n_bytes;
        }
        self.source.shape.n_bytes(self.to).unwrap_or(0)
    }
}

/// What will be done, to the byte.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Tensors in the order in which they are decided, encoded and stored: by layer and name, or, where shards are
    /// kept, that of the source.
    pub(crate) steps: Vec<Step>,
    /// The output's metadata.
    pub(crate) metadata: Metadata,
    /// Things that the user should know, a line each.
    pub(crate) warnings: Vec<String>,
    /// Things that may be of interest, a line each.
    pub(crate) notes: Vec<String>,
    /// Tensors that the policy gave a new type, or left at the type they had by choice of type.
    pub(crate) n_chosen: usize,
    /// Those of them whose rows did not fit the type chosen first.
    pub(crate) n_fallback: usize,
    /// Bytes of the tensors if every fallback type were the type chosen first, were that possible.
    pub(crate) bytes_without_fallback: u64,
    /// Texts of the user's rules, by their number.
    rules: Vec<String>,
    problems: Problems,
}

impl Plan {
    /// Decides everything. What could fail later and what the user forbade does not end the planning: all of it is
    /// there for [`Plan::check`]. A tensor with a problem keeps its type.
    ///
    /// # Errors
    /// Metadata that make no plan possible.
    pub(crate) fn new(
        job: &Job<'_>,
        request: &Request,
        target: &Target,
        guide: Option<&Guide>,
    ) -> Result<Self> {
        let file = job.file;
        let wish = request.wish(target, guide.is_some());
        let pruning = Pruning::new(&request.prune, &file.metadata)?;
        let mut source = file.metadata.clone();
        pruning.apply(&mut source);
        let kept = file.tensors.iter().filter_map(|t| {
            let name = pruning.rename(&t.name)?;
            Some((name.into_owned(), t))
        });
        let mut tensors: Vec<(String, &TensorInfo)> = kept.collect();
        let names = tensors.iter().map(|(name, _)| name.as_str());
        let facts = Facts::new(&source, names).map_err(in_file(file.path()))?;
        if request.arrangement == Arrangement::ByLayer {
            tensors.sort_by(|a, b| order_key(&a.0).cmp(&order_key(&b.0)));
        } else {
            tensors.sort_by_key(|(_, t)| (t.part, t.offset));
        }

        let named: Vec<_> = tensors
            .iter()
            .map(|(name, t)| (name.as_str(), &t.shape))
            .collect();
        let mut planner = Planner {
            wish: &wish,
            guide,
            request,
            policy: Policy::new(&facts, &wish, &named),
            problems: Problems::default(),
            warnings: Vec::new(),
        };
        let steps: Vec<Step> = tensors
            .into_iter()
            .map(|(name, t)| planner.step(name, t))
            .collect();
        let mut this = Self {
            n_chosen: steps.iter().filter(|s| s.reason != Reason::Kept).count(),
            n_fallback: 0,
            bytes_without_fallback: 0,
            steps,
            metadata: metadata::of_output(&source, job, request, target, guide),
            warnings: planner.warnings,
            notes: Vec::new(),
            rules: wish.overrides.iter().map(|r| r.text.clone()).collect(),
            problems: planner.problems,
        };
        this.look_at_pairs(&source, request, target);
        let matches = planner.policy.matches().to_vec();
        this.look_at_rules(&wish, &matches, request.strict);
        this.look_at_fallbacks(request.strict);
        this.look_at_importance(guide, request.strict);
        if !request.prune.is_empty() {
            let gone = request.prune.iter().map(u32::to_string).collect::<Vec<_>>();
            this.notes.push(format!("layers left out: {}", gone.join(", ")));
        }
        Ok(this)
    }

    /// The problems of the plan, as one failure.
    ///
    /// # Errors
    /// Any problem.
    pub(crate) fn check(&self) -> Result<()> {
        self.problems.check()
    }

    /// The problems of the plan, a line each.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.problems.lines()
    }

    /// Why a tensor gets its type, in words.
    pub(crate) fn why(&self, step: &Step) -> String {
        match step.reason {
            Reason::Override(i) => format!("rule `{}`", self.rules[i]),
            reason => reason.to_string(),
        }
    }

    /// The tensors of the output.
    pub(crate) fn specs(&self) -> Vec<TensorSpec> {
        let spec = |s: &Step| TensorSpec {
            n_bytes: Some(s.n_bytes()),
            ..TensorSpec::new(s.name.clone(), s.source.shape, s.to.id)
        };
        self.steps.iter().map(spec).collect()
    }

    /// Bytes of all tensors.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.steps.iter().map(Step::n_bytes).sum()
    }

    /// Elements of all tensors.
    pub(crate) fn n_elems(&self) -> u64 {
        self.steps.iter().map(|s| s.source.shape.n_elems()).sum()
    }

    /// Bits of storage for each weight, over all tensors.
    pub(crate) fn bits_per_weight(&self) -> f64 {
        self.data_bytes() as f64 * 8.0 / self.n_elems().max(1) as f64
    }

    /// What fallback types add to [`Plan::bits_per_weight`].
    pub(crate) fn fallback_bits_per_weight(&self) -> f64 {
        let more = self.data_bytes() as f64 - self.bytes_without_fallback as f64;
        more * 8.0 / self.n_elems().max(1) as f64
    }

    /// Overrides that give a key another type than it has, which loaders may not take, and a model that is nothing but
    /// keys.
    fn look_at_pairs(&mut self, source: &Metadata, request: &Request, target: &Target) {
        for (key, value) in &request.pairs {
            let had = source.get(key).filter(|had| had.type_name() != value.type_name());
            if let Some(had) = had {
                self.warnings.push(format!(
                    "--override-kv: `{key}` is {} in the source and becomes {}: loaders may not take it",
                    had.type_name(),
                    value.type_name()
                ));
            }
        }
        // A vocabulary alone is what a plain conversion may be asked for.
        if self.steps.is_empty() && !matches!(target.kind, Kind::Plain) {
            self.warnings
                .push("the model has no tensors: there is nothing to encode".to_owned());
        }
    }

    /// Rules that match nothing, or nothing that is quantized, and rules that others come before.
    fn look_at_rules(&mut self, wish: &Wish, matches: &[bool], strict: bool) {
        let mut decides = vec![false; matches.len()];
        for step in &self.steps {
            if let Reason::Override(i) = step.reason {
                decides[i] = true;
            }
        }
        for (i, rule) in wish.overrides.iter().enumerate() {
            let what = |text: &str| format!("{}: {text}", rule.place);
            if !matches[i] {
                // On all others the policy tried it.
                let kept = self
                    .steps
                    .iter()
                    .find(|s| s.reason == Reason::Kept && rule.pattern.is_in(&s.name));
                self.problems.usage(what(&match kept {
                    None => "no tensor's name matches".to_owned(),
                    Some(s) => format!(
                        "only tensors match that are never quantized, for instance `{}`",
                        s.name
                    ),
                }));
                continue;
            }
            if decides[i] {
                continue;
            }
            let line = what("decides nothing, what comes before it matches first");
            if strict {
                self.problems.usage(format!("{line} (`--strict`)"));
            } else {
                self.warnings.push(line);
            }
        }
    }

    /// Tensors whose rows do not fit the type chosen first.
    fn look_at_fallbacks(&mut self, strict: bool) {
        let mut told = Problems::default();
        for step in &self.steps {
            let Reason::Fallback(from) = step.reason else {
                self.bytes_without_fallback += step.n_bytes();
                continue;
            };
            self.n_fallback += 1;
            self.bytes_without_fallback += bytes_as(step, from);
            let rows = count(step.source.shape.n_cols(), "element");
            let to = step.to.name;
            let what = format!("rows of {rows} are not whole blocks of `{from}`");
            if strict {
                let what = format!("{what}, and `--strict` forbids the fallback to `{to}`");
                self.problems.tensor(&step.name, what);
            } else {
                told.some(&step.name, format!("{what}, using `{to}`"));
            }
        }
        let kinds = shortened(
            &told.lines(),
            SOME_FALLBACKS,
            " kinds of rows get a fallback type",
        );
        self.warnings.extend(kinds);
        if self.n_fallback > 0 {
            self.warnings.push(format!(
                "{} of {} required fallback quantization, which makes {:.3} bits per weight of {:.3}",
                self.n_fallback,
                count(self.n_chosen as u64, "tensor"),
                self.bits_per_weight(),
                self.bits_per_weight() - self.fallback_bits_per_weight(),
            ));
        }
    }
}

/// Bytes of a step's tensor as a type that its rows do not fit: as many as a whole number of blocks would have.
fn bytes_as(step: &Step, name: &str) -> u64 {
    let Some(format) = registry::by_name(name) else {
        return step.n_bytes();
    };
    let (elems, geometry) = (step.source.shape.n_elems(), format.geometry);
    let block = geometry.block_elems as u64;
    geometry
        .row_bytes(elems.next_multiple_of(block))
        .map_or(step.n_bytes(), |bytes| {
            (bytes as f64 * elems as f64 / elems.next_multiple_of(block).max(1) as f64) as u64
        })
}

/// What deciding one tensor after the other needs.
struct Planner<'a> {
    wish: &'a Wish,
    guide: Option<&'a Guide>,
    request: &'a Request,
    policy: Policy<'a>,
    problems: Problems,
    warnings: Vec<String>,
}

impl Planner<'_> {
    fn step(&mut self, name: String, tensor: &TensorInfo) -> Step {
        let Some(from) = tensor.format().or_else(|| opaque(tensor)) else {
            let what = format!("{} is not known to this build", tensor.type_name());
            self.problems.tensor(&name, what);
            return kept(name, tensor, registry::all()[0]);
        };
        let choice = match self.policy.choose(&name, &tensor.shape) {
            Ok(choice) => choice,
            Err(what) => {
                self.problems.input(what);
                return kept(name, tensor, from);
            }
        };
        let mut step = Step {
            reason: choice.reason,
            ..kept(name, tensor, from)
        };
        let Some(mut to) = choice.type_name.filter(|t| from.name != *t) else {
            return step;
        };
        if let Some(up) = self.raised(&step, to) {
            step.reason = Reason::Raised(to);
            to = up;
        }
        if let Some(format) = registry::by_name(to).filter(|f| f.encode.is_some()) {
            step.to = format;
        } else {
            let what = self.wish.file_type.map_or("the request", |t| t.name);
            let what = format!(
                "{what} gives it type `{to}`, which this build cannot encode; `--tensor-type` can give it another"
            );
            self.problems.some(&step.name, what);
        }
        self.check_source(&step);
        if !step.is_copy() {
            step.coverage = self.coverage(&step);
        }
        step
    }

    /// Whether the source's values can be had, and may be.
    fn check_source(&mut self, step: &Step) {
        if step.is_copy() {
            return;
        }
        let Step { from, to, .. } = step;
        let by_rows = from.geometry.unit() != Unit::Tensor;
        if from.decode.is_none() || !from.holds_weights() || !by_rows {
            let what = format!(
                "type `{}` cannot be decoded to encode it as `{}`",
                from.name, to.name
            );
            self.problems.some(&step.name, what);
        } else if from.quantized && !self.request.allow_requantize {
            let what = format!(
                "already quantized (`{}`); encoding it again as `{}` needs `--allow-requantize`",
                from.name, to.name
            );
            self.problems.some(&step.name, what);
        }
    }
}

/// A tensor that stays as it is.
fn kept(name: String, tensor: &TensorInfo, format: &'static Format) -> Step {
    Step {
        name,
        source: tensor.clone(),
        from: format,
        to: format,
        reason: Reason::Kept,
        coverage: Coverage::Unused,
    }
}

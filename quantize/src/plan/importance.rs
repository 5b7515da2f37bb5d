//! What the importance matrix has for each tensor, and what becomes of those that it lacks.

use gguf_cli::count;

use super::{Coverage, Plan, Planner, Step};
use crate::guide::{Guide, Match};
use crate::options::Uncovered;
use crate::policy::{is_weighted, raised};

/// Tensors that may go without importance: it is not collected for them as a rule.
const WITHOUT_IMPORTANCE: &[&str] = &[
    "token_embd.weight",
    "per_layer_token_embd.weight",
    "output.weight",
];

/// Experts that a line names.
const SOME_EXPERTS: usize = 16;

fn may_lack(name: &str) -> bool {
    WITHOUT_IMPORTANCE.contains(&name)
}

impl Planner<'_> {
    /// Whether a tensor of this type is refused without importance.
    fn needs(&self, step: &Step, to: &str) -> bool {
        let always = gguf_blocks::registry::by_name(to).is_some_and(|f| f.requires_importance);
        let small = self.wish.file_type.is_some_and(|t| t.name == "Q2_K_S") && to == "Q2_K";
        (always || small) && !may_lack(&step.name)
    }

    /// The matrix knows the source's names.
    fn find(&self, step: &Step) -> Option<Result<Option<Match>, String>> {
        Some(self.guide?.find(&step.source.name, &step.source.shape))
    }

    /// With `--uncovered raise` the type that a tensor without importance gets instead of `to`.
    pub(super) fn raised(&self, step: &Step, to: &str) -> Option<&'static str> {
        if self.request.uncovered != Some(Uncovered::Raise) || !self.needs(step, to) {
            return None;
        }
        match self.find(step)? {
            Ok(Some(found)) if found.unseen.is_empty() => None,
            Ok(_) => raised(to),
            Err(_) => None,
        }
    }

    /// What is used for a tensor that is encoded.
    pub(super) fn coverage(&mut self, step: &Step) -> Coverage {
        if !step.to.quantized || !is_weighted(step.to.name) {
            return Coverage::Unused;
        }
        let to = step.to.name;
        let needed = self.needs(step, to);
        let coverage = match self.find(step) {
            None => Coverage::Unused,
            Some(Ok(Some(found))) => Coverage::Found(found),
            Some(Ok(None)) => Coverage::Missing,
            // The embedding's inputs are tokens, not columns: some tools store counts by token.
            Some(Err(what)) if step.name.contains("token_embd.weight") => {
                let name = &step.name;
                self.warnings
                    .push(format!("tensor `{name}`: {what}; encoding it without importance"));
                Coverage::Missing
            }
            Some(Err(what)) => {
                self.problems.tensor(&step.name, what);
                return Coverage::Missing;
            }
        };
        match (&coverage, self.request.uncovered) {
            (Coverage::Unused, _) if needed => {
                let what =
                    format!("type `{to}` under this file type needs an importance matrix (`--imatrix`)");
                self.problems.tensor(&step.name, what);
            }
            (Coverage::Missing, Some(Uncovered::Fail)) if !may_lack(&step.name) => {
                let what = "the importance matrix has no entry for it (`--uncovered fail`)";
                self.problems.tensor(&step.name, what.to_owned());
            }
            (Coverage::Missing, Some(Uncovered::Neutral)) if needed => return Coverage::Neutral,
            (Coverage::Missing, _) if needed => {
                let what = format!(
                    "type `{to}` needs importance and the matrix has no entry for it; `--uncovered neutral` or \
                     `--uncovered raise` go on without"
                );
                self.problems.tensor(&step.name, what);
            }
            (Coverage::Found(found), how) => self.look_at_experts(step, found, how),
            _ => {}
        }
        coverage
    }

    /// Experts that no token reached.
    fn look_at_experts(&mut self, step: &Step, found: &Match, how: Option<Uncovered>) {
        if found.unseen.is_empty() {
            return;
        }
        let some = &found.unseen[..found.unseen.len().min(SOME_EXPERTS)];
        let some: Vec<String> = some.iter().map(usize::to_string).collect();
        let more = if found.unseen.len() > SOME_EXPERTS {
            ", .."
        } else {
            ""
        };
        let what = format!(
            "{} of its {} saw no token ({}{more})",
            found.unseen.len(),
            count(found.n_counts as u64, "expert"),
            some.join(", "),
        );
        match how {
            Some(Uncovered::Fail) => self
                .problems
                .tensor(&step.name, format!("{what} (`--uncovered fail`)")),
            None if self.request.strict => self.problems.tensor(&step.name, format!("{what} (`--strict`)")),
            _ => self.warnings.push(format!(
                "tensor `{}`: {what}; all columns of theirs count alike",
                step.name
            )),
        }
    }
}

impl Plan {
    /// Sums up what the matrix covers; a matrix that covers nothing is of another model.
    pub(super) fn look_at_importance(&mut self, guide: Option<&Guide>, strict: bool) {
        let Some(guide) = guide else { return };
        for doubt in &guide.doubts {
            if strict {
                self.problems.input(format!("{doubt} (`--strict`)"));
            } else {
                self.warnings.push(doubt.clone());
            }
        }
        let used = || self.steps.iter().filter(|s| s.coverage != Coverage::Unused);
        let lacks = |s: &&Step| matches!(s.coverage, Coverage::Missing | Coverage::Neutral);
        let missing: Vec<_> = used().filter(lacks).collect();
        let (n, n_missing) = (used().count(), missing.len());
        if n == 0 {
            self.notes.push(format!(
                "importance matrix `{}` is not used: no tensor's type looks at it",
                guide.file
            ));
            return;
        }
        let known = self.steps.iter().any(|s| guide.knows(&s.source.name));
        if n_missing == n && !known {
            self.problems.input(format!(
                "importance matrix `{}` is of another model: expected entries for tensors to encode, found none among \
                 {}",
                guide.file,
                count(guide.n_entries() as u64, "entry")
            ));
        }
        let mut notes = vec![format!(
            "importance matrix covers {} of {}",
            n - n_missing,
            count(n as u64, "tensor")
        )];
        let names = |steps: &[&Step]| {
            let names: Vec<_> = steps.iter().map(|s| format!("`{}`", s.name)).collect();
            names.join(", ")
        };
        let (keys, others): (Vec<&Step>, Vec<&Step>) = missing
            .into_iter()
            .partition(|s| guide.lacks_keys_alone(&s.source.name));
        if !others.is_empty() {
            notes.push(format!("did not find weights for {}", names(&others)));
        }
        if !keys.is_empty() {
            notes.push(format!(
                "the importance matrix was made with keys and values of latent attention in one weight and has nothing \
                 for the keys alone: {}",
                names(&keys)
            ));
        }
        for step in used() {
            let Coverage::Found(found) = &step.coverage else {
                continue;
            };
            if found.n_from_mean > 0 {
                notes.push(format!(
                    "tensor `{}`: {} of its {} saw no token and have the mean of all (`--prior {}`)",
                    step.name,
                    found.n_from_mean,
                    count(found.n_counts as u64, "expert"),
                    guide.prior().unwrap_or_default()
                ));
            }
            if found.zero_groups > 0 {
                notes.push(format!(
                    "tensor `{}`: {} of 16 columns count for nothing in the importance matrix and get a small weight",
                    step.name,
                    count(found.zero_groups, "group")
                ));
            }
        }
        self.notes.extend(notes);
    }
}

//! A plan summed up: by part of the model, by tensor type, and what it needs of the machine.

use std::collections::HashMap;
use std::path::PathBuf;

use gguf::{atomic, listed};
use gguf_cli::{count, human_bytes};
use serde::Serialize;

use crate::plan::{Plan, Step};

/// Tensor types that a row of a table names: a file may have as many as it has tensors.
const SOME_TYPES: usize = 16;

/// Tensors that have something in common.
#[derive(Debug, Serialize)]
pub(crate) struct Sum<'a> {
    /// The part of the model, or the tensor type.
    pub(crate) name: &'a str,
    tensors: usize,
    elements: u64,
    bytes: u64,
    bits_per_weight: f64,
    /// Tensor types with the number of tensors of each, in the order in which they appear.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    types: Vec<(&'a str, usize)>,
}

impl<'a> Sum<'a> {
    fn of(steps: &'a [Step], key: impl Fn(&'a Step) -> &'a str, with_types: bool) -> Vec<Self> {
        let mut out: Vec<Sum<'a>> = Vec::new();
        // Where a sum is in `out`, and a type in the types of a sum.
        let mut sums: HashMap<&str, usize> = HashMap::new();
        let mut types: HashMap<(usize, &str), usize> = HashMap::new();
        for step in steps {
            let name = key(step);
            let at = *sums.entry(name).or_insert(out.len());
            if at == out.len() {
                out.push(Sum {
                    name,
                    tensors: 0,
                    elements: 0,
                    bytes: 0,
                    bits_per_weight: 0.0,
                    types: Vec::new(),
                });
            }
            let sum = &mut out[at];
            sum.tensors += 1;
            sum.elements += step.source.shape.n_elems();
            sum.bytes += step.n_bytes();
            if with_types {
                let of_type = *types.entry((at, step.to.name)).or_insert(sum.types.len());
                if of_type == sum.types.len() {
                    sum.types.push((step.to.name, 0));
                }
                sum.types[of_type].1 += 1;
            }
        }
        for sum in &mut out {
            sum.bits_per_weight = sum.bytes as f64 * 8.0 / sum.elements.max(1) as f64;
        }
        out
    }

    fn row(&self) -> Vec<String> {
        let types: Vec<String> = self.types.iter().map(|(t, n)| format!("{t} {n}")).collect();
        vec![
            self.name.to_owned(),
            self.tensors.to_string(),
            self.elements.to_string(),
            self.bytes.to_string(),
            format!("{:.3}", self.bits_per_weight),
            listed(&types, SOME_TYPES, ", "),
        ]
    }
}

/// The tensors of each part of the model.
pub(crate) fn by_role(plan: &Plan) -> Vec<Sum<'_>> {
    Sum::of(&plan.steps, |s| s.role(), true)
}

/// The tensors of each type in the output.
pub(crate) fn by_type(plan: &Plan) -> Vec<Sum<'_>> {
    Sum::of(&plan.steps, |s| s.to.name, false)
}

/// Both sums as tables.
pub(crate) fn tables(plan: &Plan) -> String {
    let columns = |first| [first, "tensors", "weights", "bytes", "bits per weight", "types"];
    let rows = |sums: Vec<Sum<'_>>| sums.iter().map(Sum::row).collect::<Vec<_>>();
    let right = [1, 2, 3, 4];
    let roles = gguf_cli::table(&columns("part"), &rows(by_role(plan)), &right);
    let types: Vec<Vec<String>> = rows(by_type(plan)).into_iter().map(|r| r[..5].to_vec()).collect();
    let types = gguf_cli::table(&columns("type")[..5], &types, &right);
    format!("{roles}\n\n{types}\n")
}

/// What the outputs need, against what the machine has.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Needs {
    /// Bytes for the weights in work: `--max-memory`.
    memory: u64,
    /// The least that one thread can work with: the largest rows.
    memory_least: u64,
    /// Bytes that the system could give; absent if it does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_free: Option<u64>,
    /// Bytes of all outputs.
    disk: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_free: Option<u64>,
}

impl Needs {
    /// `outputs` are names and bytes.
    pub(crate) fn of(outputs: &[(PathBuf, u64)], memory: u64, memory_least: u64) -> Self {
        let folder = outputs.first().map(|(path, _)| atomic::folder_of(path));
        Self {
            memory,
            memory_least,
            memory_free: gguf_cli::available_memory(),
            disk: outputs.iter().fold(0, |n, (_, bytes)| n.saturating_add(*bytes)),
            disk_free: folder.and_then(atomic::free_bytes),
        }
    }

    /// A warning if the memory that may be taken is not there.
    pub(crate) fn warning(&self) -> Option<String> {
        let free = self.memory_free.filter(|free| *free < self.memory)?;
        Some(format!(
            "--max-memory: {} may be taken and {} are free",
            human_bytes(self.memory),
            human_bytes(free)
        ))
    }

    /// Lines for people.
    pub(crate) fn lines(&self) -> [String; 2] {
        let free = |n: Option<u64>| n.map_or_else(String::new, |n| format!(", {} free", human_bytes(n)));
        [
            format!(
                "memory: {} for weights in work (`--max-memory`), {} a thread at least{}",
                human_bytes(self.memory),
                human_bytes(self.memory_least),
                free(self.memory_free)
            ),
            format!(
                "disk: {} bytes ({}) for all outputs{}",
                self.disk,
                human_bytes(self.disk),
                free(self.disk_free)
            ),
        ]
    }
}

/// What fallback types cost, in a line; `None` if there are none.
pub(crate) fn fallback(plan: &Plan) -> Option<String> {
    (plan.n_fallback > 0).then(|| {
        let more = plan.fallback_bits_per_weight();
        format!(
            "fallback: {} of {}, {more:+.3} bits per weight",
            plan.n_fallback,
            count(plan.n_chosen as u64, "tensor")
        )
    })
}

#[cfg(test)]
mod tests {
    use gguf::{Shape, TensorInfo};
    use gguf_blocks::{Format, registry};

    use super::*;
    use crate::plan::Coverage;
    use crate::policy::Reason;

    fn kept(format: &'static Format) -> Step {
        let source = TensorInfo {
            name: "blk.0.ffn_up.weight".to_owned(),
            shape: Shape::new(&[256]).unwrap(),
            type_id: format.id,
            offset: 0,
            n_bytes: 3,
            part: 0,
        };
        Step {
            name: source.name.clone(),
            source,
            from: format,
            to: format,
            reason: Reason::Kept,
            coverage: Coverage::Unused,
        }
    }

    #[test]
    fn sums_are_in_the_order_of_the_tensors() {
        let kinds: Vec<&'static Format> = registry::all().iter().rev().copied().collect();
        assert!(kinds.len() > SOME_TYPES);
        // Each kind twice, but the first three times.
        let steps: Vec<Step> = kinds
            .iter()
            .chain(&kinds)
            .chain(&kinds[..1])
            .copied()
            .map(kept)
            .collect();
        let counts = kinds
            .iter()
            .enumerate()
            .map(|(i, f)| (f.name, 2 + usize::from(i == 0)));

        let by_type = Sum::of(&steps, |s| s.to.name, false);
        let found = by_type.iter().map(|s| (s.name, s.tensors));
        assert!(found.eq(counts.clone()), "{by_type:?}");
        assert!(
            by_type
                .iter()
                .all(|s| s.types.is_empty() && s.bytes == 3 * s.tensors as u64)
        );

        let by_role = Sum::of(&steps, |s| s.role(), true);
        let [sum] = by_role.as_slice() else {
            panic!("one part of the model: {by_role:?}");
        };
        assert_eq!((sum.name, sum.tensors), ("dense FFN", steps.len()));
        assert!(sum.types.iter().copied().eq(counts), "{sum:?}");
        let types = sum.row().pop().unwrap();
        let more = format!(" and {} more", kinds.len() - SOME_TYPES);
        assert!(
            types.starts_with(&format!("{} 3, {} 2, ", kinds[0].name, kinds[1].name)),
            "{types}"
        );
        assert!(
            types.ends_with(&more) && types.matches(", ").count() + 1 == SOME_TYPES,
            "{types}"
        );
    }
}

//! A plan summed up: by part of the model, by tensor type, and what it needs of the machine.

use std::path::PathBuf;

use gguf::atomic;
use gguf_cli::{count, human_bytes};
use serde::Serialize;

use crate::plan::{Plan, Step};

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
        for step in steps {
            let name = key(step);
            let at = out.iter().position(|s| s.name == name).unwrap_or_else(|| {
                out.push(Sum {
                    name,
                    tensors: 0,
                    elements: 0,
                    bytes: 0,
                    bits_per_weight: 0.0,
                    types: Vec::new(),
                });
                out.len() - 1
            });
            let sum = &mut out[at];
            sum.tensors += 1;
            sum.elements += step.source.shape.n_elems();
            sum.bytes += step.n_bytes();
            let known = sum.types.iter_mut().find(|(t, _)| *t == step.to.name);
            match known {
                Some((_, n)) => *n += 1,
                None if with_types => sum.types.push((step.to.name, 1)),
                None => {}
            }
        }
        for sum in &mut out {
            sum.bits_per_weight = sum.bytes as f64 * 8.0 / sum.elements.max(1) as f64;
        }
        out
    }

    fn row(&self) -> Vec<String> {
        let types = self.types.iter().map(|(t, n)| format!("{t} {n}"));
        vec![
            self.name.to_owned(),
            self.tensors.to_string(),
            self.elements.to_string(),
            self.bytes.to_string(),
            format!("{:.3}", self.bits_per_weight),
            types.collect::<Vec<_>>().join(", "),
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

//! Reads the table of mixtures for one tensor.
//!
//! Layers count in two ways. Values are numbered as they come, of all tensors that hold values. Feed-forward tensors
//! are numbered as they come too, unless there are experts: then the layer stands in the name, because the numbers of
//! tensors and of layers differ.

use super::category::Category;
use super::mixture::{ROWS, Row, When};
use super::{Facts, fallback};
use gguf::Shape;
use gguf_models::component::layer_of;

/// Tensors of a role seen so far, in processing order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    v: usize,
    down: usize,
    gate: usize,
    up: usize,
}

impl Counts {
    /// The number of tensors of the role before this one; 0 for roles that are not counted.
    fn next(&mut self, role: Category) -> usize {
        let count = match role {
            _ if role.is_v_like() => &mut self.v,
            Category::FfnDown => &mut self.down,
            Category::FfnGate => &mut self.gate,
            Category::FfnUp => &mut self.up,
            _ => return 0,
        };
        *count += 1;
        *count - 1
    }
}

/// What the rules look at besides the tensor.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) facts: &'a Facts,
    /// Name of the file type.
    pub(super) ftype: &'a str,
    /// The type that the file type gives to most tensors.
    pub(super) base: &'static str,
    pub(super) has_imatrix: bool,
}

/// A tensor whose row is looked for.
struct Subject<'a> {
    name: &'a str,
    shape: &'a Shape,
    role: Category,
    /// Tensors of the role before it.
    count: usize,
}

/// Whether layer `i` of `n` is one of those that get more bits: the first and last eighth and every third
/// between.
fn more_bits(i: usize, n: usize) -> bool {
    i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2
}

impl Context<'_> {
    /// The row that decides a tensor's type; `None` leaves it at the base type. `counts` moves on. A layer is looked
    /// for in the name only where the type depends on it.
    pub(super) fn choose(
        &self,
        category: Category,
        name: &str,
        shape: &Shape,
        counts: &mut Counts,
    ) -> Result<Option<&'static Row>, String> {
        let tied = category == Category::TokenEmbd && self.facts.tied;
        let role = if tied { Category::Output } else { category };
        let count = counts.next(role);
        let subject = Subject {
            name,
            shape,
            role,
            count,
        };
        for row in ROWS {
            let named = row.file_types.is_empty() || row.file_types.contains(&self.ftype);
            if named && (row.roles.is_empty() || row.roles.contains(&role)) && self.all(row, &subject)? {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    fn all(&self, row: &Row, subject: &Subject<'_>) -> Result<bool, String> {
        for when in row.when {
            if !self.holds(*when, subject)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn holds(&self, when: When, s: &Subject<'_>) -> Result<bool, String> {
        let f = self.facts;
        Ok(match when {
            When::Arch(arch) => f.arch == arch,
            When::NotArch(arch) => f.arch != arch,
            When::Name(parts) => parts.iter().any(|p| s.name.contains(p)),
            When::Stacked => s.shape.dim(2) > 1,
            When::Unfit => !fallback::fits(s.shape.n_cols(), self.base),
            When::Experts(n) => f.n_expert == n,
            When::NotExperts(n) => f.n_expert != n,
            When::FromExperts(n) => f.n_expert >= n,
            When::SharedBy(n) => f.n_gqa() >= n,
            When::Wide => f.is_70b(),
            When::Imatrix => self.has_imatrix,
            When::NoImatrix => !self.has_imatrix,
            When::First(n) => s.count < n,
            When::EarlyCount(parts) => s.count < f.n_layer / parts,
            When::Early(parts) => {
                let (i, n) = self.position(s)?;
                i < n / parts
            }
            When::Middle => {
                let (i, n) = self.position(s)?;
                (n / 8..7 * n / 8).contains(&i)
            }
            When::More => {
                let (i, n) = self.position(s)?;
                more_bits(i, n)
            }
        })
    }

    /// The layer that a tensor counts as, and the layers in all.
    fn position(&self, s: &Subject<'_>) -> Result<(usize, usize), String> {
        let f = self.facts;
        if s.role.is_v_like() {
            return Ok((s.count, f.n_v_like));
        }
        if f.n_expert <= 1 {
            return Ok((s.count, f.n_layer));
        }
        let name = s.name;
        let layer = layer_of(name).ok_or_else(|| {
            format!("tensor `{name}`: expected a layer number (`blk.N.`) in a model with experts")
        })?;
        if layer >= f.n_layer {
            return Err(format!(
                "tensor `{name}`: expected a layer below {} (`block_count`), found {layer}",
                f.n_layer
            ));
        }
        Ok((layer, f.n_layer))
    }
}

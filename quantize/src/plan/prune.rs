//! Layers that are left out.

use std::borrow::Cow;

use gguf::{Array, Metadata, Value, key};
use gguf_cli::{Failure, Result, count};

use crate::policy::layer_of;

/// Arrays with as many elements as there are layers may mean something else; these do.
const NOT_PER_LAYER: &[&str] = &["rope.dimension_sections"];

/// The layers that go, ascending.
#[derive(Debug)]
pub(crate) struct Pruning {
    gone: Vec<usize>,
    n_layer: usize,
}

impl Pruning {
    /// # Errors
    /// Layers that the model does not have, or none left.
    pub(crate) fn new(layers: &[u32], metadata: &Metadata) -> Result<Self> {
        let gone: Vec<usize> = layers.iter().map(|&l| l as usize).collect();
        if gone.is_empty() {
            return Ok(Self { gone, n_layer: 0 });
        }
        let n_layer = metadata
            .string(key::ARCHITECTURE)
            .ok()
            .flatten()
            .and_then(|arch| metadata.get(&format!("{arch}.block_count")))
            .and_then(Value::to_uint)
            .and_then(|n| usize::try_from(n).ok())
            .ok_or_else(|| {
                Failure::Input(
                    "--prune-layers: the model does not say how many layers it has (`block_count`)".into(),
                )
            })?;
        if let Some(beyond) = gone.iter().find(|&&l| l >= n_layer) {
            return Err(Failure::Usage(format!(
                "--prune-layers: expected layers below {n_layer}, found {beyond}"
            )));
        }
        if gone.len() == n_layer {
            let what = format!(
                "--prune-layers: leaves none of {}",
                count(n_layer as u64, "layer")
            );
            return Err(Failure::Usage(what));
        }
        Ok(Self { gone, n_layer })
    }

    /// The name of a tensor in the output; `None` if it goes.
    pub(crate) fn rename<'a>(&self, name: &'a str) -> Option<Cow<'a, str>> {
        let Some(layer) = layer_of(name).filter(|_| !self.gone.is_empty()) else {
            return Some(name.into());
        };
        match self.gone.binary_search(&layer) {
            Ok(_) => None,
            Err(0) => Some(name.into()),
            Err(before) => {
                let rest = name.splitn(3, '.').nth(2).unwrap_or_default();
                Some(format!("blk.{}.{rest}", layer - before).into())
            }
        }
    }

    /// The model's metadata without the layers: their number, the numbers of those at either end, and arrays with an
    /// element a layer.
    pub(crate) fn apply(&self, metadata: &mut Metadata) {
        let arch = metadata
            .string(key::ARCHITECTURE)
            .ok()
            .flatten()
            .map(str::to_owned);
        let Some(arch) = arch.filter(|_| !self.gone.is_empty()) else {
            return;
        };
        let uint = |own: &str| metadata.get(&format!("{arch}.{own}")).and_then(Value::to_uint);
        let n_next = uint("nextn_predict_layers").map_or(0, |n| n as usize);
        let n_dense = uint("leading_dense_block_count").map_or(0, |n| n as usize);
        let gone = |test: &dyn Fn(usize) -> bool| self.gone.iter().filter(|&&l| test(l)).count() as u64;
        let less = [
            ("block_count", self.gone.len() as u64),
            ("nextn_predict_layers", gone(&|l| l + n_next >= self.n_layer)),
            ("leading_dense_block_count", gone(&|l| l < n_dense)),
        ];
        let prefix = format!("{arch}.");
        let change = |(name, value): (&str, &Value)| {
            let own = name.strip_prefix(&prefix).unwrap_or_default();
            let changed = match (value, less.iter().find(|(k, _)| *k == own)) {
                (_, Some((_, n))) => value.to_uint().map(|old| number(value, old.saturating_sub(*n))),
                (Value::Array(all), None) if !own.is_empty() && !NOT_PER_LAYER.contains(&own) => {
                    self.shorten(all).map(Value::Array)
                }
                _ => None,
            };
            (name.to_owned(), changed.unwrap_or_else(|| value.clone()))
        };
        *metadata = metadata.iter().map(change).collect();
    }

    /// An array with an element a layer, without those of the layers that go.
    fn shorten(&self, all: &Array) -> Option<Array> {
        fn keep<T: Copy>(this: &Pruning, values: &[T]) -> Option<Vec<T>> {
            let left = values.iter().enumerate();
            (values.len() == this.n_layer).then(|| {
                left.filter(|(i, _)| this.gone.binary_search(i).is_err())
                    .map(|(_, v)| *v)
                    .collect()
            })
        }
        match all {
            Array::U32(v) => keep(self, v).map(Array::U32),
            Array::I32(v) => keep(self, v).map(Array::I32),
            Array::F32(v) => keep(self, v).map(Array::F32),
            Array::Bool(v) => keep(self, v).map(Array::Bool),
            Array::U64(v) => keep(self, v).map(Array::U64),
            _ => None,
        }
    }
}

/// A number of the same type as `like`, which is at least as large.
fn number(like: &Value, n: u64) -> Value {
    match like {
        Value::U8(_) => Value::U8(n as u8),
        Value::U16(_) => Value::U16(n as u16),
        Value::I32(_) => Value::I32(n as i32),
        Value::I64(_) => Value::I64(n as i64),
        Value::U64(_) => Value::U64(n),
        _ => Value::U32(n as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_move_up_with_their_keys() {
        let mut m: Metadata = [
            (key::ARCHITECTURE, Value::from("glm")),
            ("glm.block_count", 5_u32.into()),
            ("glm.leading_dense_block_count", 2_u32.into()),
            ("glm.nextn_predict_layers", 1_u32.into()),
            ("glm.attention.head_count_kv", vec![1_u32, 2, 3, 4, 5].into()),
            ("other.list", vec![1_u32, 2, 3, 4, 5].into()),
        ]
        .into_iter()
        .map(|(k, v): (&str, Value)| (k, v))
        .collect();
        let pruning = Pruning::new(&[1, 4], &m).unwrap();
        pruning.apply(&mut m);
        let value = |key: &str| m.get(key).cloned();
        assert_eq!(value("glm.block_count"), Some(3_u32.into()));
        assert_eq!(value("glm.leading_dense_block_count"), Some(1_u32.into()));
        assert_eq!(value("glm.nextn_predict_layers"), Some(0_u32.into()));
        assert_eq!(
            value("glm.attention.head_count_kv"),
            Some(vec![1_u32, 3, 4].into())
        );
        assert_eq!(value("other.list"), Some(vec![1_u32, 2, 3, 4, 5].into()));
        for (name, expected) in [
            ("blk.0.x.weight", Some("blk.0.x.weight")),
            ("blk.1.x.weight", None),
            ("blk.3.x.y.weight", Some("blk.2.x.y.weight")),
            ("output.weight", Some("output.weight")),
        ] {
            assert_eq!(pruning.rename(name).as_deref(), expected, "{name}");
        }
        for (layers, part) in [(vec![3], "below 3"), (vec![0, 1, 2], "none of 3 layers")] {
            let text = Pruning::new(&layers, &m).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
    }
}

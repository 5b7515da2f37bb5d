//! Layers that are left out.

use std::borrow::Cow;

use gguf::{Array, Metadata, Value, key};
use gguf_cli::{Failure, Result, count};
use gguf_models::component::layer_of;

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
        let n_next = uint("nextn_predict_layers").map_or(0, to_usize);
        let n_dense = uint("leading_dense_block_count").map_or(0, to_usize);
        let gone = |test: &dyn Fn(usize) -> bool| self.gone.iter().filter(|&&l| test(l)).count() as u64;
        let less = [
            ("block_count", self.gone.len() as u64),
            (
                "nextn_predict_layers",
                gone(&|l| l.saturating_add(n_next) >= self.n_layer),
            ),
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
        fn keep<T>(this: &Pruning, values: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
            let left = values.into_iter().enumerate();
            left.filter(|(i, _)| this.gone.binary_search(i).is_err())
                .map(|(_, v)| v)
        }
        fn copies<T: Copy>(this: &Pruning, values: &[T]) -> Vec<T> {
            keep(this, values.iter().copied()).collect()
        }
        (all.len() == self.n_layer).then(|| match all {
            Array::U8(v) => Array::U8(copies(self, v)),
            Array::I8(v) => Array::I8(copies(self, v)),
            Array::U16(v) => Array::U16(copies(self, v)),
            Array::I16(v) => Array::I16(copies(self, v)),
            Array::U32(v) => Array::U32(copies(self, v)),
            Array::I32(v) => Array::I32(copies(self, v)),
            Array::F32(v) => Array::F32(copies(self, v)),
            Array::Bool(v) => Array::Bool(copies(self, v)),
            Array::U64(v) => Array::U64(copies(self, v)),
            Array::I64(v) => Array::I64(copies(self, v)),
            Array::F64(v) => Array::F64(copies(self, v)),
            Array::String(v) => Array::String(keep(self, v.iter_bytes()).collect()),
            Array::Array(v) => Array::Array(keep(self, v.iter().cloned()).collect()),
        })
    }
}

/// A count from a file; more than any model has where it is more than the machine can count.
fn to_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// `n` as a number of the type of `like`, an integer that is at least as large.
fn number(like: &Value, n: u64) -> Value {
    match like {
        Value::U8(_) => Value::U8(n as u8),
        Value::I8(_) => Value::I8(n as i8),
        Value::U16(_) => Value::U16(n as u16),
        Value::I16(_) => Value::I16(n as i16),
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

    #[test]
    fn numbers_and_arrays_keep_their_types() {
        let arrays = |n: u8| -> [Array; 13] {
            let all = || (0..3_u8).filter(move |i| n == 3 || *i != 1);
            [
                Array::U8(all().collect()),
                Array::I8(all().map(|i| i as i8).collect()),
                Array::U16(all().map(u16::from).collect()),
                Array::I16(all().map(i16::from).collect()),
                Array::U32(all().map(u32::from).collect()),
                Array::I32(all().map(i32::from).collect()),
                Array::U64(all().map(u64::from).collect()),
                Array::I64(all().map(i64::from).collect()),
                Array::F32(all().map(f32::from).collect()),
                Array::F64(all().map(f64::from).collect()),
                Array::Bool(all().map(|i| i == 0).collect()),
                Array::String(all().map(|i| i.to_string()).collect()),
                Array::Array(all().map(|i| Array::U8(vec![i])).collect()),
            ]
        };
        let counts = |n: u8| -> [Value; 8] {
            [
                Value::U8(n),
                Value::I8(n as i8),
                Value::U16(n.into()),
                Value::I16(n.into()),
                Value::U32(n.into()),
                Value::I32(n.into()),
                Value::U64(n.into()),
                Value::I64(n.into()),
            ]
        };
        for (count, less) in counts(3).into_iter().zip(counts(2)) {
            let mut m = Metadata::new();
            m.set(key::ARCHITECTURE, "glm".into());
            m.set("glm.block_count", count);
            for (i, array) in arrays(3).into_iter().enumerate() {
                m.set(format!("glm.{i}"), Value::Array(array));
            }
            Pruning::new(&[1], &m).unwrap().apply(&mut m);
            assert_eq!(m.get("glm.block_count"), Some(&less));
            for (i, array) in arrays(2).into_iter().enumerate() {
                assert_eq!(m.get(&format!("glm.{i}")), Some(&Value::Array(array)));
            }
        }
    }

    #[test]
    fn counts_beyond_all_layers_are_no_sum_that_overflows() {
        let mut m = Metadata::new();
        m.set(key::ARCHITECTURE, "glm".into());
        m.set("glm.block_count", 3_u32.into());
        m.set("glm.nextn_predict_layers", u64::MAX.into());
        m.set("glm.leading_dense_block_count", u64::MAX.into());
        Pruning::new(&[1], &m).unwrap().apply(&mut m);
        for key in ["glm.nextn_predict_layers", "glm.leading_dense_block_count"] {
            assert_eq!(m.get(key), Some(&Value::U64(u64::MAX - 1)));
        }
    }
}

//! What the other layout has: keys, tensors, shapes.

use gguf::{GgufFile, Metadata, Shape, TensorInfo, TensorSpec, Value, key};
use gguf_blocks::registry;
use gguf_cli::{Failure, Result, in_file};

use super::To;

const KV_B: &str = "attn_kv_b.weight";
const K_B: &str = "attn_k_b.weight";
const V_B: &str = "attn_v_b.weight";

/// The sizes of a model's latent attention.
#[derive(Clone, Debug)]
pub(super) struct Mla {
    to: To,
    arch: String,
    pub(super) n_head: u64,
    /// Elements of the latent vector.
    pub(super) rank: u64,
    /// Elements of a key head that are not rotated.
    pub(super) nope: u64,
    /// Elements of a key head that are.
    rope: u64,
    /// Elements of a value head.
    pub(super) value: u64,
}

/// Where a tensor of the output comes from.
#[derive(Debug)]
pub(super) enum Source<'a> {
    /// It is one of the input's.
    Same(&'a TensorInfo),
    /// `attn_kv_b` of `attn_k_b` and `attn_v_b`.
    Joined { k: &'a TensorInfo, v: &'a TensorInfo },
    /// `attn_k_b` of `attn_kv_b`.
    Keys(&'a TensorInfo),
    /// `attn_v_b` of `attn_kv_b`.
    Values(&'a TensorInfo),
}

fn wrong(file: &GgufFile, object: &str, expected: &str, found: &str) -> Failure {
    let file = file.path().display();
    Failure::Input(format!("`{file}`: {object}: expected {expected}, found {found}"))
}

impl Mla {
    /// The sizes as the metadata have them.
    ///
    /// # Errors
    /// A model without latent attention, or with the layout that is asked for.
    pub(super) fn of(file: &GgufFile, to: To) -> Result<Self> {
        let metadata = &file.metadata;
        let arch = metadata.string(key::ARCHITECTURE).map_err(in_file(file.path()))?;
        let arch = arch.unwrap_or_default().to_owned();
        let object = |name: &str| format!("metadata key `{arch}.{name}`");
        let get = |name: &str| -> Result<u64> {
            let value = metadata.uint(&format!("{arch}.{name}"));
            let value = value.map_err(in_file(file.path()))?;
            let sound = value.filter(|v| (1..1 << 24).contains(v));
            sound.ok_or_else(|| {
                let found = value.map_or("nothing".to_owned(), |v| v.to_string());
                let expected = "a size, as models with latent attention have it";
                wrong(file, &object(name), expected, &found)
            })
        };
        let rank = get("attention.kv_lora_rank")?;
        let rope = get("rope.dimension_count")?;
        let is_split = metadata.contains(&format!("{arch}.attention.key_length_mla"));
        if is_split == (to == To::KB) {
            let (has, is, other) = if is_split {
                (K_B, "k_b", "kv_b")
            } else {
                (KV_B, "kv_b", "k_b")
            };
            return Err(Failure::Input(format!(
                "`{}` is in the layout `{is}` (`{has}`) already: there is nothing to do; `--to {other}` gives the other one",
                file.path().display()
            )));
        }
        let suffix = if is_split { "_mla" } else { "" };
        let key_name = format!("attention.key_length{suffix}");
        let key_length = get(&key_name)?;
        Ok(Self {
            to,
            n_head: get("attention.head_count")?,
            rank,
            nope: key_length.checked_sub(rope).filter(|n| *n > 0).ok_or_else(|| {
                let expected = format!("more than the {rope} rotated elements");
                wrong(file, &object(&key_name), &expected, &key_length.to_string())
            })?,
            rope,
            value: get(&format!("attention.value_length{suffix}"))?,
            arch,
        })
    }

    /// The metadata of the output: the same keys in the same places but for those that the layout decides.
    pub(super) fn metadata(&self, source: &Metadata) -> Metadata {
        let name = |key: &str| format!("{}.attention.{key}", self.arch);
        let (key, value) = (name("key_length"), name("value_length"));
        let (key_mla, value_mla) = (name("key_length_mla"), name("value_length_mla"));
        let size = |n: u64| Value::U32(u32::try_from(n).expect("sizes are below 2^24 each"));
        let mut out = Vec::new();
        for (k, v) in source.iter().filter(|(k, _)| !key::SPLIT.contains(k)) {
            let k = k.to_owned();
            if k == key_mla || k == value_mla {
                continue;
            }
            let is_value = k == value;
            let new = match self.to {
                To::KB if k == key => size(self.rank + self.rope),
                To::KB if is_value => size(self.rank),
                To::KvB if k == key => size(self.nope + self.rope),
                To::KvB if is_value => size(self.value),
                To::KB if k == name("head_count_kv") => size(1),
                To::KvB if k == name("head_count_kv") => size(self.n_head),
                _ => v.clone(),
            };
            out.push((k, new));
            if is_value && self.to == To::KB {
                out.push((key_mla.clone(), size(self.nope + self.rope)));
                out.push((value_mla.clone(), size(self.value)));
            }
        }
        let kv = name("head_count_kv");
        if self.to == To::KB && !out.iter().any(|(k, _)| *k == kv) {
            out.push((kv, size(1)));
        }
        out.into_iter().collect()
    }

    /// The tensors of the output, and where each comes from.
    ///
    /// # Errors
    /// Tensors of another shape, or of a type whose elements are not apart; a pair of which one is missing.
    pub(super) fn tensors<'a>(&self, file: &'a GgufFile) -> Result<(Vec<TensorSpec>, Vec<Source<'a>>)> {
        let mut specs = Vec::new();
        let mut sources = Vec::new();
        let mut add = |spec, source| {
            specs.push(spec);
            sources.push(source);
        };
        for t in &file.tensors {
            let Some((front, stem)) = t
                .name
                .rsplit_once("attn_")
                .map(|(front, _)| (front, &t.name[front.len()..]))
            else {
                add(TensorSpec::from(t), Source::Same(t));
                continue;
            };
            let spec =
                |stem: &str, dims: &[u64]| TensorSpec::new(format!("{front}{stem}"), shape(dims), t.type_id);
            match (self.to, stem) {
                (To::KB, KV_B) => {
                    require(file, t, &self.kv_dims())?;
                    add(spec(K_B, &self.k_dims()), Source::Keys(t));
                    add(spec(V_B, &self.v_dims()), Source::Values(t));
                }
                (To::KvB, K_B) => {
                    let v = beside(file, t, &format!("{front}{V_B}"))?;
                    require(file, t, &self.k_dims())?;
                    require(file, v, &self.v_dims())?;
                    if v.type_id != t.type_id {
                        let expected = format!("{}, as `{}`", t.type_name(), t.name);
                        let object = format!("type of tensor `{}`", v.name);
                        return Err(wrong(file, &object, &expected, &v.type_name()));
                    }
                    add(spec(KV_B, &self.kv_dims()), Source::Joined { k: t, v });
                }
                (To::KvB, V_B) => {
                    // Written with its other half, which must be there.
                    beside(file, t, &format!("{front}{K_B}"))?;
                }
                _ => add(TensorSpec::from(t), Source::Same(t)),
            }
        }
        Ok((specs, sources))
    }

    fn kv_dims(&self) -> [u64; 2] {
        [self.rank, self.n_head * (self.nope + self.value)]
    }

    fn k_dims(&self) -> [u64; 3] {
        [self.nope, self.rank, self.n_head]
    }

    fn v_dims(&self) -> [u64; 3] {
        [self.rank, self.value, self.n_head]
    }
}

/// The tensor that must stand beside another.
fn beside<'a>(file: &'a GgufFile, t: &TensorInfo, name: &str) -> Result<&'a TensorInfo> {
    let found = file.tensor(name);
    found.ok_or_else(|| {
        let object = format!("tensor `{}`", t.name);
        wrong(file, &object, &format!("`{name}` beside it"), "none")
    })
}

fn shape(dims: &[u64]) -> Shape {
    Shape::new(dims).expect("at most three dimensions")
}

/// Refuses a tensor of another shape, and one whose elements are not apart.
fn require(file: &GgufFile, t: &TensorInfo, dims: &[u64]) -> Result<()> {
    let object = |of: &str| format!("{of} of tensor `{}`", t.name);
    if t.shape != shape(dims) {
        let (expected, found) = (shape(dims).to_string(), t.shape.to_string());
        return Err(wrong(file, &object("shape"), &expected, &found));
    }
    if registry::by_id(t.type_id).is_none_or(|f| f.geometry.block_elems != 1) {
        let expected =
            "F32, F16 or BF16, as blocks cannot be rearranged: give the model from before quantization";
        return Err(wrong(file, &object("type"), expected, &t.type_name()));
    }
    Ok(())
}

//! What a person wants to know first.

use gguf::{Array, GgufFile, Metadata, Value, key};
use gguf_cli::file_name;
use gguf_models::component::Component;
use gguf_models::{Attributes, file_type};
use serde::Serialize;

use super::facts::{Sums, Totals};

/// The model in a few numbers. Read from the metadata where it says, else from the tensors; what neither says is left
/// out.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) name: Option<String>,
    pub(crate) architecture: Option<String>,
    /// `general.type`, where it is not `model`.
    pub(crate) kind: Option<String>,
    pub(crate) parameters: u64,
    /// Parameters that one token passes, where there are experts to choose from.
    pub(crate) active_parameters: Option<u64>,
    /// Name of `general.file_type`.
    pub(crate) file_type: Option<String>,
    /// Whether the tensors can be of that type.
    pub(crate) file_type_fits: bool,
    /// What the tensors say, where they cannot or the key is missing.
    pub(crate) file_type_guess: Option<&'static str>,
    /// The tensor type with the most bytes.
    pub(crate) mostly: Option<String>,
    pub(crate) bits_per_weight: Option<f64>,
    pub(crate) layers: Option<u64>,
    pub(crate) context_length: Option<u64>,
    pub(crate) embedding_length: Option<u64>,
    pub(crate) heads: Option<u64>,
    pub(crate) kv_heads: Option<u64>,
    pub(crate) experts: Option<u64>,
    pub(crate) experts_used: Option<u64>,
    pub(crate) vocabulary: Option<Vocabulary>,
    pub(crate) chat_template: Option<Template>,
    /// Names of the files, where there are several.
    pub(crate) shards: Vec<Shard>,
    pub(crate) by_component: Vec<ComponentSums>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Vocabulary {
    pub(crate) model: Option<String>,
    pub(crate) pre: Option<String>,
    pub(crate) tokens: u64,
    pub(crate) special: Vec<Special>,
}

/// A token with a task: `bos`, 128000, its text.
#[derive(Debug, Serialize)]
pub(crate) struct Special {
    pub(crate) role: String,
    pub(crate) id: u64,
    pub(crate) text: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Template {
    pub(crate) chars: usize,
    pub(crate) first_line: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Shard {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) tensors: usize,
    pub(crate) missing: bool,
    /// Whether it is there, but its head cannot be read.
    pub(crate) unreadable: bool,
}

/// Sums over the tensors of one part of the model.
#[derive(Debug, Serialize)]
pub(crate) struct ComponentSums {
    pub(crate) component: &'static str,
    #[serde(flatten)]
    pub(crate) sums: Sums,
    pub(crate) bits_per_weight: Option<f64>,
}

impl Summary {
    pub(crate) fn of(file: &GgufFile) -> Self {
        let metadata = &file.metadata;
        let architecture = string(metadata, key::ARCHITECTURE);
        let attributes = Attributes::of(metadata);
        let uint = |own: &str| attributes?.largest(own);
        let totals = Totals::of(file);
        let types = totals.bytes_by_type();
        let file_type_id = metadata.get(key::FILE_TYPE).and_then(Value::to_uint);
        let file_type_id = file_type_id.map(|id| u32::try_from(id).unwrap_or(u32::MAX));
        let known = file_type_id.and_then(file_type::by_id);
        let file_type_fits =
            file_type_id.is_some() && (types.is_empty() || known.is_none_or(|t| t.fits(&types)));
        let (experts, experts_used) = (uint("expert_count"), uint("expert_used_count"));
        Self {
            name: string(metadata, key::NAME),
            kind: string(metadata, key::TYPE).filter(|t| t != "model"),
            parameters: totals.all.parameters,
            active_parameters: active_parameters(file, experts, experts_used),
            file_type: file_type_id
                .map(|id| file_type::name_of(id).map_or_else(|| format!("file type {id}"), str::to_owned)),
            file_type_fits,
            file_type_guess: file_type::guess(types)
                .filter(|_| !file_type_fits)
                .map(|t| t.name),
            mostly: totals.by_type.first().map(|t| t.type_name.clone()),
            bits_per_weight: totals.bits_per_weight,
            layers: uint("block_count"),
            context_length: uint("context_length"),
            embedding_length: uint("embedding_length"),
            heads: uint("attention.head_count"),
            kv_heads: uint("attention.head_count_kv"),
            experts: experts.filter(|&n| n > 0),
            experts_used: experts_used.filter(|&n| n > 0),
            vocabulary: vocabulary(metadata),
            chat_template: template(metadata),
            shards: shards(file),
            by_component: by_component(file),
            architecture,
        }
    }
}

fn string(metadata: &Metadata, key: &str) -> Option<String> {
    match metadata.get(key) {
        Some(Value::String(s)) => Some(s.clone()),
        _ => None,
    }
}

/// Everything but the experts that a token does not reach. `None` without experts.
fn active_parameters(file: &GgufFile, experts: Option<u64>, used: Option<u64>) -> Option<u64> {
    let (n, used) = (experts.filter(|&n| n > 0)?, used?);
    let active = file.tensors.iter().fold(0_u128, |sum, t| {
        let elems = u128::from(t.shape.n_elems());
        let share = match Component::of(&t.name) {
            Component::Experts => elems * u128::from(used.min(n)) / u128::from(n),
            _ => elems,
        };
        sum + share
    });
    u64::try_from(active).ok()
}

fn by_component(file: &GgufFile) -> Vec<ComponentSums> {
    let mut sums = Component::ALL.map(|c| (c, Sums::default()));
    for tensor in &file.tensors {
        let part = Component::of(&tensor.name);
        for (c, sums) in &mut sums {
            if *c == part {
                sums.add(tensor);
            }
        }
    }
    let found = sums.into_iter().filter(|(_, s)| s.tensors > 0);
    found
        .map(|(c, sums)| ComponentSums {
            component: c.name(),
            bits_per_weight: sums.bits_per_weight(),
            sums,
        })
        .collect()
}

fn vocabulary(metadata: &Metadata) -> Option<Vocabulary> {
    let Some(Value::Array(Array::String(tokens))) = metadata.get(key::TOKENS) else {
        return None;
    };
    let special = metadata.iter().filter_map(|(key, value)| {
        let role = key.strip_prefix("tokenizer.ggml.")?.strip_suffix("_token_id")?;
        let id = value.to_uint()?;
        let text = usize::try_from(id).ok().and_then(|i| tokens.get(i));
        Some(Special {
            role: role.to_owned(),
            id,
            text: text.map(std::borrow::Cow::into_owned),
        })
    });
    Some(Vocabulary {
        model: string(metadata, key::TOKENIZER_MODEL),
        pre: string(metadata, key::TOKENIZER_PRE),
        tokens: tokens.len() as u64,
        special: special.collect(),
    })
}

fn template(metadata: &Metadata) -> Option<Template> {
    let text = string(metadata, key::CHAT_TEMPLATE)?;
    Some(Template {
        chars: text.chars().count(),
        first_line: text
            .lines()
            .find(|l| !l.trim().is_empty())
            .unwrap_or("")
            .to_owned(),
    })
}

fn shards(file: &GgufFile) -> Vec<Shard> {
    let parts = file.parts();
    if parts.len() < 2 && file.is_complete() {
        return Vec::new();
    }
    let base = |path| file_name(path).into_owned();
    let here = parts.iter().map(|part| Shard {
        name: base(part.path()),
        bytes: part.source().len(),
        tensors: part.tensors.len(),
        missing: false,
        unreadable: false,
    });
    let missing = file.missing().iter().map(|path| Shard {
        name: base(path),
        bytes: 0,
        tensors: 0,
        missing: true,
        unreadable: false,
    });
    let unreadable = file.unreadable().iter().map(|e| Shard {
        name: base(&e.file),
        bytes: std::fs::metadata(&e.file).map_or(0, |m| m.len()),
        tensors: 0,
        missing: false,
        unreadable: true,
    });
    let mut shards: Vec<Shard> = here.chain(missing).chain(unreadable).collect();
    shards.sort_by(|a, b| a.name.cmp(&b.name));
    shards
}

/// A number of parameters in three digits: `1.24 B`.
pub(crate) fn human_count(n: u64) -> String {
    let mut x = n as f64;
    for unit in ["", " K", " M", " B"] {
        if x < 999.5 {
            return digits(x, unit);
        }
        x /= 1000.0;
    }
    digits(x, " T")
}

fn digits(x: f64, unit: &str) -> String {
    match x {
        _ if unit.is_empty() => format!("{x}"),
        x if x < 9.995 => format!("{x:.2}{unit}"),
        x if x < 99.95 => format!("{x:.1}{unit}"),
        x => format!("{x:.0}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::human_count;

    #[test]
    fn counts_have_three_digits() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1.00 K"),
            (8_030_261_248, "8.03 B"),
            (107_769_861_120, "108 B"),
            (1_026_000_000_000, "1.03 T"),
            (999_600, "1.00 M"),
        ] {
            assert_eq!(human_count(n), text);
        }
    }
}

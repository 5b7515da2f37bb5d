//! The `{arch}.*` metadata of any architecture, also of one that this build does not describe.
//!
//! [`HParams`](crate::HParams) reads what one described architecture needs and refuses everything else. This view is
//! for looking: it reads the keys that architectures share, takes one number or one a layer where writers differ,
//! fills in the format's defaults and answers `None` where a key is missing or of another type. Values are as the
//! file has them: who computes with them checks for overflow.

use gguf::{Array, Metadata, Value, key};

/// The metadata of a model's architecture.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    arch: &'a str,
    metadata: &'a Metadata,
}

/// A number that holds for all layers, or one for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PerLayer {
    /// The same for all.
    All(u64),
    /// One a layer, from layer 0.
    Each(Vec<u64>),
}

impl PerLayer {
    /// The number of a layer; `None` behind the last one given.
    pub fn at(&self, layer: usize) -> Option<u64> {
        match self {
            Self::All(n) => Some(*n),
            Self::Each(all) => all.get(layer).copied(),
        }
    }

    /// The largest number; `None` of an empty list.
    pub fn max(&self) -> Option<u64> {
        match self {
            Self::All(n) => Some(*n),
            Self::Each(all) => all.iter().copied().max(),
        }
    }
}

/// Which layers attend to a window of the past alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowPattern {
    /// Of each `n` layers all but the last; 0 for every layer.
    AllButEvery(u64),
    /// Said for each layer.
    Each(Vec<bool>),
}

impl WindowPattern {
    /// Whether a layer has a window.
    pub fn has_window(&self, layer: usize) -> bool {
        match self {
            Self::AllButEvery(0) => true,
            Self::AllButEvery(n) => layer as u64 % n < n - 1,
            Self::Each(all) => all.get(layer).copied().unwrap_or(false),
        }
    }
}

/// Patterns that loaders know without a key.
const WINDOW_PATTERNS: &[(&str, WindowPattern)] = &[
    ("cohere2", WindowPattern::AllButEvery(4)),
    ("gemma2", WindowPattern::AllButEvery(2)),
    ("gemma3", WindowPattern::AllButEvery(6)),
    ("gpt-oss", WindowPattern::AllButEvery(2)),
    ("llama4", WindowPattern::AllButEvery(4)),
    // The key is there, and no loader uses it.
    ("phi3", WindowPattern::AllButEvery(1)),
];

/// Windows that loaders know without a key.
const WINDOWS: &[(&str, u64)] = &[("llama4", 8192)];

impl<'a> Attributes<'a> {
    /// The view of a file's metadata; `None` without `general.architecture`.
    pub fn of(metadata: &'a Metadata) -> Option<Self> {
        match metadata.get(key::ARCHITECTURE) {
            Some(Value::String(arch)) => Some(Self { arch, metadata }),
            _ => None,
        }
    }

    /// The architecture's name.
    pub fn architecture(&self) -> &'a str {
        self.arch
    }

    /// The full name of a key: `llama.block_count` for `block_count`.
    pub fn key(&self, own: &str) -> String {
        format!("{}.{own}", self.arch)
    }

    /// The value of a key, named without the architecture.
    pub fn get(&self, own: &str) -> Option<&'a Value> {
        self.metadata.get(&self.key(own))
    }

    /// A whole number; of a list that is the same all through, its element.
    pub fn uint(&self, own: &str) -> Option<u64> {
        match self.per_layer(own)? {
            PerLayer::All(n) => Some(n),
            PerLayer::Each(all) => {
                let first = *all.first()?;
                all.iter().all(|&n| n == first).then_some(first)
            }
        }
    }

    /// A whole number that is given once or for each layer.
    pub fn per_layer(&self, own: &str) -> Option<PerLayer> {
        match self.get(own)? {
            Value::Array(all) => all.to_uints().map(PerLayer::Each),
            one => one.to_uint().map(PerLayer::All),
        }
    }

    /// Why [`Self::uint`] has no answer, for a message: the key is missing, or what it holds instead.
    pub fn absence(&self, own: &str) -> String {
        let key = self.key(own);
        match self.get(own) {
            None => format!("no metadata key `{key}`"),
            Some(value) => format!("metadata key `{key}` is of type {}", value.type_name()),
        }
    }

    /// Layers, those that predict further tokens among them.
    pub fn block_count(&self) -> Option<u64> {
        self.uint("block_count")
    }

    /// Layers at the end that predict further tokens and take no part in the usual pass.
    pub fn nextn_layers(&self) -> u64 {
        self.uint("nextn_predict_layers").unwrap_or(0)
    }

    /// Tokens the model was made for.
    pub fn context_length(&self) -> Option<u64> {
        self.uint("context_length")
    }

    /// Width of the residual stream.
    pub fn embedding_length(&self) -> Option<u64> {
        self.uint("embedding_length")
    }

    /// Heads of the queries.
    pub fn head_count(&self) -> Option<PerLayer> {
        self.per_layer("attention.head_count")
    }

    /// Heads of keys and values: as many as of the queries where the file does not say.
    pub fn head_count_kv(&self) -> Option<PerLayer> {
        self.per_layer("attention.head_count_kv")
            .or_else(|| self.head_count())
    }

    /// Elements of a head's key. The default is the width shared among the heads.
    pub fn key_length(&self) -> Option<u64> {
        self.uint("attention.key_length").or_else(|| self.head_width())
    }

    /// Elements of a head's value. The default is the width shared among the heads.
    pub fn value_length(&self) -> Option<u64> {
        self.uint("attention.value_length").or_else(|| self.head_width())
    }

    /// Elements of a head's key in a layer with a window.
    pub fn key_length_window(&self) -> Option<u64> {
        self.uint("attention.key_length_swa")
            .or_else(|| self.key_length())
    }

    /// Elements of a head's value in a layer with a window.
    pub fn value_length_window(&self) -> Option<u64> {
        self.uint("attention.value_length_swa")
            .or_else(|| self.value_length())
    }

    fn head_width(&self) -> Option<u64> {
        self.embedding_length()?.checked_div(self.head_count()?.max()?)
    }

    /// Lengths of a head's key and value in front of their compression, of a model with compressed (MLA) attention.
    /// Files without them keep keys and values of every head.
    pub fn mla_lengths(&self) -> Option<(u64, u64)> {
        let lengths = (
            self.uint("attention.key_length_mla")?,
            self.uint("attention.value_length_mla")?,
        );
        (lengths.0 > 0 && lengths.1 > 0).then_some(lengths)
    }

    /// Past tokens that a layer with a window sees; `None` if no layer has one.
    pub fn window(&self) -> Option<u64> {
        let known = || WINDOWS.iter().find(|(arch, _)| *arch == self.arch);
        self.uint("attention.sliding_window")
            .or_else(|| known().map(|(_, window)| *window))
            .filter(|&window| window > 0)
    }

    /// The layers with a window: what the file says, else what loaders know of the architecture. `None` if neither
    /// says anything.
    pub fn window_pattern(&self) -> Option<WindowPattern> {
        let own = match self.get("attention.sliding_window_pattern") {
            Some(Value::Array(Array::Bool(all))) => Some(WindowPattern::Each(all.clone())),
            Some(Value::Array(all)) => all
                .to_uints()
                .map(|all| WindowPattern::Each(all.into_iter().map(|n| n != 0).collect())),
            Some(one) => one.to_uint().map(WindowPattern::AllButEvery),
            None => None,
        };
        let known = || WINDOW_PATTERNS.iter().find(|(arch, _)| *arch == self.arch);
        own.or_else(|| known().map(|(_, pattern)| pattern.clone()))
    }

    /// Experts that a router chooses from; 0 for a dense model.
    pub fn expert_count(&self) -> u64 {
        self.largest("expert_count").unwrap_or(0)
    }

    /// Experts that a token passes.
    pub fn expert_used_count(&self) -> u64 {
        self.largest("expert_used_count").unwrap_or(0)
    }

    /// Width of the dense feed-forward part, of the widest layer.
    pub fn feed_forward_length(&self) -> Option<u64> {
        self.largest("feed_forward_length")
    }

    /// Width of an expert; that of the dense part where the file does not say.
    pub fn expert_feed_forward_length(&self) -> Option<u64> {
        self.largest("expert_feed_forward_length")
            .or_else(|| self.feed_forward_length())
    }

    /// The largest of a key's numbers.
    pub fn largest(&self, own: &str) -> Option<u64> {
        self.per_layer(own)?.max()
    }
}

#[cfg(test)]
mod tests {
    use gguf::{Metadata, Value};

    use super::{Attributes, PerLayer, WindowPattern};

    fn metadata(arch: &str, pairs: &[(&str, Value)]) -> Metadata {
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", Value::from(arch));
        for (key, value) in pairs {
            metadata.set(format!("{arch}.{key}"), value.clone());
        }
        metadata
    }

    #[test]
    fn numbers_are_given_once_or_for_each_layer() {
        let metadata = metadata(
            "made-up",
            &[
                ("embedding_length", Value::U64(512)),
                ("attention.head_count", Value::U32(8)),
                ("attention.head_count_kv", vec![2_u32, 0, 4].into()),
                ("feed_forward_length", vec![7_u32, 7].into()),
                ("block_count", Value::from("three")),
            ],
        );
        let a = Attributes::of(&metadata).expect("an architecture");
        assert_eq!(a.head_count_kv(), Some(PerLayer::Each(vec![2, 0, 4])));
        let kv = a.head_count_kv().expect("just seen");
        assert_eq!((kv.at(1), kv.at(3), kv.max()), (Some(0), None, Some(4)));
        assert_eq!((a.key_length(), a.value_length_window()), (Some(64), Some(64)));
        assert_eq!(a.uint("feed_forward_length"), Some(7));
        assert_eq!(a.uint("attention.head_count_kv"), None, "layers differ");
        assert_eq!(a.block_count(), None);
        assert_eq!(
            a.absence("block_count"),
            "metadata key `made-up.block_count` is of type string"
        );
        assert_eq!(a.absence("vocab_size"), "no metadata key `made-up.vocab_size`");
    }

    #[test]
    fn a_head_count_of_zero_gives_no_width() {
        let metadata = metadata(
            "mamba",
            &[
                ("embedding_length", Value::U32(512)),
                ("attention.head_count", Value::U32(0)),
            ],
        );
        let a = Attributes::of(&metadata).expect("an architecture");
        assert_eq!(a.key_length(), None);
    }

    #[test]
    fn windows_come_from_keys_or_from_what_loaders_know() {
        let has = |arch: &str, pairs: &[(&str, Value)]| {
            let metadata = metadata(arch, pairs);
            let a = Attributes::of(&metadata).expect("an architecture");
            let pattern = a.window_pattern();
            let layers = pattern.map(|p| (0..6).map(|i| p.has_window(i)).collect::<Vec<_>>());
            (a.window(), layers)
        };
        let one = |n| [("attention.sliding_window", Value::U32(n))];
        let (yes, no) = (true, false);
        assert_eq!(
            has("gemma3", &one(512)),
            (Some(512), Some(vec![yes, yes, yes, yes, yes, no]))
        );
        assert_eq!(has("gpt-oss", &one(128)).1, Some(vec![yes, no, yes, no, yes, no]));
        assert_eq!(has("phi3", &one(2047)).1, Some(vec![no; 6]));
        assert_eq!(has("llama4", &[]).0, Some(8192));
        assert_eq!(has("llama4", &one(0)).0, None, "the file says that there is none");
        assert_eq!(has("made-up", &one(128)), (Some(128), None));
        let mut given = one(128).to_vec();
        given.push(("attention.sliding_window_pattern", vec![true, true, false].into()));
        assert_eq!(has("gemma3", &given).1, Some(vec![yes, yes, no, no, no, no]));
        assert!(WindowPattern::AllButEvery(0).has_window(9));
    }
}

//! Well-known metadata keys.

use crate::ValueType;

/// `general.architecture`, string.
pub const ARCHITECTURE: &str = "general.architecture";
/// `general.alignment`, u32.
pub const ALIGNMENT: &str = "general.alignment";
/// `general.file_type`, u32: see `gguf_models::file_type`.
pub const FILE_TYPE: &str = "general.file_type";
/// `general.name`, string.
pub const NAME: &str = "general.name";
/// `general.quantization_version`, u32, 2 at present.
pub const QUANTIZATION_VERSION: &str = "general.quantization_version";
/// `general.type`, string: `model`, `adapter`, `imatrix`, `mmproj`.
pub const TYPE: &str = "general.type";

/// `split.no`, u16: number of this shard, from 0.
pub const SPLIT_NO: &str = "split.no";
/// `split.count`, u16: shards in all.
pub const SPLIT_COUNT: &str = "split.count";
/// `split.tensors.count`, i32: tensors of all shards.
pub const SPLIT_TENSORS: &str = "split.tensors.count";
/// The keys of a split set.
pub const SPLIT: [&str; 3] = [SPLIT_NO, SPLIT_COUNT, SPLIT_TENSORS];

/// The only type in which llama.cpp reads a key that says where the parts of a file are. None for other keys.
pub(crate) fn type_of_place(key: &str) -> Option<ValueType> {
    match key {
        ALIGNMENT => Some(ValueType::U32),
        SPLIT_NO | SPLIT_COUNT => Some(ValueType::U16),
        SPLIT_TENSORS => Some(ValueType::I32),
        _ => None,
    }
}

/// `gguf.pad`, array of u8: room for later edits of the metadata, see [`crate::edit`].
pub const PAD: &str = "gguf.pad";

/// `tokenizer.ggml.model`, string: the family (`gpt2`, `llama`, ..).
pub const TOKENIZER_MODEL: &str = "tokenizer.ggml.model";
/// `tokenizer.ggml.pre`, string: the way text is cut before merges.
pub const TOKENIZER_PRE: &str = "tokenizer.ggml.pre";
/// `tokenizer.ggml.tokens`, array of strings.
pub const TOKENS: &str = "tokenizer.ggml.tokens";
/// `tokenizer.ggml.token_type`, array of i32, one a token.
pub const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";
/// `tokenizer.ggml.scores`, array of f32, one a token.
pub const SCORES: &str = "tokenizer.ggml.scores";
/// `tokenizer.ggml.merges`, array of strings.
pub const MERGES: &str = "tokenizer.ggml.merges";
/// `tokenizer.chat_template`, string.
pub const CHAT_TEMPLATE: &str = "tokenizer.chat_template";

/// Arrays with one element for each token.
pub const PER_TOKEN: [&str; 2] = [TOKEN_TYPE, SCORES];

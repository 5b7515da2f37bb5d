//! Well-known metadata keys.

/// `general.architecture`, string.
pub const ARCHITECTURE: &str = "general.architecture";
/// `general.alignment`, u32.
pub const ALIGNMENT: &str = "general.alignment";
/// `general.file_type`, u32: see `gguf_models::file_type`.
pub const FILE_TYPE: &str = "general.file_type";
/// `general.quantization_version`, u32, 2 at present.
pub const QUANTIZATION_VERSION: &str = "general.quantization_version";

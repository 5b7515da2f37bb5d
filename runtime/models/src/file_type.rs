//! File types: the names that people ask for (`Q4_K_M`) and their numbers in `general.file_type`.

/// A file type.
#[derive(Debug, PartialEq, Eq)]
pub struct FileType {
    /// Number in `general.file_type`.
    pub id: u32,
    /// The name as llama.cpp has it.
    pub name: &'static str,
    /// Other names for it (`Q4_K` for `Q4_K_M`).
    pub aliases: &'static [&'static str],
    /// The tensor type that most weights get.
    pub base: &'static str,
}

/// Every file type that llama.cpp writes, in order of its number.
pub fn all() -> &'static [FileType] {
    &[]
}

/// By name in any case, alias, or number.
pub fn by_name(_name: &str) -> Option<&'static FileType> {
    todo!()
}

/// By number.
pub fn by_id(_id: u32) -> Option<&'static FileType> {
    todo!()
}

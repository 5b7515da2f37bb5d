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

const fn plain(id: u32, name: &'static str) -> FileType {
    FileType {
        id,
        name,
        aliases: &[],
        base: name,
    }
}

const fn mix(id: u32, name: &'static str, base: &'static str) -> FileType {
    FileType {
        id,
        name,
        aliases: &[],
        base,
    }
}

const fn alias(
    id: u32,
    name: &'static str,
    aliases: &'static [&'static str],
    base: &'static str,
) -> FileType {
    FileType {
        id,
        name,
        aliases,
        base,
    }
}

/// Numbers that are missing here belonged to types that were removed.
static FILE_TYPES: &[FileType] = &[
    alias(0, "F32", &["ALL_F32"], "F32"),
    plain(1, "F16"),
    plain(2, "Q4_0"),
    plain(3, "Q4_1"),
    plain(7, "Q8_0"),
    plain(8, "Q5_0"),
    plain(9, "Q5_1"),
    plain(10, "Q2_K"),
    mix(11, "Q3_K_S", "Q3_K"),
    alias(12, "Q3_K_M", &["Q3_K"], "Q3_K"),
    mix(13, "Q3_K_L", "Q3_K"),
    mix(14, "Q4_K_S", "Q4_K"),
    alias(15, "Q4_K_M", &["Q4_K"], "Q4_K"),
    mix(16, "Q5_K_S", "Q5_K"),
    alias(17, "Q5_K_M", &["Q5_K"], "Q5_K"),
    plain(18, "Q6_K"),
    plain(19, "IQ2_XXS"),
    plain(20, "IQ2_XS"),
    mix(21, "Q2_K_S", "Q2_K"),
    mix(22, "IQ3_XS", "IQ3_S"),
    plain(23, "IQ3_XXS"),
    plain(24, "IQ1_S"),
    plain(25, "IQ4_NL"),
    plain(26, "IQ3_S"),
    mix(27, "IQ3_M", "IQ3_S"),
    // Not the tensor type of the same name: the reference makes most weights of this mix IQ2_XS.
    mix(28, "IQ2_S", "IQ2_XS"),
    mix(29, "IQ2_M", "IQ2_S"),
    plain(30, "IQ4_XS"),
    plain(31, "IQ1_M"),
    plain(32, "BF16"),
    plain(36, "TQ1_0"),
    plain(37, "TQ2_0"),
    mix(38, "MXFP4_MOE", "MXFP4"),
    plain(39, "NVFP4"),
    plain(40, "Q1_0"),
    plain(41, "Q2_0"),
];

/// Every file type that llama.cpp writes, in order of its number.
pub fn all() -> &'static [FileType] {
    FILE_TYPES
}

/// By name in any case, alias, or number.
pub fn by_name(name: &str) -> Option<&'static FileType> {
    let same = |other: &&str| other.eq_ignore_ascii_case(name);
    FILE_TYPES
        .iter()
        .find(|t| same(&t.name))
        .or_else(|| FILE_TYPES.iter().find(|t| t.aliases.iter().any(&same)))
        .or_else(|| by_id(crate::names::plain_number(name)?.try_into().ok()?))
}

/// By number.
pub fn by_id(id: u32) -> Option<&'static FileType> {
    FILE_TYPES.iter().find(|t| t.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique_and_ordered() {
        assert!(all().windows(2).all(|w| w[0].id < w[1].id));
        let mut names: Vec<_> = all()
            .iter()
            .flat_map(|t| std::iter::once(t.name).chain(t.aliases.iter().copied()))
            .collect();
        let n = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n);
    }

    #[test]
    fn looks_up_by_name_alias_and_number() {
        assert_eq!(by_name("q4_k_m").map(|t| t.id), Some(15));
        assert_eq!(by_name("Q4_K").map(|t| t.name), Some("Q4_K_M"));
        assert_eq!(by_name("7").map(|t| t.name), Some("Q8_0"));
        assert_eq!(by_name("IQ2_S").map(|t| t.base), Some("IQ2_XS"));
        for unknown in ["4", "", "Q4", "+7", "07", "4294967296"] {
            assert_eq!(by_name(unknown), None, "{unknown}");
        }
    }
}

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

/// The file type of a model that does not say it, from the names of its tensor types and the bytes of each: the one
/// that is mostly made of the type with the most bytes, the medium of several mixtures.
pub fn guess<'a>(types: impl IntoIterator<Item = (&'a str, u64)>) -> Option<&'static FileType> {
    let most = most(types)?;
    by_name(most).or_else(|| FILE_TYPES.iter().find(|t| t.base == most))
}

fn most<'a>(types: impl IntoIterator<Item = (&'a str, u64)>) -> Option<&'a str> {
    let most = types.into_iter().max_by_key(|&(_, bytes)| bytes);
    most.map(|(name, _)| name)
}

impl FileType {
    /// Whether a model of these tensor types (name, bytes) can be of this file type. Quantized mixtures keep other
    /// types for some tensors, in small models for most; of their own type there must be a tensor. A plain float type
    /// must be that of most bytes.
    pub fn fits(&self, types: &[(&str, u64)]) -> bool {
        if matches!(self.base, "F32" | "F16" | "BF16") {
            return most(types.iter().copied()) == Some(self.base);
        }
        types.iter().any(|(name, _)| *name == self.base)
    }
}

/// By number.
pub fn by_id(id: u32) -> Option<&'static FileType> {
    FILE_TYPES.iter().find(|t| t.id == id)
}

/// File types of `ik_llama.cpp` beside llama.cpp's: numbers and names.
static FORK_NAMES: &[(u32, &str)] = &[
    (135, "Q6_0"),
    (136, "IQ1_BN"),
    (137, "IQ2_BN"),
    (138, "IQ2_K"),
    (139, "IQ3_K"),
    (140, "IQ4_K"),
    (141, "IQ5_K"),
    (142, "IQ6_K"),
    (145, "IQ4_KS"),
    (146, "IQ3_KL"),
    (147, "IQ2_KS"),
    (148, "IQ4_KSS"),
    (149, "Q8_KV"),
    (150, "IQ5_KS"),
    (151, "IQ2_KT"),
    (152, "IQ3_KT"),
    (153, "IQ4_KT"),
    (154, "IQ3_KS"),
    (155, "IQ2_KL"),
    (156, "IQ1_KT"),
    (202, "Q4_0_R8"),
    (207, "Q8_0_R8"),
    (208, "Q5_0_R4"),
    (210, "Q2_K_R4"),
    (211, "Q3_K_R4"),
    (214, "Q4_K_R4"),
    (216, "Q5_K_R4"),
    (218, "Q6_K_R4"),
    (219, "IQ2_XXS_R4"),
    (220, "IQ2_XS_R4"),
    (223, "IQ3_XXS_R4"),
    (224, "IQ1_S_R4"),
    (225, "IQ4_NL_R4"),
    (226, "IQ3_S_R4"),
    (229, "IQ2_M_R4"),
    (230, "IQ4_XS_R8"),
    (231, "IQ1_M_R4"),
    (232, "BF16_R16"),
    (335, "Q6_0_R4"),
    (337, "IQ2_BN_R4"),
    (338, "IQ2_K_R4"),
    (339, "IQ3_K_R4"),
    (340, "IQ4_K_R4"),
    (341, "IQ5_K_R4"),
    (345, "IQ4_KS_R4"),
    (350, "IQ5_KS_R4"),
    (351, "MXFP4_R8"),
    (398, "Q8_KV_R8"),
    (399, "Q8_K_R8"),
];

/// The name of a number, also of a file type that only `ik_llama.cpp` writes.
pub fn name_of(id: u32) -> Option<&'static str> {
    let fork = || FORK_NAMES.iter().find(|(n, _)| *n == id);
    by_id(id)
        .map(|t| t.name)
        .or_else(|| fork().map(|&(_, name)| name))
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
    fn tensors_tell_the_file_type() {
        let guessed = |types: &[(&str, u64)]| guess(types.iter().copied()).map(|t| t.name);
        assert_eq!(guessed(&[("F32", 1), ("Q4_K", 9), ("Q6_K", 5)]), Some("Q4_K_M"));
        assert_eq!(guessed(&[("MXFP4", 9), ("Q8_0", 1)]), Some("MXFP4_MOE"));
        assert_eq!(guessed(&[("type 4242", 9)]), None);
        let fits = |name, types: &[(&str, u64)]| by_name(name).map(|t| t.fits(types));
        assert_eq!(fits("Q4_K_M", &[("Q4_K", 1), ("Q6_K", 9)]), Some(true));
        assert_eq!(fits("Q4_K_M", &[("Q5_0", 9), ("F32", 1)]), Some(false));
        assert_eq!(fits("F32", &[("F32", 1), ("BF16", 9)]), Some(false));
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

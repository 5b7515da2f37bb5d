//! What a tensor gets whose rows are not whole blocks of the type that was chosen for it.

/// One tensor type that the mixes can choose.
#[derive(Debug)]
struct Row {
    /// The type.
    name: &'static str,
    /// Elements of a block. Written out because a mix may name types that have no codec yet; a test compares
    /// it with the registry for those that have.
    block: u64,
    /// The type instead, with blocks of 32; `None` where the format defines none.
    instead: Option<&'static str>,
}

const fn row(name: &'static str, block: u64, instead: Option<&'static str>) -> Row {
    Row { name, block, instead }
}

/// Every type that a mix can choose.
static ROWS: &[Row] = &[
    row("F32", 1, None),
    row("F16", 1, None),
    row("BF16", 1, None),
    row("Q4_0", 32, None),
    row("Q4_1", 32, None),
    row("Q5_0", 32, None),
    row("Q5_1", 32, None),
    row("Q8_0", 32, None),
    row("IQ4_NL", 32, None),
    row("MXFP4", 32, None),
    row("NVFP4", 64, None),
    row("Q1_0", 128, None),
    row("Q2_0", 64, Some("Q4_0")),
    row("Q2_K", 256, Some("Q4_0")),
    row("Q3_K", 256, Some("Q4_0")),
    row("TQ1_0", 256, Some("Q4_0")),
    row("TQ2_0", 256, Some("Q4_0")),
    row("Q4_K", 256, Some("Q5_0")),
    row("Q5_K", 256, Some("Q5_1")),
    row("Q6_K", 256, Some("Q8_0")),
    row("IQ1_S", 256, Some("IQ4_NL")),
    row("IQ1_M", 256, Some("IQ4_NL")),
    row("IQ2_XXS", 256, Some("IQ4_NL")),
    row("IQ2_XS", 256, Some("IQ4_NL")),
    row("IQ2_S", 256, Some("IQ4_NL")),
    row("IQ3_XXS", 256, Some("IQ4_NL")),
    row("IQ3_S", 256, Some("IQ4_NL")),
    row("IQ4_XS", 256, Some("IQ4_NL")),
];

/// The last resort, for rows that are not whole blocks of the other type either.
const LAST: &str = "F16";

/// Elements of a block of a type that a mix can choose.
pub(super) fn block_elems(name: &str) -> Option<u64> {
    ROWS.iter().find(|r| r.name == name).map(|r| r.block)
}

/// Whether rows of `n_cols` elements are whole blocks of a type.
pub fn fits(n_cols: u64, name: &str) -> bool {
    block_elems(name).is_some_and(|b| n_cols.is_multiple_of(b))
}

/// The type to use instead of `name` for rows of `n_cols` elements; `name` itself if it fits. `None` where no
/// type is defined to stand in.
pub(super) fn fit(n_cols: u64, name: &'static str) -> Option<&'static str> {
    if fits(n_cols, name) {
        return Some(name);
    }
    let row = ROWS.iter().find(|r| r.name == name)?;
    let instead = if row.block <= 32 { name } else { row.instead? };
    Some(if fits(n_cols, instead) { instead } else { LAST })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_agree_with_the_codecs() {
        let known: Vec<_> = ROWS
            .iter()
            .filter_map(|r| gguf_blocks::registry::by_name(r.name).map(|f| (r, f)))
            .collect();
        assert!(known.len() >= 10, "only {} of the types have codecs", known.len());
        for (row, format) in known {
            assert_eq!(row.block, format.geometry.block_elems as u64, "{}", row.name);
            assert_eq!(row.name, format.name);
        }
    }

    #[test]
    fn stand_ins() {
        assert_eq!(fit(4096, "Q4_K"), Some("Q4_K"));
        assert_eq!(fit(288, "Q4_K"), Some("Q5_0"));
        assert_eq!(fit(288, "Q6_K"), Some("Q8_0"));
        assert_eq!(fit(40, "Q2_K"), Some("F16"));
        assert_eq!(fit(40, "Q8_0"), Some("F16"));
        assert_eq!(fit(96, "Q1_0"), None);
        assert!(
            ROWS.iter()
                .filter_map(|r| r.instead)
                .all(|i| block_elems(i) == Some(32))
        );
    }
}

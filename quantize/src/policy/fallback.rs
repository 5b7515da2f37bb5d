//! What a tensor gets that cannot have the type that was chosen for it: because its rows are not whole blocks of it, or
//! because there is no importance for it.

/// One tensor type that the mixes can choose.
#[derive(Debug)]
struct Row {
    /// The type.
    name: &'static str,
    /// Elements of a block. Written out because a mix may name types that have no codec yet; a test compares
    /// it with the registry for those that have.
    block: u64,
    /// The type for rows that are not whole blocks, with blocks of 32; `None` where the format defines none.
    instead: Option<&'static str>,
    /// What importance is to its encoder.
    importance: Use,
}

/// What importance is to an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It does not look at it.
    Ignored,
    /// It makes a better choice with it.
    Better,
    /// Without it the result is so poor that this type, the next one up, is to be had for it.
    Else(&'static str),
}

use Use::{Better, Else, Ignored};

const fn row(name: &'static str, block: u64, instead: Option<&'static str>, importance: Use) -> Row {
    Row {
        name,
        block,
        instead,
        importance,
    }
}

/// Every type that a mix can choose.
#[rustfmt::skip]
static ROWS: &[Row] = &[
    row("F32",       1, None,           Ignored),
    row("F16",       1, None,           Ignored),
    row("BF16",      1, None,           Ignored),
    row("Q4_0",     32, None,           Better),
    row("Q4_1",     32, None,           Better),
    row("Q5_0",     32, None,           Better),
    row("Q5_1",     32, None,           Better),
    row("Q8_0",     32, None,           Ignored),
    row("IQ4_NL",   32, None,           Better),
    row("MXFP4",    32, None,           Ignored),
    row("NVFP4",    64, None,           Ignored),
    row("Q1_0",    128, None,           Ignored),
    row("Q2_0",     64, Some("Q4_0"),   Ignored),
    // Only the file type Q2_K_S cannot do without.
    row("Q2_K",    256, Some("Q4_0"),   Else("Q3_K")),
    row("Q3_K",    256, Some("Q4_0"),   Better),
    row("TQ1_0",   256, Some("Q4_0"),   Ignored),
    row("TQ2_0",   256, Some("Q4_0"),   Ignored),
    row("Q4_K",    256, Some("Q5_0"),   Better),
    row("Q5_K",    256, Some("Q5_1"),   Better),
    row("Q6_K",    256, Some("Q8_0"),   Better),
    row("IQ1_S",   256, Some("IQ4_NL"), Else("Q2_K")),
    row("IQ1_M",   256, Some("IQ4_NL"), Else("Q2_K")),
    row("IQ2_XXS", 256, Some("IQ4_NL"), Else("Q2_K")),
    row("IQ2_XS",  256, Some("IQ4_NL"), Else("Q2_K")),
    row("IQ2_S",   256, Some("IQ4_NL"), Else("Q2_K")),
    row("IQ3_XXS", 256, Some("IQ4_NL"), Else("Q3_K")),
    row("IQ3_S",   256, Some("IQ4_NL"), Better),
    row("IQ4_XS",  256, Some("IQ4_NL"), Better),
];

/// The last resort, for rows that are not whole blocks of the other type either.
const LAST: &str = "F16";

/// Elements of a block of a type that a mix can choose.
pub(super) fn block_elems(name: &str) -> Option<u64> {
    ROWS.iter().find(|r| r.name == name).map(|r| r.block)
}

/// Whether rows of `n_cols` elements are whole blocks of a type.
pub(crate) fn fits(n_cols: u64, name: &str) -> bool {
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

/// The next type up that does without importance, for a type that cannot.
pub(crate) fn raised(name: &str) -> Option<&'static str> {
    match ROWS.iter().find(|r| r.name == name)?.importance {
        Else(up) => Some(up),
        Ignored | Better => None,
    }
}

/// Whether the encoder of a type looks at importance.
pub(crate) fn is_weighted(name: &str) -> bool {
    ROWS.iter()
        .find(|r| r.name == name)
        .is_none_or(|r| r.importance != Ignored)
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
            let needs = format.requires_importance || row.name == "Q2_K";
            assert_eq!(raised(row.name).is_some(), needs, "{}", row.name);
            if let Some(up) = raised(row.name) {
                let up = gguf_blocks::registry::by_name(up).unwrap();
                let bits = |f: &gguf_blocks::Format| f.geometry.row_bytes(256).unwrap();
                assert!(!up.requires_importance && bits(up) > bits(format), "{}", row.name);
                assert_eq!(up.geometry.block_elems, format.geometry.block_elems);
            }
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

//! Decoders and encoders of every tensor type.

use gguf_blocks::{Cpu, Format, Importance, registry};

use super::{cycled, floats};

/// Blocks of a row, at most.
const MOST_BLOCKS: usize = 3;

/// The first byte picks the type, the second how much of it; the rest is given to its decoder as blocks and to its
/// encoder as floats.
pub(super) fn blocks(data: &[u8]) {
    let [kind, size, rest @ ..] = data else {
        return;
    };
    let format = registry::all()[usize::from(*kind) % registry::all().len()];
    let n_cols = (1 + usize::from(size & 15) % MOST_BLOCKS) * format.geometry.block_elems;
    let n_rows = (1 + usize::from(size >> 4) % 2) * format.geometry.interleave;
    decode(format, n_cols, n_rows, rest);
    encode(format, n_cols, rest);
}

fn decode(format: &Format, n_cols: usize, n_rows: usize, data: &[u8]) {
    let n_bytes = format.geometry.tensor_bytes(n_cols as u64, n_rows as u64);
    let bytes = cycled(data, n_bytes.expect("whole blocks and rows") as usize);
    let place = format.check_rows(n_cols, &bytes);
    assert!(
        place.is_none_or(|p| p.row < n_rows && p.col < n_cols),
        "{place:?}"
    );
    let mut values = vec![0.0; n_cols * n_rows];
    let decoded = format.decode_rows(n_cols, &bytes, &mut values);
    assert_eq!(decoded.is_some(), format.decode.is_some(), "{}", format.name);
}

/// Any floats can be encoded; of finite ones every level writes the same bytes.
fn encode(format: &Format, n_cols: usize, data: &[u8]) {
    let Some(portable) = format.encoder(Cpu::at_most(gguf_blocks::Level::Portable)) else {
        return;
    };
    let row = floats(data, n_cols);
    let finite = row.iter().all(|v| v.is_finite());
    // What an importance matrix may hold.
    let weights: Vec<f32> = row
        .iter()
        .rev()
        .map(|w| w.abs())
        .map(|w| if w.is_finite() { w } else { 1.0 })
        .collect();
    let n_bytes = format.geometry.row_bytes(n_cols as u64).expect("whole blocks") as usize;
    for importance in [Importance::None, Importance::Column(&weights)] {
        if format.requires_importance && matches!(importance, Importance::None) {
            continue;
        }
        let mut expected = vec![0; n_bytes];
        portable(&row, importance, &mut expected);
        let mut last = portable;
        for cpu in Cpu::available() {
            let encode = format.encoder(cpu).expect("as at the portable level");
            // Levels share code.
            if std::ptr::fn_addr_eq(std::mem::replace(&mut last, encode), encode) {
                continue;
            }
            let mut found = vec![0; n_bytes];
            encode(&row, importance, &mut found);
            assert!(
                found == expected || !finite,
                "{} {cpu:?}: other bytes",
                format.name
            );
        }
        let mut values = vec![0.0; n_cols];
        format.decode_rows(n_cols, &expected, &mut values);
    }
}

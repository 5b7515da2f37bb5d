//! Properties that every decoder and encoder has, on generated rows.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::Random;
use gguf_blocks::half_bulk::first_non_finite;
use gguf_blocks::{Cpu, Format, Importance, Level, registry};
use proptest::prelude::*;

/// The types that can be encoded.
fn encoders() -> impl Iterator<Item = &'static Format> {
    registry::all().iter().copied().filter(|f| f.encode.is_some())
}

fn encode(format: &Format, src: &[f32], importance: Importance<'_>) -> Vec<u8> {
    encode_at(Cpu::best(), format, src, importance)
}

fn encode_at(cpu: Cpu, format: &Format, src: &[f32], importance: Importance<'_>) -> Vec<u8> {
    let n_bytes = format.geometry.row_bytes(src.len() as u64).unwrap() as usize;
    let mut out = vec![0; n_bytes];
    format.encoder(cpu).unwrap()(src, importance, &mut out);
    out
}

/// Encodes at every level, which must give the same bytes, without importance (also where that is refused, but not
/// here) and with it.
fn assert_levels_agree(row: &[f32], weights: &[f32]) {
    for format in encoders() {
        for importance in [Importance::None, Importance::Column(weights)] {
            let at = |cpu| encode_at(cpu, format, row, importance);
            let portable = at(Cpu::at_most(Level::Portable));
            for cpu in Cpu::available() {
                assert!(at(cpu) == portable, "{} {cpu:?} {row:?} {weights:?}", format.name);
            }
        }
    }
}

fn decode(format: &Format, bytes: &[u8]) -> Vec<f32> {
    let blocks = bytes.len() / format.geometry.block_bytes;
    let mut out = vec![f32::NAN; blocks * format.geometry.block_elems];
    (format.decode.unwrap())(bytes, &mut out);
    out
}

/// A value of any sign and magnitude that halves can carry the scale of, zeros included.
fn wild() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => (-1.0f32..1.0, -40i32..14).prop_map(|(m, e)| m * 2.0f32.powi(e)),
        4 => -1.0f32..1.0,
        1 => Just(0.0),
        1 => Just(-0.0),
    ]
}

/// Two super-blocks of values, whole stretches of them zero at times.
fn row() -> impl Strategy<Value = Vec<f32>> {
    (
        prop::collection::vec(wild(), 512),
        prop::collection::vec(prop::bool::weighted(0.1), 32),
    )
        .prop_map(|(mut row, zero)| {
            for (values, zero) in row.chunks_mut(16).zip(zero) {
                if zero {
                    values.fill(0.0);
                }
            }
            row
        })
}

fn importance() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(prop_oneof![9 => 0.0f32..10.0, 1 => Just(0.0)], 512)
}

fn square_error(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum()
}

/// The square error that the bits of a type allow: a uniform grid with one bit a weight spent on scales, or for
/// floats the fewest bits of a mantissa, those of `BF16`.
fn noise(format: &Format, row: &[f32]) -> f64 {
    let norm: f64 = row.iter().map(|v| f64::from(*v).powi(2)).sum();
    let bits = if format.quantized {
        format.geometry.bits_per_weight() - 1.0
    } else {
        8.0
    };
    norm * 4.0f64.powf(-bits)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn finite_rows_stay_finite(row in row(), weights in importance()) {
        for format in encoders() {
            for importance in [Importance::None, Importance::Column(&weights)] {
                if format.requires_importance && matches!(importance, Importance::None) {
                    continue;
                }
                let bytes = encode(format, &row, importance);
                prop_assert_eq!((format.check)(&bytes), None, "{}", format.name);
                let values = decode(format, &bytes);
                prop_assert_eq!(first_non_finite(&values), None, "{}", format.name);
            }
        }
    }

    #[test]
    fn every_level_writes_the_same_bytes(
        row in row(),
        weights in importance(),
        exponent in -150i32..100,
        blocks in 1usize..=16,
    ) {
        // Tiny rows reach the smallest numbers, huge ones the overflow of sums.
        let scaled = row.iter().map(|v| v * 2.0f32.powi(exponent)).collect();
        let rows: [Vec<f32>; 2] = [scaled, row];
        for format in encoders() {
            // Any number of blocks, also those that do not fill the lanes of a level.
            let n = (blocks * format.geometry.block_elems).min(512);
            for row in rows.iter().map(|row| &row[512 - n..]) {
                for importance in [Importance::None, Importance::Column(&weights[..n])] {
                    if format.requires_importance && matches!(importance, Importance::None) {
                        continue;
                    }
                    let lowest = encode_at(Cpu::at_most(Level::Portable), format, row, importance);
                    for cpu in Cpu::available() {
                        let bytes = encode_at(cpu, format, row, importance);
                        prop_assert!(bytes == lowest, "{} {cpu:?} {row:?}", format.name);
                    }
                }
            }
        }
    }

    /// What lies on the type's own grid stays close when it is encoded once more, even where a super-block has
    /// sub-blocks of very different scales and the search settles for others. `Q2_K` has been seen to lose 6 times the
    /// noise of its bits, which is six tenths of the row.
    #[test]
    fn decoded_rows_encode_to_almost_themselves(row in row()) {
        for format in encoders().filter(|f| !f.requires_importance) {
            let once = decode(format, &encode(format, &row, Importance::None));
            let twice = decode(format, &encode(format, &once, Importance::None));
            let bound = if format.quantized { 10.0 * noise(format, &once) } else { 0.0 };
            let error = square_error(&once, &twice);
            prop_assert!(error <= bound, "{}: {error} above {bound}", format.name);
        }
    }

    #[test]
    fn the_error_fits_the_bits(row in prop::collection::vec(-1.0f32..1.0, 512)) {
        for format in encoders().filter(|f| !f.requires_importance) {
            let bound = 3.0 * noise(format, &row);
            let error = square_error(&row, &decode(format, &encode(format, &row, Importance::None)));
            prop_assert!(error <= bound, "{}: {error} above {bound}", format.name);
        }
    }

    #[test]
    fn any_bytes_decode(seed: u32) {
        // As many as the rows of any type have below.
        let bytes = Random::new(seed).bytes(16 * 512 * 2);
        for format in registry::all() {
            let g = format.geometry;
            let n_bytes = g.tensor_bytes(512, g.interleave as u64).unwrap() as usize;
            let bytes = &bytes[..n_bytes];
            let unsound = format.check_rows(512, bytes);
            let mut values = vec![0.0; 512 * g.interleave];
            if format.decode_rows(512, bytes, &mut values).is_some() {
                let first = first_non_finite(&values).map(|i| (i / 512, i % 512));
                // A sound scale can still overflow with a large code, and a double be too large for a single; what
                // is unsound is found no later.
                let overflows = format.quantized || format.name == "F64";
                if let (Some(unsound), Some(first)) = (unsound, first) {
                    prop_assert!((unsound.row, unsound.col) <= first || overflows, "{}", format.name);
                }
            }
        }
    }

    #[test]
    fn any_floats_encode(bits in prop::collection::vec(any::<u32>(), 512), weights in importance()) {
        let row: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        for format in encoders() {
            for importance in [Importance::None, Importance::Column(&weights)] {
                if format.requires_importance && matches!(importance, Importance::None) {
                    continue;
                }
                let once = encode(format, &row, importance);
                prop_assert_eq!(&once, &encode(format, &row, importance), "{}", format.name);
            }
        }
    }
}

/// Noise with huge values in columns of no importance, which are those that 7 divides, each in a group of eight with an
/// odd number of minus signs. Types that store an even number of signs give such a value the other sign, so that its
/// quotient by the scale is beyond the range where rounding is exact.
fn unimportant_outliers(noise: &[f32]) -> Vec<f32> {
    let mut row = noise.to_vec();
    for (k, group) in row.chunks_exact_mut(8).step_by(7).enumerate() {
        group[0] = 1e9 * (3.0 + k as f32);
        let minus = group.iter().filter(|v| **v < 0.0).count();
        if minus % 2 == 0 {
            group[0] = -group[0];
        }
    }
    row
}

/// Rows that leave nothing to search, or sums near the ends of the range of numbers.
#[test]
fn extreme_rows_are_encoded_the_same_at_every_level() {
    let mut random = Random::new(5);
    let noise: Vec<f32> = random
        .bytes(512)
        .into_iter()
        .map(|b| f32::from(b) - 127.5)
        .collect();
    let flat = vec![1.0; 512];
    let mut spike = vec![0.0; 512];
    spike[200] = -3.0;
    let scaled = |factor: f32| noise.iter().map(|v| v * factor).collect::<Vec<f32>>();
    let mut rows = vec![vec![0.0; 512], vec![-0.0; 512], flat.clone(), spike];
    rows.extend([1.0, 1e-3, 1e-8, 1e-20, 1e-30, 1e-41, 1e15, 1e30, 2e36].map(scaled));
    rows.push(unimportant_outliers(&noise));
    let importance = [0.0, 1e-38, 1e-20, 1.0, 1e20, 1e38];
    for row in &rows {
        for factor in importance {
            let weights: Vec<f32> = (0..512).map(|i| factor * (i % 7) as f32 / 7.0).collect();
            assert_levels_agree(row, &weights);
        }
    }
}

#[test]
fn the_first_unsound_block_is_named() {
    // Every scale of NVFP4 has a finite value.
    for format in encoders().filter(|f| f.name != "NVFP4") {
        let g = format.geometry;
        let row = vec![0.5; 4 * g.block_elems];
        let weights = vec![1.0; row.len()];
        let bytes = encode(format, &row, Importance::Column(&weights));
        assert_eq!((format.check)(&bytes), None, "{}", format.name);
        let mut found = BlockHits::default();
        for at in 0..g.block_bytes {
            let mut broken = bytes.clone();
            // All exponent bits of whatever float ends here.
            let block = &mut broken[2 * g.block_bytes..];
            block[at.saturating_sub(3)..=at].fill(0xff);
            found.count((format.check)(&broken));
        }
        assert!(found.third > 0, "{}: nothing found", format.name);
        assert_eq!(found.others, 0, "{}", format.name);
    }
}

/// How often the check pointed at the broken block, and how often at another.
#[derive(Default)]
struct BlockHits {
    third: usize,
    others: usize,
}

impl BlockHits {
    fn count(&mut self, hit: Option<usize>) {
        match hit {
            Some(2) => self.third += 1,
            Some(_) => self.others += 1,
            None => {}
        }
    }
}

//! Million weights a second of encoders on one thread, without and with importance, in lines like those of other
//! programs' measurements, to be set beside them: `cargo bench -p gguf-blocks --bench rate -- [TYPE ...]`.
//!
//! Rows of 4096 normally distributed weights, 256 of them; each number is the best of three passes.

use std::time::Instant;

use gguf_blocks::{Cpu, EncodeRow, Importance, registry};

const N_COLS: usize = 4096;
const N_ROWS: usize = 256;
const PASSES: usize = 3;

/// Normally distributed numbers from a fixed seed: the polar method of Marsaglia.
fn normal(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    };
    let mut out = Vec::with_capacity(n + 1);
    while out.len() < n {
        let (u, v) = (uniform(), uniform());
        let s = u * u + v * v;
        if s > 0.0 && s < 1.0 {
            let factor = (-2.0 * s.ln() / s).sqrt();
            out.extend([u * factor, v * factor]);
        }
    }
    out.truncate(n);
    out
}

fn rate(encode: EncodeRow, rows: &[f32], importance: Importance<'_>, out: &mut [u8]) -> f64 {
    let pass = || {
        let start = Instant::now();
        for row in rows.chunks(N_COLS) {
            encode(row, importance, out);
        }
        start.elapsed().as_secs_f64()
    };
    let mut pass = pass;
    let best = (0..PASSES).map(|_| pass()).fold(f64::INFINITY, f64::min);
    rows.len() as f64 / best / 1e6
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let rows = normal(N_COLS * N_ROWS, 1);
    let importance: Vec<f32> = normal(N_COLS, 2).iter().map(|v| v.abs()).collect();
    for format in registry::all() {
        let is_wanted = wanted.is_empty() || wanted.iter().any(|w| w.eq_ignore_ascii_case(format.name));
        let Some(encode) = format.encoder(Cpu::best()).filter(|_| is_wanted) else {
            continue;
        };
        let row_bytes = format
            .geometry
            .row_bytes(N_COLS as u64)
            .expect("rows of every block size");
        let mut out = vec![0; row_bytes as usize];
        let mut measure = |importance| format!("{:9.1}", rate(encode, &rows, importance, &mut out));
        let without = if format.requires_importance {
            "-".to_owned()
        } else {
            measure(Importance::None)
        };
        let with = measure(Importance::Column(&importance));
        println!("{:8} {without:>9} {with}", format.name);
    }
}

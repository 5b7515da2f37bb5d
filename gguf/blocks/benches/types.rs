//! Speed of every decoder, encoder and check in the registry, in values and (checks) bytes a second.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gguf_blocks::{Cpu, Format, Importance, registry};

/// Values of a row.
const N: usize = 4096;

/// Numbers that look like weights: sums of uniform ones, from a fixed seed.
fn weights(seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 16_777_216.0 - 0.5
    };
    (0..N)
        .map(|_| (uniform() + uniform() + uniform() + uniform()) * 0.05)
        .collect()
}

fn formats(c: &mut Criterion) {
    let src = weights(1);
    let importance: Vec<f32> = weights(2).iter().map(|v| v * v).collect();
    for format in registry::all() {
        bench_format(c, format, &src, &importance);
    }
}

fn bench_format(c: &mut Criterion, format: &Format, src: &[f32], importance: &[f32]) {
    let g = format.geometry;
    let n_bytes = g
        .tensor_bytes(N as u64, g.interleave as u64)
        .expect("rows of every block size") as usize;
    let mut bytes = vec![0; n_bytes];
    let mut group = c.benchmark_group(format.name);
    group.throughput(Throughput::Elements(N as u64));
    if let Some(encode) = format.encoder(Cpu::best()) {
        let importances = [
            ("none", Importance::None),
            ("column", Importance::Column(importance)),
        ];
        for (name, importance) in importances
            .into_iter()
            .skip(usize::from(format.requires_importance))
        {
            group.bench_function(BenchmarkId::new("encode", name), |b| {
                b.iter(|| encode(black_box(src), importance, &mut bytes));
            });
        }
    }
    group.throughput(Throughput::Elements((N * g.interleave) as u64));
    if format.decode.is_some() {
        let mut out = vec![0.0; N * g.interleave];
        group.bench_function("decode", |b| {
            b.iter(|| format.decode_rows(N, black_box(&bytes), &mut out));
        });
    }
    // More than a core's own memory holds of a row, as when a file is checked.
    let bytes = bytes.repeat((1 << 18) / n_bytes * usize::from(g.tensor_trailer_bytes == 0) + 1);
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("check", |b| b.iter(|| format.check_rows(N, black_box(&bytes))));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = formats
}
criterion_main!(benches);

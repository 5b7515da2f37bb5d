//! Speed of every decoder and encoder in the registry, in values a second.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gguf_blocks::{Format, Importance, registry};

/// Values of the row that is converted.
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
    let n_bytes = format
        .geometry
        .row_bytes(N as u64)
        .expect("a row of every block size") as usize;
    let mut bytes = vec![0; n_bytes];
    let mut group = c.benchmark_group(format.name);
    group.throughput(Throughput::Elements(N as u64));
    if let Some(encode) = format.encode {
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
    if let Some(decode) = format.decode {
        let mut out = vec![0.0; N];
        group.bench_function("decode", |b| b.iter(|| decode(black_box(&bytes), &mut out)));
    }
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

//! Speed of matrix products: for every type with values, a product with one column (bytes of weights a second,
//! once with weights in the caches and once with more than they hold) and with 64 columns (multiplications a
//! second), and attention. Two threads; the level is the best of the machine, or lower by `GGUF_CPU`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use gguf_blocks::{Cpu, Format, registry};
use gguf_models::spec::Window;
use gguf_runtime::KvType;
use gguf_runtime::kernels::{Acts, Weights, matmul};
use gguf_runtime::kv::{Heads, KvCache, KvTypes};
use gguf_runtime::pool::{Pool, PoolOptions};

/// Elements of a row.
const N_COLS: usize = 1024;
/// Rows of a matrix that the caches hold.
const N_ROWS: usize = 1024;
/// Bytes of a matrix that they do not.
const LARGE: usize = 128 << 20;

/// Bytes of weights. Any will do: products of finite numbers all take the same time, and with the upper bits
/// clear no half is infinite or NaN.
fn bytes(n: usize) -> Vec<u8> {
    (0..n as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 & 0x3f)
        .collect()
}

fn acts(n: usize) -> Acts {
    let mut x = Acts::default();
    x.reset(n, N_COLS);
    for (i, v) in x.rows_mut().iter_mut().enumerate() {
        *v = (i % 17) as f32 - 8.0;
    }
    x
}

fn pool() -> Pool {
    Pool::new(&PoolOptions::threads(2)).expect("a pool of two threads")
}

/// Times repetitions inside the pool, as programs run them.
fn timed(pool: &Pool, n: u64, mut f: impl FnMut()) -> Duration {
    pool.enter(|| {
        let start = Instant::now();
        (0..n).for_each(|_| f());
        start.elapsed()
    })
}

fn products(c: &mut Criterion) {
    let pool = pool();
    let weights = |f: &&Format| f.geometry.is_plain() && f.holds_weights();
    for format in registry::all().iter().copied().filter(weights) {
        type_products(c, &pool, format);
    }
}

fn type_products(c: &mut Criterion, pool: &Pool, format: &'static Format) {
    let row_bytes = format
        .geometry
        .row_bytes(N_COLS as u64)
        .expect("whole blocks of every type") as usize;
    let mut group = c.benchmark_group(format.name);
    let cases = [
        ("x1 cached", N_ROWS, 1),
        ("x1 streamed", LARGE / row_bytes, 1),
        ("x64", N_ROWS, 64),
    ];
    for (name, n_rows, n) in cases {
        let bytes = bytes(n_rows * row_bytes);
        let w = Weights {
            compute: gguf_runtime::Compute::Fast,
            format,
            bytes: &bytes,
            n_cols: N_COLS,
            n_rows,
            n_mats: 1,
        };
        let (mut x, mut y) = (acts(n), vec![0.0; n * n_rows]);
        group.throughput(if n == 1 {
            Throughput::Bytes(bytes.len() as u64)
        } else {
            Throughput::Elements((n * N_COLS * n_rows) as u64)
        });
        group.bench_function(name, |b| {
            b.iter_custom(|reps| {
                timed(pool, reps, || {
                    // Marks the rows as new, so that they are quantized every time.
                    black_box(x.rows_mut());
                    matmul(Cpu::best(), [(w, &mut y[..])], &mut x);
                })
            });
        });
    }
    group.finish();
}

fn attention(c: &mut Criterion) {
    let heads = Heads {
        n_head: 16,
        n_head_kv: 4,
        head_dim_k: 64,
        head_dim_v: 64,
        scale: 0.125,
        softcap: 0.0,
        window: Window::All,
        v_in_k: false,
    };
    let latent = Heads {
        n_head: 32,
        n_head_kv: 1,
        head_dim_k: 576,
        head_dim_v: 512,
        v_in_k: true,
        ..heads
    };
    let types = |k, v| KvTypes { k, v };
    let f16 = KvTypes::default();
    let cases = [
        ("1 row at 511", heads, f16, 1),
        ("512 rows", heads, f16, 512),
        ("1 row at 511, f32", heads, types(KvType::F32, KvType::F32), 1),
        ("1 row at 511, q8_0", heads, types(KvType::Q8_0, KvType::Q8_0), 1),
        ("1 row at 511, q4_0", heads, types(KvType::Q4_0, KvType::Q4_0), 1),
        ("1 row at 511, latent", latent, f16, 1),
        ("64 rows, latent", latent, f16, 64),
    ];
    let pool = pool();
    let mut group = c.benchmark_group("attention");
    for (name, heads, types, n) in cases {
        attend(&mut group, &pool, name, heads, types, n);
    }
    group.finish();
}

/// `n` rows at the end of a full context.
fn attend(
    group: &mut BenchmarkGroup<'_, WallTime>,
    pool: &Pool,
    name: &str,
    heads: Heads,
    types: KvTypes,
    n: usize,
) {
    let n_ctx = 512;
    let mut cache = KvCache::new(&[heads], types, 1, n_ctx);
    let row = |n: usize| -> Vec<f32> { (0..n).map(|i| (i % 13) as f32 * 0.1 - 0.6).collect() };
    let k = row(heads.n_head_kv * heads.head_dim_k);
    let v = if heads.v_in_k {
        Vec::new()
    } else {
        row(heads.n_head_kv * heads.head_dim_v)
    };
    for pos in 0..n_ctx {
        cache.store(0, 0, pos, &k, &v);
    }
    let place: Vec<(u32, u32)> = (n_ctx - n..n_ctx).map(|p| (0, p as u32)).collect();
    let q = row(n * heads.n_head * heads.head_dim_k);
    let mut out = vec![0.0; n * heads.n_head * heads.head_dim_v];
    let seen: usize = place.iter().map(|p| p.1 as usize + 1).sum();
    let products = seen * heads.n_head * (heads.head_dim_k + heads.head_dim_v);
    group.throughput(Throughput::Elements(products as u64));
    group.bench_function(name, |b| {
        b.iter_custom(|reps| {
            timed(pool, reps, || {
                cache.attend(Cpu::best(), 0, black_box(&q), None, &place, &mut out);
            })
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(2));
    targets = products, attention
}
criterion_main!(benches);

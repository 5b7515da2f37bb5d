use gguf_blocks::half_bulk::{f16_to_f32, f32_to_f16};
use gguf_blocks::{Cpu, Level};
use gguf_models::spec::Window;

use crate::kv::{Heads, KvCache};

/// Shape of a case: heads, elements and context.
#[derive(Clone, Copy, Debug)]
struct Case {
    n_head: usize,
    n_head_kv: usize,
    dim_k: usize,
    dim_v: usize,
    n_ctx: usize,
    n_seq: usize,
}

/// A filled cache and what was stored in it.
struct Filled {
    case: Case,
    cache: KvCache,
    /// Keys and values of each position of each sequence, as the cache rounds them.
    k: Vec<Vec<f32>>,
    v: Vec<Vec<f32>>,
}

fn wave(i: usize) -> f32 {
    // Incommensurable steps: no two positions are alike.
    ((i as f32 * 0.618_034).fract() - 0.5) * 3.0 + ((i as f32 * 0.001_234_5).fract() - 0.5)
}

fn filled(case: Case) -> Filled {
    let heads = Heads {
        n_head: case.n_head,
        n_head_kv: case.n_head_kv,
        head_dim_k: case.dim_k,
        head_dim_v: case.dim_v,
        scale: 0.3,
        softcap: 0.0,
        window: Window::All,
        v_in_k: false,
    };
    let mut cache = KvCache::new(&[heads, heads], case.n_seq, case.n_ctx);
    let (mut ks, mut vs) = (Vec::new(), Vec::new());
    for seq in 0..case.n_seq {
        for pos in 0..case.n_ctx {
            let at = (seq * case.n_ctx + pos) * 1000;
            let k: Vec<f32> = (0..case.n_head_kv * case.dim_k).map(|i| wave(at + i)).collect();
            let v: Vec<f32> = (0..case.n_head_kv * case.dim_v)
                .map(|i| wave(at + i + 500))
                .collect();
            cache.store(1, seq, pos, &k, &v);
            let round = |x: Vec<f32>| x.into_iter().map(|x| f16_to_f32(f32_to_f16(x))).collect();
            ks.push(round(k));
            vs.push(round(v));
        }
    }
    Filled {
        case,
        cache,
        k: ks,
        v: vs,
    }
}

impl Filled {
    fn queries(&self, n: usize) -> Vec<f32> {
        (0..n * self.case.n_head * self.case.dim_k)
            .map(|i| wave(i + 77))
            .collect()
    }

    fn attend(&self, cpu: Cpu, q: &[f32], place: &[(u32, u32)]) -> Vec<f32> {
        let mut out = vec![f32::NAN; place.len() * self.case.n_head * self.case.dim_v];
        self.cache.attend(cpu, 1, q, None, place, &mut out);
        out
    }

    /// Attention of one row by the definition, in f64.
    fn exact(&self, q: &[f32], (seq, pos): (u32, u32)) -> Vec<f64> {
        let c = self.case;
        let mut out = Vec::new();
        for head in 0..c.n_head {
            let kv_head = head / (c.n_head / c.n_head_kv);
            let q = &q[head * c.dim_k..][..c.dim_k];
            let first = seq as usize * c.n_ctx;
            let seen = first..=first + pos as usize;
            let scores: Vec<f64> = self.k[seen.clone()]
                .iter()
                .map(|k| {
                    let k = &k[kv_head * c.dim_k..];
                    q.iter()
                        .zip(k)
                        .map(|(q, k)| f64::from(*q) * f64::from(*k))
                        .sum::<f64>()
                        * f64::from(0.3f32)
                })
                .collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for e in 0..c.dim_v {
                let values = self.v[seen.clone()]
                    .iter()
                    .map(|v| f64::from(v[kv_head * c.dim_v + e]));
                out.push(values.zip(&weights).map(|(v, w)| v * w).sum::<f64>() / sum);
            }
        }
        out
    }
}

fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|v| v.to_bits()).collect()
}

const CASES: [Case; 4] = [
    Case {
        n_head: 4,
        n_head_kv: 2,
        dim_k: 64,
        dim_v: 64,
        n_ctx: 100,
        n_seq: 2,
    },
    Case {
        n_head: 3,
        n_head_kv: 3,
        dim_k: 16,
        dim_v: 24,
        n_ctx: 33,
        n_seq: 3,
    },
    Case {
        n_head: 5,
        n_head_kv: 1,
        dim_k: 12,
        dim_v: 10,
        n_ctx: 65,
        n_seq: 1,
    },
    Case {
        n_head: 1,
        n_head_kv: 1,
        dim_k: 8,
        dim_v: 3,
        n_ctx: 1,
        n_seq: 1,
    },
];

#[test]
fn attention_is_close_to_its_definition() {
    for case in CASES {
        let f = filled(case);
        let place: Vec<(u32, u32)> = (0..case.n_seq as u32)
            .flat_map(|s| (0..case.n_ctx as u32).map(move |p| (s, p)))
            .collect();
        let q = f.queries(place.len());
        for &level in Level::ALL {
            let out = f.attend(Cpu::at_most(level), &q, &place);
            let rows = out
                .chunks(case.n_head * case.dim_v)
                .zip(q.chunks(case.n_head * case.dim_k));
            for ((out, q), &place) in rows.zip(&place) {
                for (found, exact) in out.iter().zip(f.exact(q, place)) {
                    assert!(
                        (f64::from(*found) - exact).abs() < 1e-5,
                        "{case:?} {place:?}: {found}, not {exact}"
                    );
                }
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_level_threads_or_company() {
    for case in CASES {
        let f = filled(case);
        // Sequences and positions in any order.
        let mut place: Vec<(u32, u32)> = (0..case.n_seq as u32)
            .flat_map(|s| (0..case.n_ctx as u32).map(move |p| (s, p)))
            .collect();
        place.reverse();
        let middle = place.len() / 3;
        place.rotate_left(middle);
        let q = f.queries(place.len());
        let expected = bits(&f.attend(Cpu::at_most(Level::Portable), &q, &place));
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .expect("a pool");
            let out = pool.install(|| f.attend(Cpu::best(), &q, &place));
            assert_eq!(bits(&out), expected, "{case:?} with {threads} threads");
        }
        let (q_len, out_len) = (case.n_head * case.dim_k, case.n_head * case.dim_v);
        for (t, &place) in place.iter().enumerate().step_by(7) {
            let out = f.attend(Cpu::best(), &q[t * q_len..][..q_len], &[place]);
            assert_eq!(
                bits(&out),
                expected[t * out_len..][..out_len],
                "{case:?} row {t} alone"
            );
        }
    }
}

#[test]
fn what_lies_behind_a_position_does_not_matter() {
    let mut f = filled(CASES[0]);
    let q = f.queries(1);
    let place = [(1, 40)];
    let before = f.attend(Cpu::best(), &q, &place);
    let n = f.case.n_head_kv * f.case.dim_k;
    for pos in 41..100 {
        f.cache
            .store(1, 1, pos, &vec![f32::NAN; n], &vec![f32::INFINITY; n]);
    }
    assert_eq!(f.attend(Cpu::best(), &q, &place), before);
}

#[test]
fn sizes_are_as_told() {
    let f = filled(CASES[0]);
    assert_eq!(f.cache.n_ctx(), 100);
    // 100 positions are kept as 128.
    assert_eq!(f.cache.n_bytes(), 2 * 2 * 128 * 2 * (64 + 64) * 2);
}

#[test]
#[should_panic(expected = "position 100 of sequence 0 is in the cache")]
fn positions_outside_are_refused() {
    let mut f = filled(CASES[0]);
    let (k, v) = (vec![0.0; 128], vec![0.0; 128]);
    f.cache.store(1, 0, 100, &k, &v);
}

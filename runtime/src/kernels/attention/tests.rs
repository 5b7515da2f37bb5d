use gguf_blocks::{Cpu, Importance, Level, registry};
use gguf_models::spec::Window;

use crate::kv::{Heads, KvCache, KvType, KvTypes};

/// A layer, a context and the types of the cache.
#[derive(Clone, Copy, Debug)]
struct Case {
    heads: Heads,
    types: KvTypes,
    n_ctx: usize,
    n_seq: usize,
    sinks: bool,
}

/// A filled cache and what was stored in it.
struct Filled {
    case: Case,
    cache: KvCache,
    sinks: Vec<f32>,
    /// Keys and values of each position of each sequence.
    given: Vec<Position>,
    /// The same as the cache's types round them.
    rounded: Vec<Position>,
}

struct Position {
    k: Vec<f32>,
    v: Vec<f32>,
}

const PLAIN: Heads = Heads {
    n_head: 4,
    n_head_kv: 2,
    head_dim_k: 64,
    head_dim_v: 64,
    scale: 0.3,
    softcap: 0.0,
    window: Window::All,
    v_in_k: false,
};

fn case(heads: Heads, k: KvType, v: KvType, n_ctx: usize, n_seq: usize) -> Case {
    Case {
        heads,
        types: KvTypes { k, v },
        n_ctx,
        n_seq,
        sinks: false,
    }
}

fn heads(n_head: usize, n_head_kv: usize, head_dim_k: usize, head_dim_v: usize) -> Heads {
    Heads {
        n_head,
        n_head_kv,
        head_dim_k,
        head_dim_v,
        ..PLAIN
    }
}

fn cases() -> Vec<Case> {
    use KvType::{Bf16, F16, F32, Q4_0, Q8_0};
    let window = |window| Heads { window, ..PLAIN };
    let latent = Heads {
        v_in_k: true,
        ..heads(17, 1, 40, 32)
    };
    let wide = Heads {
        v_in_k: true,
        ..heads(9, 1, 64, 32)
    };
    let capped = Heads {
        softcap: 2.5,
        ..heads(3, 3, 24, 40)
    };
    let mut cases = vec![
        case(PLAIN, F16, F16, 100, 2),
        case(heads(3, 3, 16, 24), F32, F16, 33, 3),
        case(heads(5, 1, 12, 10), Bf16, F32, 65, 1),
        case(heads(1, 1, 8, 3), F16, Bf16, 1, 1),
        case(window(Window::Last(37)), F16, Q8_0, 130, 2),
        case(window(Window::Last(1)), F16, F16, 35, 1),
        case(window(Window::Chunk(48)), Q8_0, F16, 150, 1),
        case(latent, F16, Q4_0, 70, 2),
        case(wide, Q8_0, F16, 70, 1),
        case(wide, Q4_0, F16, 40, 1),
        case(PLAIN, Q4_0, Q4_0, 50, 1),
        case(capped, F32, F32, 40, 2),
    ];
    for i in [2, 4, 7, 11] {
        cases[i].sinks = true;
    }
    cases
}

fn wave(i: usize) -> f32 {
    // Incommensurable steps: no two positions are alike.
    ((i as f32 * 0.618_034).fract() - 0.5) * 3.0 + ((i as f32 * 0.001_234_5).fract() - 0.5)
}

/// Rows of heads as a type of the cache has them.
fn rounded(kind: KvType, head_dim: usize, row: &[f32]) -> Vec<f32> {
    let format = registry::by_name(kind.name()).unwrap();
    let mut bytes = vec![0; format.geometry.row_bytes(head_dim as u64).unwrap() as usize];
    let mut out = vec![0.0; row.len()];
    for (head, out) in row.chunks(head_dim).zip(out.chunks_mut(head_dim)) {
        format.encoder(Cpu::best()).unwrap()(head, Importance::None, &mut bytes);
        format.decode.unwrap()(&bytes, out);
    }
    out
}

fn filled(case: Case) -> Filled {
    let heads = case.heads;
    let mut cache = KvCache::new(&[heads, heads], case.types, case.n_seq, case.n_ctx);
    let (mut given, mut stored) = (Vec::new(), Vec::new());
    for seq in 0..case.n_seq {
        let (mut place, mut ks, mut vs) = (Vec::new(), Vec::new(), Vec::new());
        for pos in 0..case.n_ctx {
            let at = (seq * case.n_ctx + pos) * 1000;
            let row = |at: usize, n: usize| -> Vec<f32> { (at..at + n).map(wave).collect() };
            let k = row(at, heads.n_head_kv * heads.head_dim_k);
            let k_rounded = rounded(case.types.k, heads.head_dim_k, &k);
            let (v, v_rounded) = if heads.v_in_k {
                let n = heads.head_dim_v;
                (k[..n].to_vec(), k_rounded[..n].to_vec())
            } else {
                let v = row(at + 500, heads.n_head_kv * heads.head_dim_v);
                vs.extend_from_slice(&v);
                let v_rounded = rounded(case.types.v, heads.head_dim_v, &v);
                (v, v_rounded)
            };
            place.push((seq as u32, pos as u32));
            ks.extend_from_slice(&k);
            given.push(Position { k, v });
            stored.push(Position {
                k: k_rounded,
                v: v_rounded,
            });
        }
        // The first positions one by one, the others at once.
        let n = 5.min(case.n_ctx);
        let (n_k, n_v) = (ks.len() / case.n_ctx, vs.len() / case.n_ctx);
        for pos in 0..n {
            cache.store(1, seq, pos, &ks[pos * n_k..][..n_k], &vs[pos * n_v..][..n_v]);
        }
        cache.store_rows(1, &place[n..], &ks[n * n_k..], &vs[n * n_v..]);
    }
    let sinks = (0..heads.n_head).map(|i| wave(i + 31) * 4.0).collect();
    Filled {
        case,
        cache,
        sinks,
        given,
        rounded: stored,
    }
}

impl Filled {
    fn queries(&self, n: usize) -> Vec<f32> {
        (0..n * self.case.heads.n_head * self.case.heads.head_dim_k)
            .map(|i| wave(i + 77))
            .collect()
    }

    fn attend(&self, cpu: Cpu, q: &[f32], place: &[(u32, u32)]) -> Vec<f32> {
        let heads = self.case.heads;
        let mut out = vec![f32::NAN; place.len() * heads.n_head * heads.head_dim_v];
        let sinks = self.case.sinks.then_some(&self.sinks[..]);
        self.cache.attend(cpu, 1, q, sinks, place, &mut out);
        out
    }

    /// Attention of one row over some keys and values by the definition, in f64.
    fn exact(&self, stored: &[Position], q: &[f32], (seq, pos): (u32, u32)) -> Vec<f64> {
        let c = self.case;
        let h = c.heads;
        let pos = pos as usize;
        let first = match h.window {
            Window::All => 0,
            Window::Last(n) => (pos + 1).saturating_sub(n),
            Window::Chunk(n) => pos - pos % n,
        };
        let seen = &stored[seq as usize * c.n_ctx..][first..=pos];
        let mut out = Vec::new();
        for head in 0..h.n_head {
            let kv_head = head / (h.n_head / h.n_head_kv);
            let q = &q[head * h.head_dim_k..][..h.head_dim_k];
            let score = |p: &Position| {
                let k = &p.k[kv_head * h.head_dim_k..];
                let products = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k));
                let s = products.sum::<f64>() * f64::from(h.scale);
                let cap = f64::from(h.softcap);
                if cap == 0.0 { s } else { cap * (s / cap).tanh() }
            };
            let scores: Vec<f64> = seen.iter().map(score).collect();
            let sink = c.sinks.then(|| f64::from(self.sinks[head]));
            let max = scores
                .iter()
                .copied()
                .chain(sink)
                .fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum = weights.iter().sum::<f64>() + sink.map_or(0.0, |s| (s - max).exp());
            for e in 0..h.head_dim_v {
                let values = seen.iter().map(|p| f64::from(p.v[kv_head * h.head_dim_v + e]));
                out.push(values.zip(&weights).map(|(v, w)| v * w).sum::<f64>() / sum);
            }
        }
        out
    }

    fn all_places(&self) -> Vec<(u32, u32)> {
        (0..self.case.n_seq as u32)
            .flat_map(|s| (0..self.case.n_ctx as u32).map(move |p| (s, p)))
            .collect()
    }
}

fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|v| v.to_bits()).collect()
}

/// What rounding to a type may change in a result; values are up to 2, scores up to about 20.
fn bound(kind: KvType) -> f64 {
    match kind {
        KvType::F32 => 1e-5,
        KvType::F16 => 0.01,
        KvType::Bf16 => 0.08,
        KvType::Q8_0 => 0.15,
        KvType::Q4_0 => 2.5,
    }
}

#[test]
fn attention_is_close_to_its_definition() {
    for case in cases() {
        let f = filled(case);
        let h = case.heads;
        let place = f.all_places();
        let q = f.queries(place.len());
        let values = if h.v_in_k { case.types.k } else { case.types.v };
        let loose = bound(case.types.k).max(bound(values));
        for cpu in Cpu::available() {
            let out = f.attend(cpu, &q, &place);
            let rows = out
                .chunks(h.n_head * h.head_dim_v)
                .zip(q.chunks(h.n_head * h.head_dim_k));
            for ((out, q), &place) in rows.zip(&place) {
                let exact = f.exact(&f.rounded, q, place);
                let unrounded = f.exact(&f.given, q, place);
                for ((&found, exact), unrounded) in out.iter().zip(exact).zip(unrounded) {
                    assert!(
                        (f64::from(found) - exact).abs() < 1e-5,
                        "{case:?} {place:?}: {found}, not {exact}"
                    );
                    assert!(
                        (f64::from(found) - unrounded).abs() < loose,
                        "{case:?} {place:?}: {found}, not about {unrounded}"
                    );
                }
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_level_threads_or_company() {
    for case in cases() {
        let f = filled(case);
        // Sequences and positions in any order.
        let mut place = f.all_places();
        place.reverse();
        let middle = place.len() / 3;
        place.rotate_left(middle);
        let q = f.queries(place.len());
        let expected = bits(&f.attend(Cpu::at_most(Level::Portable), &q, &place));
        for threads in [1, 2, 5] {
            let pool = crate::pool::Pool::new(&crate::pool::PoolOptions::threads(threads)).expect("a pool");
            let out = pool.enter(|| f.attend(Cpu::best(), &q, &place));
            assert_eq!(bits(&out), expected, "{case:?} with {threads} threads");
        }
        let h = case.heads;
        let (q_len, out_len) = (h.n_head * h.head_dim_k, h.n_head * h.head_dim_v);
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
fn stretches_are_merged_alike_whoever_computes_them() {
    let last = Window::Last(300);
    for (window, kind, sinks) in [(Window::All, KvType::F16, false), (last, KvType::Q8_0, true)] {
        let heads = Heads {
            window,
            ..heads(6, 1, 32, 32)
        };
        let f = filled(Case {
            sinks,
            ..case(heads, kind, kind, 700, 1)
        });
        let place: Vec<_> = (0..700).step_by(37).chain([699]).map(|pos| (0, pos)).collect();
        let q = f.queries(place.len());
        let expected = bits(&f.attend(Cpu::at_most(Level::Portable), &q, &place));
        let pool = crate::pool::Pool::new(&crate::pool::PoolOptions::threads(3)).unwrap();
        let n = heads.n_head * heads.head_dim_k;
        for (t, &place) in place.iter().enumerate() {
            let own = &q[t * n..][..n];
            let out = pool.enter(|| f.attend(Cpu::best(), own, &[place]));
            assert_eq!(bits(&out), expected[t * n..][..n], "{window:?}, {place:?}");
            for (found, exact) in out.iter().zip(f.exact(&f.rounded, own, place)) {
                assert!((f64::from(*found) - exact).abs() < 1e-5, "{found}, not {exact}");
            }
        }
    }
}

#[test]
fn many_heads_of_one_key_are_shared_out() {
    let latent = Heads {
        v_in_k: true,
        ..heads(32, 1, 192, 128)
    };
    let f = filled(case(latent, KvType::F16, KvType::F16, 200, 1));
    let q = f.queries(1);
    let place = [(0, 199)];
    let out = f.attend(Cpu::best(), &q, &place);
    for (found, exact) in out.iter().zip(f.exact(&f.rounded, &q, place[0])) {
        assert!((f64::from(*found) - exact).abs() < 1e-4, "{found}, not {exact}");
    }
}

#[test]
fn what_is_not_seen_does_not_matter() {
    for window in [Window::All, Window::Last(9), Window::Chunk(20)] {
        let mut f = filled(case(Heads { window, ..PLAIN }, KvType::F16, KvType::F32, 100, 2));
        let q = f.queries(1);
        let place = [(1, 50)];
        let before = f.attend(Cpu::best(), &q, &place);
        assert!(before.iter().all(|v| v.is_finite()));
        let n = PLAIN.n_head_kv * PLAIN.head_dim_k;
        for pos in (0..window.first(50)).chain(51..100) {
            f.cache
                .store(1, 1, pos, &vec![f32::NAN; n], &vec![f32::INFINITY; n]);
        }
        assert_eq!(f.attend(Cpu::best(), &q, &place), before, "{window:?}");
    }
}

#[test]
fn sizes_are_as_told() {
    let mixed = |k, v| case(PLAIN, k, v, 100, 2);
    // 100 positions of 2 heads and 2 sequences in 2 layers are kept as 128.
    let n = 2 * 2 * 2 * 128;
    for (case, expected) in [
        (mixed(KvType::F16, KvType::F16), n * 64 * 2 * 2),
        (mixed(KvType::F32, KvType::Q8_0), n * (64 * 4 + 2 * 34)),
        (mixed(KvType::Q4_0, KvType::Bf16), n * (2 * 18 + 64 * 2)),
    ] {
        let f = filled(case);
        assert_eq!(f.cache.n_ctx(), 100);
        assert_eq!(f.cache.n_bytes(), expected);
        let planned = crate::kv::n_bytes(&[PLAIN, PLAIN], case.types, 2, 100);
        assert_eq!(planned, Some(expected as u64));
    }
    let latent = Heads {
        v_in_k: true,
        ..PLAIN
    };
    assert_eq!(
        filled(case(latent, KvType::F16, KvType::F16, 100, 2))
            .cache
            .n_bytes(),
        n * 64 * 2
    );
}

#[test]
#[should_panic(expected = "position 100 of sequence 0 is in the cache")]
fn positions_outside_are_refused() {
    let mut f = filled(case(PLAIN, KvType::F16, KvType::F16, 100, 2));
    let (k, v) = (vec![0.0; 128], vec![0.0; 128]);
    f.cache.store(1, 0, 100, &k, &v);
}

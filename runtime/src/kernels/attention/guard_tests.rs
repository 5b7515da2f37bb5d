//! The kernels on memory that ends where their operands do.

use gguf_blocks::{Cpu, Level};

use super::tile::{Softmax, Step};
use super::{BLOCK, GROUP, LANES, portable, x86};
use crate::kernels::guard::Guarded;
use crate::kv::{Heads, KvCache, KvType, KvTypes};
use gguf_models::spec::Window;

fn wave(i: usize) -> f32 {
    (i as f32 * 0.618_034).fract() * 2.0 - 1.0
}

/// Compares the levels for keys and values of this type with `dim` elements.
fn compare<const N: usize>(kind: KvType, dim: usize) {
    let heads = Heads {
        n_head: 1,
        n_head_kv: 1,
        head_dim_k: dim,
        head_dim_v: dim,
        scale: 1.0,
        softcap: 0.0,
        window: Window::All,
        v_in_k: false,
    };
    let mut cache = KvCache::new(&[heads], KvTypes { k: kind, v: kind }, 1, BLOCK);
    let place: Vec<_> = (0..BLOCK as u32).map(|pos| (0, pos)).collect();
    let rows: Vec<f32> = (0..2 * BLOCK * dim).map(wave).collect();
    cache.store_rows(0, &place, &rows[..BLOCK * dim], &rows[BLOCK * dim..]);
    let layer = &cache.layers()[0];
    let (k, v) = (
        layer.k.of_head(0),
        layer.v.as_ref().expect("values are stored").of_head(0),
    );
    let padded = dim.next_multiple_of(LANES);
    let q: [Vec<f32>; N] = std::array::from_fn(|j| {
        let element = |e| if e < dim { wave(j * 100 + e) } else { 0.0 };
        (0..padded).map(element).collect()
    });
    let out: Vec<f32> = (0..N * padded).map(wave).collect();
    let state = Softmax {
        max: 0.1,
        sums: [0.5; LANES],
    };
    for seen in [0..1, 3..8, 5..14, 0..BLOCK, 63..BLOCK] {
        let there = seen.end.next_multiple_of(GROUP);
        for at_end in [false, true] {
            let own_k = Guarded::new(&k.bytes()[..there * k.row_bytes()], at_end, 0);
            let own_v = Guarded::new(&v.bytes()[..there * v.row_bytes()], at_end, 0);
            let own_q = q.each_ref().map(|q| Guarded::new(q, at_end, 0));
            let step = Step {
                k: k.at(own_k.slice()),
                v: v.at(own_v.slice()),
                first: 0,
                seen: seen.clone(),
                q: own_q.each_ref().map(Guarded::slice),
                cap: 0.0,
            };
            let mut states = [[state; N]; 2];
            let mut expected = out.clone();
            portable::run(&step, &mut states[0], &mut expected, &mut Vec::new());
            let mut found = Guarded::new(&out, at_end, 0);
            x86::run(&step, &mut states[1], found.slice_mut());
            let of_states = |s: &[Softmax; N]| s.map(|s| (s.max.to_bits(), s.sums.map(f32::to_bits)));
            assert_eq!(
                of_states(&states[0]),
                of_states(&states[1]),
                "{kind}, {dim}, {seen:?}"
            );
            let rows = found.slice().chunks(padded).zip(expected.chunks(padded));
            for (found, expected) in rows {
                let bits = |row: &[f32]| row[..dim].iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(found), bits(expected), "{kind}, {dim}, {seen:?}");
            }
        }
    }
}

#[test]
fn levels_agree_and_stay_within_their_operands() {
    if Cpu::best().level().base() != Level::Avx2 {
        crate::skip::skip("this machine, or `GGUF_CPU`, has no AVX2");
        return;
    }
    for kind in KvType::ALL {
        let dims: &[usize] = match kind {
            KvType::Q8_0 | KvType::Q4_0 => &[32, 64, 96, 128, 576],
            _ => &[1, 7, 8, 12, 31, 64, 80, 96, 128, 192, 256, 576],
        };
        for &dim in dims {
            compare::<1>(kind, dim);
            compare::<2>(kind, dim);
            compare::<3>(kind, dim);
            compare::<4>(kind, dim);
            compare::<8>(kind, dim);
        }
    }
}

//! The searches in lanes against plain loops over one group at a time.

use proptest::prelude::*;

use super::*;
use crate::simd::Baseline;

/// A number in each lane.
type Number = <Baseline as Simd>::Lanes;

const N: usize = 16;

/// Values and weights.
type Group = ([f32; N], [f32; N]);

/// One group as the plain loops see it.
fn group() -> impl Strategy<Value = Group> {
    let value = prop_oneof![
        4 => -1.0f32..1.0,
        1 => (-8i32..8).prop_map(|v| v as f32 / 4.0),
        1 => Just(0.0),
        1 => (-1.0f32..1.0, -30i32..10).prop_map(|(m, e)| m * 2.0f32.powi(e)),
    ];
    let weight = prop_oneof![4 => 0.0f32..2.0, 1 => Just(0.0)];
    (prop::array::uniform16(value), prop::array::uniform16(weight))
}

fn groups() -> impl Strategy<Value = Vec<Group>> {
    prop::collection::vec(group(), LANES)
}

fn plain_affine(x: &[f32; N], w: &[f32; N], grid: &Grid, abs: bool) -> (f32, f32, [u8; N]) {
    let code = |factor: f32, min: f32, x: f32| nint(factor * (x - min)).max(0.0).min(grid.n_max);
    let error = |scale: f32, min: f32, codes: &[f32; N]| {
        let mut sum = 0.0;
        for i in 0..N {
            let diff = scale * codes[i] + min - x[i];
            sum += w[i] * if abs { diff.abs() } else { diff * diff };
        }
        sum
    };
    let max = x.iter().copied().fold(x[0], f32::max);
    let mut min = x.iter().copied().fold(x[0], f32::min).min(0.0);
    if max <= min {
        return (0.0, -min, [0; N]);
    }
    let (mut sum_w, mut sum_x) = (w[0], w[0] * x[0]);
    for i in 1..N {
        sum_w += w[i];
        sum_x += w[i] * x[i];
    }
    let factor = grid.n_max / (max - min);
    let mut scale = 1.0 / factor;
    let mut codes = x.map(|x| code(factor, min, x));
    let mut best = error(scale, min, &codes);
    for step in 0..=grid.steps {
        let factor = (grid.first + grid.step * step as f32 + grid.n_max) / (max - min);
        let tried = x.map(|x| code(factor, min, x));
        let (mut l, mut l2, mut xl) = (0.0, 0.0, 0.0);
        for i in 0..N {
            l += w[i] * tried[i];
            l2 += w[i] * tried[i] * tried[i];
            xl += w[i] * tried[i] * x[i];
        }
        let det = sum_w * l2 - l * l;
        if det <= 0.0 {
            continue;
        }
        let mut s = (sum_w * xl - sum_x * l) / det;
        let mut m = (l2 * sum_x - l * xl) / det;
        if m > 0.0 {
            m = 0.0;
            s = xl / l2;
        }
        let e = error(s, m, &tried);
        if e < best {
            (best, codes, scale, min) = (e, tried, s, m);
        }
    }
    (scale, -min, codes.map(|c| c as u8))
}

fn plain_descent(x: &[f32; N]) -> (f32, [u8; N]) {
    let max = signed_max(x);
    if max.abs() < TINY {
        return (0.0, [0; N]);
    }
    let limit = |v: f32| nint(v).clamp(-4.0, 3.0);
    let inverse = -4.0 / max;
    let mut codes = x.map(|x| limit(inverse * x));
    let (mut lx, mut l2) = (0.0, 0.0);
    for i in 0..N {
        let w = x[i] * x[i];
        lx += w * x[i] * codes[i];
        l2 += w * codes[i] * codes[i];
    }
    for _ in 0..5 {
        let mut changed = false;
        for i in 0..N {
            let w = x[i] * x[i];
            let rest = lx - w * x[i] * codes[i];
            if rest <= 0.0 {
                continue;
            }
            let rest2 = l2 - w * codes[i] * codes[i];
            let new = limit(x[i] * rest2 / rest);
            let (new_lx, new_l2) = (rest + w * x[i] * new, rest2 + w * new * new);
            if new != codes[i] && new_l2 > 0.0 && new_lx * new_lx * l2 > lx * lx * new_l2 {
                (codes[i], lx, l2) = (new, new_lx, new_l2);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    (
        if l2 > 0.0 { lx / l2 } else { 0.0 },
        codes.map(|c| (c + 4.0) as u8),
    )
}

fn plain_symmetric(x: &[f32; N], w: &[f32; N]) -> (f32, [u8; N]) {
    let max = signed_max(x);
    if max.abs() < TINY {
        return (0.0, [0; N]);
    }
    let (mut scale, mut best, mut codes) = (0.0, 0.0, [0; N]);
    for step in std::iter::once(0).chain((-9..=9).filter(|s| *s != 0)) {
        let inverse = if step == 0 {
            -8.0 / max
        } else {
            -(8.0 + 0.1 * step as f32) / max
        };
        let tried = x.map(|x| nint(inverse * x).clamp(-8.0, 7.0));
        let (mut lx, mut l2) = (0.0, 0.0);
        for i in 0..N {
            lx += w[i] * x[i] * tried[i];
            l2 += w[i] * tried[i] * tried[i];
        }
        if step == 0 || (l2 > 0.0 && lx * lx > best * l2) {
            scale = if l2 == 0.0 { 0.0 } else { lx / l2 };
            best = scale * lx;
            codes = tried.map(|c| (c + 8.0) as u8);
        }
    }
    (scale, codes)
}

/// One value of each group in a lane.
fn lanes(groups: &[Group], part: fn(&Group) -> &[f32; N]) -> [Number; N] {
    transpose(Baseline, std::array::from_fn(|j| part(&groups[j])))
}

/// The codes of lane `j`.
fn codes_of(codes: &[Number; N], j: usize) -> [u8; N] {
    codes.map(|code| code.to_array()[j] as u8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn affine_lanes_are_plain_loops(groups in groups()) {
        let (x, w) = (lanes(&groups, |g| &g.0), lanes(&groups, |g| &g.1));
        let plain = Grid { n_max: 15.0, first: -1.0, step: 0.1, steps: 20 };
        let squares = affine_plain::<Baseline, N, false>(Baseline, &x, &w, &plain);
        let magnitudes = affine_plain::<Baseline, N, true>(Baseline, &x, &w, &plain);
        let weighted = affine_weighted(Baseline, &x, &w, &weighted_grid(3.0));
        for (j, (x, w)) in groups.iter().enumerate() {
            for (found, grid, abs) in
                [(&squares, &plain, false), (&magnitudes, &plain, true), (&weighted, &weighted_grid(3.0), false)]
            {
                let (scale, min, codes) = plain_affine(x, w, grid, abs);
                prop_assert_eq!(found.scale[j].to_bits(), scale.to_bits());
                prop_assert_eq!(found.min[j], min);
                prop_assert_eq!(found.codes16(Baseline, j, x), codes);
            }
        }
    }

    #[test]
    fn descent_lanes_are_plain_loops(groups in groups()) {
        let (scales, codes) = symmetric_descent(Baseline, 4.0, &lanes(&groups, |g| &g.0));
        for (j, (x, _)) in groups.iter().enumerate() {
            let (scale, plain) = plain_descent(x);
            prop_assert_eq!(scales.to_array()[j].to_bits(), scale.to_bits());
            prop_assert_eq!(codes_of(&codes, j), plain);
        }
    }

    #[test]
    fn symmetric_lanes_are_plain_loops(groups in groups()) {
        let (x, w) = (lanes(&groups, |g| &g.0), lanes(&groups, |g| &g.1));
        let (scales, codes) = symmetric(Baseline, 8.0, &x, &w);
        for (j, (x, w)) in groups.iter().enumerate() {
            let (scale, plain) = plain_symmetric(x, w);
            prop_assert_eq!(scales.to_array()[j].to_bits(), scale.to_bits());
            prop_assert_eq!(codes_of(&codes, j), plain);
            let mut one = [0; N];
            prop_assert_eq!(symmetric_one(Baseline, 8.0, x, w, &mut one).to_bits(), scale.to_bits());
            prop_assert_eq!(one, plain);
        }
    }

    #[test]
    fn the_positive_search_never_does_worse_than_plain_rounding(groups in groups()) {
        let groups: Vec<_> = groups.into_iter().map(|(x, w)| (x.map(f32::abs), w)).collect();
        let found = positive(Baseline, 15.0, &lanes(&groups, |g| &g.0), &lanes(&groups, |g| &g.1));
        for (j, (x, w)) in groups.iter().enumerate() {
            let (scale, codes) = (found.0.to_array()[j], codes_of(&found.1, j));
            prop_assert!(codes.iter().all(|c| *c <= 15));
            let plain_scale = x.iter().copied().fold(0.0, f32::max) / 15.0;
            let error = |scale: f32, codes: &[f32; N]| -> f64 {
                (0..N).map(|i| f64::from(w[i]) * f64::from(x[i] - scale * codes[i]).powi(2)).sum()
            };
            let plain_codes = x.map(|x| if plain_scale > 0.0 { (x / plain_scale).round_ties_even() } else { 0.0 });
            prop_assert!(error(scale, &codes.map(f32::from)) <= error(plain_scale, &plain_codes) * 1.0001 + 1e-9);
        }
    }
}

#[test]
fn rounding_follows_its_rules_at_the_edges() {
    for (v, ties_even, away) in [
        (0.5, 0.0, 1.0),
        (1.5, 2.0, 2.0),
        (-0.5, 0.0, -1.0),
        (-2.5, -2.0, -3.0),
        (0.49999997, 0.0, 0.0),
        (126.5, 126.0, 127.0),
    ] {
        assert_eq!(nint(v), ties_even);
        assert_eq!(round_away(Baseline, Baseline.splat(v)).to_array()[0], away);
    }
    for v in [f32::NAN, f32::INFINITY, 3e9, -3e9] {
        assert!(nint(v).abs() <= 4_194_304.0);
    }
    assert_eq!(clamp(f32::NAN, -1.0, 1.0), -1.0);
}

#[test]
fn codes_of_odd_numbers_are_limited_after_they_are_rounded() {
    for (v, code) in [(-3.0, 0.0), (1.0, 0.0), (4.5, 2.0), (31.0, 15.0), (40.0, 15.0)] {
        assert_eq!(odd_code(v, 15.0), code);
    }
    // The inverse of the unit of tiny scales is infinite: the bits of the reference wrap round to nothing.
    assert_eq!(odd_code(f32::INFINITY, 15.0), 0.0);
    assert_eq!(odd_code(f32::NAN, 15.0), 0.0);
}

#[test]
fn extremes_keep_the_first_of_equals() {
    assert_eq!(signed_max(&[1.0, -2.0, 2.0]), -2.0);
    assert_eq!(signed_max(&[2.0, 1.0, -2.0]), 2.0);
    assert_eq!(signed_max(&[-1.0, -2.0, 1.5]), -2.0);
    assert!(signed_max(&[-0.0, 0.0]).is_sign_positive());
    let mut x = [0.0; 32];
    x[0] = -0.0;
    let (min, max) = range(Baseline, &x);
    assert!(min.is_sign_negative() && max.is_sign_negative());
    x[9] = -3.0;
    x[30] = 2.0;
    assert_eq!(range(Baseline, &x), (-3.0, 2.0));
}

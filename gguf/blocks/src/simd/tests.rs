//! Each operation of each level against the plain one.

use super::portable::Portable;
use super::*;
use crate::test_random::Random;
use crate::{Cpu, Level};

/// Numbers with every kind of trouble: ties, zeros of both signs, tiny and huge ones, infinities and NaN.
fn numbers(random: &mut Random) -> [f32; LANES] {
    const SPECIAL: [f32; 16] = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        4_194_303.0,
        -4_194_305.5,
        3e9,
        -3e9,
        f32::MIN_POSITIVE / 3.0,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    std::array::from_fn(|_| match random.u32() % 4 {
        0 => SPECIAL[random.u32() as usize % 16],
        1 => f32::from_bits(random.u32()),
        2 => (random.u32() % 512) as f32 / 2.0 - 128.0,
        _ => (random.u32() >> 8) as f32 / 65536.0 - 128.0,
    })
}

/// Equal bits; any NaN for NaN, whose bits IEEE leaves open.
fn assert_same(name: &str, a: [f32; LANES], b: [f32; LANES]) {
    for (a, b) in a.into_iter().zip(b) {
        assert!(
            a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
            "{name}: {a} {b}"
        );
    }
}

/// Runs every operation of `simd` and compares it with what plain numbers give.
#[inline(always)]
fn check<S: Simd>(simd: S) {
    let mut random = Random::new(7);
    for _ in 0..3000 {
        let (a, b) = (numbers(&mut random), numbers(&mut random));
        let (p, q) = (Portable.load(&a), Portable.load(&b));
        let (x, y) = (simd.load(&a), simd.load(&b));
        let same = |name, v: S::Lanes, w: <Portable as Simd>::Lanes| {
            assert_same(name, v.to_array(), w.to_array());
        };
        same("splat", simd.splat(a[0]), Portable.splat(a[0]));
        same("add", x + y, p + q);
        same("sub", x - y, p - q);
        same("mul", x * y, p * q);
        same("div", x / y, p / q);
        same("abs", x.abs(), p.abs());
        same("neg", x.neg(), p.neg());
        same("sqrt", x.abs().sqrt(), p.abs().sqrt());
        same("max", x.max(y), p.max(q));
        same("min", x.min(y), p.min(q));
        same(
            "clamp",
            x.clamp(simd.splat(-4.0), y),
            p.clamp(Portable.splat(-4.0), q),
        );
        same("nint", x.nint(), p.nint());
        // Adding zero takes away the sign of a zero.
        same(
            "trunc",
            x.trunc() + simd.splat(0.0),
            p.trunc() + Portable.splat(0.0),
        );
        let gt = (
            S::Lanes::bits(x.gt(y)),
            S::Lanes::bits(x.ge(y)),
            S::Lanes::bits(x.same(y)),
        );
        let plain =
            |f: fn(&f32, &f32) -> bool| (0..LANES).fold(0, |m, j| m | u32::from(f(&a[j], &b[j])) << j);
        assert_eq!(gt, (plain(f32::gt), plain(f32::ge), plain(f32::eq)));
        let mask = x.gt(y) & !x.same(simd.splat(0.0)) | y.ge(x);
        let plain_mask = p.gt(q) & !p.same(Portable.splat(0.0)) | q.ge(p);
        same(
            "select",
            S::Lanes::select(mask, x, y),
            <Portable as Simd>::Lanes::select(plain_mask, p, q),
        );
        assert_eq!(simd.low_bytes([x, y]), Portable.low_bytes([p, q]));
        let index = a.map(|v| (v.to_bits() >> 3 & 15) as f32);
        same(
            "look_up",
            simd.look_up(&b, simd.load(&index)),
            Portable.look_up(&b, Portable.load(&index)),
        );
        let small = a.map(|v| if v.abs() <= 4_194_303.0 { v } else { 0.5 });
        assert_eq!(
            simd.load(&small).round().to_array(),
            Portable.load(&small).nint().to_array()
        );
    }
    let rows: [[f32; 8]; LANES] = std::array::from_fn(|j| std::array::from_fn(|i| (8 * j + i) as f32));
    for (i, lanes) in simd.transpose(rows.each_ref()).into_iter().enumerate() {
        assert_eq!(lanes.to_array(), std::array::from_fn(|j| rows[j][i]));
    }
}

/// The checks as an encoder, so that they are compiled for each level as encoders are.
struct Checks;

impl Encode for Checks {
    #[inline(always)]
    fn encode<S: Simd>(simd: S, _: &[f32], _: Importance<'_>, out: &mut [u8]) {
        check(simd);
        out[0] = 1;
    }
}

#[test]
fn every_level_has_the_same_operations() {
    for &level in Level::ALL {
        let mut ran = [0];
        encoder::<Checks>(Cpu::at_most(level))(&[], Importance::None, &mut ran);
        assert_eq!(ran, [1], "{level:?}");
    }
    check(Portable);
}

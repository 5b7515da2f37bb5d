//! Each operation of each level against the plain one.

use super::portable::Portable;
use super::*;
use crate::Cpu;
use crate::search::EXACT;
use crate::test_random::Random;

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

/// The same numbers as lanes of a level and as plain ones.
struct Both<S: Simd> {
    numbers: [f32; LANES],
    lanes: S::Lanes,
    plain: <Portable as Simd>::Lanes,
}

impl<S: Simd> Both<S> {
    #[inline(always)]
    fn new(simd: S, random: &mut Random) -> Self {
        let numbers = numbers(random);
        Self {
            numbers,
            lanes: simd.load(&numbers),
            plain: Portable.load(&numbers),
        }
    }
}

#[inline(always)]
fn same<S: Simd>(name: &str, v: S::Lanes, w: <Portable as Simd>::Lanes) {
    assert_same(name, v.to_array(), w.to_array());
}

/// Runs every operation of `simd` and compares it with what plain numbers give.
#[inline(always)]
fn check<S: Simd>(simd: S) {
    let mut random = Random::new(7);
    for _ in 0..3000 {
        let (a, b) = (Both::new(simd, &mut random), Both::new(simd, &mut random));
        check_arithmetic(simd, &a, &b);
        check_masks(simd, &a, &b);
        check_whole_numbers(simd, &a, &b);
    }
    let rows: [[f32; 8]; LANES] = std::array::from_fn(|j| std::array::from_fn(|i| (8 * j + i) as f32));
    for (i, lanes) in simd.transpose(rows.each_ref()).into_iter().enumerate() {
        assert_eq!(lanes.to_array(), std::array::from_fn(|j| rows[j][i]));
    }
}

#[inline(always)]
fn check_arithmetic<S: Simd>(simd: S, a: &Both<S>, b: &Both<S>) {
    let (x, y, p, q) = (a.lanes, b.lanes, a.plain, b.plain);
    let first = a.numbers[0];
    same::<S>("splat", simd.splat(first), Portable.splat(first));
    same::<S>("add", x + y, p + q);
    same::<S>("sub", x - y, p - q);
    same::<S>("mul", x * y, p * q);
    same::<S>("div", x / y, p / q);
    same::<S>("abs", x.abs(), p.abs());
    same::<S>("neg", x.neg(), p.neg());
    same::<S>("sqrt", x.abs().sqrt(), p.abs().sqrt());
    same::<S>("max", x.max(y), p.max(q));
    same::<S>("min", x.min(y), p.min(q));
    let (low, plain_low) = (simd.splat(-4.0), Portable.splat(-4.0));
    same::<S>("clamp", x.clamp(low, y), p.clamp(plain_low, q));
}

#[inline(always)]
fn check_masks<S: Simd>(simd: S, a: &Both<S>, b: &Both<S>) {
    let (x, y, p, q) = (a.lanes, b.lanes, a.plain, b.plain);
    let found = [x.gt(y), x.ge(y), x.same(y)].map(S::Lanes::bits);
    let plain = |f: fn(&f32, &f32) -> bool| {
        (0..LANES).fold(0, |m, j| m | u32::from(f(&a.numbers[j], &b.numbers[j])) << j)
    };
    assert_eq!(found, [f32::gt, f32::ge, f32::eq].map(plain));
    let mask = x.gt(y) & !x.same(simd.splat(0.0)) | y.ge(x);
    let plain_mask = p.gt(q) & !p.same(Portable.splat(0.0)) | q.ge(p);
    let plain = <Portable as Simd>::Lanes::select(plain_mask, p, q);
    same::<S>("select", S::Lanes::select(mask, x, y), plain);
}

#[inline(always)]
fn check_whole_numbers<S: Simd>(simd: S, a: &Both<S>, b: &Both<S>) {
    let (x, y, p, q) = (a.lanes, b.lanes, a.plain, b.plain);
    same::<S>("nint", x.nint(), p.nint());
    // Adding zero takes away the sign of a zero.
    let (zero, plain_zero) = (simd.splat(0.0), Portable.splat(0.0));
    same::<S>("trunc", x.trunc() + zero, p.trunc() + plain_zero);
    assert_eq!(simd.low_bytes([x, y]), Portable.low_bytes([p, q]));
    let index = a.numbers.map(|v| (v.to_bits() >> 3 & 15) as f32);
    let found = simd.look_up(&b.numbers, simd.load(&index));
    let plain = Portable.look_up(&b.numbers, Portable.load(&index));
    same::<S>("look_up", found, plain);
    let small = a.numbers.map(|v| if v.abs() <= EXACT { v } else { 0.5 });
    let found = simd.load(&small).round().to_array();
    assert_eq!(found, Portable.load(&small).nint().to_array());
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
    for cpu in Cpu::available() {
        let mut ran = [0];
        encoder::<Checks>(cpu)(&[], Importance::None, &mut ran);
        assert_eq!(ran, [1], "{cpu:?}");
    }
    check(Portable);
}

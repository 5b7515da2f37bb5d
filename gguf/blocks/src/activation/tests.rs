use super::*;
use crate::test_random::Random;

fn quantized(cpu: Cpu, x: &[f32]) -> (Vec<i8>, Vec<GroupScale>) {
    let mut q = vec![1; x.len()];
    let mut scales = vec![GroupScale::default(); x.len() / GROUP];
    quantize(cpu, x, &mut q, &mut scales);
    (q, scales)
}

fn bits(scales: &[GroupScale]) -> Vec<(u32, u32, [i16; 2])> {
    let bits = |s: &GroupScale| (s.d.to_bits(), s.sum.to_bits(), s.int);
    scales.iter().map(bits).collect()
}

#[test]
fn levels_agree_on_any_floats() {
    let mut random = Random::new(1);
    for round in 0..2000 {
        // One misaligned element in front.
        let x: Vec<f32> = (0..=3 * GROUP)
            .map(|_| match round % 4 {
                0 => f32::from_bits(random.u32()),
                1 => random.normal() * 1e-38,
                2 => (random.u32() % 509) as f32 * 0.5 - 127.0,
                _ => random.normal(),
            })
            .collect();
        let x = &x[1..];
        let (q, scales) = quantized(Cpu::at_most(crate::Level::Portable), x);
        for cpu in Cpu::available() {
            let (q2, scales2) = quantized(cpu, x);
            assert_eq!(q, q2, "{cpu:?} {x:?}");
            assert_eq!(bits(&scales), bits(&scales2), "{cpu:?} {x:?}");
        }
        assert!(q.iter().all(|&q| q >= -127));
    }
}

#[test]
fn values_come_back_within_half_a_step() {
    let mut random = Random::new(2);
    let x: Vec<f32> = (0..64 * GROUP).map(|_| random.normal()).collect();
    let (q, scales) = quantized(Cpu::best(), &x);
    for ((x, q), s) in x.chunks(GROUP).zip(q.chunks(GROUP)).zip(&scales) {
        for (x, &q) in x.iter().zip(q) {
            assert!((x - f32::from(q) * s.d).abs() <= 0.5001 * s.d);
        }
        let sum = |q: &[i8]| q.iter().map(|&q| i16::from(q)).sum::<i16>();
        assert_eq!(s.sum, s.d * f32::from(sum(q)));
        assert_eq!(s.int, [sum(&q[..16]), sum(&q[16..])]);
    }
}

#[test]
fn whole_numbers_with_a_power_of_two_as_scale_are_exact() {
    let mut random = Random::new(3);
    let mut x: Vec<f32> = (0..GROUP).map(|_| (random.u32() % 255) as f32 - 127.0).collect();
    x[7] = -127.0;
    let x: Vec<f32> = x.iter().map(|x| x * 0.25).collect();
    let (q, scales) = quantized(Cpu::best(), &x);
    assert_eq!(scales[0].d, 0.25);
    assert!(x.iter().zip(&q).all(|(x, &q)| *x == f32::from(q) * 0.25));
}

#[test]
fn zeros_and_values_that_are_not_finite_are_marked() {
    for x in [0.0, -0.0, 1e-31, f32::from_bits(1)] {
        let (q, scales) = quantized(Cpu::best(), &[x; GROUP]);
        assert_eq!((q, scales), (vec![0; GROUP], vec![GroupScale::default()]));
    }
    for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut row = [1.0; GROUP];
        row[30] = x;
        let (q, scales) = quantized(Cpu::best(), &row);
        assert!(scales[0].d.is_nan() && scales[0].sum.is_nan());
        assert_eq!(q, vec![0; GROUP]);
    }
}

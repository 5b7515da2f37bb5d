use gguf_blocks::activation::{GROUP, GroupScale, quantize};
use gguf_blocks::kernel::Kernel;
use gguf_blocks::{Cpu, Format, Importance, Level, registry};

use super::{Acts, Compute, Weights, matmul, matmul_grouped};

/// Reproducible numbers, about normally distributed.
struct Random(u64);

impl Random {
    fn u32(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as u32
    }

    fn normal(&mut self) -> f32 {
        (0..12)
            .map(|_| self.u32() as f32 / (1u32 << 31) as f32)
            .sum::<f32>()
            - 6.0
    }
}

/// Types of weights that can be multiplied.
fn formats() -> impl Iterator<Item = &'static Format> {
    let all = registry::all().iter().copied().filter(|f| f.holds_weights());
    all.filter(|f| f.geometry.is_plain())
}

fn row_bytes(format: &Format, n_cols: usize) -> usize {
    format.geometry.row_bytes(n_cols as u64).expect("whole blocks") as usize
}

/// Encoded rows of random weights; random bytes of finite values where there is no encoder.
fn weights(random: &mut Random, format: &Format, n_rows: usize, n_cols: usize) -> Vec<u8> {
    let mut bytes = vec![0; n_rows * row_bytes(format, n_cols)];
    let Some(encode) = format.encoder(Cpu::best()) else {
        bytes.fill_with(|| random.u32() as u8 & 0x3f);
        return bytes;
    };
    let importance = vec![1.0; n_cols];
    let importance = if format.requires_importance {
        Importance::Column(&importance)
    } else {
        Importance::None
    };
    for row in bytes.chunks_mut(row_bytes(format, n_cols)) {
        let src: Vec<f32> = (0..n_cols).map(|_| random.normal()).collect();
        encode(&src, importance, row);
    }
    bytes
}

fn acts(random: &mut Random, n: usize, n_cols: usize) -> Acts {
    let mut x = Acts::default();
    x.reset(n, n_cols);
    x.rows_mut().fill_with(|| random.normal());
    x
}

fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|v| v.to_bits()).collect()
}

fn product(cpu: Cpu, w: Weights<'_>, x: &mut Acts) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.n() * w.n_rows];
    matmul(cpu, [(w, &mut y[..])], x);
    y
}

/// Decoded weights times activations in f64, and the bound of what quantizing the activations can change. Those
/// that a type has rounded are rounded here too.
fn exact(w: Weights<'_>, x: &Acts) -> Vec<(f64, f64)> {
    let path = super::Path::of(Cpu::best(), &w, w.n_cols);
    let quantized = path.is_int();
    let mut out = Vec::new();
    for t in 0..x.n() {
        let mut x = x.rows()[t * w.n_cols..][..w.n_cols].to_vec();
        if let super::Path::Kernel(Kernel::Float {
            round: Some(round), ..
        }) = path
        {
            round(&x.clone(), &mut x);
        }
        for bytes in w.bytes.chunks(row_bytes(w.format, w.n_cols)) {
            let mut row = vec![0.0; w.n_cols];
            w.format.decode.expect("types here have values")(bytes, &mut row);
            let (mut sum, mut bound) = (0.0, 0.0);
            for (w, x) in row.chunks(GROUP).zip(x.chunks(GROUP)) {
                let max = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
                for (&w, &x) in w.iter().zip(x) {
                    let product = f64::from(w) * f64::from(x);
                    sum += product;
                    // Half a step of the activation, and rounding of sums.
                    let step = if quantized { f64::from(max) / 254.0 } else { 0.0 };
                    bound += f64::from(w).abs() * step + product.abs() * 1e-5;
                }
            }
            out.push((sum, bound));
        }
    }
    out
}

#[test]
fn rows_that_cannot_be_taken_in_parts_are_decoded_as_wholes() {
    let random = &mut Random(5);
    let formats = registry::all().iter().copied();
    for format in formats.filter(|f| !f.geometry.is_plain() && f.decode.is_some() && f.holds_weights()) {
        let (n_cols, n_rows, n) = (1024, 48, 3);
        let Some(n_bytes) = format.geometry.tensor_bytes(n_cols as u64, 2 * n_rows as u64) else {
            panic!("{}: {n_rows} rows of {n_cols} elements", format.name);
        };
        // Any number made of such bytes is finite.
        let bytes: Vec<u8> = (0..n_bytes).map(|_| (random.u32() % 0x40) as u8).collect();
        let mut values = vec![0.0; 2 * n_rows * n_cols];
        format.decode_rows(n_cols, &bytes, &mut values).unwrap();
        let w = Weights {
            compute: Compute::Fast,
            format,
            bytes: &bytes,
            n_cols,
            n_rows,
            n_mats: 2,
        };
        let mut x = acts(random, n, n_cols);
        let mut y = vec![0.0; n * n_rows];
        matmul_grouped(Cpu::best(), [(w, &mut y[..])], &mut x, &[2, 0, 1], &[0, 1, 3]);
        for (pair, row) in [2, 0, 1].into_iter().enumerate() {
            let x = &x.rows()[row * n_cols..][..n_cols];
            let mat = usize::from(pair > 0);
            for r in 0..n_rows {
                let w = &values[(mat * n_rows + r) * n_cols..][..n_cols];
                let products = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
                let (sum, size) = products.fold((0.0, 0.0), |(s, a), p| (s + p, a + p.abs()));
                let found = f64::from(y[pair * n_rows + r]);
                assert!(
                    (found - sum).abs() <= 1e-5 * size,
                    "{}: row {r} of matrix {mat} gives {found}, not {sum}",
                    format.name
                );
            }
        }
    }
}

/// Lengths of rows that a type can have.
fn lengths(format: &Format) -> &'static [usize] {
    match format.geometry.block_elems {
        1 => &[1, 7, 33, 255, 257, 600],
        elems if elems <= GROUP => &[32, 96, 256, 288, 544],
        _ => &[256, 512, 768],
    }
}

#[test]
fn products_are_close_to_exact_ones() {
    let random = &mut Random(1);
    for format in formats() {
        for &n_cols in lengths(format) {
            for (n_rows, n) in [(1, 1), (7, 2), (8, 3), (21, 9)] {
                let bytes = weights(random, format, n_rows, n_cols);
                let w = Weights {
                    compute: Compute::Fast,
                    format,
                    bytes: &bytes,
                    n_cols,
                    n_rows,
                    n_mats: 1,
                };
                let mut x = acts(random, n, n_cols);
                let expected = exact(w, &x);
                for cpu in Cpu::available() {
                    let y = product(cpu, w, &mut x);
                    for (i, (y, (exact, bound))) in y.iter().zip(&expected).enumerate() {
                        let error = (f64::from(*y) - exact).abs();
                        assert!(
                            error <= *bound,
                            "{} {cpu:?} {n_cols}: {i}: {y}, not {exact} ± {bound}",
                            format.name
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn whole_numbers_are_exact() {
    let random = &mut Random(2);
    for name in ["Q4_0", "Q8_0", "F32", "F16", "BF16"] {
        let format = registry::by_name(name).expect("a type of the registry");
        let (n_rows, n_cols) = (11, 256);
        // With a -8 (or -127) in each block these are stored as they are.
        let mut rows = Vec::new();
        for _ in 0..n_rows {
            let limit = if name == "Q8_0" { 127 } else { 8 };
            let mut row: Vec<f32> = (0..n_cols)
                .map(|_| (random.u32() % (2 * limit)) as f32 - limit as f32)
                .collect();
            row.iter_mut().step_by(32).for_each(|v| *v = -(limit as f32));
            rows.push(row);
        }
        let mut bytes = vec![0; n_rows * row_bytes(format, n_cols)];
        for (row, out) in rows.iter().zip(bytes.chunks_mut(row_bytes(format, n_cols))) {
            format.encoder(Cpu::best()).expect("types here can be written")(row, Importance::None, out);
        }
        let w = Weights {
            compute: Compute::Fast,
            format,
            bytes: &bytes,
            n_cols,
            n_rows,
            n_mats: 1,
        };
        let mut x = Acts::default();
        x.reset(5, n_cols);
        for x in x.rows_mut().chunks_mut(GROUP) {
            x.fill_with(|| (random.u32() % 255) as f32 * 0.5 - 63.5);
            x[3] = 63.5;
        }
        let y = product(Cpu::best(), w, &mut x);
        for (t, y) in y.chunks(n_rows).enumerate() {
            for (row, y) in rows.iter().zip(y) {
                let exact: f32 = row.iter().zip(x.row(t)).map(|(w, x)| w * x).sum();
                assert_eq!(*y, exact, "{name}");
            }
        }
    }
}

/// Types that take activations in three forms, in neighbouring and in other places of the list.
#[test]
fn several_outputs_are_what_each_is_alone() {
    let random = &mut Random(11);
    let (n_cols, n_rows, n) = (512, 40, 5);
    let types = ["Q4_K", "Q8_0", "F16", "BF16", "Q6_K"];
    let formats = types.map(|name| formats().find(|f| f.name == name).expect("a type with kernels"));
    let bytes = formats.map(|f| weights(random, f, n_rows, n_cols));
    let weights: [Weights<'_>; 5] = std::array::from_fn(|i| Weights {
        compute: Compute::Fast,
        format: formats[i],
        bytes: &bytes[i],
        n_cols,
        n_rows: n_rows - i,
        n_mats: 1,
    });
    // Fewer rows: not all bytes are used.
    let weights = weights.map(|w| Weights {
        bytes: &w.bytes[..w.n_rows * row_bytes(w.format, n_cols)],
        ..w
    });
    let mut x = acts(random, n, n_cols);
    let alone = weights.map(|w| bits(&product(Cpu::best(), w, &mut x)));
    let run = |which: [usize; 2], x: &mut Acts| {
        let mut y = which.map(|i| vec![f32::NAN; n * weights[i].n_rows]);
        let mut of = which.into_iter();
        matmul(
            Cpu::best(),
            y.each_mut().map(|y| (weights[of.next().unwrap()], &mut y[..])),
            x,
        );
        y.map(|y| bits(&y))
    };
    for first in 0..types.len() {
        for second in 0..types.len() {
            let [a, b] = run([first, second], &mut x);
            assert_eq!(a, alone[first], "{} beside {}", types[first], types[second]);
            assert_eq!(b, alone[second], "{} behind {}", types[second], types[first]);
        }
    }
}

#[test]
fn several_stacks_are_what_each_is_alone() {
    let random = &mut Random(12);
    let (n_cols, n_rows, n_mats) = (256, 24, 3);
    let (source, starts) = ([2, 0, 1, 1, 0, 2], [0, 5, 5, 6]);
    let mut x = acts(random, 3, n_cols);
    let types = ["Q4_K", "F32", "BF16", "Q5_0"];
    let formats = types.map(|name| formats().find(|f| f.name == name).expect("a type with kernels"));
    let bytes = formats.map(|f| weights(random, f, n_rows * n_mats, n_cols));
    let stacks: [Weights<'_>; 4] = std::array::from_fn(|i| Weights {
        compute: Compute::Fast,
        format: formats[i],
        bytes: &bytes[i],
        n_cols,
        n_rows,
        n_mats,
    });
    let mut y = [(); 2].map(|()| vec![f32::NAN; source.len() * n_rows]);
    for first in 0..types.len() {
        for second in 0..types.len() {
            let alone = [first, second].map(|i| {
                let y = &mut y[0];
                matmul_grouped(Cpu::best(), [(stacks[i], &mut y[..])], &mut x, &source, &starts);
                bits(y)
            });
            let [a, b] = y.each_mut();
            let both = [(stacks[first], &mut a[..]), (stacks[second], &mut b[..])];
            matmul_grouped(Cpu::best(), both, &mut x, &source, &starts);
            let found = [bits(a), bits(b)];
            assert!(found == alone, "{} and {}", types[first], types[second]);
        }
    }
}

/// More rows and more pairs than are worked on together.
#[test]
fn blocks_of_rows_and_pairs_are_what_rows_are_alone() {
    let random = &mut Random(14);
    for (name, n_rows, n) in [
        ("Q4_K", 331, 2),
        ("Q8_0", 331, 3),
        ("Q4_K", 75, 1031),
        ("BF16", 75, 7),
    ] {
        let format = formats().find(|f| f.name == name).expect("a type with kernels");
        let bytes = weights(random, format, n_rows, 256);
        let w = |first: usize, n_rows: usize| Weights {
            compute: Compute::Fast,
            format,
            bytes: &bytes[first * row_bytes(format, 256)..][..n_rows * row_bytes(format, 256)],
            n_cols: 256,
            n_rows,
            n_mats: 1,
        };
        let mut x = acts(random, n, 256);
        for cpu in [Cpu::best(), Cpu::at_most(Level::Portable)] {
            let all = product(cpu, w(0, n_rows), &mut x);
            for row in (0..n_rows).step_by(37).chain([n_rows - 1]) {
                let alone = product(cpu, w(row, 1), &mut x);
                let of_all: Vec<f32> = all.chunks(n_rows).map(|y| y[row]).collect();
                assert_eq!(
                    bits(&of_all),
                    bits(&alone),
                    "{name} row {row} of {n_rows}, {n} pairs"
                );
            }
        }
    }
}

#[test]
fn no_rows_have_no_products() {
    let random = &mut Random(13);
    let mut x = acts(random, 3, 256);
    for format in formats() {
        let w = Weights {
            compute: Compute::Fast,
            format,
            bytes: &[],
            n_cols: 256,
            n_rows: 0,
            n_mats: 1,
        };
        assert_eq!(product(Cpu::best(), w, &mut x), [0.0; 0], "{}", format.name);
    }
}

#[test]
fn results_do_not_depend_on_level_threads_or_company() {
    let random = &mut Random(3);
    for format in formats() {
        let n_cols = lengths(format)[2];
        let (n_rows, n) = (203, 23);
        let bytes = weights(random, format, n_rows, n_cols);
        let w = Weights {
            compute: Compute::Fast,
            format,
            bytes: &bytes,
            n_cols,
            n_rows,
            n_mats: 1,
        };
        let mut x = acts(random, n, n_cols);
        let expected = bits(&product(Cpu::at_most(Level::Portable), w, &mut x));
        for threads in [1, 2, 5] {
            let pool = crate::pool::Pool::new(&crate::pool::PoolOptions::threads(threads)).expect("a pool");
            let y = pool.enter(|| product(Cpu::best(), w, &mut x));
            assert_eq!(bits(&y), expected, "{} with {threads} threads", format.name);
        }
        for t in [0, 7, n - 1] {
            let mut one = Acts::default();
            one.reset(1, n_cols);
            one.rows_mut().copy_from_slice(x.row(t));
            let y = product(Cpu::best(), w, &mut one);
            assert_eq!(
                bits(&y),
                expected[t * n_rows..][..n_rows],
                "{} row {t} alone",
                format.name
            );
        }
    }
}

#[test]
fn groups_use_their_matrices() {
    let random = &mut Random(4);
    for format in formats() {
        let n_cols = lengths(format)[1];
        let (n_rows, n_mats, n) = (19, 6, 9);
        let bytes = weights(random, format, n_rows * n_mats, n_cols);
        let w = Weights {
            compute: Compute::Fast,
            format,
            bytes: &bytes,
            n_cols,
            n_rows,
            n_mats,
        };
        let mut x = acts(random, n, n_cols);
        let source: Vec<u32> = (0..17).map(|_| random.u32() % n as u32).collect();
        let starts = [0, 0, 5, 6, 6, 15, 17];
        let mut y = vec![f32::NAN; source.len() * n_rows];
        matmul_grouped(Cpu::best(), [(w, &mut y[..])], &mut x, &source, &starts);
        for m in 0..n_mats {
            let bytes = &bytes[m * bytes.len() / n_mats..][..bytes.len() / n_mats];
            let all = product(
                Cpu::best(),
                Weights {
                    bytes,
                    n_mats: 1,
                    ..w
                },
                &mut x,
            );
            for p in starts[m]..starts[m + 1] {
                let expected = &all[source[p] as usize * n_rows..][..n_rows];
                assert_eq!(
                    bits(&y[p * n_rows..][..n_rows]),
                    bits(expected),
                    "{} pair {p}",
                    format.name
                );
            }
        }
    }
}

#[test]
fn types_without_kernels_go_through_their_decoder() {
    static BARE: std::sync::OnceLock<Format> = std::sync::OnceLock::new();
    let q5 = registry::by_name("Q5_1").expect("a type of the registry");
    let bare = BARE.get_or_init(|| Format {
        kernel: |_| None,
        ..copy(q5)
    });
    let random = &mut Random(5);
    let bytes = weights(random, q5, 13, 288);
    let w = Weights {
        compute: Compute::Fast,
        format: bare,
        bytes: &bytes,
        n_cols: 288,
        n_rows: 13,
        n_mats: 1,
    };
    let mut x = acts(random, 10, 288);
    let expected = exact(w, &x);
    let y = product(Cpu::best(), w, &mut x);
    for (y, (exact, bound)) in y.iter().zip(expected) {
        assert!((f64::from(*y) - exact).abs() <= bound);
    }
    assert_eq!(bits(&y), bits(&product(Cpu::at_most(Level::Portable), w, &mut x)));
}

fn copy(f: &Format) -> Format {
    Format { ..*f }
}

#[test]
fn new_rows_are_quantized_again_and_bad_values_show() {
    let random = &mut Random(6);
    let format = registry::by_name("Q8_0").expect("a type of the registry");
    let bytes = weights(random, format, 8, 64);
    let w = Weights {
        compute: Compute::Fast,
        format,
        bytes: &bytes,
        n_cols: 64,
        n_rows: 8,
        n_mats: 1,
    };
    let mut x = acts(random, 2, 64);
    let first = product(Cpu::best(), w, &mut x);
    x.rows_mut()[70] = f32::INFINITY;
    let second = product(Cpu::best(), w, &mut x);
    assert_eq!(first[..8], second[..8]);
    assert!(second[8..].iter().all(|y| y.is_nan()));
}

#[test]
fn rows_are_quantized_alike_in_one_piece_and_in_parallel() {
    let random = &mut Random(7);
    let mut x = acts(random, 80, 1024);
    x.quantize(Cpu::best(), &[], &[0]);
    for t in 0..80 {
        let (mut q, mut scales) = (vec![0; 1024], vec![GroupScale::default(); 1024 / GROUP]);
        quantize(Cpu::best(), x.row(t), &mut q, &mut scales);
        let row = x.panel((0, 1), t as u32, 0, 1024 / GROUP);
        assert_eq!((row.q, row.scales), (&q[..], &scales[..]));
    }
}

#[test]
#[should_panic(expected = "activation rows and weight rows have one length")]
fn lengths_that_differ_are_refused() {
    let format = registry::by_name("F32").expect("a type of the registry");
    let w = Weights {
        compute: Compute::Fast,
        format,
        bytes: &[0; 32],
        n_cols: 8,
        n_rows: 1,
        n_mats: 1,
    };
    let mut x = Acts::default();
    x.reset(1, 7);
    matmul(Cpu::best(), [(w, &mut [0.0][..])], &mut x);
}

//! Sums of squares and of values over the rows of an activation, column by column, in f64.
//!
//! Each sum is added up in the order of the rows, one multiplication and one addition at a time, so that it has the
//! same bits however rows are cut into calls, and at any level.

use gguf_blocks::{Cpu, Level};

/// Columns whose sums are kept in registers together.
pub(super) const BLOCK: usize = 16;

/// Rows that pass while a block of columns is kept: as many streams as the caches follow.
const ROWS: usize = 8;

/// Adds rows of `squares.len()` elements to the sums of their columns: row `r` starts at `rows[first + r * stride]`
/// for each `r` of `which`.
///
/// # Panics
/// Where `rows` does not hold all of them, or `squares` and `values` differ in length.
pub fn add_rows(
    cpu: Cpu,
    rows: &[f32],
    (first, stride): (usize, usize),
    which: impl IntoIterator<Item = usize>,
    squares: &mut [f64],
    values: &mut [f64],
) {
    let n_cols = squares.len();
    assert_eq!(n_cols, values.len(), "a column has two sums");
    let mut group: [&[f32]; ROWS] = [&[]; ROWS];
    let mut n = 0;
    for row in which {
        group[n] = &rows[first + row * stride..][..n_cols];
        n += 1;
        if n == ROWS {
            add_group(cpu, &group, squares, values);
            n = 0;
        }
    }
    add_group(cpu, &group[..n], squares, values);
}

fn add_group(cpu: Cpu, rows: &[&[f32]], squares: &mut [f64], values: &mut [f64]) {
    match cpu.level().base() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => super::x86_sums::add_group(rows, squares, values),
        _ => add_group_with(rows, squares, values),
    }
}

/// Rows have as many elements as there are sums.
#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled again for each level")]
pub(super) fn add_group_with(rows: &[&[f32]], squares: &mut [f64], values: &mut [f64]) {
    let (square_blocks, square_rest) = squares.as_chunks_mut::<BLOCK>();
    let (value_blocks, value_rest) = values.as_chunks_mut::<BLOCK>();
    let n = square_blocks.len() * BLOCK;
    for (i, (squares, values)) in square_blocks.iter_mut().zip(value_blocks).enumerate() {
        let (mut s, mut v) = (*squares, *values);
        for row in rows {
            let row: &[f32; BLOCK] = row[i * BLOCK..][..BLOCK].try_into().expect("a whole block");
            for c in 0..BLOCK {
                let x = f64::from(row[c]);
                s[c] += x * x;
                v[c] += x;
            }
        }
        (*squares, *values) = (s, v);
    }
    for row in rows {
        for ((s, v), &x) in square_rest.iter_mut().zip(value_rest.iter_mut()).zip(&row[n..]) {
            let x = f64::from(x);
            *s += x * x;
            *v += x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_cuts_agree_to_the_bit() {
        let (n_cols, n) = (3 * BLOCK + 5, 2 * ROWS + 3);
        let value = |i: usize| ((i * 7919 % 1009) as f32 - 500.0) * 1.7e-3;
        let rows: Vec<f32> = (0..n * (n_cols + 2)).map(value).collect();
        let which: Vec<usize> = (0..n).filter(|r| r % 5 != 2).collect();
        let (mut squares, mut values) = (vec![0.5; n_cols], vec![-0.5; n_cols]);
        for c in 0..n_cols {
            for r in &which {
                let x = f64::from(rows[2 + r * (n_cols + 2) + c]);
                squares[c] += x * x;
                values[c] += x;
            }
        }
        for cpu in Cpu::available() {
            for step in [1, 3, which.len()] {
                let (mut s, mut v) = (vec![0.5; n_cols], vec![-0.5; n_cols]);
                for part in which.chunks(step) {
                    add_rows(cpu, &rows, (2, n_cols + 2), part.iter().copied(), &mut s, &mut v);
                }
                assert_eq!((&s, &v), (&squares, &values), "{}, {step}", cpu.level().name());
            }
        }
    }
}

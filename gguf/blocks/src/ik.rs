//! The uneven levels of the types of `ik_llama.cpp`, and how a code or a bit of a sub-block chooses one. Tables have
//! the plain levels first and those moved up second.

use crate::iq4;

/// Levels of 2-bit codes.
pub(crate) static LEVELS_2: [[i8; 4]; 2] = moved(&[-31, -13, 1, 17], 5);
/// Levels of 3-bit codes.
pub(crate) static LEVELS_3: [[i8; 8]; 2] = moved(&[-63, -40, -23, -10, 1, 13, 28, 47], 4);
/// Levels of 4-bit codes.
pub(crate) static LEVELS_4: [[i8; 16]; 2] = moved(&iq4::LEVELS, 4);
/// Levels of 5-bit codes.
pub(crate) static LEVELS_5: [[i8; 32]; 2] = moved(
    &[
        -126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36, -30, -24, -18, -12, -6, -1, 5, 11, 17, 23,
        29, 36, 43, 51, 59, 68, 77, 87, 97, 109, 121,
    ],
    2,
);

const fn moved<const N: usize>(plain: &[i8; N], by: i8) -> [[i8; N]; 2] {
    let mut up = *plain;
    let mut i = 0;
    while i < N {
        up[i] += by;
        i += 1;
    }
    [*plain, up]
}

/// The levels for a stored bit: the lowest of `bit`.
#[inline]
pub(crate) fn table<const N: usize>(tables: &[[i8; N]; 2], bit: u8) -> &[i8; N] {
    &tables[usize::from(bit & 1)]
}

/// `scale · level` for each code.
#[inline]
pub(crate) fn levels<const N: usize>(table: &[i8; N], scale: f32, codes: &[u8], out: &mut [f32]) {
    for (v, code) in out.iter_mut().zip(codes) {
        *v = scale * f32::from(table[usize::from(*code) % N]);
    }
}

/// `scale · (code - zero)` for each code.
#[inline]
pub(crate) fn integers(zero: i8, scale: f32, codes: &[u8], out: &mut [f32]) {
    for (v, code) in out.iter_mut().zip(codes) {
        *v = scale * f32::from(*code as i8 - zero);
    }
}

/// `scale · code - min` for each code.
#[inline]
pub(crate) fn affine(scale: f32, min: f32, codes: &[u8], out: &mut [f32]) {
    for (v, code) in out.iter_mut().zip(codes) {
        *v = scale * f32::from(*code) - min;
    }
}

/// Nibble `i` of bytes that hold the low halves of all nibbles first: those behind the bytes' number are in the high
/// halves.
#[inline]
pub(crate) fn nibble_of_halves(bytes: &[u8], i: usize) -> u8 {
    bytes[i % bytes.len()] >> (i / bytes.len() * 4) & 15
}

/// Two-bit field `i` of bytes that hold field `i / n` of every byte `i % n`.
#[inline]
pub(crate) fn pair_of_quarters(bytes: &[u8], i: usize) -> u8 {
    bytes[i % bytes.len()] >> (i / bytes.len() * 2) & 3
}

/// Nibble `i` of bytes that hold two neighbours each, the first in the low half.
#[inline]
pub(crate) fn nibble(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 2] >> (i % 2 * 4) & 15
}

/// Two-bit field `i` of bytes that hold four neighbours each.
#[inline]
pub(crate) fn pair(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 4] >> (i % 4 * 2) & 3
}

/// Whether bit `i` of a little-endian word is set, as 0 or 1.
#[inline]
pub(crate) fn bit(word: [u8; 2], i: usize) -> u8 {
    (u16::from_le_bytes(word) >> i & 1) as u8
}

/// The scale and the choice of levels that share a byte: an even number of seven bits, less 127, and a bit.
#[inline]
pub(crate) fn odd_scale(d: f32, stored: u8) -> (f32, u8) {
    (d * f32::from(i16::from(stored & 0xfe) - 127), stored & 1)
}

/// Codes of 256 elements from those of their pieces of 32.
#[inline]
pub(crate) fn codes(piece: impl Fn(usize, usize) -> u8) -> [u8; 256] {
    let mut out = [0; 256];
    for (ib, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (j, code) in out.iter_mut().enumerate() {
            *code = piece(ib, j);
        }
    }
    out
}

/// Calls `one` for each sub-block of `S` out of 256 elements with its number, its codes and the place of its values.
#[inline]
pub(crate) fn subs<const S: usize>(
    codes: &[u8; 256],
    out: &mut [f32; 256],
    one: impl Fn(usize, &[u8; S], &mut [f32; S]),
) {
    let subs = codes.as_chunks::<S>().0.iter().zip(out.as_chunks_mut::<S>().0);
    for (k, (codes, out)) in subs.enumerate() {
        one(k, codes, out);
    }
}

//! The packers. Names: `k` is the row, `b` a plain block, `o` what is stored for the rows together, `e` an element,
//! `ib` a piece of 32 elements.

use super::Repack;

/// The packer of a type.
pub(crate) fn of(name: &str) -> Option<Repack> {
    Some(match name {
        "Q4_0_R8" => plain("Q4_0", 32, q4_0_r8),
        "Q8_0_R8" => plain("Q8_0", 32, q8_0_r8),
        "Q5_0_R4" => plain("Q5_0", 32, q5_0_r4),
        "Q6_0_R4" => plain("Q6_0", 32, q6_0_r4),
        "IQ4_NL_R4" => plain("IQ4_NL", 32, iq4_nl_r4),
        "MXFP4_R8" => plain("MXFP4", 32, mxfp4_r8),
        "Q2_K_R4" => plain("Q2_K", 256, q2_k_r4),
        "Q3_K_R4" => plain("Q3_K", 256, q3_k_r4),
        "Q4_K_R4" => plain("Q4_K", 256, q4_k_r4),
        "Q5_K_R4" => plain("Q5_K", 256, q5_k_r4),
        "Q6_K_R4" => plain("Q6_K", 256, q6_k_r4),
        "IQ4_XS_R8" => plain("IQ4_XS", 256, iq4_xs_r8),
        "IQ2_K_R4" => plain("IQ2_K", 256, iq2_k_r4),
        "IQ3_K_R4" => plain("IQ3_K", 256, iq3_k_r4),
        "IQ4_K_R4" => plain("IQ4_K", 256, iq4_k_r4),
        "IQ5_K_R4" => plain("IQ5_K", 256, iq5_k_r4),
        "IQ4_KS_R4" => headed("IQ4_KS", 256, iq4_ks_r4),
        "IQ5_KS_R4" => headed("IQ5_KS", 256, iq5_ks_r4),
        "IQ2_BN_R4" => headed("IQ2_BN", 64, iq2_bn_r4),
        "Q8_KV_R8" => headed("Q8_KV", 32, q8_kv_r8),
        "IQ2_XXS_R4" => plain("IQ2_XXS", 256, iq2_xxs_r4),
        "IQ2_XS_R4" => plain("IQ2_XS", 256, iq2_xs_r4),
        "IQ2_S_R4" => plain("IQ2_S", 256, iq2_s_r4),
        "IQ3_XXS_R4" => plain("IQ3_XXS", 256, iq3_xxs_r4),
        "IQ3_S_R4" => plain("IQ3_S", 256, iq3_s_r4),
        "Q8_K_R8" => Repack {
            prepare: half_scales,
            ..plain("Q8_K", 256, |k, b, o| q8_k(8, 0, k, b, o))
        },
        "Q8_K_R16" => Repack {
            prepare: half_scales,
            ..plain("Q8_K", 256, |k, b, o| q8_k(16, 128, k, b, o))
        },
        "IQ1_S_R4" => Repack {
            header: |row| &row[..2],
            prepare: |row| {
                let d = [row[0], row[1]];
                row.chunks_mut(50).for_each(|b| b[..2].copy_from_slice(&d));
            },
            ..plain("IQ1_S", 256, iq1_s_r4)
        },
        "IQ1_M_R4" => Repack {
            header: |_| &[0x00, 0x3c],
            prepare: |row| row.chunks_mut(56).for_each(unit_scale),
            ..plain("IQ1_M", 256, iq1_m_r4)
        },
        _ => return None,
    })
}

fn plain(base: &'static str, elems: usize, pack: fn(usize, &[u8], &mut [u8])) -> Repack {
    Repack {
        base,
        elems,
        pack,
        header: |_| &[],
        prepare: |_| {},
    }
}

/// A type whose rows begin with a single.
fn headed(base: &'static str, elems: usize, pack: fn(usize, &[u8], &mut [u8])) -> Repack {
    Repack {
        header: |row| &row[..4],
        ..plain(base, elems, pack)
    }
}

/// Makes the scales of `Q8_K` halves.
fn half_scales(row: &mut [u8]) {
    for block in row.chunks_mut(292) {
        let d = half::f16::from_le_bytes([block[0], block[1]]).to_f32();
        block[..4].copy_from_slice(&d.to_le_bytes());
    }
}

/// Makes the unit of the scales of an `IQ1_M` block 1, the half 0x3c00.
fn unit_scale(block: &mut [u8]) {
    for (i, nibble) in [0x0, 0x0, 0xc, 0x3].into_iter().enumerate() {
        let byte = &mut block[48 + 2 * i + 1];
        *byte = *byte & 15 | nibble << 4;
    }
}

/// Field `i` of `bits` bits in bytes that hold them one after the other.
fn field(bytes: &[u8], bits: usize, i: usize) -> u8 {
    let at = i * bits;
    bytes[at / 8] >> (at % 8) & ((1 << bits) - 1)
}

/// Copies the half at `from` of `b` to the place of row `k` among those at `to` of `o`.
fn copy_half(b: &[u8], from: usize, o: &mut [u8], to: usize, k: usize) {
    o[to + 2 * k..][..2].copy_from_slice(&b[from..][..2]);
}

/// The four pieces of 16 bytes of four-bit codes: the first element of the low halves and of the high ones.
const CHUNKS: [(usize, usize); 4] = [(0, 8), (16, 24), (4, 12), (20, 28)];

/// Low four bits of the 32 codes of row `k`, of four rows, into 64 bytes.
fn nibbles(o: &mut [u8], k: usize, code: impl Fn(usize) -> u8) {
    for (c, (low, high)) in CHUNKS.into_iter().enumerate() {
        for i in 0..4 {
            o[16 * c + 4 * k + i] = code(low + i) & 15 | (code(high + i) & 15) << 4;
        }
    }
}

/// Low two bits of 32 codes into 32 bytes.
fn pairs(o: &mut [u8], k: usize, code: impl Fn(usize) -> u8) {
    for half in 0..2 {
        for i in 0..4 {
            let at = |n: usize| (code(16 * half + i + 4 * n) & 3) << (2 * n);
            o[16 * half + 4 * k + i] = at(0) | at(1) | at(2) | at(3);
        }
    }
}

/// Bit `from` of 32 codes into 16 bytes; bit `n` of a byte belongs to the element `order[n]` further.
fn bits(o: &mut [u8], k: usize, from: usize, order: [usize; 8], code: impl Fn(usize) -> u8) {
    for i in 0..4 {
        for (n, e) in order.into_iter().enumerate() {
            o[4 * k + i] |= (code(e + i) >> from & 1) << n;
        }
    }
}

const THIRD: [usize; 8] = [0, 4, 8, 12, 16, 20, 24, 28];
const FIFTH: [usize; 8] = [0, 8, 4, 12, 16, 24, 20, 28];
const FIFTH_IK: [usize; 8] = [0, 8, 16, 24, 4, 12, 20, 28];

/// Scale number `is` of six bits: low ones into 32 bytes at `low`, high ones into 16 bytes at `high`.
fn six_bits(o: &mut [u8], low: usize, high: usize, is: usize, scale: u8) {
    o[low + is % 32] |= (scale & 15) << (4 * (is / 32));
    o[high + is % 16] |= (scale >> 4) << (2 * (is / 16));
}

fn legacy_nibble(qs: &[u8], e: usize) -> u8 {
    if e < 16 { qs[e] & 15 } else { qs[e - 16] >> 4 }
}

fn q4_0_r8(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 0, o, 0, k);
    for l in 0..4 {
        for i in 0..4 {
            o[16 + 32 * l + 4 * k + i] = b[2 + 4 * l + i];
        }
    }
}

fn mxfp4_r8(k: usize, b: &[u8], o: &mut [u8]) {
    o[k] = b[0];
    for j in 0..4 {
        o[8 + 4 * (8 * j + k)..][..4].copy_from_slice(&b[1 + 4 * j..][..4]);
    }
}

fn q8_0_r8(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 0, o, 0, k);
    for l in 0..4 {
        for i in 0..4 {
            o[16 + 32 * l + 4 * k + i] = b[2 + 4 * l + i];
            o[16 + 128 + 32 * l + 4 * k + i] = b[2 + 16 + 4 * l + i];
        }
    }
}

fn q5_0_r4(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 0, o, 0, k);
    let code = |e: usize| legacy_nibble(&b[6..], e) | (b[2 + e / 8] >> (e % 8) & 1) << 4;
    for l in 0..4 {
        let base = 16 * (l % 2) + 4 * (l / 2);
        for i in 0..4 {
            let (low, high) = (code(base + i), code(base + 8 + i));
            o[24 + 16 * l + 4 * k + i] = low & 15 | (high & 15) << 4;
            o[8 + 4 * k + i] |= low >> 4 << l | high >> 4 << (l + 4);
        }
    }
}

fn q6_0_r4(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 0, o, 0, k);
    let code = |e: usize| {
        let j = e % 16;
        let h = b[2 + j % 8] >> (4 * (j / 8));
        legacy_nibble(&b[10..], e) | (if e < 16 { h & 3 } else { h >> 2 & 3 }) << 4
    };
    for l in 0..4 {
        let base = 16 * (l % 2) + 4 * (l / 2);
        for i in 0..4 {
            let (low, high) = (code(base + i), code(base + 8 + i));
            o[40 + 16 * l + 4 * k + i] = low & 15 | (high & 15) << 4;
            o[8 + 4 * k + i + 16 * (l % 2)] |= (low >> 4) << (2 * (l / 2)) | (high >> 4) << (2 * (l / 2) + 4);
        }
    }
}

fn iq4_nl_r4(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 0, o, 0, k);
    nibbles(&mut o[8..], k, |e| legacy_nibble(&b[2..], e));
}

/// Two-bit code `i` of 256.
fn two_bits(qs: &[u8], i: usize) -> u8 {
    qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 3
}

/// Four-bit code `i` of 256 in halves of 64.
fn four_bits(qs: &[u8], i: usize) -> u8 {
    let byte = qs[32 * (i / 64) + i % 32];
    if i % 64 < 32 { byte & 15 } else { byte >> 4 }
}

/// Bit `i` of 256, an eighth of them in each bit of 32 bytes.
fn one_bit(qh: &[u8], i: usize) -> u8 {
    qh[i % 32] >> (i / 32) & 1
}

fn q2_k_r4(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 80, o, 0, k);
    copy_half(b, 82, o, 8, k);
    for ib in 0..8 {
        o[16 + 8 * ib + k] = b[2 * ib];
        o[16 + 8 * ib + 4 + k] = b[2 * ib + 1];
        pairs(&mut o[80 + 32 * ib..], k, |e| two_bits(&b[16..], 32 * ib + e));
    }
}

fn q3_k_r4(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 108, o, 0, k);
    let scales = &b[96..108];
    let scale = |s: usize| {
        let low = if s < 8 { scales[s] & 15 } else { scales[s - 8] >> 4 };
        low | (scales[8 + s % 4] >> (2 * (s / 4)) & 3) << 4
    };
    for ib in 0..8 {
        six_bits(o, 24, 8, 8 * ib + k, scale(2 * ib));
        six_bits(o, 24, 8, 8 * ib + k + 4, scale(2 * ib + 1));
        let code = |e: usize| two_bits(&b[32..], 32 * ib + e) | one_bit(b, 32 * ib + e) << 2;
        pairs(&mut o[184 + 32 * ib..], k, code);
        bits(&mut o[56 + 16 * ib..], k, 2, THIRD, code);
    }
}

/// Scale and minimum `s` of the twelve bytes of `Q4_K` and `Q5_K`.
fn scale_and_min(scales: &[u8], s: usize) -> (u8, u8) {
    if s < 4 {
        return (scales[s] & 63, scales[s + 4] & 63);
    }
    let low = scales[s + 4];
    (low & 15 | scales[s - 4] >> 6 << 4, low >> 4 | scales[s] >> 6 << 4)
}

/// Units, scales and minima of `Q4_K` and `Q5_K`.
fn k_scales(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 0, o, 0, k);
    copy_half(b, 2, o, 8, k);
    for ib in 0..8 {
        let (scale, min) = scale_and_min(&b[4..16], ib);
        let is = 4 * ib + k;
        o[32 + is] = scale & 15 | (min & 15) << 4;
        o[16 + is % 16] |= (scale >> 4 | min >> 4 << 2) << (4 * (is / 16));
    }
}

fn q4_k_r4(k: usize, b: &[u8], o: &mut [u8]) {
    k_scales(k, b, o);
    for ib in 0..8 {
        nibbles(&mut o[64 + 64 * ib..], k, |e| four_bits(&b[16..], 32 * ib + e));
    }
}

fn q5_k_r4(k: usize, b: &[u8], o: &mut [u8]) {
    k_scales(k, b, o);
    for ib in 0..8 {
        let code = |e: usize| four_bits(&b[48..], 32 * ib + e) | one_bit(&b[16..], 32 * ib + e) << 4;
        nibbles(&mut o[192 + 64 * ib..], k, code);
        bits(&mut o[64 + 16 * ib..], k, 4, FIFTH, code);
    }
}

fn q6_k_r4(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 208, o, 0, k);
    let code = |i: usize| {
        let (n, l) = (i / 128, i % 32);
        let (ql, qh) = (&b[64 * n..], b[128 + 32 * n + l]);
        match i % 128 / 32 {
            0 => ql[l] & 15 | (qh & 3) << 4,
            1 => ql[l + 32] & 15 | (qh >> 2 & 3) << 4,
            2 => ql[l] >> 4 | (qh >> 4 & 3) << 4,
            _ => ql[l + 32] >> 4 | (qh >> 6) << 4,
        }
    };
    for ib in 0..8 {
        o[8 + 8 * ib + k] = b[192 + 2 * ib];
        o[8 + 8 * ib + 4 + k] = b[192 + 2 * ib + 1];
        nibbles(&mut o[328 + 64 * ib..], k, |e| code(32 * ib + e));
        for half in 0..2 {
            for i in 0..4 {
                let high = |e: usize| code(32 * ib + 16 * half + i + e) >> 4;
                o[72 + 32 * ib + 16 * half + 4 * k + i] =
                    high(0) | high(8) << 2 | high(4) << 4 | high(12) << 6;
            }
        }
    }
}

fn iq4_xs_r8(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 0, o, 0, k);
    for ib in 0..8 {
        let scale = field(&b[4..8], 4, ib) | field(&b[2..4], 2, ib) << 4;
        six_bits(o, 32, 16, 8 * ib + k, scale);
        let code = |e: usize| legacy_nibble(&b[8 + 16 * ib..], e);
        for l in 0..4 {
            for i in 0..4 {
                o[64 + 128 * ib + 32 * l + 4 * k + i] = code(8 * l + i) | code(8 * l + i + 4) << 4;
            }
        }
    }
}

/// Unit and choice of levels of the types with sub-blocks of 16.
fn unit_and_extra(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 0, o, 0, k);
    for s in 0..16 {
        o[8 + 4 * (s % 2) + k] |= field(&b[2..4], 1, s) << (s / 2);
    }
}

fn iq2_k_r4(k: usize, b: &[u8], o: &mut [u8]) {
    unit_and_extra(k, b, o);
    for ib in 0..8 {
        for half in 0..2 {
            let is = 8 * ib + k + 4 * half;
            o[16 + is % 32] |= field(&b[4..12], 4, 2 * ib + half) << (4 * (is / 32));
        }
        pairs(&mut o[48 + 32 * ib..], k, |e| two_bits(&b[12..], 32 * ib + e));
    }
}

fn iq3_k_r4(k: usize, b: &[u8], o: &mut [u8]) {
    unit_and_extra(k, b, o);
    for ib in 0..8 {
        for half in 0..2 {
            let (s, is) = (2 * ib + half, 8 * ib + k + 4 * half);
            o[16 + is % 8] |= field(&b[4..6], 1, s) << (is / 8);
            o[24 + is % 32] |= field(&b[6..14], 4, s) << (4 * (is / 32));
        }
        let code = |e: usize| two_bits(&b[14..], 32 * ib + e) | one_bit(&b[78..], 32 * ib + e) << 2;
        pairs(&mut o[56 + 32 * ib..], k, code);
        bits(&mut o[312 + 16 * ib..], k, 2, THIRD, code);
    }
}

/// The six-bit scales of `IQ4_K` and `IQ5_K`.
fn ik_scales(k: usize, b: &[u8], o: &mut [u8]) {
    unit_and_extra(k, b, o);
    for s in 0..16 {
        let scale = field(&b[8..16], 4, s) | field(&b[4..8], 2, s) << 4;
        six_bits(o, 32, 16, 8 * (s / 2) + k + 4 * (s % 2), scale);
    }
}

fn iq4_k_r4(k: usize, b: &[u8], o: &mut [u8]) {
    ik_scales(k, b, o);
    for ib in 0..8 {
        nibbles(&mut o[64 + 64 * ib..], k, |e| {
            legacy_nibble(&b[16 + 16 * ib..], e)
        });
    }
}

fn iq5_k_r4(k: usize, b: &[u8], o: &mut [u8]) {
    ik_scales(k, b, o);
    for ib in 0..8 {
        let code = |e: usize| four_bits(&b[16..], 32 * ib + e) | one_bit(&b[144..], 32 * ib + e) << 4;
        nibbles(&mut o[64 + 64 * ib..], k, code);
        bits(&mut o[576 + 16 * ib..], k, 4, FIFTH_IK, code);
    }
}

fn iq4_ks_r4(k: usize, b: &[u8], o: &mut [u8]) {
    for ib in 0..8 {
        o[4 * ib + k] = b[ib];
        nibbles(&mut o[32 + 64 * ib..], k, |e| legacy_nibble(&b[8 + 16 * ib..], e));
    }
}

fn iq5_ks_r4(k: usize, b: &[u8], o: &mut [u8]) {
    for ib in 0..8 {
        o[4 * ib + k] = b[ib];
        let code = |e: usize| four_bits(&b[8..], 32 * ib + e) | one_bit(&b[136..], 32 * ib + e) << 4;
        nibbles(&mut o[32 + 64 * ib..], k, code);
        bits(&mut o[544 + 16 * ib..], k, 4, FIFTH_IK, code);
    }
}

fn iq2_bn_r4(k: usize, b: &[u8], o: &mut [u8]) {
    let code = |e: usize| b[e % 16] >> (2 * (e / 16)) & 3;
    for l in 0..4 {
        for i in 0..4 {
            let at = |n: usize| code(16 * l + i + 4 * n) << (2 * n);
            o[16 * l + 4 * k + i] = at(0) | at(1) | at(2) | at(3);
        }
    }
}

fn q8_kv_r8(k: usize, b: &[u8], o: &mut [u8]) {
    for ib in 0..2 {
        for l in 0..4 {
            for i in 0..4 {
                o[128 * ib + 32 * l + 4 * k + i] = b[16 * ib + 4 * l + i];
            }
        }
    }
}

fn q8_k(rows: usize, plus: u8, k: usize, b: &[u8], o: &mut [u8]) {
    let d = half::f16::from_f32(f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    o[2 * k..][..2].copy_from_slice(&d.to_le_bytes());
    for g in 0..64 {
        for i in 0..4 {
            o[2 * rows + 4 * rows * g + 4 * k + i] = b[4 + 4 * g + i].wrapping_add(plus);
        }
    }
}

/// The signs of 8 elements from seven stored bits.
fn even(seven: u32) -> u8 {
    let seven = seven as u8 & 127;
    seven | (seven.count_ones() as u8 % 2) << 7
}

/// Signs, 7 bits each in the low 28 bits, and the scale above them, as four bytes.
fn signs_and_scale(word: u32) -> [u8; 4] {
    std::array::from_fn(|i| {
        let signs = even(word >> (7 * i));
        // The byte, even so far, that combined with itself one bit lower gives the signs.
        let byte = (0..=254u8).step_by(2).find(|byte| byte ^ byte >> 1 == signs);
        byte.expect("an even number of signs") | (word >> (28 + i) & 1) as u8
    })
}

fn word(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn iq2_xxs_r4(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 0, o, 0, k);
    for ib in 0..8 {
        let sas = signs_and_scale(word(b, 2 + 8 * ib + 4));
        o[8 + 4 * (4 * ib + k)..][..4].copy_from_slice(&sas);
        o[136 + 16 * ib + 4 * k..][..4].copy_from_slice(&b[2 + 8 * ib..][..4]);
    }
}

fn iq3_xxs_r4(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 0, o, 0, k);
    for ib in 0..8 {
        let sas = signs_and_scale(word(b, 66 + 4 * ib));
        o[8 + 4 * (4 * ib + k)..][..4].copy_from_slice(&sas);
        o[136 + 32 * ib + 8 * k..][..8].copy_from_slice(&b[2 + 8 * ib..][..8]);
    }
}

fn iq2_xs_r4(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 0, o, 0, k);
    for ib in 0..8 {
        for i in 0..4 {
            let from = 2 + 2 * (4 * ib + i);
            let q = u16::from_le_bytes([b[from], b[from + 1]]);
            let signs = even(u32::from(q >> 9));
            // The seven bits that combined with themselves one bit higher give the signs.
            let seven = (0..128u8).find(|t| t ^ t << 1 == signs);
            let stored = q & 511 | u16::from(seven.expect("an even number of signs")) << 9;
            o[8 + 2 * (16 * ib + 4 * k + i)..][..2].copy_from_slice(&stored.to_le_bytes());
        }
        o[264 + 4 * ib + k] = b[66 + ib];
    }
}

fn iq2_s_r4(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 0, o, 0, k);
    for ib in 0..8 {
        o[8 + 16 * ib + 4 * k..][..4].copy_from_slice(&b[2 + 4 * ib..][..4]);
        o[136 + 4 * ib + k] = b[66 + ib];
        o[168 + 16 * ib + 4 * k..][..4].copy_from_slice(&b[34 + 4 * ib..][..4]);
        o[296 + 4 * ib + k] = b[74 + ib];
    }
}

fn iq3_s_r4(k: usize, b: &[u8], o: &mut [u8]) {
    copy_half(b, 0, o, 0, k);
    for ib in 0..8 {
        for i in 0..4 {
            o[8 + 32 * ib + k + 8 * i] = b[2 + 8 * ib + i];
            o[8 + 32 * ib + k + 8 * i + 4] = b[2 + 8 * ib + 4 + i];
        }
        o[264 + 4 * ib + k] = b[66 + ib];
        for j in 0..4 {
            for i in 0..8 {
                let e = 32 * ib + 4 * i + j;
                o[296 + 16 * ib + 4 * k + j] |= (b[74 + e / 8] >> (e % 8) & 1) << i;
            }
        }
        let l = 4 * ib + k;
        o[424 + l % 16] |= field(&b[106..110], 4, ib) << (4 * (l / 16));
    }
}

fn iq1_s_r4(k: usize, b: &[u8], o: &mut [u8]) {
    for ib in 0..8 {
        let o = &mut o[24 * ib..];
        for i in 0..4 {
            o[4 * i + k] = b[2 + 4 * ib + i];
        }
        o[16 + 2 * k..][..2].copy_from_slice(&b[34 + 2 * ib..][..2]);
    }
}

fn iq1_m_r4(k: usize, b: &[u8], o: &mut [u8]) {
    for ib in 0..8 {
        let o = &mut o[28 * ib..];
        for i in 0..2 {
            o[8 * i + k] = b[4 * ib + 2 * i];
            o[8 * i + k + 4] = b[4 * ib + 2 * i + 1];
            o[16 + 4 * i + k] = b[32 + 2 * ib + i];
            let s = 2 * ib + i;
            let scales = u16::from_le_bytes([b[48 + s / 4 * 2], b[49 + s / 4 * 2]]);
            let scale = (scales >> (3 * (s % 4)) & 7) as u8;
            o[24 + k] |= (2 * scale + 1) << (4 * i);
        }
    }
}

//! Groups of the types whose values are points of a lattice with signs: `IQ2_XXS`, `IQ2_XS`, `IQ2_S`, `IQ3_XXS` and
//! `IQ3_S`.

use crate::kernel::{Group, IntBlock, Mins, Scales};

/// A super-block of points.
pub(crate) trait Codebook: IntBlock {
    /// The magnitudes of the 32 values of group `g`, in order from the lowest byte of the first word on.
    fn magnitudes(&self, g: usize) -> [u64; 4];

    /// Which of them are negative, from the lowest bit on.
    fn signs(&self, g: usize) -> u32;

    /// The scales of both halves of group `g`.
    fn scales(&self, g: usize) -> [i8; 2];
}

/// Group `g` of a super-block.
pub(crate) fn group<B: Codebook>(block: &B, g: usize) -> Group {
    let mut v = [0; 32];
    for (v, word) in v.as_chunks_mut::<8>().0.iter_mut().zip(block.magnitudes(g)) {
        *v = word.to_le_bytes();
    }
    let signs = block.signs(g);
    for (i, v) in v.iter_mut().enumerate() {
        let offset = B::KIND.offset;
        *v = if signs >> i & 1 == 0 {
            offset + *v
        } else {
            offset - *v
        };
    }
    Group {
        v,
        scales: Scales::Int(block.scales(g)),
        mins: Mins::None,
    }
}

/// Signs of which only seven of each eight are stored, in the low 28 bits: an even number of eight is negative.
#[inline(always)]
pub(crate) fn even_signs(stored: u32) -> u32 {
    let eight = |i: usize| u32::from(EVEN[(stored >> (7 * i)) as usize & 127]) << (8 * i);
    eight(0) | eight(1) | eight(2) | eight(3)
}

static EVEN: [u8; 128] = {
    let mut all = [0; 128];
    let mut i = 0;
    while i < 128 {
        all[i] = i as u8 | (i.count_ones() as u8 & 1) << 7;
        i += 1;
    }
    all
};

/// Two points of four values.
#[inline(always)]
pub(crate) fn two(low: [u8; 4], high: [u8; 4]) -> u64 {
    u64::from(u32::from_le_bytes(low)) | u64::from(u32::from_le_bytes(high)) << 32
}

/// The scale `1 + 2 * four`.
#[inline(always)]
pub(crate) fn odd(four: u8) -> i8 {
    (1 + 2 * (four & 15)) as i8
}

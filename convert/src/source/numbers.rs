//! Stored numbers of all formats, read as f32.

use gguf_blocks::half_bulk::{bf16_slice_to_f32, f16_slice_to_f32};

use super::Dtype;
use crate::Result;
use crate::view::Files;

/// Bytes that a decoder reads at once: small enough for the second cache, large enough for few system calls.
pub(super) const BATCH_BYTES: u64 = 1 << 16;

/// Where a stored tensor's elements are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data {
    /// Index into [`super::Weights::files`].
    pub(crate) file: usize,
    /// Number format.
    pub(crate) dtype: Dtype,
    /// First byte in the file.
    pub(crate) at: u64,
}

impl Data {
    /// Bytes of elements from `first` on, as many as `out` has room for.
    pub(super) fn bytes(&self, files: &Files, first: u64, out: &mut [u8]) -> Result<()> {
        files[self.file].read_at(self.at + first * self.dtype.bytes(), out)?;
        Ok(())
    }

    /// Values of elements from `first` on, as many as `out` has room for. `raw` is room to work in.
    pub(super) fn numbers(
        &self,
        files: &Files,
        first: u64,
        raw: &mut Vec<u8>,
        out: &mut [f32],
    ) -> Result<()> {
        raw.resize(out.len() * self.dtype.bytes() as usize, 0);
        self.bytes(files, first, raw)?;
        decode(self.dtype, raw, out);
        Ok(())
    }

    /// The value of one element.
    pub(super) fn number(&self, files: &Files, i: u64) -> Result<f32> {
        let (mut raw, mut value) = ([0; 8], [0.0]);
        let raw = &mut raw[..self.dtype.bytes() as usize];
        self.bytes(files, i, raw)?;
        decode(self.dtype, raw, &mut value);
        Ok(value[0])
    }

    /// Whole numbers of a format that [`whole_numbers`] takes.
    pub(super) fn whole(&self, files: &Files, first: u64, n: usize) -> Result<Vec<i64>> {
        let size = self.dtype.bytes() as usize;
        let mut raw = vec![0; n * size];
        self.bytes(files, first, &mut raw)?;
        let one = |bytes: &[u8]| {
            // Sign extension: the number's bytes at the top, shifted down.
            let mut wide = [0; 8];
            wide[8 - size..].copy_from_slice(bytes);
            i64::from_le_bytes(wide) >> (64 - 8 * size)
        };
        Ok(raw.chunks_exact(size).map(one).collect())
    }
}

/// Whether a format holds whole numbers with a sign.
pub(super) fn whole_numbers(dtype: Dtype) -> bool {
    matches!(dtype.name, "I8" | "I16" | "I32" | "I64")
}

/// Whether [`Data::numbers`] reads a format.
pub(super) fn is_number(dtype: Dtype) -> bool {
    dtype.format().is_some() || table(dtype).is_some()
}

pub(super) fn decode(dtype: Dtype, raw: &[u8], out: &mut [f32]) {
    if let Some(table) = table(dtype) {
        for (v, &b) in out.iter_mut().zip(raw) {
            *v = table[usize::from(b)];
        }
        return;
    }
    match dtype.name {
        "BF16" => bf16_slice_to_f32(raw.as_chunks().0, out),
        "F16" => f16_slice_to_f32(raw.as_chunks().0, out),
        _ => {
            for (v, &b) in out.iter_mut().zip(raw.as_chunks().0) {
                *v = f32::from_le_bytes(b);
            }
        }
    }
}

/// The values of all bytes of a format of 8 bits that holds numbers.
pub(super) fn table(dtype: Dtype) -> Option<&'static [f32; 256]> {
    match dtype.name {
        "F8_E4M3" => Some(&E4M3),
        "F8_E5M2" => Some(&E5M2),
        "F8_E8M0" => Some(&E8M0),
        "I8" => Some(&I8),
        _ => None,
    }
}

/// 4 bits of exponent with bias 7, 3 of mantissa; no infinity ("fn").
pub(super) static E4M3: [f32; 256] = {
    let mut values = [0.0; 256];
    let mut byte = 0;
    while byte < 256 {
        let is_nan = byte & 0x7f == 0x7f;
        values[byte] = if is_nan { f32::NAN } else { finite(byte, 3, 7) };
        byte += 1;
    }
    values
};

/// 5 bits of exponent with bias 15, 2 of mantissa.
static E5M2: [f32; 256] = {
    let mut values = [0.0; 256];
    let mut byte = 0;
    while byte < 256 {
        values[byte] = match byte & 0x7f {
            0x7c => f32::INFINITY.copysign(finite(byte & 0x80, 2, 15)),
            0x7d.. => f32::NAN,
            _ => finite(byte, 2, 15),
        };
        byte += 1;
    }
    values
};

/// Powers of two: `2^(byte - 127)`; 255 is no number.
pub(super) static E8M0: [f32; 256] = {
    let mut values = [f32::NAN; 256];
    // 2^-127 is below the smallest normal number.
    values[0] = f32::from_bits(1 << 22);
    let mut byte = 1;
    while byte < 255 {
        values[byte] = f32::from_bits((byte as u32) << 23);
        byte += 1;
    }
    values
};

static I8: [f32; 256] = {
    let mut values = [0.0; 256];
    let mut byte = 0;
    while byte < 256 {
        values[byte] = (byte as u8).cast_signed() as f32;
        byte += 1;
    }
    values
};

/// Pairs of four-bit floats (1 sign, 2 exponent, 1 mantissa bit), the first in the low half of the byte. Zero has no
/// sign, as in the GGUF types of these floats.
pub(super) static E2M1_PAIRS: [[f32; 2]; 256] = {
    const VALUES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let mut signed = [0.0; 16];
    let mut code = 1;
    while code < 8 {
        signed[code] = VALUES[code];
        signed[code + 8] = -VALUES[code];
        code += 1;
    }
    let mut pairs = [[0.0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [signed[byte & 15], signed[byte >> 4]];
        byte += 1;
    }
    pairs
};

/// Pairs of whole numbers with a sign, stored with 8 added; the first in the low half of the byte.
pub(super) static INT4_PAIRS: [[f32; 2]; 256] = {
    let mut pairs = [[0.0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [(byte & 15) as f32 - 8.0, (byte >> 4) as f32 - 8.0];
        byte += 1;
    }
    pairs
};

/// Four whole numbers with a sign, stored with 2 added; the first in the lowest bits of the byte.
pub(super) static INT2_QUADS: [[f32; 4]; 256] = {
    let mut quads = [[0.0; 4]; 256];
    let mut i = 0;
    while i < 1024 {
        quads[i / 4][i % 4] = (((i / 4) >> (2 * (i % 4))) & 3) as f32 - 2.0;
        i += 1;
    }
    quads
};

/// Whole numbers with a sign, stored with 128 added.
pub(super) static OFFSET_BYTES: [f32; 256] = {
    let mut values = [0.0; 256];
    let mut byte = 0;
    while byte < 256 {
        values[byte] = byte as f32 - 128.0;
        byte += 1;
    }
    values
};

/// A float of 8 bits, the mantissa in the lowest `mantissa` of them.
const fn finite(byte: usize, mantissa: u32, bias: u32) -> f32 {
    let exponent = (byte as u32 & 0x7f) >> mantissa;
    let fraction = byte as u32 & ((1 << mantissa) - 1);
    let magnitude = if exponent == 0 {
        // Below the smallest normal number: `fraction` steps of 2^(1 - bias - mantissa).
        fraction as f32 * f32::from_bits((128 - bias - mantissa) << 23)
    } else {
        f32::from_bits((exponent + 127 - bias) << 23 | fraction << (23 - mantissa))
    };
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

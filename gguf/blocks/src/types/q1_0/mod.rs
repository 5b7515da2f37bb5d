//! `Q1_0`: 128 signs with one scale. `ik_llama.cpp` calls the same type `Q1_0_G128`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::rows::{self, half};
use crate::{Format, Geometry, TypeId};

/// One block of 128 values.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Q1_0 {
    /// The scale, a half.
    d: [u8; 2],
    /// The bit of element `j` is bit `j % 8` of byte `j / 8`: set for `d`, clear for `-d`.
    qs: [u8; 16],
}

const _: () = assert!(size_of::<Q1_0>() == 18);

/// The type's record.
pub(crate) static FORMAT: Format = Format {
    id: TypeId(41),
    name: "Q1_0",
    geometry: Geometry::blocks(128, size_of::<Q1_0>()),
    decode: Some(decode),
    check,
    doc: "Signs with one scale for 128 values",
    ..Format::MAINLINE
};

fn decode(bytes: &[u8], out: &mut [f32]) {
    rows::decode::<Q1_0, 128>(bytes, out, |b, out| {
        let d = half(b.d);
        for (j, v) in out.iter_mut().enumerate() {
            let set = b.qs[j / 8] >> (j % 8) & 1 == 1;
            *v = if set { d } else { -d };
        }
    });
}

fn check(bytes: &[u8]) -> Option<usize> {
    rows::check::<Q1_0>(bytes, |b| rows::is_finite(b.d))
}

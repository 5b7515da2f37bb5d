//! One folder per tensor type. To add one: make the folder, add its `mod` line and its entry in [`FORMATS`].

mod bf16;
mod f16;
mod f32;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod plain;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod tq1_0;
mod tq2_0;

use crate::Format;

/// The registry, in order of the types' numbers.
pub(crate) static FORMATS: &[&Format] = &[
    &f32::FORMAT,
    &f16::FORMAT,
    &q4_0::FORMAT,
    &q4_1::FORMAT,
    &q5_0::FORMAT,
    &q5_1::FORMAT,
    &q8_0::FORMAT,
    &q2_k::FORMAT,
    &q3_k::FORMAT,
    &q4_k::FORMAT,
    &q5_k::FORMAT,
    &q6_k::FORMAT,
    &iq4_nl::FORMAT,
    &iq4_xs::FORMAT,
    &plain::I8,
    &plain::I16,
    &plain::I32,
    &plain::I64,
    &plain::F64,
    &bf16::FORMAT,
    &tq1_0::FORMAT,
    &tq2_0::FORMAT,
    &mxfp4::FORMAT,
];

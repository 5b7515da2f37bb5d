//! One folder per tensor type. To add one: make the folder, add its `mod` line and its entry in [`FORMATS`].

mod bf16;
mod f16;
mod f32;
mod i2_s;
mod iq1_bn;
mod iq1_kt;
mod iq1_m;
mod iq1_m_r4;
mod iq1_s;
mod iq1_s_r4;
mod iq2_bn;
mod iq2_bn_r4;
mod iq2_k;
mod iq2_k_r4;
mod iq2_kl;
mod iq2_ks;
mod iq2_kt;
mod iq2_s;
mod iq2_s_r4;
mod iq2_xs;
mod iq2_xs_r4;
mod iq2_xxs;
mod iq2_xxs_r4;
mod iq3_k;
mod iq3_k_r4;
mod iq3_ks;
mod iq3_kt;
mod iq3_s;
mod iq3_s_r4;
mod iq3_xxs;
mod iq3_xxs_r4;
mod iq4_k;
mod iq4_k_r4;
mod iq4_ks;
mod iq4_ks_r4;
mod iq4_kss;
mod iq4_kt;
mod iq4_nl;
mod iq4_nl_r4;
mod iq4_xs;
mod iq4_xs_r8;
mod iq5_k;
mod iq5_k_r4;
mod iq5_ks;
mod iq5_ks_r4;
mod iq6_k;
mod mxfp4;
mod mxfp4_r8;
mod nvfp4;
mod plain;
mod q1_0;
mod q2_0;
mod q2_k;
mod q2_k_r4;
mod q3_k;
mod q3_k_r4;
mod q4_0;
mod q4_0_r8;
mod q4_1;
mod q4_k;
mod q4_k_r4;
mod q5_0;
mod q5_0_r4;
mod q5_1;
mod q5_k;
mod q5_k_r4;
mod q6_0;
mod q6_0_r4;
mod q6_k;
mod q6_k_r4;
mod q8_0;
mod q8_0_r8;
mod q8_1;
mod q8_k;
mod q8_k_r16;
mod q8_k_r8;
mod q8_kv;
mod q8_kv_r8;
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
    &q8_1::FORMAT,
    &q2_k::FORMAT,
    &q3_k::FORMAT,
    &q4_k::FORMAT,
    &q5_k::FORMAT,
    &q6_k::FORMAT,
    &q8_k::FORMAT,
    &iq2_xxs::FORMAT,
    &iq2_xs::FORMAT,
    &iq3_xxs::FORMAT,
    &iq1_s::FORMAT,
    &iq4_nl::FORMAT,
    &iq3_s::FORMAT,
    &iq2_s::FORMAT,
    &iq4_xs::FORMAT,
    &plain::I8,
    &plain::I16,
    &plain::I32,
    &plain::I64,
    &plain::F64,
    &iq1_m::FORMAT,
    &bf16::FORMAT,
    &tq1_0::FORMAT,
    &tq2_0::FORMAT,
    &i2_s::FORMAT,
    &mxfp4::FORMAT,
    &nvfp4::FORMAT,
    &q1_0::FORMAT,
    &q2_0::FORMAT,
    &q6_0::FORMAT,
    &iq1_bn::FORMAT,
    &iq2_bn::FORMAT,
    &iq2_k::FORMAT,
    &iq3_k::FORMAT,
    &iq4_k::FORMAT,
    &iq5_k::FORMAT,
    &iq6_k::FORMAT,
    &iq4_ks::FORMAT,
    &iq2_ks::FORMAT,
    &iq4_kss::FORMAT,
    &q8_kv::FORMAT,
    &iq5_ks::FORMAT,
    &iq2_kt::FORMAT,
    &iq3_kt::FORMAT,
    &iq4_kt::FORMAT,
    &iq3_ks::FORMAT,
    &iq2_kl::FORMAT,
    &iq1_kt::FORMAT,
    &q4_0_r8::FORMAT,
    &q5_0_r4::FORMAT,
    &q8_0_r8::FORMAT,
    &q2_k_r4::FORMAT,
    &q3_k_r4::FORMAT,
    &q4_k_r4::FORMAT,
    &q5_k_r4::FORMAT,
    &q6_k_r4::FORMAT,
    &iq2_xxs_r4::FORMAT,
    &iq2_xs_r4::FORMAT,
    &iq3_xxs_r4::FORMAT,
    &iq1_s_r4::FORMAT,
    &iq4_nl_r4::FORMAT,
    &iq3_s_r4::FORMAT,
    &iq2_s_r4::FORMAT,
    &iq4_xs_r8::FORMAT,
    &iq1_m_r4::FORMAT,
    &plain::BF16_R16,
    &q6_0_r4::FORMAT,
    &iq2_bn_r4::FORMAT,
    &iq2_k_r4::FORMAT,
    &iq3_k_r4::FORMAT,
    &iq4_k_r4::FORMAT,
    &iq5_k_r4::FORMAT,
    &iq4_ks_r4::FORMAT,
    &iq5_ks_r4::FORMAT,
    &mxfp4_r8::FORMAT,
    &q8_k_r16::FORMAT,
    &q8_kv_r8::FORMAT,
    &q8_k_r8::FORMAT,
];

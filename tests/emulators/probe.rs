//! Executes one instruction of each x86 extension that the rig is for and checks its result, so
//! that a log shows what the emulated CPU can do. Built by x86.sh with rustc alone.
use std::arch::is_x86_feature_detected as has;
use std::arch::x86_64::*;
use std::process::ExitCode;

#[target_feature(enable = "avx512f,avx512vnni")]
fn vnni() -> f32 {
    let sums = _mm512_dpbusd_epi32(_mm512_set1_epi32(100), _mm512_set1_epi8(3), _mm512_set1_epi8(-2));
    _mm512_reduce_add_epi32(sums) as f32
}

#[target_feature(enable = "avx512f,avx512vbmi")]
fn vbmi() -> f32 {
    let table = _mm512_set_epi64(8, 7, 6, 5, 4, 3, 2 << 8, 1);
    _mm512_reduce_add_epi32(_mm512_permutexvar_epi8(_mm512_set1_epi32(9), table)) as f32
}

#[target_feature(enable = "avx2,avxvnni")]
fn avx_vnni() -> f32 {
    let sums = _mm256_dpbusd_avx_epi32(_mm256_set1_epi32(100), _mm256_set1_epi8(3), _mm256_set1_epi8(-2));
    _mm256_extract_epi32::<5>(sums) as f32
}

#[target_feature(enable = "avx512f,avx512bf16")]
fn bf16() -> f32 {
    // Not vcvtne2ps2bf16: Bochs 3.0 puts its second operand into both halves.
    let halves = [
        _mm512_cvtneps_pbh(_mm512_set1_ps(2.0)),
        _mm512_cvtneps_pbh(_mm512_set1_ps(1.5)),
    ];
    // SAFETY: both sides are 64 bytes in which every bit pattern is a value.
    let pairs = unsafe { std::mem::transmute::<[__m256bh; 2], __m512bh>(halves) };
    _mm512_reduce_add_ps(_mm512_dpbf16_ps(_mm512_set1_ps(1.0), pairs, pairs))
}

fn main() -> ExitCode {
    for (name, found) in [
        ("avx512f", has!("avx512f")),
        ("avx512bw", has!("avx512bw")),
        ("avx512vl", has!("avx512vl")),
        ("avx512dq", has!("avx512dq")),
    ] {
        println!("PROBE {name} {}", if found { "present" } else { "absent" });
    }
    // SAFETY (all four): the function runs only where its own extensions were detected.
    let rows = [
        (
            "avx512vnni vpdpbusd zmm",
            has!("avx512vnni").then(|| unsafe { vnni() }),
            16.0 * (100.0 - 4.0 * 6.0),
        ),
        (
            "avx512vbmi vpermb zmm",
            has!("avx512vbmi").then(|| unsafe { vbmi() }),
            // Byte 9 of the table is 2; bytes 1 to 3 of each index are 0 and pick byte 0, a 1.
            16.0 * f32::from(2u8) + 16.0 * (256.0 + 65_536.0 + 16_777_216.0),
        ),
        (
            "avx-vnni {vex} vpdpbusd ymm",
            has!("avxvnni").then(|| unsafe { avx_vnni() }),
            100.0 - 4.0 * 6.0,
        ),
        (
            "avx512bf16 vdpbf16ps zmm",
            has!("avx512bf16").then(|| unsafe { bf16() }),
            8.0 * (1.0 + 2.0 * 4.0) + 8.0 * (1.0 + 2.0 * 2.25),
        ),
    ];
    let mut right = true;
    for (name, found, expected) in rows {
        match found {
            None => println!("PROBE {name}: absent"),
            Some(value) if value == expected => println!("PROBE {name}: {value}, as expected"),
            Some(value) => {
                right = false;
                println!("PROBE {name}: {value}, expected {expected}");
            }
        }
    }
    if right {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

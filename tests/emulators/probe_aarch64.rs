//! Executes one `sdot` and checks its result, so that a log shows that the emulated CPU has byte
//! dot products. Built by aarch64.sh with rustc alone.
use std::arch::aarch64::*;
use std::arch::asm;
use std::process::ExitCode;

// The intrinsic vdotq_s32 is not stable in Rust 1.96; the instruction is.
#[target_feature(enable = "neon,dotprod")]
fn dot() -> i32 {
    let mut sums = vdupq_n_s32(100);
    // SAFETY: reads and writes registers alone.
    unsafe {
        asm!("sdot {s:v}.4s, {a:v}.16b, {b:v}.16b", s = inout(vreg) sums, a = in(vreg) vdupq_n_s8(3),
            b = in(vreg) vdupq_n_s8(-2), options(pure, nomem, nostack));
    }
    vgetq_lane_s32::<2>(sums)
}

fn main() -> ExitCode {
    if !std::arch::is_aarch64_feature_detected!("dotprod") {
        println!("PROBE dotprod: absent");
        return ExitCode::FAILURE;
    }
    // SAFETY: detected above.
    let value = unsafe { dot() };
    println!("PROBE sdot: {value}, expected {}", 100 - 4 * 6);
    if value == 100 - 4 * 6 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

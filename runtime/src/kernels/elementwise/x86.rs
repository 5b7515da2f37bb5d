//! The loops compiled for AVX2.

#![expect(unsafe_code, reason = "entry into code compiled for AVX2")]

use super::loops;

/// The twin of each loop.
macro_rules! twins {
    ($(fn $name:ident($($arg:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        $(
            pub(super) fn $name($($arg: $kind),*) $(-> $result)? {
                #[target_feature(enable = "avx2")]
                fn with_avx2($($arg: $kind),*) $(-> $result)? {
                    loops::$name($($arg),*)
                }
                // SAFETY: the functions of `elementwise` call this where `Cpu` says that there is AVX2, nothing else does.
                unsafe { with_avx2($($arg),*) }
            }
        )*
    };
}

twins! {
    fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]);
    fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32);
    fn add(acc: &mut [f32], x: &[f32]);
    fn add_scaled(acc: &mut [f32], x: &[f32], factor: f32);
    fn scale(x: &[f32], factor: f32, out: &mut [f32]);
    fn scale_in_place(x: &mut [f32], factor: f32);
    fn silu_mul(gate: &[f32], up: &[f32], out: &mut [f32]);
    fn silu(x: &mut [f32]);
    fn mul_silu(x: &mut [f32], gate: &[f32]);
    fn mul_sigmoid(x: &mut [f32], gate: &[f32]);
    fn dot(a: &[f32], b: &[f32]) -> f32;
    fn softmax(x: &mut [f32]);
    fn sigmoid(x: &mut [f32]);
    fn gelu_mul(gate: &[f32], up: &[f32], out: &mut [f32]);
    fn swiglu_clamped(gate: &[f32], up: &[f32], alpha: f32, limit: f32, out: &mut [f32]);
    fn rotate_halves(low: &mut [f32], high: &mut [f32], cos: &[f32], sin: &[f32]);
    fn rotate_pairs(pairs: &mut [f32], cos: &[f32], sin: &[f32]);
}

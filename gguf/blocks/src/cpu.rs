//! The instruction set level that kernels run at.

use std::sync::OnceLock;

/// An instruction set level. Ordered: a higher level includes the lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Level {
    /// Plain Rust, any CPU.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
}

impl Level {
    /// Every level, lowest first.
    pub const ALL: &'static [Self] = &[Self::Portable, Self::Avx2];

    /// The name that `GGUF_CPU` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
        }
    }
}

/// Proof that this machine can run a level: only [`Cpu::best`] and [`Cpu::at_most`] make one, after
/// detection, so a kernel chosen through it is safe to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    level: Level,
}

impl Cpu {
    /// The highest level of this machine, or the one that the environment variable `GGUF_CPU` names if
    /// that is lower. Detected once.
    pub fn best() -> Self {
        static BEST: OnceLock<Cpu> = OnceLock::new();
        *BEST.get_or_init(|| {
            let wanted = std::env::var("GGUF_CPU").unwrap_or_default();
            let cap = Level::ALL
                .iter()
                .copied()
                .find(|l| l.name() == wanted.to_lowercase());
            Self::at_most(cap.unwrap_or(*Level::ALL.last().unwrap_or(&Level::Portable)))
        })
    }

    /// The highest level that this machine has and that is not above `cap`.
    pub fn at_most(cap: Level) -> Self {
        Self {
            level: cap.min(detect()),
        }
    }

    /// The level this stands for.
    pub fn level(self) -> Level {
        self.level
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
    {
        Level::Avx2
    } else {
        Level::Portable
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Portable
}

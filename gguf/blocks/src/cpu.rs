//! The instruction set level that kernels run at.

use std::ffi::OsStr;
use std::sync::OnceLock;

/// The environment variable that lowers the level.
const VARIABLE: &str = "GGUF_CPU";

/// An instruction set level. Ordered by speed; one processor need not have all that are below its best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Level {
    /// Plain Rust, any CPU.
    Portable,
    /// NEON with dot products of bytes (`dotprod`), 64-bit ARM.
    Neon,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX2 and AVX-VNNI: dot products of bytes in registers of 256 bits.
    AvxVnni,
    /// AVX2 and AVX-512 (F, BW, VL, DQ and VNNI): dot products of bytes in registers of 512 bits.
    Avx512,
}

impl Level {
    /// Every level, lowest first.
    pub const ALL: &'static [Self] = &[
        Self::Portable,
        Self::Neon,
        Self::Avx2,
        Self::AvxVnni,
        Self::Avx512,
    ];

    /// The name that `GGUF_CPU` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avxvnni",
            Self::Avx512 => "avx512",
        }
    }

    /// The level whose code serves where this one has none of its own, which every machine with this one has.
    #[must_use]
    pub fn base(self) -> Self {
        match self {
            Self::Portable | Self::Neon => Self::Portable,
            Self::Avx2 | Self::AvxVnni | Self::Avx512 => Self::Avx2,
        }
    }

    /// The level of this name, in any case of letters.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|level| level.name().eq_ignore_ascii_case(name))
    }

    /// The level that the environment asks for; `None` if it says nothing. Programs refuse an error before they
    /// do anything else.
    ///
    /// # Errors
    /// A name that is no level's.
    pub fn asked_for() -> Result<Option<Self>, UnknownLevel> {
        std::env::var_os(VARIABLE).map_or(Ok(None), |name| asked_for(&name))
    }
}

/// `GGUF_CPU` names no level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{VARIABLE}`: expected {}, found `{found}`", levels())]
pub struct UnknownLevel {
    /// What it says.
    pub found: String,
}

fn levels() -> String {
    let names: Vec<_> = Level::ALL.iter().map(|l| format!("`{}`", l.name())).collect();
    format!("{} or nothing", names.join(", "))
}

fn asked_for(name: &OsStr) -> Result<Option<Level>, UnknownLevel> {
    if name.is_empty() {
        return Ok(None);
    }
    let found = name.to_string_lossy();
    Level::by_name(&found).map(Some).ok_or_else(|| UnknownLevel {
        found: found.into_owned(),
    })
}

/// Proof that this machine can run a level: only [`Cpu::best`] and [`Cpu::at_most`] make one, after
/// detection, so a kernel chosen through it is safe to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    level: Level,
}

impl Cpu {
    /// The highest level of this machine, or the one that the environment variable `GGUF_CPU` names if
    /// that is lower. Detected once. A name that is no level's counts as none here: [`Level::asked_for`] tells.
    pub fn best() -> Self {
        static BEST: OnceLock<Cpu> = OnceLock::new();
        *BEST.get_or_init(|| {
            let cap = Level::asked_for().ok().flatten();
            Self::at_most(cap.unwrap_or(*Level::ALL.last().unwrap_or(&Level::Portable)))
        })
    }

    /// The highest level that this machine has and that is not above `cap`.
    pub fn at_most(cap: Level) -> Self {
        let mut levels = Level::ALL.iter().rev().copied();
        let level = levels.find(|&level| level <= cap && detected(level));
        Self {
            level: level.unwrap_or(Level::Portable),
        }
    }

    /// Every level that this machine has, lowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        let levels = Level::ALL.iter().copied();
        levels
            .filter(|&level| detected(level))
            .map(|level| Self { level })
    }

    /// The level this stands for.
    pub fn level(self) -> Level {
        self.level
    }
}

#[cfg(target_arch = "x86_64")]
fn detected(level: Level) -> bool {
    let avx2 = || {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
    };
    match level {
        Level::Portable => true,
        Level::Neon => false,
        Level::Avx2 => avx2(),
        Level::AvxVnni => avx2() && is_x86_feature_detected!("avxvnni"),
        Level::Avx512 => {
            avx2()
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vnni")
        }
    }
}

#[cfg(target_arch = "aarch64")]
fn detected(level: Level) -> bool {
    match level {
        Level::Portable => true,
        Level::Neon => std::arch::is_aarch64_feature_detected!("dotprod"),
        Level::Avx2 | Level::AvxVnni | Level::Avx512 => false,
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detected(level: Level) -> bool {
    level == Level::Portable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_go_by_their_names() {
        let asked = |name: &str| asked_for(OsStr::new(name));
        assert_eq!(asked("portable"), Ok(Some(Level::Portable)));
        assert_eq!(asked("AVX2"), Ok(Some(Level::Avx2)));
        assert_eq!(asked(""), Ok(None));
        for wrong in ["foo", "avx", "avx2 "] {
            let text = asked(wrong).expect_err(wrong).to_string();
            let levels = "`portable`, `neon`, `avx2`, `avxvnni`, `avx512`";
            let expected = format!("`GGUF_CPU`: expected {levels} or nothing, found `{wrong}`");
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn no_level_is_handed_out_that_the_machine_lacks() {
        let available: Vec<Level> = Cpu::available().map(Cpu::level).collect();
        assert!(available.is_sorted() && available.first() == Some(&Level::Portable));
        for &cap in Level::ALL {
            let level = Cpu::at_most(cap).level();
            assert!(level <= cap && available.contains(&level), "{cap:?} {level:?}");
            assert!(
                available.contains(&level.base()),
                "{level:?} needs {:?}",
                level.base()
            );
        }
    }
}

//! The instruction set level that kernels run at.

use std::ffi::OsStr;
use std::sync::OnceLock;

/// The environment variable that lowers the level.
const VARIABLE: &str = "GGUF_CPU";

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
            let expected = format!("`GGUF_CPU`: expected `portable`, `avx2` or nothing, found `{wrong}`");
            assert_eq!(text, expected);
        }
    }
}

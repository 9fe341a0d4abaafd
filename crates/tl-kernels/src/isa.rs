//! Which instructions the kernels use. A choice of speed only: the bits are the same.

use std::fmt;

use crate::guard::{self, Detected};
#[cfg(test)]
use crate::simd::faulty::Faulty;
use crate::simd::portable::Portable;
#[cfg(target_arch = "x86_64")]
use crate::simd::{avx2::Avx2, avx512::Avx512};

/// An instruction set with kernels of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust: every target, slow where fused multiply-add is a library call.
    Portable,
    /// AVX2 with FMA and F16C (x86-64-v3).
    Avx2,
    /// AVX-512F.
    Avx512,
}

impl Isa {
    pub(crate) const ALL: [Isa; 3] = [Isa::Portable, Isa::Avx2, Isa::Avx512];

    /// The fastest that this CPU has and that gives the bits of portable code, and why nothing
    /// faster. The first call of a process compares them, for some milliseconds.
    pub fn detect() -> &'static Detected {
        guard::detected()
    }

    /// All that this CPU has, the slowest first.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    pub fn is_available(self) -> bool {
        Token::new(self).is_some()
    }

    /// The set called `name` in configuration: `portable`, `avx2` or `avx512`.
    pub fn from_name(name: &str) -> Option<Isa> {
        Isa::ALL.into_iter().find(|isa| isa.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An [`Isa`] with the proof that the CPU has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Token {
    Portable(Portable),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(test)]
    Faulty(Faulty),
}

impl Token {
    pub(crate) fn new(isa: Isa) -> Option<Token> {
        match isa {
            Isa::Portable => Some(Token::Portable(Portable)),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Avx2::detect().map(Token::Avx2),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Avx512::detect().map(Token::Avx512),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => None,
        }
    }

    pub(crate) fn isa(self) -> Isa {
        match self {
            Token::Portable(_) => Isa::Portable,
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(_) => Isa::Avx2,
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(_) => Isa::Avx512,
            #[cfg(test)]
            Token::Faulty(s) => s.isa,
        }
    }
}

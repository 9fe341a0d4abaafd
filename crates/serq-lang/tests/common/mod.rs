//! What several test targets share: the examples, and a small random number generator.

#![allow(dead_code, reason = "each target uses some of it")]

pub(crate) mod hostile;

use std::path::{Path, PathBuf};

use serq_lang::compile;
use serq_lang::diag::render_all;
use serq_lang::ir::Program;

/// Seed of every random test, so that a failure comes back.
pub(crate) const MUTATED_SEED: u64 = 20_250_712;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// Name and text of every program in `examples/` and of one with what they do not use, by name.
pub(crate) fn examples() -> Vec<(String, String)> {
    let mut list: Vec<_> = std::fs::read_dir(folder())
        .expect("examples")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "sq"))
        .map(|p| {
            let name = p.file_name().expect("a file").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&p).expect("a text"))
        })
        .collect();
    list.push(("scheduler.sq".to_owned(), include_str!("scheduler.sq").to_owned()));
    list.sort();
    assert!(list.len() >= 8, "{} examples", list.len());
    list
}

/// A program that must link.
pub(crate) fn linked(name: &str, text: &str) -> Program {
    let compiled = compile(name, text.as_bytes(), &[]);
    let shown = render_all(&compiled.diagnostics, &compiled.sources);
    compiled.program.unwrap_or_else(|| panic!("{name} does not link:\n{shown}"))
}

pub(crate) fn without_spans(mut program: Program) -> Program {
    program.spans = None;
    program
}

/// SplitMix64: enough for choosing mutations, and the same everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is positive.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

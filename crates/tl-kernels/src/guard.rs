//! The choice of the instructions: the fastest that the CPU has and that compute the right bits.
//!
//! Equal bits on every instruction set are a promise between engines, and a wrong one is silent:
//! another token, much later. A CPU, a hypervisor or a compiler nobody tested here could break
//! it. So the first use of the kernels runs a battery of all of them, some milliseconds long, and
//! takes only instructions that give the bits of portable code.

use std::fmt;
use std::sync::OnceLock;

use crate::attention::{AttnScratch, AttnShape};
use crate::isa::{Isa, Token};
use crate::kernels::Kernels;
use crate::quant::Quant;
use crate::simd::portable::Portable;
use crate::threads::Threads;
use crate::weights::Weights;

/// What was chosen, and why nothing faster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detected {
    /// The instructions to use.
    pub isa: Isa,
    /// The faster ones that are not used, the fastest first.
    pub refused: Vec<(Isa, Refusal)>,
}

/// Why instructions are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The CPU or the operating system does not offer them.
    Absent,
    /// This kernel gave other bits than portable code: a fault of the machine or of this crate.
    Differs { kernel: &'static str },
}

impl Detected {
    /// The instructions that the CPU has and that nevertheless are not used: worth a warning.
    pub fn faulty(&self) -> impl Iterator<Item = (Isa, &'static str)> + '_ {
        self.refused.iter().filter_map(|&(isa, why)| match why {
            Refusal::Absent => None,
            Refusal::Differs { kernel } => Some((isa, kernel)),
        })
    }
}

impl fmt::Display for Detected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.isa)?;
        for (isa, why) in &self.refused {
            match why {
                Refusal::Absent => write!(f, "; no {isa} here")?,
                Refusal::Differs { kernel } => {
                    write!(f, "; not {isa}, whose {kernel} differs from portable code")?;
                }
            }
        }
        Ok(())
    }
}

/// The choice for this process, made once.
pub(crate) fn detected() -> &'static Detected {
    static DETECTED: OnceLock<Detected> = OnceLock::new();
    DETECTED.get_or_init(|| choose(Isa::ALL.into_iter().rev().map(|isa| (isa, Token::new(isa)))))
}

/// The first candidate that is there and passes the battery, else portable code.
fn choose(candidates: impl Iterator<Item = (Isa, Option<Token>)>) -> Detected {
    let mut refused = Vec::new();
    let mut expected = None;
    for (isa, token) in candidates {
        let Some(token) = token else {
            refused.push((isa, Refusal::Absent));
            continue;
        };
        if let Token::Portable(_) = token {
            break;
        }
        let expected =
            expected.get_or_insert_with(|| battery(Kernels::of(Token::Portable(Portable))));
        let found = battery(Kernels::of(token));
        let differs = expected.iter().zip(&found).find(|(a, b)| a != b);
        let Some(((kernel, _), _)) = differs else { return Detected { isa, refused } };
        refused.push((isa, Refusal::Differs { kernel }));
    }
    Detected { isa: Isa::Portable, refused }
}

/// The results of all kernels that have code for instruction sets, as bits.
type Results = Vec<(&'static str, Vec<u32>)>;

/// Sizes around whole vectors; tiles of every size, with the rests that follow them.
const LENGTHS: [usize; 6] = [64, 1, 15, 16, 17, 37];
const ROWS: [usize; 9] = [1, 2, 3, 4, 5, 6, 7, 13, 15];
const COLUMNS: [usize; 2] = [5, 7];
/// Columns summed over by products of many rows in several chunks.
const LONG: usize = 2000;

fn battery(kernels: Kernels) -> Results {
    let mut results = Results::new();
    let mut numbers = Numbers(1);
    rows(kernels, &mut numbers, &mut results);
    conversions(kernels, &mut numbers, &mut results);
    products(kernels, &mut numbers, &mut results);
    attention(kernels, &mut numbers, &mut results);
    results
}

fn rows(kernels: Kernels, numbers: &mut Numbers, results: &mut Results) {
    let mut add = |name, out: &[f32]| results.push((name, bits(out)));
    for n in LENGTHS {
        let (x, y) = (numbers.f32s(n, 12.0), numbers.f32s(n, 1.0));
        let mut out = vec![0.0; n];
        // One sum may come out right by luck.
        for _ in 0..8 {
            let (x, y) = (numbers.f32s(n, 12.0), numbers.f32s(n, 1.0));
            let (a, b) = cancelling(&x, &y);
            add("dot", &[kernels.dot(&x, &y), kernels.dot(&a, &b)]);
        }
        let mut holed = x.clone();
        // In the lane that the tree takes last, where it would win if it were not ignored.
        holed.iter_mut().skip(15).step_by(16).for_each(|x| *x = f32::NAN);
        add("max", &[kernels.max(&x)]);
        add("max", &[kernels.max(&holed)]);
        kernels.rmsnorm(&mut out, &x, &y, 1e-5);
        add("rmsnorm", &out);
        kernels.silu_mul(&x, &y, &mut out);
        add("silu_mul", &out);
        out.copy_from_slice(&x);
        kernels.softmax(&mut out);
        add("softmax", &out);
    }
    for lane in 0..16 {
        let mut x = numbers.f32s(16, 1.0);
        x[lane] += 3.0;
        add("max", &[kernels.max(&x)]);
    }
    let mut x = numbers.f32s(100, 95.0);
    x.extend(EDGES);
    kernels.exp(&mut x);
    add("exp", &x);
}

/// Two rows whose dot product is rounding errors alone: each product of a lane is followed by its
/// negative.
fn cancelling(x: &[f32], y: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let (mut x, mut y) = (x.to_vec(), y.to_vec());
    for i in (0..x.len()).filter(|i| i / 16 % 2 == 1) {
        (x[i], y[i]) = (x[i - 16], -y[i - 16]);
    }
    (x, y)
}

/// Where conversions and the exponential have cases: signs of zero, subnormals, ties, the largest
/// half and what lies around it, infinities, no number.
const EDGES: [f32; 20] = [
    0.0,
    -0.0,
    1e-40,
    2.980_232_2e-8,
    2.980_233e-8,
    -6.1e-5,
    3.0e-6,
    1.000_488_3,
    1.001_464_8,
    65504.0,
    65519.996,
    65520.0,
    -1e30,
    88.72,
    89.0,
    -86.0,
    -86.001,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

fn conversions(kernels: Kernels, numbers: &mut Numbers, results: &mut Results) {
    let mut x = numbers.f32s(37, 100.0);
    x.extend(numbers.f32s(40, 1e-5));
    x.extend(EDGES);
    let mut halves = vec![0; x.len()];
    kernels.f32_to_f16(&x, &mut halves);
    // The largest lanes first, so that the tail of the row differs too.
    halves.extend((0..=u16::MAX).rev().step_by(619));
    results.push(("f32_to_f16", halves.iter().map(|&h| h.into()).collect()));
    let mut wide = vec![0.0; halves.len()];
    kernels.f16_to_f32(&halves, &mut wide);
    results.push(("f16_to_f32", bits(&wide)));
}

fn products(kernels: Kernels, numbers: &mut Numbers, results: &mut Results) {
    let team = Threads::new(1);
    for n in COLUMNS {
        let blocks = |quant: Quant, numbers: &mut Numbers| {
            let fill = |_: usize, row: &mut [u8]| numbers.blocks(quant, row);
            Weights::build_quant(n, 96, quant, fill).ok()
        };
        let weights = [
            ("f32 product", Weights::from_f32(n, 37, numbers.f32s(n * 37, 1.0)).ok()),
            ("f16 product", Weights::from_f16(n, 37, numbers.f16s(n * 37)).ok()),
            ("Q4_0 product", blocks(Quant::Q4_0, numbers)),
            ("Q4_1 product", blocks(Quant::Q4_1, numbers)),
            ("Q8_0 product", blocks(Quant::Q8_0, numbers)),
        ];
        for (name, w) in weights {
            let w = w.expect("n * k elements, whole blocks");
            for m in ROWS {
                let act = numbers.f32s(m * w.k(), 1.0);
                let mut out = vec![0.0; m * n];
                kernels.matmul(&team, &mut out, &act, &w, m);
                results.push((name, bits(&out)));
            }
        }
    }
    let (m, n) = (13, 3);
    let w = Weights::from_f16(n, LONG, numbers.f16s(n * LONG)).expect("n * k elements");
    let act = numbers.f32s(m * LONG, 1.0);
    let mut out = vec![0.0; m * n];
    kernels.matmul(&team, &mut out, &act, &w, m);
    results.push(("product in chunks", bits(&out)));
}

/// Query heads, KV heads, head dimension, rows: a few queries read in place, many that gather,
/// heads that are no whole vectors.
const HEADS: [(usize, usize, usize, usize); 4] =
    [(7, 1, 112, 1), (2, 1, 20, 3), (6, 2, 112, 5), (2, 2, 16, 3)];

fn attention(kernels: Kernels, numbers: &mut Numbers, results: &mut Results) {
    let (team, mut scratch) = (Threads::new(1), AttnScratch::new());
    let (block_tokens, start) = (5, 9);
    for (n_heads, n_kv_heads, head_dim, rows) in HEADS {
        let shape = AttnShape { n_heads, n_kv_heads, head_dim, block_tokens };
        let block = n_kv_heads * block_tokens * head_dim;
        let n_blocks = (start + rows).div_ceil(block_tokens);
        let halves = numbers.f16s(2 * n_blocks * block);
        let singles = numbers.f32s(2 * n_blocks * block, 1.0);
        let q = numbers.f32s(rows * n_heads * head_dim, 4.0);
        let mut out = vec![0.0; q.len()];
        let (k, v): (Vec<_>, Vec<_>) =
            halves.chunks_exact(2 * block).map(|kv| kv.split_at(block)).unzip();
        kernels.attention(&team, &mut out, &q, &k, &v, start, rows, shape, 0.25, &mut scratch);
        results.push(("attention", bits(&out)));
        let (k, v): (Vec<_>, Vec<_>) =
            singles.chunks_exact(2 * block).map(|kv| kv.split_at(block)).unzip();
        kernels.attention_f32(&team, &mut out, &q, &k, &v, start, rows, shape, 0.25, &mut scratch);
        results.push(("attention_f32", bits(&out)));
    }
}

/// Any NaN is one: payloads may differ.
fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

/// A fixed stream of numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 32
    }

    /// With full mantissas, in `-scale..scale`.
    fn f32(&mut self, scale: f32) -> f32 {
        (self.next() as f32 / (1u64 << 31) as f32 - 1.0) * scale
    }

    fn f32s(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.f32(scale)).collect()
    }

    fn f16s(&mut self, n: usize) -> Vec<u16> {
        (0..n).map(|_| crate::f32_to_f16(self.f32(1.0))).collect()
    }

    /// Blocks of any nibbles or bytes, with scales below one.
    fn blocks(&mut self, quant: Quant, row: &mut [u8]) {
        for block in row.chunks_exact_mut(quant.block_bytes()) {
            block.fill_with(|| self.next() as u8);
            let scales = if quant == Quant::Q4_1 { 2 } else { 1 };
            for scale in block.chunks_exact_mut(2).take(scales) {
                scale.copy_from_slice(&crate::f32_to_f16(self.f32(1.0)).to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! The arithmetic of a forward pass on a CPU, with one order of arithmetic.
//!
//! A request may be prefilled on one engine and decoded on another, in chunks, beside
//! other requests, on other hardware. Its tokens must not depend on any of that, and
//! comparing with a tolerance cannot show that they do not: a near tie between two
//! logits flips. So every kernel here promises bits, not closeness:
//!
//! - A dot product is sixteen f32 lanes: lane `l` sums the products of the elements
//!   `l, l + 16, ..` in that order with fused multiply-add, the tail padded with zeros.
//!   Then lane `l` takes lane `l + 8`, `l + 4`, `l + 2`, `l + 1`.
//! - `exp` (and silu, softmax) is one polynomial in plain IEEE operations.
//! - Weights are halves, singles or the blocks of a checkpoint; blocks count as what they
//!   expand to in f32 ([`Quant`]).
//! - Keys and values are halves, the ones of the current chunk too, and attention is
//!   defined by positions alone (see [`Kernels::attention`]).
//! - Work is split over outputs, never over a sum.
//!
//! AVX-512, AVX2 and portable code are one generic source, so the bits agree by
//! construction, and the tests compare them over odd sizes, batches, chunks, block sizes
//! and thread counts. A machine on which they do not agree uses the next slower instructions
//! ([`Isa::detect`]). Flush-to-zero is never turned on. A NaN is a NaN everywhere; its
//! payload is the one thing that may differ.
//!
//! All `unsafe` of the workspace is in this crate.

mod attention;
mod dispatch;
mod f16;
mod guard;
mod isa;
mod kernels;
mod matmul;
mod panel;
mod quant;
mod rows;
mod simd;
mod threads;
mod tiles;
mod weights;

pub use attention::{AttnJob, AttnScratch, AttnShape};
pub use f16::{f16_to_f32, f32_to_f16};
pub use guard::{Detected, Refusal};
pub use isa::Isa;
pub use kernels::Kernels;
pub use quant::Quant;
pub use threads::Threads;
pub use weights::{Weights, WeightsError};

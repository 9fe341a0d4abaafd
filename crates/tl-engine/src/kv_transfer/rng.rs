//! Where the decode side's generator starts.

use crate::sample::{PURPOSE_SAMPLE, Pcg32, stream};

/// The request's sampling generator after `draws` uniforms were taken from it.
///
/// The prefill side draws once for a sampled first token and not at all for a greedy
/// one; from here on the decode side draws what one engine would have drawn.
pub fn resume_rng(seed: u64, draws: u32) -> Pcg32 {
    let mut rng = stream(seed, PURPOSE_SAMPLE);
    rng.advance_uniforms(u64::from(draws));
    rng
}

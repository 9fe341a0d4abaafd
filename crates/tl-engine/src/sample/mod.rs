//! From logits to one token, and the generator that decides.
//!
//! `contracts/spec/sampling.md` fixes the order of every step and of every sum,
//! `contracts/spec/pcg32.md` the generator: two engines that are given the same
//! logits, history, parameters and generator choose the same token, which is what
//! lets one engine go on where another stopped. The usual shortcuts (f32 sums in
//! whatever order, the platform's `exp`, a second draw when the first is unlucky)
//! would each break that.
//!
//! * [`Pcg32`], [`stream`]: the generator of a request. A sampled token takes
//!   exactly one uniform, a greedy one takes none; [`Pcg32::advance_uniforms`] skips
//!   what another engine has drawn.
//! * [`SamplingParams`], [`History`]: what the choice depends on.
//! * [`Sampler`]: the work space, one per step loop. [`Sampler::score`] applies the
//!   penalties; the [`Scored`] position it returns draws the token and reports
//!   logprobs. Cost is linear in the vocabulary, plus the sorting of the ids that
//!   top-p keeps.

mod error;
mod history;
mod math;
mod params;
mod rank;
mod rng;
mod sampler;
#[cfg(test)]
mod tests;

pub use error::SampleError;
pub use history::History;
pub use params::SamplingParams;
pub use rng::{
    PURPOSE_CHOICE, PURPOSE_DROPOUT, PURPOSE_INIT, PURPOSE_MUTATION, PURPOSE_SAMPLE,
    PURPOSE_SHUFFLE, Pcg32, child_seed, choice_seed, mix64, stream,
};
pub use sampler::{Sampled, Sampler, Scored};

/// Chooses one token with a work space of its own. A loop keeps a [`Sampler`].
///
/// # Errors
/// As [`Sampler::score`] and [`Scored::sample`].
pub fn sample(
    logits: &[f32],
    params: &SamplingParams,
    history: &History,
    rng: &mut Pcg32,
) -> Result<Sampled, SampleError> {
    Sampler::new().score(logits, params, history)?.sample(rng)
}

/// The `n` most likely tokens before temperature and filters, as
/// [`Scored::top_logprobs`] reports them, with a work space of its own.
///
/// # Errors
/// As [`Sampler::score`].
pub fn top_logprobs(
    logits: &[f32],
    params: &SamplingParams,
    history: &History,
    n: usize,
) -> Result<Vec<(u32, f64)>, SampleError> {
    Ok(Sampler::new().score(logits, params, history)?.top_logprobs(n))
}

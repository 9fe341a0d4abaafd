//! Sampling parameters as the gateway sends them.

use tl_engine::sample::SamplingParams;
use tl_proto::engine::v1 as pb;
use tonic::Status;

/// Most alternatives that can be reported with a token.
pub(super) const MAX_LOGPROBS: i32 = 20;

/// Parameters, seed and token limit of a request.
///
/// A `top_p` or `repetition_penalty` of 0, which no sender means, is "off": a peer
/// that leaves them out sends 0. INVALID_ARGUMENT for a value out of range and for
/// `max_new_tokens` below 1, so also for a request without parameters.
pub fn sampling_from_proto(
    p: Option<&pb::SamplingParams>,
) -> Result<(SamplingParams, u64, usize), Status> {
    let absent = pb::SamplingParams::default();
    let p = p.unwrap_or(&absent);
    let off_at_zero = |x: f32| if x == 0.0 { 1.0 } else { f64::from(x) };
    let params = SamplingParams {
        temperature: f64::from(p.temperature),
        top_p: off_at_zero(p.top_p),
        top_k: p.top_k,
        min_p: f64::from(p.min_p),
        repetition_penalty: off_at_zero(p.repetition_penalty),
        presence_penalty: f64::from(p.presence_penalty),
        frequency_penalty: f64::from(p.frequency_penalty),
    };
    params.validate().map_err(|e| Status::invalid_argument(format!("sampling: {e}")))?;
    let max_new_tokens = usize::try_from(p.max_new_tokens).ok().filter(|&n| n >= 1);
    let Some(max_new_tokens) = max_new_tokens else {
        return Err(Status::invalid_argument(format!(
            "sampling: max_new_tokens is {}, must be at least 1",
            p.max_new_tokens
        )));
    };
    if !(0..=MAX_LOGPROBS).contains(&p.logprobs) {
        return Err(Status::invalid_argument(format!(
            "sampling: logprobs is {}, must be from 0 to {MAX_LOGPROBS}",
            p.logprobs
        )));
    }
    Ok((params, p.seed, max_new_tokens))
}

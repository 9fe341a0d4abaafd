//! The sampler, in the order of `contracts/spec/sampling.md`.
//!
//! The specification takes a softmax after each filter. The most likely token passes
//! every filter, so that all of them subtract the same maximum: each exponential is
//! computed once and only the sums are taken anew.

use super::math::{exp, exp_sum, ln};
use super::rank::{Cut, Ranking};
use super::{History, Pcg32, SampleError, SamplingParams};

/// The work space of the sampler, to be used again for every token.
#[derive(Debug, Default)]
pub struct Sampler {
    /// Penalized logits.
    logits: Vec<f64>,
    /// Their exponentials after subtraction of the maximum.
    weights: Vec<f64>,
    /// The same after division by the temperature.
    scaled: Vec<f64>,
    /// Ids that passed the filters so far, ascending, with their weights.
    kept: Vec<(u32, f64)>,
    ranking: Ranking,
}

/// One chosen token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampled {
    /// Its id.
    pub token: u32,
    /// Natural logarithm of its probability after the penalties and before
    /// temperature and filters.
    pub logprob: f64,
    /// Uniforms taken from the generator: 0 when greedy, else 1.
    pub draws: u32,
}

/// A position whose logits have had their penalties.
#[derive(Debug)]
pub struct Scored<'a> {
    work: &'a mut Sampler,
    params: SamplingParams,
    max: f64,
    /// Sum of `work.weights` and its logarithm.
    total: f64,
    ln_total: f64,
}

impl Sampler {
    /// An empty work space; it grows to a few times the vocabulary with its first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies the penalties of `history` to `logits`, one per token id. Ids of the
    /// history beyond the vocabulary do not count.
    ///
    /// # Errors
    /// [`SampleError::Range`] for parameters out of range; [`SampleError::NanLogits`],
    /// [`SampleError::InfiniteLogits`] and [`SampleError::FullyMasked`] for logits that
    /// leave no choice; [`SampleError::Overflow`].
    pub fn score(
        &mut self,
        logits: &[f32],
        params: &SamplingParams,
        history: &History,
    ) -> Result<Scored<'_>, SampleError> {
        params.validate()?;
        self.logits.clear();
        self.logits.extend(logits.iter().map(|&x| f64::from(x)));
        if !logits.iter().fold(true, |ok, &x| ok & (x < f32::INFINITY)) {
            return Err(bad_logit(logits));
        }
        self.penalize(params, history)?;
        let max = maximum(&self.logits);
        if max == f64::NEG_INFINITY {
            return Err(SampleError::FullyMasked { vocab: logits.len() });
        }
        let total = exp_sum(&self.logits, |l| l - max, &mut self.weights);
        Ok(Scored { work: self, params: *params, max, total, ln_total: ln(total) })
    }

    /// Steps 2 and 3.
    fn penalize(&mut self, params: &SamplingParams, history: &History) -> Result<(), SampleError> {
        let repetition = params.repetition_penalty;
        let (presence, frequency) = (params.presence_penalty, params.frequency_penalty);
        if repetition == 1.0 && presence == 0.0 && frequency == 0.0 {
            return Ok(());
        }
        for (id, count) in history.iter() {
            let Some(l) = self.logits.get_mut(id as usize) else { break };
            if repetition != 1.0 {
                *l = if *l > 0.0 { *l / repetition } else { *l * repetition };
            }
            if count > 0 {
                *l -= frequency * f64::from(count);
                *l -= presence;
            }
            // Neither a number beyond the largest nor a difference of infinities.
            if l.is_nan() || *l == f64::INFINITY {
                return Err(SampleError::Overflow { temperature: params.temperature });
            }
        }
        Ok(())
    }
}

impl Scored<'_> {
    /// The reported logprob of a token; minus infinity for one that is masked or not
    /// in the vocabulary.
    pub fn logprob(&self, token: u32) -> f64 {
        let l = self.work.logits.get(token as usize).copied().unwrap_or(f64::NEG_INFINITY);
        self.reported(l)
    }

    fn reported(&self, logit: f64) -> f64 {
        (logit - self.max) - self.ln_total
    }

    /// The `n` most likely tokens with their reported logprobs, most likely first, ties
    /// by id. Fewer when the rest is masked.
    pub fn top_logprobs(&mut self, n: usize) -> Vec<(u32, f64)> {
        let (max, ln_total) = (self.max, self.ln_total);
        let Sampler { logits, ranking, .. } = &mut *self.work;
        let reported = |l: f64| (l - max) - ln_total;
        ranking.first(logits, n, reported);
        ranking.order().iter().map(|&id| (id, reported(logits[id as usize]))).collect()
    }

    /// Chooses the token: steps 4 to 11. Takes one uniform from `rng`, none at
    /// temperature 0.
    ///
    /// # Errors
    /// [`SampleError::Overflow`] when the temperature is so near 0 that the logits
    /// leave the numbers; nothing is drawn then.
    pub fn sample(&mut self, rng: &mut Pcg32) -> Result<Sampled, SampleError> {
        if self.params.temperature == 0.0 {
            let best = self.work.logits.iter().position(|&l| l == self.max);
            // The maximum is one of the logits.
            return Ok(self.sampled(best.unwrap_or(0) as u32, 0));
        }
        if !(self.max / self.params.temperature).is_finite() {
            return Err(SampleError::Overflow { temperature: self.params.temperature });
        }
        let token = if self.filter() {
            let total = sum(self.work.kept.iter().map(|&(_, w)| w));
            let kept = self.work.kept.iter().copied();
            choose(kept, total, rng.uniform_f64())
        } else {
            let (weights, total) = self.scaled_weights();
            choose((0..).zip(weights.iter().copied()), total, rng.uniform_f64())
        };
        Ok(self.sampled(token, 1))
    }

    fn sampled(&self, token: u32, draws: u32) -> Sampled {
        Sampled { token, logprob: self.logprob(token), draws }
    }

    /// Step 5 for every id: the weights at the request's temperature, and their sum.
    fn scaled_weights(&mut self) -> (&[f64], f64) {
        let temperature = self.params.temperature;
        let Sampler { logits, weights, scaled, .. } = &mut *self.work;
        if temperature == 1.0 {
            return (weights, self.total);
        }
        let max = self.max / temperature;
        let total = exp_sum(logits, |l| l / temperature - max, scaled);
        (scaled, total)
    }

    /// Steps 5 to 8: leaves in `work.kept` the ids that pass, ascending. False when
    /// every filter is off; then `work.kept` is not touched.
    fn filter(&mut self) -> bool {
        let SamplingParams { top_k, top_p, min_p, .. } = self.params;
        let top_k = usize::try_from(top_k).unwrap_or(0);
        if 0 < top_k && top_k < self.work.logits.len() {
            self.keep_first(top_k);
        } else if top_p < 1.0 {
            self.keep_mass(top_p);
        } else if min_p > 0.0 {
            self.scaled_weights();
            let Sampler { weights, scaled, kept, .. } = &mut *self.work;
            let weights = if self.params.temperature == 1.0 { weights } else { scaled };
            kept.clear();
            // A weight of 0 is masked, or so small that no sum notices it.
            kept.extend((0..).zip(weights.iter().copied()).filter(|&(_, w)| w > 0.0));
        } else {
            return false;
        }
        if min_p > 0.0 {
            let kept = &mut self.work.kept;
            let total = sum(kept.iter().map(|&(_, w)| w));
            // The largest weight is that of the maximum, which is 1.
            let least = min_p * (1.0 / total);
            kept.retain(|&(_, w)| w / total >= least);
        }
        true
    }

    /// Step 6, and step 7 on what it keeps.
    fn keep_first(&mut self, k: usize) {
        let SamplingParams { temperature, top_p, .. } = self.params;
        let max = self.max / temperature;
        let scale = |l: f64| l / temperature;
        let Sampler { logits, scaled, ranking, kept, .. } = &mut *self.work;
        ranking.first(logits, k, scale);
        scaled.resize(logits.len(), 0.0);
        for &id in ranking.order() {
            let at = id as usize;
            scaled[at] = exp(scale(logits[at]) - max);
        }
        keep(ranking.cut_after(ranking.order().len()), logits, scaled, scale, kept);
        if top_p < 1.0 {
            let total = sum(kept.iter().map(|&(_, w)| w));
            if let Some(n) = ranking.reaching(top_p, scaled, total) {
                keep(ranking.cut_after(n), logits, scaled, scale, kept);
            }
        }
    }

    /// Step 7 over the whole vocabulary.
    fn keep_mass(&mut self, top_p: f64) {
        let temperature = self.params.temperature;
        let scale = |l: f64| l / temperature;
        let total = self.scaled_weights().1;
        let Sampler { logits, weights, scaled, ranking, kept } = &mut *self.work;
        let weights = if temperature == 1.0 { weights } else { scaled };
        let cut = ranking.reach(logits, weights, total, top_p, scale);
        keep(cut, logits, weights, scale, kept);
    }
}

/// Fills `kept` with the ids up to a cut of the order, ascending, and their weights.
fn keep(
    cut: Option<Cut>,
    logits: &[f64],
    weights: &[f64],
    scale: impl Fn(f64) -> f64,
    kept: &mut Vec<(u32, f64)>,
) {
    kept.clear();
    let Some(Cut { last, count }) = cut else { return };
    // Ids that rank no later than the last: a pass costs less than sorting them. Logits
    // beyond rounding below or above the last one's need no division.
    let least = logits[last as usize];
    let doubt = least.abs() * 1e-12 + f64::MIN_POSITIVE;
    let (value, near, above) = (scale(least), least - doubt, least + doubt);
    kept.reserve(count);
    for (id, (&l, &weight)) in (0..).zip(logits.iter().zip(weights)) {
        let stays = l > above
            || (l >= near && {
                let x = scale(l);
                x > value || (x == value && id <= last)
            });
        if stays {
            kept.push((id, weight));
        }
    }
    debug_assert_eq!(kept.len(), count);
}

/// Steps 9 to 11: the first id whose cumulative probability exceeds `u`. When rounding
/// leaves none, the last id with any probability.
pub(super) fn choose(kept: impl Iterator<Item = (u32, f64)>, total: f64, u: f64) -> u32 {
    let (mut cumulative, mut last) = (0.0, 0);
    for (id, weight) in kept {
        let q = weight / total;
        cumulative += q;
        if u < cumulative {
            return id;
        }
        if q > 0.0 {
            last = id;
        }
    }
    last
}

/// The sum from left to right.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |total, x| total + x)
}

/// The largest of several numbers; minus infinity for none.
fn maximum(values: &[f64]) -> f64 {
    // Eight lanes, which do not wait for each other; a maximum has no order.
    let larger = |a: f64, b: f64| if b > a { b } else { a };
    let mut lanes = [f64::NEG_INFINITY; 8];
    let chunks = values.chunks_exact(8);
    for &x in chunks.remainder() {
        lanes[0] = larger(lanes[0], x);
    }
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, x);
        }
    }
    lanes.into_iter().fold(f64::NEG_INFINITY, larger)
}

#[cold]
fn bad_logit(logits: &[f32]) -> SampleError {
    let at = logits.iter().position(|x| x.is_nan() || *x == f32::INFINITY).unwrap_or(0);
    let token = at as u32;
    if logits.get(at).is_some_and(|x| x.is_nan()) {
        SampleError::NanLogits { token }
    } else {
        SampleError::InfiniteLogits { token }
    }
}

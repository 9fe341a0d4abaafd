//! The sampler against the specification written down as plainly as possible.

use crate::sample::math::{exp, ln};
use crate::sample::sampler::choose;
use crate::sample::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Debug, Clone)]
struct Position {
    logits: Vec<f32>,
    params: SamplingParams,
    prompt: Vec<u32>,
    output: Vec<u32>,
}

/// Step by step, with a softmax after each filter and a full sort for each order.
impl Position {
    fn penalized(&self) -> Vec<f64> {
        let p = &self.params;
        let mut l: Vec<f64> = self.logits.iter().map(|&x| f64::from(x)).collect();
        for (id, l) in l.iter_mut().enumerate() {
            let id = id as u32;
            let count = self.output.iter().filter(|&&o| o == id).count();
            if p.repetition_penalty != 1.0 && (count > 0 || self.prompt.contains(&id)) {
                *l = if *l > 0.0 { *l / p.repetition_penalty } else { *l * p.repetition_penalty };
            }
            if count > 0 {
                *l -= p.frequency_penalty * count as f64;
                *l -= p.presence_penalty;
            }
        }
        l
    }

    fn reported(&self) -> Vec<f64> {
        let l = self.penalized();
        let max = l.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let z = l.iter().fold(0.0, |z, x| z + exp(x - max));
        l.iter().map(|x| (x - max) - ln(z)).collect()
    }

    fn greedy(&self) -> u32 {
        let l = self.penalized();
        let best = (0..l.len()).min_by(|&a, &b| l[b].total_cmp(&l[a]).then(a.cmp(&b)));
        best.expect("a token") as u32
    }

    /// Scaled logits and the kept ids, ascending.
    fn kept(&self) -> (Vec<f64>, Vec<usize>) {
        let p = &self.params;
        let l: Vec<f64> = self.penalized().iter().map(|x| x / p.temperature).collect();
        let mut kept: Vec<usize> = (0..l.len()).filter(|&i| l[i] != f64::NEG_INFINITY).collect();
        let by_rank = |ids: &[usize]| {
            let mut ids = ids.to_vec();
            // The zeros are equal, which total_cmp does not know.
            ids.sort_by(|&a, &b| (l[b] + 0.0).total_cmp(&(l[a] + 0.0)).then(a.cmp(&b)));
            ids
        };
        if p.top_k > 0 && (p.top_k as usize) < l.len() {
            kept = by_rank(&kept).into_iter().take(p.top_k as usize).collect();
            kept.sort_unstable();
        }
        if p.top_p < 1.0 {
            let q = softmax(&l, &kept);
            let (mut mass, mut few) = (0.0, BTreeSet::new());
            for id in by_rank(&kept) {
                few.insert(id);
                mass += q[id];
                if mass >= p.top_p {
                    break;
                }
            }
            kept.retain(|id| few.contains(id));
        }
        if p.min_p > 0.0 {
            let q = softmax(&l, &kept);
            let most = kept.iter().map(|&i| q[i]).fold(0.0, f64::max);
            kept.retain(|&i| q[i] >= p.min_p * most);
        }
        (l, kept)
    }

    fn sampled(&self, u: f64) -> u32 {
        let (l, kept) = self.kept();
        let q = softmax(&l, &kept);
        let mut c = 0.0;
        for &i in &kept {
            c += q[i];
            if u < c {
                return i as u32;
            }
        }
        *kept.iter().filter(|&&i| q[i] > 0.0).max().expect("a token") as u32
    }

    fn history(&self) -> History {
        let mut history = History::new(&self.prompt);
        self.output.iter().for_each(|&id| history.push(id));
        history
    }
}

/// Probabilities of the kept ids, zero elsewhere.
fn softmax(l: &[f64], kept: &[usize]) -> Vec<f64> {
    let max = kept.iter().map(|&i| l[i]).fold(f64::NEG_INFINITY, f64::max);
    let mut q = vec![0.0; l.len()];
    let mut z = 0.0;
    for &i in kept {
        q[i] = exp(l[i] - max);
        z += q[i];
    }
    kept.iter().for_each(|&i| q[i] /= z);
    q
}

/// Logits with many ties, both zeros and masked ids; at least one is a number.
fn logits(size: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f32>> {
    let one = prop_oneof![
        6 => -8.0_f32..8.0,
        3 => (-6_i8..6).prop_map(|x| f32::from(x) * 0.5),
        1 => Just(f32::NEG_INFINITY),
        1 => prop_oneof![Just(0.0_f32), Just(-0.0_f32)],
        // Neighbours that agree in the leading half of a 64-bit float.
        2 => (0_u8..100).prop_map(|n| 4.0 + f32::from(n) / 2_097_152.0),
        1 => prop_oneof![Just(-1000.0_f32), Just(f32::MIN), Just(1e-30_f32)],
    ];
    prop::collection::vec(one, size).prop_map(|mut l| {
        if l.iter().all(|&x| x == f32::NEG_INFINITY) {
            l[0] = 0.0;
        }
        l
    })
}

fn params() -> impl Strategy<Value = SamplingParams> {
    (
        prop_oneof![Just(1.0), 0.05_f64..3.0, Just(f64::from(0.7_f32))],
        prop_oneof![Just(1.0), 0.001_f64..1.0, Just(0.9), Just(1.0 - f64::EPSILON)],
        prop_oneof![Just(0), 1..12_i32, 1..2000_i32],
        prop_oneof![Just(0.0), 0.0_f64..=1.0, Just(1.0)],
        prop_oneof![Just(1.0), 0.5_f64..2.0],
        prop_oneof![Just(0.0), -2.0_f64..2.0],
        prop_oneof![Just(0.0), -2.0_f64..2.0],
    )
        .prop_map(|(temperature, top_p, top_k, min_p, r, presence, frequency)| {
            SamplingParams {
                temperature,
                top_p,
                top_k,
                min_p,
                repetition_penalty: r,
                presence_penalty: presence,
                frequency_penalty: frequency,
            }
        })
}

fn positions(size: std::ops::Range<usize>) -> impl Strategy<Value = Position> {
    let ids = || prop::collection::vec(0_u32..60, 0..20);
    (logits(size), params(), ids(), ids()).prop_map(|(logits, params, prompt, output)| Position {
        logits,
        params,
        prompt,
        output,
    })
}

/// Everything the sampler says about one position is what the plain reading says.
fn check(work: &mut Sampler, position: &Position, seed: u64) -> Result<(), TestCaseError> {
    let mut rng = stream(seed, PURPOSE_SAMPLE);
    let mut after = rng.clone();
    let u = after.uniform_f64();
    let reported = position.reported();
    let history = position.history();
    let mut scored = work.score(&position.logits, &position.params, &history).expect("scores");

    let got = scored.sample(&mut rng).expect("a token");
    prop_assert_eq!(got.token, position.sampled(u));
    prop_assert_eq!(got.logprob.to_bits(), reported[got.token as usize].to_bits());
    prop_assert_eq!(got.draws, 1);
    prop_assert_eq!(rng, after, "one uniform and no more");
    Ok(())
}

proptest! {
    #[test]
    fn samples_as_specified(position in positions(1..60), seed: u64) {
        check(&mut Sampler::new(), &position, seed)?;
    }

    #[test]
    fn a_used_work_space_changes_nothing(
        positions in prop::collection::vec(positions(1..60), 1..5),
        seed: u64,
    ) {
        let mut work = Sampler::new();
        for position in &positions {
            check(&mut work, position, seed)?;
        }
    }

    #[test]
    fn greedy_is_the_lowest_of_the_best(mut position in positions(1..60)) {
        position.params.temperature = 0.0;
        let mut rng = stream(1, PURPOSE_SAMPLE);
        let got = sample(&position.logits, &position.params, &position.history(), &mut rng);
        let got = got.expect("a token");
        let l = position.penalized();
        let best = l.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        prop_assert_eq!(Some(got.token as usize), l.iter().position(|&x| x == best));
        prop_assert_eq!(got.draws, 0);
        prop_assert_eq!(rng, stream(1, PURPOSE_SAMPLE), "nothing drawn");
        prop_assert_eq!(got.logprob, position.reported()[got.token as usize]);
        // The plain reading orders -0 below 0, so that it agrees without zeros only.
        if best != 0.0 {
            prop_assert_eq!(got.token, position.greedy());
        }
    }

    #[test]
    fn top_logprobs_are_the_first_of_all(position in positions(1..60), n in 0_usize..25) {
        let got = top_logprobs(&position.logits, &position.params, &position.history(), n);
        let mut want: Vec<(u32, f64)> = (0..).zip(position.reported()).collect();
        want.retain(|&(_, x)| x != f64::NEG_INFINITY);
        want.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        want.truncate(n);
        prop_assert_eq!(got.expect("scores"), want);
    }

    #[test]
    fn history_counts_the_output(prompt in prop::collection::vec(0_u32..9, 0..12),
                                 output in prop::collection::vec(0_u32..9, 0..12)) {
        let mut history = History::new(&prompt);
        output.iter().for_each(|&id| history.push(id));
        let ids: BTreeSet<u32> = prompt.iter().chain(&output).copied().collect();
        let want: Vec<(u32, u32)> = ids
            .into_iter()
            .map(|id| (id, output.iter().filter(|&&o| o == id).count() as u32))
            .collect();
        prop_assert_eq!(history.iter().collect::<Vec<_>>(), want);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Vocabularies beyond the first look of top-p and the first gathering of top-k.
    #[test]
    fn samples_as_specified_over_many_ids(position in positions(300..3000), seed: u64) {
        check(&mut Sampler::new(), &position, seed)?;
    }
}

/// Where nothing tells ids apart, every filter goes by the order of the ids.
#[test]
fn flat_positions() -> Result<(), TestCaseError> {
    let cases = [
        (700, 0.5, 0),
        (700, 0.999, 0),
        (1000, 0.9, 600),
        // The sum reaches the share exactly.
        (2, 0.5, 0),
        (512, 0.25, 0),
        (512, 0.25, 256),
        (5000, 0.97, 0),
        (5000, 0.999, 0),
        // So near 1 that rounding decides.
        (3000, 1.0 - f64::EPSILON, 0),
        (4096, 0.5, 0),
    ];
    let flat = |_: usize| 1.25_f32;
    let steps = |i: usize| (i * 7919 % 61) as f32 * 1e-3;
    let slope = |i: usize| i as f32 * 1e-6;
    for (size, top_p, top_k) in cases {
        for shape in [&flat as &dyn Fn(usize) -> f32, &steps, &slope] {
            let logits: Vec<f32> = (0..size).map(shape).collect();
            check_flat(&logits, top_p, top_k)?;
        }
    }
    Ok(())
}

fn check_flat(logits: &[f32], top_p: f64, top_k: i32) -> Result<(), TestCaseError> {
    for temperature in [1.0, 1.7] {
        let params = SamplingParams { temperature, top_p, top_k, ..SamplingParams::default() };
        let logits = logits.to_vec();
        let position = Position { logits, params, prompt: Vec::new(), output: Vec::new() };
        for seed in 0..6 {
            check(&mut Sampler::new(), &position, seed)?;
        }
    }
    Ok(())
}

#[test]
fn a_uniform_on_the_border_goes_to_the_next_id() {
    let check = |weights: &[f64], total, u, want| {
        let kept = (0_u32..).zip(weights.iter().copied());
        assert_eq!(choose(kept, total, u), want, "{weights:?} {u}");
    };
    check(&[1.0, 1.0], 2.0, 0.0, 0);
    check(&[1.0, 1.0], 2.0, 0.5_f64.next_down(), 0);
    check(&[1.0, 1.0], 2.0, 0.5, 1);
    check(&[0.0, 1.0], 1.0, 0.0, 1);
    // Rounding may leave the sum short of the uniform: then the last with a weight.
    check(&[0.5, 0.25, 0.0], 1.0, 0.9, 1);
}

#[test]
fn ids_beyond_the_vocabulary_do_not_count() {
    let params = SamplingParams { repetition_penalty: 2.0, ..SamplingParams::greedy() };
    let history = History::new(&[0, 7, u32::MAX]);
    let got = sample(&[3.0, 2.0], &params, &history, &mut stream(1, PURPOSE_SAMPLE));
    assert_eq!(got.map(|s| s.token), Ok(1));
}

#[test]
fn equal_logits_go_to_the_lowest_id() {
    let params = SamplingParams { top_k: 1, ..SamplingParams::default() };
    let mut rng = stream(9, PURPOSE_SAMPLE);
    for logits in [[-0.0, 0.0, -1.0], [0.0, -0.0, -1.0], [2.0, 2.0, 2.0]] {
        for params in [params, SamplingParams::greedy()] {
            let got = sample(&logits, &params, &History::default(), &mut rng);
            assert_eq!(got.map(|s| s.token), Ok(0), "{logits:?}");
        }
    }
}

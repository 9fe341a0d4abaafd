//! The first few of many, in the order (value descending, id ascending).
//!
//! A full sort of the vocabulary would cost more than the rest of the sampler. Where
//! the number wanted is known, one pass with a rising bar finds them; where a share of
//! the probability is wanted, one pass over the weights says where to cut, and only
//! what lies above is sorted. Both give exactly the beginning of the full order.

/// Where the cut may lie: quarters of the powers of two from 1 down to 2^-64.
const CUTS: usize = 4 * 64;

/// Ids in order of rank, and the work space to find them.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    order: Vec<u32>,
    candidates: Vec<(u64, u32)>,
    packed: Vec<u64>,
}

/// A key that is smaller the larger `x` is. The two zeros have one key, since they
/// are equal; `x` is a number.
fn key(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    if bits >> 63 == 0 { !bits ^ (1 << 63) } else { bits }
}

impl Ranking {
    /// The ids that the last call found, best first.
    pub(super) fn order(&self) -> &[u32] {
        &self.order
    }

    /// Finds the `n` first ids by `value(logit)`. Logits at minus infinity do not rank.
    /// `value` must not fall where the logit rises.
    pub(super) fn first(&mut self, logits: &[f64], n: usize, value: impl Fn(f64) -> f64) {
        let Self { order, candidates, .. } = self;
        candidates.clear();
        order.clear();
        if n == 0 {
            return;
        }
        // Candidates gather until there are twice as many as wanted; then the better half
        // stays, and the last of it is the bar.
        let full = n.saturating_mul(2).max(n.saturating_add(64));
        let mut bar = f64::NEG_INFINITY;
        for (id, &logit) in logits.iter().enumerate() {
            // A logit at the bar has no better value and a higher id.
            if logit <= bar {
                continue;
            }
            let x = value(logit);
            if x == f64::NEG_INFINITY {
                continue;
            }
            candidates.push((key(x), id as u32));
            if candidates.len() == full {
                let (_, &mut (_, last), _) = candidates.select_nth_unstable(n - 1);
                candidates.truncate(n);
                bar = logits[last as usize];
            }
        }
        if candidates.len() > n {
            candidates.select_nth_unstable(n - 1);
            candidates.truncate(n);
        }
        candidates.sort_unstable();
        order.extend(candidates.iter().map(|&(_, id)| id));
    }

    /// Finds the first ids by `value(logit)` whose weights, added in that order as shares
    /// of `total`, reach `share`; all ids with a weight if they never do. A weight is at
    /// most 1 and rises with the value, but for rounding.
    pub(super) fn reach(
        &mut self,
        logits: &[f64],
        weights: &[f64],
        total: f64,
        share: f64,
        value: impl Fn(f64) -> f64,
    ) {
        let mut cut = cut_below(weights, share * total);
        loop {
            self.sort_above(cut, logits, weights, &value);
            let reached = self.reaching(share, weights, total);
            let last = reached.map_or(0.0, |n| weights[self.order[n - 1] as usize]);
            // Well above the cut, nothing that was left out can rank higher.
            if cut == 0.0 || last > cut * (1.0 + 1e-12) {
                self.order.truncate(reached.unwrap_or(usize::MAX));
                return;
            }
            cut = 0.0;
        }
    }

    /// How many of the order it takes for their shares of `total` to reach `share`.
    pub(super) fn reaching(&self, share: f64, weights: &[f64], total: f64) -> Option<usize> {
        let mut mass = 0.0;
        let last = self.order.iter().position(|&id| {
            mass += weights[id as usize] / total;
            mass >= share
        });
        last.map(|at| at + 1)
    }

    /// Orders every id whose weight is at least `cut` and not 0.
    fn sort_above(
        &mut self,
        cut: f64,
        logits: &[f64],
        weights: &[f64],
        value: impl Fn(f64) -> f64,
    ) {
        // The leading half of a key and the id make one number, which sorts fast; where
        // leading halves agree, the whole key decides.
        let Self { order, packed, .. } = self;
        let whole = |packed: u64| key(value(logits[packed as u32 as usize]));
        packed.clear();
        for (id, &weight) in (0_u32..).zip(weights) {
            if weight >= cut && weight > 0.0 {
                packed.push(whole(u64::from(id)) >> 32 << 32 | u64::from(id));
            }
        }
        packed.sort_unstable();
        for run in packed.chunk_by_mut(|a, b| a >> 32 == b >> 32) {
            if run.len() > 1 {
                run.sort_unstable_by_key(|&p| (whole(p), p as u32));
            }
        }
        order.clear();
        order.extend(packed.iter().map(|&p| p as u32));
    }
}

/// A weight above which there is surely more than `mass` in sum; 0 when that takes all.
fn cut_below(weights: &[f64], mass: f64) -> f64 {
    /// Exponent and two bits of mantissa, as in [`CUTS`]; 1 is the largest weight.
    const ONE: u64 = 1.0_f64.to_bits() >> 50;
    let mut masses = [0.0; CUTS];
    for &weight in weights {
        let below = ONE.wrapping_sub(weight.to_bits() >> 50) as usize;
        masses[below.min(CUTS - 1)] += weight;
    }
    // These sums are taken in another order than the one that counts.
    let mass = mass * (1.0 + 1e-9);
    let mut above = 0.0;
    for (below, here) in (0_u64..).zip(&masses[..CUTS - 1]) {
        above += here;
        if above > mass {
            return f64::from_bits((ONE - below) << 50);
        }
    }
    0.0
}

//! The first few of many, in the order (value descending, id ascending).
//!
//! A full sort of the vocabulary would cost more than the rest of the sampler. Where
//! the number wanted is known, one pass with a rising bar finds them; where a share of
//! the probability is wanted, one pass over the weights says where the cut surely is
//! not, and the rest is spread over buckets until few ids are left, which are sorted.
//! Both give exactly the beginning of the full order; where rounding leaves a doubt,
//! the full order decides.

/// Where the cut may lie: quarters of the powers of two from 1 down to 2^-64.
const CUTS: usize = 4 * 64;

/// Up to so many ids are simply sorted.
const SORTED: usize = 512;
/// More are spread over 2^10 buckets, which fit into the first cache.
const BUCKET_BITS: u32 = 10;

/// Where the order is cut: after `last`, which is the `count`-th.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) last: u32,
    pub(super) count: usize,
}

/// Ids in order of rank, and the work space to find them.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    order: Vec<u32>,
    candidates: Vec<(u64, u32)>,
    packed: Vec<u64>,
    window: Vec<u64>,
    /// Weight and number of ids by bucket.
    masses: Vec<(f64, usize)>,
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

    /// Finds the end of the first ids by `value(logit)` whose weights, added in that order as
    /// shares of `total`, reach `share`; of all ids with a weight if they never do. A weight is
    /// at most 1 and rises with the value, but for rounding.
    pub(super) fn reach(
        &mut self,
        logits: &[f64],
        weights: &[f64],
        total: f64,
        share: f64,
        value: impl Fn(f64) -> f64,
    ) -> Option<Cut> {
        let mut least = cut_below(weights, share * total);
        loop {
            self.pack_above(least, logits, weights, &value);
            let cut = match self.select(logits, weights, total, share, &value) {
                Some(cut) => Some(cut),
                None => {
                    self.sort(logits, &value);
                    let n = self.reaching(share, weights, total).unwrap_or(self.order.len());
                    self.cut_after(n)
                }
            };
            let last = cut.map_or(0.0, |cut| weights[cut.last as usize]);
            // Well above the bound, nothing that was left out can rank higher.
            if least == 0.0 || last > least * (1.0 + 1e-12) {
                return cut;
            }
            least = 0.0;
        }
    }

    /// The cut after the first `n` of the order; `None` for 0.
    pub(super) fn cut_after(&self, n: usize) -> Option<Cut> {
        let last = *self.order.get(n.checked_sub(1)?)?;
        Some(Cut { last, count: n })
    }

    /// The same cut without the order: spreads what is packed over buckets by rank, goes on with the
    /// one in which the shares reach `share`, and sorts the few that are left. `None` when few are
    /// packed, or when the sums, which are taken in another order than the one that counts, are
    /// too near `share` to tell.
    fn select(
        &mut self,
        logits: &[f64],
        weights: &[f64],
        total: f64,
        share: f64,
        value: impl Fn(f64) -> f64,
    ) -> Option<Cut> {
        let Self { packed, window, masses, .. } = self;
        if packed.len() <= SORTED {
            return None;
        }
        // n additions of shares whose sum is at most 1 are off by n/2 units in the last place of
        // 1 at most, in either order, and a share by half a unit of its own; four times that.
        let doubt = weights.len() as f64 * (2.0 * f64::EPSILON) + 64.0 * f64::EPSILON;
        let weight = |packed: u64| weights[packed as u32 as usize];
        let ranks = || packed.iter().map(|p| p >> 32);
        let (mut first, mut last) = (ranks().min()?, ranks().max()?);
        let (mut above, mut count) = (0.0, 0);
        window.clear();
        window.extend_from_slice(packed);
        while window.len() > SORTED && last > first {
            let shift = (64 - (last - first).leading_zeros()).saturating_sub(BUCKET_BITS);
            let bucket = |packed: u64| (((packed >> 32) - first) >> shift) as usize;
            masses.clear();
            masses.resize(1 << BUCKET_BITS, (0.0, 0));
            for &p in window.iter() {
                let (mass, ids) = &mut masses[bucket(p)];
                *mass += weight(p);
                *ids += 1;
            }
            let reached = masses.iter().position(|(mass, ids)| {
                let reaches = (above + mass) / total >= share;
                if !reaches {
                    above += mass;
                    count += ids;
                }
                reaches
            })?;
            window.retain(|&p| bucket(p) == reached);
            first += (reached as u64) << shift;
            last = first + (1 << shift) - 1;
        }
        let whole = |packed: u64| key(value(logits[packed as u32 as usize]));
        window.sort_unstable_by_key(|&p| (whole(p), p as u32));
        let mut before = above / total;
        for &p in window.iter() {
            let with = before + weight(p) / total;
            count += 1;
            if with >= share {
                let sure = with - share > doubt && share - before > doubt;
                return sure.then_some(Cut { last: p as u32, count });
            }
            before = with;
        }
        None
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

    /// Packs every id whose weight is at least `least` and not 0: the leading half of its key and
    /// the id make one number, which sorts fast; where leading halves agree, the whole key decides.
    fn pack_above(
        &mut self,
        least: f64,
        logits: &[f64],
        weights: &[f64],
        value: impl Fn(f64) -> f64,
    ) {
        self.packed.clear();
        for (id, (&weight, &logit)) in (0_u32..).zip(weights.iter().zip(logits)) {
            if weight >= least && weight > 0.0 {
                self.packed.push(key(value(logit)) >> 32 << 32 | u64::from(id));
            }
        }
    }

    /// Orders what is packed.
    fn sort(&mut self, logits: &[f64], value: impl Fn(f64) -> f64) {
        let Self { order, packed, .. } = self;
        let whole = |packed: u64| key(value(logits[packed as u32 as usize]));
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

fn padded(rest: &[f64]) -> [f64; 4] {
    std::array::from_fn(|i| rest.get(i).copied().unwrap_or(0.0))
}

/// A weight above which there is surely more than `mass` in sum; 0 when that takes all.
fn cut_below(weights: &[f64], mass: f64) -> f64 {
    /// Exponent and two bits of mantissa, as in [`CUTS`]; 1 is the largest weight.
    const ONE: u64 = 1.0_f64.to_bits() >> 50;
    // Equal weights meet in one place; four tables, so that an addition need not wait for the last.
    let mut tables = [[0.0; CUTS]; 4];
    let (chunks, rest) = weights.as_chunks::<4>();
    for chunk in chunks.iter().chain(std::iter::once(&padded(rest))) {
        for (table, weight) in tables.iter_mut().zip(chunk) {
            let below = ONE.wrapping_sub(weight.to_bits() >> 50) as usize;
            table[below.min(CUTS - 1)] += weight;
        }
    }
    let masses: [f64; CUTS] = std::array::from_fn(|i| tables.iter().map(|table| table[i]).sum());
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

//! Measurements of which there are many more than of anything else: one gap between two tokens per token.
//!
//! Values come with a multiplicity, since all residents of an engine that decode through an iteration have the
//! same gap. Up to [`EXACT`] of them are kept like that, so quantiles are order statistics. Beyond, they go into
//! buckets over the bits of the numbers (10 bits of mantissa kept, so a reported quantile is within
//! [`HISTOGRAM_ERROR`] of a value, relatively). For the interval of the mean there are sums over stretches
//! of the sequence, merged in pairs so that there are never more than [`STRETCHES`]: memory is bounded by
//! constants.

use std::collections::BTreeMap;

use super::sample::{BATCHES, EXACT, FEWEST, T_19};

/// Largest relative error of a quantile read from a histogram: half a bucket.
pub(crate) const HISTOGRAM_ERROR: f64 = 1.0 / 2048.0;
/// Bits of a number below the histogram's bucket.
const SHIFT: u32 = 42;
const STRETCHES: usize = 1 << 12;

/// The bucket of a value; buckets order like their values.
pub(super) fn bucket(x: f64) -> u64 {
    let bits = x.to_bits();
    (if bits >> 63 == 0 { bits | (1 << 63) } else { !bits }) >> SHIFT
}

/// Middle of a bucket.
fn middle(bucket: u64) -> f64 {
    let bits = (bucket << SHIFT) | (1 << (SHIFT - 1));
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

/// The value at a rank from 1, by buckets in ascending order with their counts.
pub(super) fn at_rank(buckets: &BTreeMap<u64, u64>, rank: u64, min: f64, max: f64) -> f64 {
    let mut seen = 0;
    for (bucket, count) in buckets {
        seen += count;
        if seen >= rank {
            return middle(*bucket).clamp(min, max);
        }
    }
    max
}

/// Rank of a quantile: the smallest that at least a share `q` of `count` does not exceed.
pub(super) fn rank(q: f64, count: u64) -> u64 {
    ((q * count as f64).ceil() as u64).clamp(1, count.max(1))
}

#[derive(Debug)]
pub(crate) struct Histogram {
    count: u64,
    sum: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Values one after the other, and how many times each; none any more once there are too many.
    kept: Vec<(f64, u64)>,
    exact: u64,
    buckets: BTreeMap<u64, u64>,
    /// The latest bucket and what it got since: neighbours in time mostly share it.
    latest: (u64, u64),
    /// Sum and count of each stretch; all but the last have at least `stretch` values.
    stretches: Vec<(f64, u64)>,
    stretch: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::exact_up_to(EXACT as u64)
    }
}

impl Histogram {
    pub(crate) fn exact_up_to(exact: u64) -> Self {
        Self {
            count: 0,
            sum: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            kept: Vec::new(),
            exact,
            buckets: BTreeMap::new(),
            latest: (0, 0),
            stretches: Vec::new(),
            stretch: 1,
        }
    }

    /// `times` values `x`.
    pub(crate) fn add(&mut self, x: f64, times: u64) {
        let sum = x * times as f64;
        self.count += times;
        self.sum += sum;
        self.min = self.min.min(x);
        self.max = self.max.max(x);
        if self.is_exact() {
            match self.kept.last_mut() {
                Some(last) if last.0 == x => last.1 += times,
                _ => self.kept.push((x, times)),
            }
        } else {
            for (x, times) in std::mem::take(&mut self.kept) {
                self.count_in(x, times);
            }
            self.count_in(x, times);
        }
        if self.stretches.last().is_none_or(|s| s.1 >= self.stretch) {
            if self.stretches.len() == STRETCHES {
                let join =
                    |p: &[(f64, u64)]| p.iter().fold((0.0, 0), |a, s| (a.0 + s.0, a.1 + s.1));
                self.stretches = self.stretches.chunks(2).map(join).collect();
                self.stretch *= 2;
            }
            self.stretches.push((0.0, 0));
        }
        if let Some(last) = self.stretches.last_mut() {
            last.0 += sum;
            last.1 += times;
        }
    }

    fn count_in(&mut self, x: f64, times: u64) {
        let bucket = bucket(x);
        if bucket != self.latest.0 {
            let (old, count) = std::mem::replace(&mut self.latest, (bucket, 0));
            if count > 0 {
                *self.buckets.entry(old).or_insert(0) += count;
            }
        }
        self.latest.1 += times;
    }

    /// Whether every value is kept.
    pub(crate) fn is_exact(&self) -> bool {
        self.count <= self.exact
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// NaN without values.
    pub(crate) fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// Half-width of the 95 % interval of the mean by 20 batches of consecutive stretches; NaN
    /// under 40 values, or if they came in fewer than 20 stretches.
    pub(crate) fn half_width(&self) -> f64 {
        let size = self.stretches.len() / BATCHES;
        if self.count < FEWEST || size == 0 {
            return f64::NAN;
        }
        let means = self.stretches.chunks_exact(size).take(BATCHES).map(|batch| {
            let (sum, count) = batch.iter().fold((0.0, 0), |a, s| (a.0 + s.0, a.1 + s.1));
            sum / count as f64
        });
        half_width(&means.collect::<Vec<_>>())
    }

    /// The order statistics `ceil(q n)`, within [`HISTOGRAM_ERROR`] if not every value is kept; NaN without values.
    pub(crate) fn quantiles(&self, qs: &[f64]) -> Vec<f64> {
        if self.count == 0 {
            return vec![f64::NAN; qs.len()];
        }
        if self.is_exact() {
            return self.order_statistics(qs);
        }
        let mut buckets = self.buckets.clone();
        *buckets.entry(self.latest.0).or_insert(0) += self.latest.1;
        let at = |q: &f64| at_rank(&buckets, rank(*q, self.count), self.min, self.max);
        qs.iter().map(at).collect()
    }
}

impl Histogram {
    fn order_statistics(&self, qs: &[f64]) -> Vec<f64> {
        let mut sorted = self.kept.clone();
        sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut seen = 0;
        for (_, times) in &mut sorted {
            seen += *times;
            *times = seen;
        }
        let at = |q: &f64| {
            let rank = rank(*q, self.count);
            sorted.get(sorted.partition_point(|s| s.1 < rank)).map_or(self.max, |s| s.0)
        };
        qs.iter().map(at).collect()
    }
}

/// Half-width of a 95 % interval from 20 batch means.
pub(super) fn half_width(means: &[f64]) -> f64 {
    let n = means.len() as f64;
    let mean = means.iter().sum::<f64>() / n;
    let variance = means.iter().map(|m| (m - mean) * (m - mean)).sum::<f64>() / (n - 1.0);
    T_19 * (variance / n).sqrt()
}

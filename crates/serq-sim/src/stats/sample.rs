//! Samples of an observe: mean, spread, interval, quantiles.
//!
//! Up to [`EXACT`] samples are kept, so quantiles are order statistics and the batches of the
//! confidence interval are exactly a twentieth of the samples each. Beyond, the samples are
//! replaced by a [histogram](super::histogram) (a reported quantile is within `HISTOGRAM_ERROR` of a
//! sample's value, relatively) and by sums of equal
//! stretches of the sequence, merged in pairs so that there are never more than [`STRETCHES`]:
//! memory is bounded by constants.

use std::collections::BTreeMap;

use super::histogram::{at_rank, bucket, half_width, rank};

/// Samples kept one by one.
pub(crate) const EXACT: usize = 10_000_000;
const STRETCHES: usize = 1 << 14;
/// Batches of the interval.
pub(super) const BATCHES: usize = 20;
/// Fewest samples with an interval.
pub(super) const FEWEST: u64 = 40;
/// 97.5 % quantile of Student's t with 19 degrees of freedom.
pub(crate) const T_19: f64 = 2.093;

#[derive(Debug)]
pub(crate) struct Samples {
    count: u64,
    mean: f64,
    /// Sum of squared deviations (Welford).
    squares: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    kept: Vec<f64>,
    exact: usize,
    histogram: BTreeMap<u64, u64>,
    /// Sums over stretches of `stretch` samples; the last may be shorter.
    sums: Vec<f64>,
    stretch: u64,
    filled: u64,
}

impl Default for Samples {
    fn default() -> Self {
        Self::exact_up_to(EXACT)
    }
}

impl Samples {
    pub(crate) fn exact_up_to(exact: usize) -> Self {
        Self {
            count: 0,
            mean: 0.0,
            squares: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            kept: Vec::new(),
            exact,
            histogram: BTreeMap::new(),
            sums: Vec::new(),
            stretch: 1,
            filled: 0,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    #[inline]
    pub(crate) fn add(&mut self, x: f64) {
        self.count += 1;
        let d = x - self.mean;
        self.mean += d / self.count as f64;
        self.squares += d * (x - self.mean);
        self.min = self.min.min(x);
        self.max = self.max.max(x);
        if self.is_exact() {
            if self.kept.len() < self.exact {
                self.kept.push(x);
                return;
            }
            for x in std::mem::take(&mut self.kept) {
                self.summarise(x);
            }
        }
        self.summarise(x);
    }

    fn summarise(&mut self, x: f64) {
        *self.histogram.entry(bucket(x)).or_insert(0) += 1;
        if self.filled == 0 {
            if self.sums.len() == STRETCHES {
                self.sums = self.sums.chunks(2).map(|pair| pair.iter().sum()).collect();
                self.stretch *= 2;
            }
            self.sums.push(0.0);
        }
        if let Some(last) = self.sums.last_mut() {
            *last += x;
        }
        self.filled = (self.filled + 1) % self.stretch;
    }

    /// Whether every sample is kept.
    pub(crate) fn is_exact(&self) -> bool {
        self.histogram.is_empty()
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// NaN without samples.
    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 { f64::NAN } else { self.mean }
    }

    /// Squared coefficient of variation, sample variance over squared mean.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    pub(crate) fn cv2(&self) -> f64 {
        self.squares / (self.count as f64 - 1.0) / (self.mean * self.mean)
    }

    /// Half-width of the 95 % interval of the mean by 20 batch means; NaN under 40 samples.
    pub(crate) fn half_width(&self) -> f64 {
        if self.count < FEWEST {
            return f64::NAN;
        }
        let means: Vec<f64> = if self.is_exact() {
            batch_means(&self.kept, 1)
        } else {
            let whole = self.sums.len() - usize::from(self.filled != 0);
            batch_means(&self.sums[..whole], self.stretch)
        };
        half_width(&means)
    }

    /// The order statistics `ceil(q n)` for each `q` in 0..=1, NaN without samples.
    pub(crate) fn quantiles(&self, qs: &[f64]) -> Vec<f64> {
        if self.count == 0 {
            return vec![f64::NAN; qs.len()];
        }
        if self.is_exact() {
            return self.order_statistics(qs);
        }
        let at = |q: &f64| at_rank(&self.histogram, rank(*q, self.count), self.min, self.max);
        qs.iter().map(at).collect()
    }

    /// Those of every sample, without sorting the rest: each selection leaves the larger samples behind it.
    fn order_statistics(&self, qs: &[f64]) -> Vec<f64> {
        let mut ranks: Vec<(usize, usize)> =
            qs.iter().map(|q| rank(*q, self.count) as usize - 1).zip(0..).collect();
        ranks.sort_unstable();
        let (mut samples, mut from) = (self.kept.clone(), 0);
        let mut found = vec![f64::NAN; qs.len()];
        for (rank, k) in ranks {
            let (_, at, _) = samples[from..].select_nth_unstable_by(rank - from, f64::total_cmp);
            found[k] = *at;
            from = rank;
        }
        found
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn batch_means(sums: &[f64], stretch: u64) -> Vec<f64> {
    let size = sums.len() / BATCHES;
    sums.chunks_exact(size)
        .take(BATCHES)
        .map(|batch| batch.iter().sum::<f64>() / (size as u64 * stretch) as f64)
        .collect()
}

//! How often something happens per second, with an interval.
//!
//! Occurrences are counted in windows of equal width from the end of the warm-up on. A run whose
//! end is not known beforehand starts with narrow windows, which are joined in pairs when there
//! are too many, so memory is bounded by a constant.

use super::histogram::half_width;
use super::sample::BATCHES;

const MOST: usize = 2000;

#[derive(Debug)]
pub(crate) struct Rate {
    from: f64,
    width: f64,
    counts: Vec<u64>,
    total: u64,
}

impl Rate {
    /// `until` may be infinite.
    pub(crate) fn new(from: f64, until: f64) -> Self {
        let span = until - from;
        let width = if span.is_finite() { span / 1000.0 } else { 1.0 / 1024.0 };
        Self { from, width, counts: Vec::new(), total: 0 }
    }

    /// Times come in any order, none before `from`.
    pub(crate) fn add(&mut self, time: f64) {
        self.total += 1;
        let mut at = (time - self.from) / self.width;
        while at >= MOST as f64 {
            self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.width *= 2.0;
            at /= 2.0;
        }
        let at = at.max(0.0) as usize;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
    }

    /// NaN over no time.
    pub(crate) fn per_second(&self, until: f64) -> f64 {
        if until <= self.from {
            return f64::NAN;
        }
        self.total as f64 / (until - self.from)
    }

    /// Half-width of the 95 % interval by 20 equal stretches of time; NaN under 20 windows.
    pub(crate) fn half_width(&self, until: f64) -> f64 {
        let windows = ((until - self.from) / self.width + 1e-6).floor();
        let size = (windows / BATCHES as f64).floor() as usize;
        if size == 0 {
            return f64::NAN;
        }
        let count = |k: usize| self.counts.get(k).copied().unwrap_or(0);
        let rate = |b: usize| {
            let sum: u64 = (b * size..(b + 1) * size).map(count).sum();
            sum as f64 / (size as f64 * self.width)
        };
        half_width(&(0..BATCHES).map(rate).collect::<Vec<_>>())
    }
}

//! Whether a run settled: the state at 500 equally spaced instants after the warm-up, averaged
//! over ten windows.
//!
//! Watched are the sessions alive, the backlog (those that are not at a `delay` stage: a client
//! that thinks is no load), the jobs at every stage and the queue of every pool. A line is fitted
//! through the ten averages of each; a trend is one whose slope is too large for chance by
//! Student's t.

use super::student::student_t;

pub(crate) const WINDOWS: usize = 10;
/// Instants per window.
const PER_WINDOW: u32 = 50;
/// Chance that a trend is seen where none is, with independent windows.
const CHANCE: f64 = 0.001;

/// Averages over the windows.
pub(crate) type Windows = [f64; WINDOWS];

#[derive(Debug)]
pub(crate) struct Trend {
    from: f64,
    step: f64,
    taken: u32,
    /// When the next look is due; infinite if none is.
    pub(crate) next: f64,
    /// Alive, backlog, stages in order, pools in order.
    series: Vec<Windows>,
}

/// The line through ten averages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) mean: f64,
    /// Per window.
    pub(crate) slope: f64,
    /// Whether the slope is more than chance.
    pub(crate) certain: bool,
}

impl Trend {
    /// Watches `series` numbers from the end of the warm-up to the horizon; nothing if that is
    /// infinite, since a run that ends when its work is done is never steady.
    pub(crate) fn new(from: f64, until: f64, series: usize) -> Self {
        let step = (until - from) / f64::from(PER_WINDOW * WINDOWS as u32);
        let mut trend = Self { from, step, taken: 0, next: 0.0, series: Vec::new() };
        trend.series.resize(series, [0.0; WINDOWS]);
        trend.plan();
        trend
    }

    fn plan(&mut self) {
        let due = self.step.is_finite() && self.taken < PER_WINDOW * WINDOWS as u32;
        let next = self.from + (f64::from(self.taken) + 0.5) * self.step;
        self.next = if due { next } else { f64::INFINITY };
    }

    /// One look, good for every instant due up to `now`: the state did not change meanwhile.
    pub(crate) fn look(&mut self, now: f64, state: impl Iterator<Item = f64> + Clone) {
        while self.next <= now {
            let window = (self.taken / PER_WINDOW) as usize;
            for (series, value) in self.series.iter_mut().zip(state.clone()) {
                series[window] += value / f64::from(PER_WINDOW);
            }
            self.taken += 1;
            self.plan();
        }
    }

    /// Whether every instant was looked at.
    pub(crate) fn is_complete(&self) -> bool {
        self.taken == PER_WINDOW * WINDOWS as u32
    }

    pub(crate) fn windows(&self, series: usize) -> &Windows {
        &self.series[series]
    }
}

/// The least-squares line, and whether its slope is beyond chance.
pub(crate) fn line(y: &Windows) -> Line {
    let n = WINDOWS as f64;
    let mean = y.iter().sum::<f64>() / n;
    let middle = (n - 1.0) / 2.0;
    let spread: f64 = (0..WINDOWS).map(|k| (k as f64 - middle) * (k as f64 - middle)).sum();
    let slope =
        y.iter().enumerate().map(|(k, y)| (k as f64 - middle) * (y - mean)).sum::<f64>() / spread;
    let off = |(k, y): (usize, &f64)| {
        let d = y - mean - slope * (k as f64 - middle);
        d * d
    };
    let residual = y.iter().enumerate().map(off).sum::<f64>() / (n - 2.0);
    let error = (residual / spread).sqrt();
    let limit = student_t(1.0 - CHANCE / 2.0, WINDOWS as u64 - 2);
    Line { mean, slope, certain: slope.abs() > limit * error + 1e-9 * mean.abs() }
}

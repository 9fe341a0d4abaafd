//! Averages over time and over occurrences.

/// The time average of a quantity that jumps. It is told every change; between two changes the
/// quantity is constant, so nothing has to be recorded at other events.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeAverage {
    value: f64,
    since: f64,
    area: f64,
    from: f64,
}

impl TimeAverage {
    pub(crate) fn set(&mut self, now: f64, value: f64) {
        self.area += self.value * (now - self.since);
        self.since = now;
        self.value = value;
    }

    /// Starts anew: what was before `now` no longer counts.
    pub(crate) fn reset(&mut self, now: f64) {
        self.area = 0.0;
        self.since = now;
        self.from = now;
    }

    /// The average from the last reset to `now`; 0 over no time.
    pub(crate) fn mean(&self, now: f64) -> f64 {
        let span = now - self.from;
        if span > 0.0 { (self.area + self.value * (now - self.since)) / span } else { 0.0 }
    }
}

/// The mean of occurrences.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean {
    pub(crate) count: u64,
    sum: f64,
}

impl Mean {
    pub(crate) fn add(&mut self, x: f64) {
        self.count += 1;
        self.sum += x;
    }

    /// NaN without any.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    pub(crate) fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

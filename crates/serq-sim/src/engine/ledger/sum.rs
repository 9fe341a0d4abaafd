//! A sum that amounts are added to and taken from without end.

/// The sum and what rounding took from it: twice the digits of one number, so that what comes and goes leaves
/// nothing behind that a tolerance would see.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    high: f64,
    low: f64,
}

impl Sum {
    /// Knuth's two-sum: the error of an addition, exactly.
    pub(super) fn add(&mut self, x: f64) {
        let sum = self.high + x;
        let part = sum - self.high;
        self.low += (self.high - (sum - part)) + (x - part);
        self.high = sum;
    }

    pub(super) fn value(self) -> f64 {
        self.high + self.low
    }

    /// Equal but for rounding.
    pub(super) fn is_close(self, other: Self) -> bool {
        close(self.value(), other.value())
    }
}

/// Equal but for the rounding of a long sum.
pub(in crate::engine) fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(1.0)
}

#[cfg(test)]
mod tests {
    use super::Sum;

    #[test]
    fn what_comes_and_goes_leaves_nothing() {
        let mut sum = Sum::default();
        let amounts = || (1..10_000u32).map(|k| 1e12 / f64::from(k));
        amounts().for_each(|x| sum.add(x));
        sum.add(0.1);
        amounts().rev().for_each(|x| sum.add(-x));
        assert!((sum.value() - 0.1).abs() < 1e-15, "{sum:?}");
    }
}

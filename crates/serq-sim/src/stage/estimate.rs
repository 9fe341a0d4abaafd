//! Online estimates of a stage's load, for policies that read them.

const ALPHA: f64 = 0.01;
const MOST_LOAD: f64 = 0.99;

/// Exponentially weighted means; the first value counts as it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Estimate {
    last_start: Option<f64>,
    gap: Option<f64>,
    service: Option<f64>,
    wait: Option<f64>,
}

fn update(mean: &mut Option<f64>, x: f64) {
    *mean = Some(mean.map_or(x, |m| m + ALPHA * (x - m)));
}

impl Estimate {
    /// A service begins: seconds since the previous one began.
    pub(crate) fn start(&mut self, now: f64) -> Option<f64> {
        self.last_start.replace(now).map(|last| now - last)
    }

    pub(crate) fn complete(&mut self, gap: Option<f64>, service: f64, wait: f64) {
        if let Some(gap) = gap {
            update(&mut self.gap, gap);
        }
        update(&mut self.service, service);
        update(&mut self.wait, wait);
    }

    /// Jobs per second; 0 before two starts.
    pub(crate) fn lambda(&self) -> f64 {
        match self.gap {
            Some(gap) if gap > 0.0 => 1.0 / gap,
            _ => 0.0,
        }
    }

    pub(crate) fn rho(&self) -> f64 {
        (self.lambda() * self.service.unwrap_or(0.0)).min(MOST_LOAD)
    }

    pub(crate) fn wait(&self) -> f64 {
        self.wait.unwrap_or(0.0)
    }
}

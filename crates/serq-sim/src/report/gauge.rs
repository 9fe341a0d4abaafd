//! Gauges: state expressions averaged over time.
//!
//! A gauge's value is constant between events, so its integral is exact. For the interval the time
//! after the warm-up is cut into windows: 20 of them where the horizon is known, else windows that
//! double as the run goes on, so that memory is bounded, grouped into 20 at the end.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::RunSettings;
use crate::engine::Engine;
use crate::stats::sample::T_19;

/// Windows of the interval.
const WINDOWS: usize = 20;
/// Most windows kept before they are merged in pairs.
const MOST: usize = 32 * WINDOWS;
/// Seconds of the first windows of a run without a horizon.
const FIRST: f64 = 1e-3;

/// A state expression over the time after the warm-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GaugeReport {
    #[serde(skip)]
    pub name: String,
    /// Time average.
    pub mean: f64,
    /// Half-width of its 95 % interval by 20 windows; not a number if the run was too short.
    pub half_width: f64,
    pub min: f64,
    pub max: f64,
}

/// The measurement of one.
#[derive(Clone, Debug)]
pub(crate) struct Gauge {
    value: f64,
    since: f64,
    from: f64,
    /// Integral up to `since`.
    area: f64,
    min: f64,
    max: f64,
    /// Seconds of a window, and the integral over each; the last is under way.
    width: f64,
    windows: Vec<f64>,
}

impl Gauge {
    /// `count` gauges that start at time 0.
    pub(crate) fn all(count: usize, settings: RunSettings) -> Vec<Gauge> {
        let span = settings.horizon - settings.warmup;
        let width = if span.is_finite() { span / WINDOWS as f64 } else { FIRST };
        let gauge = Gauge {
            value: 0.0,
            since: 0.0,
            from: 0.0,
            area: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            width,
            windows: vec![0.0],
        };
        vec![gauge; count]
    }

    /// What was before no longer counts.
    pub(crate) fn reset(&mut self, now: f64) {
        (self.since, self.from, self.area) = (now, now, 0.0);
        (self.min, self.max) = (f64::INFINITY, f64::NEG_INFINITY);
        self.windows = vec![0.0];
    }

    pub(crate) fn set(&mut self, now: f64, value: f64) {
        self.advance(now);
        self.value = value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    fn advance(&mut self, now: f64) {
        if now <= self.since {
            return;
        }
        self.area += self.value * (now - self.since);
        loop {
            let end = self.from + self.width * self.windows.len() as f64;
            let until = end.min(now);
            if let Some(last) = self.windows.last_mut() {
                *last += self.value * (until - self.since).max(0.0);
            }
            self.since = self.since.max(until);
            if end >= now {
                break;
            }
            if self.windows.len() == MOST {
                self.windows = self.windows.chunks(2).map(|pair| pair.iter().sum()).collect();
                self.width *= 2.0;
            }
            self.windows.push(0.0);
        }
        self.since = now;
    }

    fn mean(&self) -> f64 {
        self.area / (self.since - self.from)
    }

    fn half_width(&self) -> f64 {
        let done = ((self.since - self.from) / self.width * (1.0 + 1e-12)) as usize;
        let size = done.min(self.windows.len()) / WINDOWS;
        if size == 0 {
            return f64::NAN;
        }
        let span = self.width * size as f64;
        let means: Vec<f64> = self
            .windows
            .chunks_exact(size)
            .take(WINDOWS)
            .map(|w| w.iter().sum::<f64>() / span)
            .collect();
        let n = WINDOWS as f64;
        let mean = means.iter().sum::<f64>() / n;
        let variance = means.iter().map(|m| (m - mean) * (m - mean)).sum::<f64>() / (n - 1.0);
        T_19 * (variance / n).sqrt()
    }
}

pub(super) fn by_name<S: Serializer>(gauges: &[GaugeReport], out: S) -> Result<S::Ok, S::Error> {
    let mut map = out.serialize_map(Some(gauges.len()))?;
    for gauge in gauges {
        map.serialize_entry(&gauge.name, gauge)?;
    }
    map.end()
}

/// The gauges at the end of the run.
pub(super) fn reports(e: &Engine<'_>) -> Vec<GaugeReport> {
    let names = e.c.ir.gauges.iter().map(|g| &g.name);
    names
        .zip(&e.gauges)
        .map(|(name, gauge)| {
            let mut gauge = gauge.clone();
            gauge.advance(e.w.now);
            GaugeReport {
                name: name.clone(),
                mean: gauge.mean(),
                half_width: gauge.half_width(),
                min: gauge.min,
                max: gauge.max,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Gauge, T_19};
    use crate::RunSettings;

    fn gauge(horizon: f64) -> Gauge {
        let slo = crate::Slo::default();
        let settings = RunSettings { seed: 1, horizon, warmup: 10.0, coalesce: true, slo };
        Gauge::all(1, settings).remove(0)
    }

    /// 20 windows of 2 s; the value is k in the window k.
    #[test]
    fn windows_have_the_means_of_their_time() {
        let mut g = gauge(50.0);
        g.set(0.0, 100.0);
        g.reset(10.0);
        for k in 0..20 {
            g.set(10.0 + 2.0 * f64::from(k), f64::from(k));
        }
        g.advance(50.0);
        assert_eq!((g.mean(), g.min, g.max, g.windows.len()), (9.5, 0.0, 19.0, 20));
        assert!((g.half_width() - T_19 * (35.0f64 / 20.0).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn a_run_without_a_horizon_merges_its_windows() {
        let mut g = gauge(f64::INFINITY);
        g.reset(10.0);
        g.set(10.0, 1.0);
        g.set(510.0, 3.0);
        g.advance(1010.0);
        assert_eq!(g.mean(), 2.0);
        assert!(g.windows.len() <= super::MOST && g.half_width() > 0.3 && g.half_width() < 0.7);
        let total: f64 = g.windows.iter().sum();
        assert!((total - 2000.0).abs() < 1e-6, "{total}");
        assert!(gauge(f64::INFINITY).half_width().is_nan());
    }
}

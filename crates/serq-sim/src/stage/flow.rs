//! Flows: work that goes over several stages at the same time.
//!
//! A stage that some run names together with another carries flows, and so does every job on it. A
//! flow has one rate on all its stages. Rates are set by the program's rule whenever a flow comes
//! or goes, and hold until then, so each flow's end is known.
//!
//! * max-min: all flows grow alike until a stage is full; those on it stay, the others go on (progressive
//!   filling). No flow can have more without taking from one that has no more than it.
//! * bottleneck: each stage gives its flows equal parts, and a flow has the smallest of its parts. What it
//!   leaves elsewhere nobody gets.

use serq_lang::ir::CShare;

use super::Kind;
use crate::engine::Engine;
use crate::error::Result;
use crate::event::Event;
use crate::stats::TimeAverage;

/// What a stage of flows has.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Work per second.
    pub(crate) capacity: f64,
    /// Work per second that its flows do.
    pub(crate) carried: TimeAverage,
}

/// The flows of a program.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    /// Jobs, in order of start.
    pub(crate) jobs: Vec<u32>,
    /// When their unfinished work was last brought up to date.
    pub(crate) at: f64,
    epoch: u32,
    /// Whether some came or went since the rates were set.
    pub(crate) dirty: bool,
}

impl Engine<'_> {
    pub(super) fn join_flow(&mut self, stage: u32, id: u32) {
        let now = self.w.now;
        self.begin_service(stage, id);
        for (also, gap) in &mut self.w.jobs[id as usize].also {
            *gap = self.w.stages[*also as usize].estimate.start(now);
        }
        self.advance_flows();
        self.w.flows.jobs.push(id);
        self.w.flows.dirty = true;
    }

    pub(super) fn leave_flow(&mut self, id: u32) {
        self.advance_flows();
        self.w.flows.jobs.retain(|j| *j != id);
        self.w.flows.dirty = true;
    }

    /// Takes off what was done since.
    fn advance_flows(&mut self) {
        let passed = self.w.now - self.w.flows.at;
        self.w.flows.at = self.w.now;
        if passed > 0.0 {
            for &id in &self.w.flows.jobs {
                let job = &mut self.w.jobs[id as usize];
                job.work = (job.work - job.rate * passed).max(0.0);
            }
        }
    }

    /// Sets the rates for the flows there are and schedules the next end.
    pub(crate) fn share_flows(&mut self) {
        self.advance_flows();
        let (now, w) = (self.w.now, &mut self.w);
        w.flows.dirty = false;
        w.flows.epoch = w.flows.epoch.wrapping_add(1);
        let capacities: Vec<f64> = w
            .stages
            .iter()
            .map(|s| if let Kind::Flow(f) = &s.kind { f.capacity } else { 0.0 })
            .collect();
        let paths: Vec<Vec<u32>> =
            w.flows.jobs.iter().map(|j| w.jobs[*j as usize].stages().collect()).collect();
        let rates = match self.c.ir.share {
            Some(CShare::Bottleneck) => bottleneck(&paths, &capacities),
            _ => max_min(&paths, &capacities),
        };
        let mut carried = vec![0.0; capacities.len()];
        let mut next: Option<(f64, u32)> = None;
        for ((&id, path), &rate) in w.flows.jobs.iter().zip(&paths).zip(&rates) {
            let job = &mut w.jobs[id as usize];
            job.rate = rate;
            path.iter().for_each(|s| carried[*s as usize] += rate);
            let rest = job.work / rate;
            if next.is_none_or(|(least, _)| rest < least) {
                next = Some((rest, id));
            }
        }
        for (stage, carried) in w.stages.iter_mut().zip(carried) {
            if let Kind::Flow(flow) = &mut stage.kind {
                flow.carried.set(now, carried);
            }
        }
        let epoch = w.flows.epoch;
        if let Some((rest, job)) = next {
            self.schedule(now + rest, Event::Flow { job, epoch });
        }
    }

    /// A flow ends, unless others came or went since this was scheduled; so do all that have nothing left
    /// to do in any time that a clock can show.
    pub(crate) fn finish_flow(&mut self, id: u32, epoch: u32) -> Result<()> {
        if self.w.flows.epoch != epoch {
            return Ok(());
        }
        self.advance_flows();
        self.w.jobs[id as usize].work = 0.0;
        let (now, w) = (self.w.now, &mut self.w);
        let over = |j: &u32| {
            let job = &w.jobs[*j as usize];
            now + job.work / job.rate <= now
        };
        let (done, rest): (Vec<u32>, Vec<u32>) = w.flows.jobs.iter().partition(|j| over(j));
        w.flows.jobs = rest;
        w.flows.dirty = true;
        for id in done {
            self.complete(id)?;
        }
        Ok(())
    }
}

/// Flows on each stage.
fn counts(paths: &[Vec<u32>], stages: usize) -> Vec<u32> {
    let mut counts = vec![0; stages];
    paths.iter().flatten().for_each(|s| counts[*s as usize] += 1);
    counts
}

fn bottleneck(paths: &[Vec<u32>], capacities: &[f64]) -> Vec<f64> {
    let counts = counts(paths, capacities.len());
    let part = |s: &u32| capacities[*s as usize] / f64::from(counts[*s as usize]);
    paths.iter().map(|path| path.iter().map(part).fold(f64::INFINITY, f64::min)).collect()
}

/// Progressive filling, a stage that fills at a time; of several the first.
fn max_min(paths: &[Vec<u32>], capacities: &[f64]) -> Vec<f64> {
    let mut open = counts(paths, capacities.len());
    let mut left = capacities.to_vec();
    let mut rates: Vec<Option<f64>> = vec![None; paths.len()];
    loop {
        let parts = open.iter().zip(&left).map(|(n, left)| left / f64::from(*n));
        let full =
            parts.enumerate().filter(|(s, _)| open[*s] > 0).min_by(|a, b| a.1.total_cmp(&b.1));
        let Some((stage, part)) = full else { break };
        for (path, rate) in paths.iter().zip(&mut rates) {
            if rate.is_some() || !path.contains(&(stage as u32)) {
                continue;
            }
            *rate = Some(part);
            for s in path {
                open[*s as usize] -= 1;
                left[*s as usize] = (left[*s as usize] - part).max(0.0);
            }
        }
    }
    rates.into_iter().map(|r| r.unwrap_or(0.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::{bottleneck, max_min};
    use proptest::prelude::*;

    #[test]
    fn three_flows_on_two_stages() {
        let paths = [vec![0, 1], vec![0], vec![1]];
        assert_eq!(max_min(&paths, &[1.0, 2.0]), [0.5, 0.5, 1.5]);
        assert_eq!(bottleneck(&paths, &[1.0, 2.0]), [0.5, 0.5, 1.0]);
    }

    proptest! {
        /// No stage is overloaded, everybody moves, and by max-min every flow has a full stage on
        /// which no other is faster; a bottleneck share is never more than that.
        #[test]
        fn max_min_is_fair(
            capacities in prop::collection::vec(1u32..20, 4),
            paths in prop::collection::vec(prop::collection::btree_set(0u32..4, 1..4), 1..12),
        ) {
            let capacities: Vec<f64> = capacities.into_iter().map(f64::from).collect();
            let paths: Vec<Vec<u32>> = paths.into_iter().map(|p| p.into_iter().collect()).collect();
            let (rates, least) = (max_min(&paths, &capacities), bottleneck(&paths, &capacities));
            let carried = |rates: &[f64], s: u32| -> f64 {
                paths.iter().zip(rates).filter(|(p, _)| p.contains(&s)).map(|(_, r)| r).sum()
            };
            for s in 0..4 {
                prop_assert!(carried(&rates, s) <= capacities[s as usize] + 1e-9);
                prop_assert!(carried(&least, s) <= capacities[s as usize] + 1e-9);
            }
            for (path, rate) in paths.iter().zip(&rates) {
                let fair = path.iter().any(|s| {
                    let full = carried(&rates, *s) >= capacities[*s as usize] - 1e-9;
                    full && paths.iter().zip(&rates).all(|(p, r)| !p.contains(s) || *r <= rate + 1e-9)
                });
                prop_assert!(*rate > 0.0 && fair, "{path:?} {rate}");
            }
            prop_assert!(least.iter().zip(&rates).all(|(a, b)| *a <= b + 1e-9 || *a > 0.0));
        }
    }
}

//! A program's run as a [`Run`]: what happened to which request in which tick.
//!
//! An iteration that begins at tick `t` is tick `t`'s step; its results are there at `t + 1` and
//! belong to tick `t` all the same, as in a trace.

use std::collections::{BTreeMap, BTreeSet};

use serq_sim::{EngineState, Happening, Iteration, Observer, Phase, Releases, What as Happened};

use super::read::Trace;
use super::run::{Reason, Run, Scheduled, Side, Step, What};
use super::scenario::OnFailure;
use super::workload::Place;

/// Leases that ended with one step: the group's number, its tick and engine, and the requests in the
/// order in which their blocks were given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) number: u64,
    pub(super) tick: u64,
    pub(super) side: Side,
    pub(super) ids: Vec<String>,
}

/// Makes a [`Run`] of what a simulation tells.
pub(super) struct Watch<'a> {
    trace: &'a Trace,
    places: &'a [Place],
    /// Request of each session.
    ids: &'a [String],
    seen: Vec<Seen>,
    /// Requests that have tokens, by engine, in the order of their admission.
    running: BTreeMap<Side, Vec<usize>>,
    /// Engine and tick: free blocks when an idle engine was looked at.
    idle: BTreeMap<(u64, Side), u64>,
    pub(super) run: Run,
    pub(super) groups: Vec<Group>,
}

/// What is remembered of a request.
#[derive(Clone, Default)]
struct Seen {
    /// Engines that admitted it and gave it no tokens since, and what was cached.
    fresh: BTreeMap<Side, u64>,
    preempted: BTreeSet<Side>,
    /// Engines whose first token it has.
    answered: BTreeSet<Side>,
    finished: BTreeSet<Side>,
    /// Its blocks wait for what another engine computed.
    parked: bool,
    reported: bool,
}

impl<'a> Watch<'a> {
    pub(super) fn new(trace: &'a Trace, places: &'a [Place], ids: &'a [String]) -> Self {
        let mut run = Run::default();
        for id in ids {
            run.events.insert(id.clone(), Vec::new());
        }
        Watch {
            trace,
            places,
            ids,
            seen: vec![Seen::default(); ids.len()],
            running: BTreeMap::new(),
            idle: BTreeMap::new(),
            run,
            groups: Vec::new(),
        }
    }

    /// The run, with a step for every tick and engine of the trace: an engine that does nothing keeps
    /// the free blocks it had.
    pub(super) fn finish(mut self) -> (Run, Vec<Group>) {
        for place in self.places {
            let side = place.side;
            let mut free = None;
            for tick in 0..=self.trace.ticks {
                if let Some(step) = self.run.steps.get(&(tick, side)) {
                    free = step.free.or(step.free_scheduled).or(free);
                    continue;
                }
                free = self.idle.get(&(tick, side)).copied().or(free);
                let step = Step { free, free_scheduled: free, ..Step::default() };
                self.run.steps.insert((tick, side), step);
            }
        }
        self.run.settle();
        (self.run, self.groups)
    }

    /// The tick that begins at a time.
    fn tick(&self, time: f64) -> u64 {
        (time / self.trace.scenario.tick_seconds).round() as u64
    }

    fn at(&self, stage: usize) -> Option<Place> {
        self.places.iter().copied().find(|p| p.stage == stage)
    }

    fn memory(&self, pool: usize) -> Option<Side> {
        self.places.iter().find(|p| p.pool == pool).map(|p| p.side)
    }

    fn note(&mut self, session: usize, tick: u64, side: Side, what: What) {
        if let Some(id) = self.ids.get(session) {
            self.run.note(id, tick, side, what);
        }
    }

    fn prompt(&self, session: usize) -> u64 {
        let request = self.ids.get(session).and_then(|id| self.trace.scenario.request(id));
        request.map_or(0, |r| r.prompt.len())
    }

    fn stops_running(&mut self, session: usize, side: Side) {
        if let Some(list) = self.running.get_mut(&side) {
            list.retain(|s| *s != session);
        }
    }

    /// A read is over: what its worker reports, and the end of a request that cannot go on.
    fn read_over(&mut self, session: usize, tick: u64) {
        let seen = &mut self.seen[session];
        if !seen.parked || std::mem::replace(&mut seen.reported, true) {
            return;
        }
        if self.trace.scenario.crash.is_some_and(|crash| crash <= tick) {
            return;
        }
        let request = self.ids.get(session).and_then(|id| self.trace.scenario.request(id));
        if !request.is_some_and(|r| r.transfer_fails) {
            self.note(session, tick, Side::D, What::Reported);
            return;
        }
        self.note(session, tick, Side::D, What::ReadFailed);
        let Some(engine) = self.trace.scenario.engines.get(&Side::D) else { return };
        if engine.on_failure == OnFailure::Fail {
            // A scheduler ahead of its results hears of it a step later.
            let heard = tick + u64::from(engine.asynchronous);
            self.note(session, heard, Side::D, What::Finished(Reason::Error));
        }
    }

    /// The engine that a request leaves now.
    fn leaves(&self, session: usize, tick: u64) -> Option<Side> {
        let request = self.trace.scenario.request(self.ids.get(session)?)?;
        let at = |side: &Side| request.aborts.get(side) == Some(&tick);
        let done = |side: &Side| self.seen[session].finished.contains(side);
        Side::ALL.into_iter().find(|side| at(side) && !done(side))
    }
}

impl Observer for Watch<'_> {
    fn wants_happenings(&self) -> bool {
        true
    }

    fn wants_iterations(&self) -> bool {
        true
    }

    fn iteration(&mut self, iteration: &Iteration<'_>) {
        let Some(Place { side, .. }) = self.at(iteration.stage) else { return };
        let tick = self.tick(iteration.time);
        let mut batch = Vec::with_capacity(iteration.tokens.len());
        for row in iteration.tokens {
            let session = row.session as usize;
            let Some(seen) = self.seen.get_mut(session) else { continue };
            let cached = row.position as u64;
            if seen.fresh.remove(&side).is_some() {
                let again = seen.preempted.contains(&side);
                let what =
                    if again { What::Readmitted { cached } } else { What::Admitted { cached } };
                self.note(session, tick, side, what);
                self.running.entry(side).or_default().push(session);
            }
            let id = self.ids[session].clone();
            batch.push(Scheduled { id, tokens: row.count as u64, before: cached });
        }
        // Who was admitted and got no tokens waits for them from elsewhere.
        for session in 0..self.seen.len() {
            let seen = &mut self.seen[session];
            let Some(&local) = seen.fresh.get(&side) else { continue };
            if !std::mem::replace(&mut seen.parked, true) {
                let remote = self.prompt(session).saturating_sub(local);
                self.note(session, tick, side, What::Parked { local, remote });
            }
        }
        self.run.steps.entry((tick, side)).or_default().batch = batch;
    }

    fn engine(&mut self, state: &EngineState) {
        let Some(place) = self.at(state.stage) else { return };
        let Some(free) = state.free else { return };
        let free = (free / place.block as f64).round() as u64;
        let tick = self.tick(state.time);
        match state.phase {
            Phase::PutTogether => {
                self.run.steps.entry((tick, place.side)).or_default().free_scheduled = Some(free);
            }
            Phase::Delivered => {
                let at = (tick.saturating_sub(1), place.side);
                let running = self.running.get(&place.side).into_iter().flatten();
                let running = running.filter_map(|s| self.ids.get(*s).cloned()).collect();
                let step = self.run.steps.entry(at).or_default();
                (step.free, step.running) = (Some(free), running);
            }
            Phase::Idle => {
                self.idle.insert((tick, place.side), free);
            }
        }
    }

    fn releases(&mut self, releases: &Releases<'_>) {
        let Some(Place { side, .. }) = self.at(releases.stage) else { return };
        let ids = releases.sessions.iter().filter_map(|s| self.ids.get(*s as usize).cloned());
        let tick = self.tick(releases.time).saturating_sub(1);
        self.groups.push(Group { number: releases.group, tick, side, ids: ids.collect() });
    }

    fn happened(&mut self, happening: &Happening) {
        let session = happening.session as usize;
        if session >= self.seen.len() {
            return;
        }
        let now = self.tick(happening.time);
        let before = now.saturating_sub(1);
        match happening.what {
            Happened::Admitted { pool, cached } => {
                if let Some(side) = self.memory(pool) {
                    self.seen[session].fresh.insert(side, cached as u64);
                }
            }
            Happened::Preempted { pool } => {
                if let Some(side) = self.memory(pool) {
                    let seen = &mut self.seen[session];
                    seen.preempted.insert(side);
                    seen.fresh.remove(&side);
                    self.stops_running(session, side);
                    self.note(session, now, side, What::Preempted);
                }
            }
            Happened::Sampled { stage } => {
                if let Some(Place { side, .. }) = self.at(stage)
                    && self.seen[session].answered.insert(side)
                {
                    self.note(session, before, side, What::FirstToken);
                }
            }
            Happened::RunOver { stage } => {
                if let Some(Place { side, .. }) = self.at(stage) {
                    self.seen[session].finished.insert(side);
                    self.stops_running(session, side);
                    self.note(session, before, side, What::Finished(Reason::Length));
                }
            }
            Happened::StepsOver { stage } => {
                if self.at(stage).is_some() {
                    self.read_over(session, before);
                }
            }
            Happened::LeaseNoticed { pool } => {
                if let Some(side) = self.memory(pool) {
                    self.note(session, now, side, What::Freed);
                }
            }
            Happened::Cut { .. } => {
                if let Some(side) = self.leaves(session, now) {
                    self.stops_running(session, side);
                    self.note(session, now, side, What::Aborted);
                }
            }
            Happened::LeaseGranted { .. }
            | Happened::LeaseEnded { .. }
            | Happened::BookingEnded { .. } => {}
        }
    }
}

//! A run that goes on for nothing but the upkeep of leases.
//!
//! Engines iterate while leases are renewed, so where sessions wait for each other beside a renewed lease
//! there is always an event to come. The run is over all the same if nothing can change: everybody waits
//! for room, nobody is on the way, no deadline is set, the engines' iterations compute nothing, and no
//! lease reaches its bound before it is renewed. The last is certain if a renewal lasts longer than
//! what passes at most between two of them, which is the interval and an iteration of each engine; for
//! that, iterations must last alike, which they do as long as no cost reads the clock or draws. What
//! time alone may change (a header, a key or a budget that reads the clock) makes it uncertain as well: then
//! the run goes on, and is given up after [`LIMIT`] events in which nothing happened.

use serq_lang::ir::{CExpr, Ctx, Moment};

use super::Engine;
use crate::error::{Reason, RunError, Subject};
use crate::event::Event;
use crate::report::deadlock;
use crate::session::Status;
use crate::stage::Kind;

/// Events between two looks.
const LOOK_EVERY: u64 = 1 << 12;
/// Events without anything new after which a run is given up that may go on like that.
const LIMIT: u64 = 1 << 20;

/// Whether nothing is left but upkeep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upkeep {
    No,
    /// For now; time may change it.
    Perhaps,
    Forever,
}

/// What was seen at the last look.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    next: u64,
    /// Since when nothing has happened, in events, and the numbers that said so.
    since: u64,
    stamp: [u64; 6],
}

impl Engine<'_> {
    /// Looks now and then, in a run without horizon: whether it is over because only upkeep is left.
    pub(super) fn only_upkeep_is_left(&mut self) -> Result<bool, RunError> {
        // Engines begin their iterations when all of an instant has happened.
        let settled = self.next_time() > self.w.now;
        if self.c.renews.is_empty() || self.handled < self.watch.next || !settled {
            return Ok(false);
        }
        self.watch.next = self.handled + LOOK_EVERY;
        let upkeep = self.upkeep();
        let numbers = [self.admissions, self.releases, self.leases, self.arrived, self.ended];
        let [a, b, c, d, e] = numbers;
        let stamp = [a, b, c, d, e, self.preemptions];
        if upkeep == Upkeep::No || stamp != self.watch.stamp {
            self.watch.stamp = stamp;
            self.watch.since = self.handled;
        } else if upkeep == Upkeep::Perhaps && self.handled - self.watch.since >= LIMIT {
            let who = deadlock::find_kept(self).map_or(String::new(), |d| d.summary());
            let text =
                format!("in {LIMIT} events nothing but renewals of leases has happened; {who}");
            let help = "give the run a horizon, or a renewal longer than its interval and an iteration of each engine";
            let mut reason = Reason::new("upkeep", text, help);
            let sessions = self.w.sessions.iter().enumerate();
            let waits = sessions.filter(|(_, s)| s.status != Status::Gone);
            if let Some((k, first)) = waits.min_by_key(|(_, s)| s.serial) {
                reason = reason.about(Subject::Op(first.pc)).of(k as u32);
            }
            return Err(self.fault(*reason));
        }
        Ok(upkeep == Upkeep::Forever)
    }

    /// Whether nothing happens any more but that engines keep leases.
    pub(crate) fn upkeep(&self) -> Upkeep {
        if self.c.renews.is_empty() || !self.everybody_waits() {
            return Upkeep::No;
        }
        let mut lasts = vec![None; self.w.stages.len()];
        for (at, event) in self.events.iter() {
            let Event::IterEnd { stage } = event else { return Upkeep::No };
            let Kind::Step(step) = &self.w.stages[stage as usize].kind else { return Upkeep::No };
            if !step.assigned.is_empty() {
                return Upkeep::No;
            }
            lasts[stage as usize] = Some(at - step.started());
        }
        let mut certain = true;
        for (stage, plan) in self.w.stages.iter().zip(&self.w.plans) {
            let (Kind::Step(step), Some(plan)) = (&stage.kind, plan) else { continue };
            let duty = &step.duty;
            let renews = !duty.renewals.is_empty() && self.w.now < plan.stops;
            if duty.is_at_work() || (renews && plan.stops < f64::INFINITY) {
                return Upkeep::No;
            }
        }
        for (k, (stage, plan)) in self.w.stages.iter().zip(&self.w.plans).enumerate() {
            let (Kind::Step(step), Some(plan)) = (&stage.kind, plan) else { continue };
            // An engine that stopped notices no bound any more.
            let noticed = |_: &&_| self.w.now < plan.stops;
            let leases = step.duty.leases.iter().filter(noticed);
            for lease in leases.filter(|l| l.until < f64::INFINITY) {
                let Some(sees) = lasts[k] else { return Upkeep::No };
                let kept = self.w.stages.iter().zip(&self.w.plans).zip(&lasts).find_map(|p| {
                    let ((stage, plan), sends) = p;
                    let (Kind::Step(from), Some(plan)) = (&stage.kind, plan) else { return None };
                    let sends = sends.filter(|_| self.w.now < plan.stops)?;
                    from.duty.keeps(lease, &step.duty.renewed, self.w.now, sends, sees)
                });
                let Some(kept) = kept else { return Upkeep::No };
                certain &= kept;
            }
        }
        if certain && !self.time_matters() { Upkeep::Forever } else { Upkeep::Perhaps }
    }

    /// Whether every session waits for room, and no deadline ends that.
    fn everybody_waits(&self) -> bool {
        let waits = |status: Status| match status {
            Status::Gone | Status::Growing { .. } => true,
            Status::Working { job } => self.w.jobs[job as usize].stalled,
            other => other.is_queued(),
        };
        let sessions = &self.w.sessions;
        self.live > 0 && sessions.iter().all(|s| waits(s.status) && !s.will_be_cut())
    }

    /// Whether an attempt to admit, an order or an iteration may come out differently for no other reason
    /// than that it is later.
    fn time_matters(&self) -> bool {
        let mut matters = false;
        self.c.ir.each_expr(&mut |moment, e| {
            if !matches!(moment, Moment::Session | Moment::Gap | Moment::Gauge | Moment::Ps) {
                e.walk(&mut |e| {
                    matters |= matches!(e, CExpr::Ctx(Ctx::Now | Ctx::Waited) | CExpr::Sample(..));
                });
            }
        });
        matters
    }
}

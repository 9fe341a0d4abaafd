//! What an engine does in its iterations beside computing tokens: it counts the steps that sessions wait
//! for, minds leases, and sends word for those it renews.
//!
//! An engine with such a duty iterates even if nobody has tokens to be computed, as a real one does
//! whose memory is still read from elsewhere.

use std::collections::VecDeque;

use super::Kind;
use super::deliver::Batch;
use crate::What;
use crate::engine::Engine;
use crate::error::{Reason, Result, amount};
use crate::pool::lease::Minded;
use crate::session::Status;

#[derive(Debug, Default)]
pub(crate) struct Duty {
    /// Who waits for steps, in order of coming.
    pub(crate) waiting: Vec<Waiting>,
    /// Whose last step is the iteration being put together or under way.
    pub(crate) over: Vec<Waiting>,
    /// Leases it minds, in order of granting.
    pub(crate) leases: Vec<Minded>,
    /// Leases of which it will hear that they can end, and when, in order of telling.
    pub(crate) told: Vec<(f64, Minded)>,
    /// Leases that end with the iteration being put together or under way.
    pub(crate) ending: Vec<Minded>,
    /// Word of renewals, in order of sending.
    pub(crate) renewed: Vec<Word>,
    /// Leases it sends word for.
    pub(crate) renewals: Vec<Renewal>,
    /// Seconds between two messages, and when it sent last.
    every: f64,
    last_sent: Option<f64>,
    /// Iterations that are over and not delivered, oldest first.
    pub(crate) flying: VecDeque<Batch>,
    /// Number of the latest one delivered.
    pub(crate) delivered: u64,
    /// Number of the latest one put together with tokens.
    pub(crate) latest: u64,
    /// Blocks that are free once the iteration of that number is delivered: it, pool, holder.
    pub(crate) deferred: Vec<(u64, u32, u32)>,
}

/// A session that waits for iterations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) session: u32,
    left: f64,
    pub(crate) telling: Option<Telling>,
}

/// A lease that can end, who hears of it, and how long that takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Telling {
    pub(crate) pool: u32,
    pub(crate) on: Option<u32>,
    pub(crate) after: f64,
}

/// Word that a session's lease is renewed, which names the session: it renews what lease that has when the
/// word is seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    /// When it is there, seconds.
    at: f64,
    /// The session's number.
    serial: u64,
    pool: u32,
    /// For how long from when it is seen.
    time: f64,
}

/// A session's lease that an engine renews, if the session has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal {
    pub(crate) session: u32,
    pub(crate) pool: u32,
    time: f64,
    /// How long word of it takes.
    after: f64,
}

impl Duty {
    /// Whether the engine iterates even if nobody has tokens to be computed. A lease without a bound
    /// asks for nothing until it is told.
    pub(crate) fn calls(&self) -> bool {
        !self.waiting.is_empty()
            || !self.over.is_empty()
            || !self.told.is_empty()
            || !self.ending.is_empty()
            || !self.flying.is_empty()
            || !self.renewals.is_empty()
            || self.leases.iter().any(|l| l.until < f64::INFINITY)
    }
}

impl Duty {
    /// Whether something comes of its iterations beside the upkeep of leases.
    pub(crate) fn is_at_work(&self) -> bool {
        !(self.waiting.is_empty()
            && self.over.is_empty()
            && self.told.is_empty()
            && self.ending.is_empty()
            && self.flying.iter().all(Batch::is_empty))
    }

    /// Whether its word certainly comes before the bound of a lease, each time, if its iterations last `sends`
    /// seconds and those of the engine that minds the lease `sees`, which has word `coming`. `None` if it sends
    /// none for it.
    pub(crate) fn keeps(
        &self,
        lease: &Minded,
        coming: &[Word],
        now: f64,
        sends: f64,
        sees: f64,
    ) -> Option<bool> {
        let of_lease = |r: &&Renewal| r.session == lease.session && r.pool == lease.pool;
        let renewal = self.renewals.iter().find(of_lease)?;
        // It sends with its first iteration after the interval, which is seen by the first one
        // after it is there. Lengths of iterations are differences of clocks, so a little more.
        let most = |seconds: f64| seconds * (1.0 + 1e-9);
        let of_lease = |w: &&Word| w.serial == lease.serial && w.pool == lease.pool;
        let next = match coming.iter().find(of_lease) {
            Some(word) => now.max(word.at) + most(sees),
            None => {
                let due = self.last_sent.map_or(now, |last| now.max(last + self.every));
                due + most(sends + renewal.after + sees)
            }
        };
        Some(renewal.time > most(self.every + sends + sees) && lease.until > next)
    }

    /// Word of a renewal was sent. Of what has come and was not seen yet, the latest is enough.
    fn hear(&mut self, word: Word, now: f64) {
        let waits = |w: &Word| w.serial == word.serial && w.pool == word.pool && w.at <= now;
        let latest = self.renewed.iter().rposition(waits);
        let mut at = 0;
        self.renewed.retain(|w| {
            at += 1;
            !waits(w) || Some(at - 1) == latest
        });
        self.renewed.push(word);
    }
}

impl Engine<'_> {
    pub(crate) fn duty(&mut self, stage: u32) -> Option<&mut Duty> {
        match &mut self.w.stages[stage as usize].kind {
            Kind::Step(step) => Some(&mut step.duty),
            _ => None,
        }
    }

    /// `run S steps (k)`: true if the session waits now.
    pub(crate) fn start_steps(
        &mut self,
        s: u32,
        stage: u32,
        steps: f64,
        telling: Option<Telling>,
    ) -> Result<bool> {
        if steps.fract() != 0.0 {
            return Err(Reason::new(
                "steps",
                format!("a run waits for {steps} steps"),
                "give a whole number",
            ));
        }
        if steps <= 0.0 {
            if let Some(telling) = telling {
                self.tell_lease(s, telling, None)?;
            }
            return Ok(false);
        }
        let session = &mut self.w.sessions[s as usize];
        session.pc += 1;
        session.status = Status::Stepping { stage };
        self.settle_request(s);
        let Kind::Step(step) = &mut self.w.stages[stage as usize].kind else { return Ok(true) };
        step.duty.waiting.push(Waiting { session: s, left: steps, telling });
        step.news += 1;
        self.alert_stages.insert(stage);
        if step.filling {
            let at = step.duty.waiting.len() - 1;
            self.count_step(stage, at)?;
        }
        Ok(true)
    }

    /// One step of a waiting run; true if it was the last, with which the run leaves the list.
    fn count_step(&mut self, stage: u32, at: usize) -> Result<bool> {
        let Some(duty) = self.duty(stage) else { return Ok(false) };
        let run = &mut duty.waiting[at];
        run.left -= 1.0;
        if run.left > 0.0 {
            return Ok(false);
        }
        let run = duty.waiting.remove(at);
        duty.over.push(run);
        // Its own engine knows at once that the lease can end.
        if let Some(Telling { pool, on: None, .. }) = run.telling
            && let Some((minds, at)) = self.minded(run.session, pool)
            && minds == stage
        {
            let lease = self.take_minded(run.session, minds, at);
            self.notice(stage, lease);
        }
        Ok(true)
    }

    /// The engine has heard, or sees, that a lease is over: it ends with this iteration.
    fn notice(&mut self, stage: u32, lease: Minded) {
        self.tell_of(lease.serial, What::LeaseNoticed { pool: lease.pool as usize });
        if let Some(duty) = self.duty(stage) {
            duty.ending.push(lease);
        }
    }

    /// What an iteration begins with: messages, bounds, steps.
    pub(super) fn attend(&mut self, stage: u32) -> Result<()> {
        let now = self.w.now;
        let Some(duty) = self.duty(stage) else { return Ok(()) };
        if !duty.calls() {
            return Ok(());
        }
        let mut k = 0;
        while let Some(duty) = self.duty(stage)
            && k < duty.told.len()
        {
            if duty.told[k].0 <= now {
                let (_, lease) = duty.told.remove(k);
                self.notice(stage, lease);
            } else {
                k += 1;
            }
        }
        let Some(duty) = self.duty(stage) else { return Ok(()) };
        let Duty { renewed, leases, told, .. } = duty;
        renewed.retain(|&Word { at, serial, pool, time }| {
            if at > now {
                return true;
            }
            let all = leases.iter_mut().chain(told.iter_mut().map(|(_, lease)| lease));
            if let Some(lease) = all.into_iter().find(|l| l.serial == serial && l.pool == pool) {
                lease.until = lease.until.max(now + time);
            }
            false
        });
        // Word that is still on its way does not keep a bound from coming.
        let expired = |l: &Minded| l.until <= now;
        let mut over: Vec<Minded> = leases.extract_if(.., |l| expired(l)).collect();
        over.extend(told.extract_if(.., |(_, l)| expired(l)).map(|(_, l)| l));
        over.sort_unstable_by_key(|l| l.id);
        for lease in over {
            self.disown(&lease);
            self.notice(stage, lease);
        }
        let mut k = 0;
        while let Some(duty) = self.duty(stage)
            && k < duty.waiting.len()
        {
            if !self.count_step(stage, k)? {
                k += 1;
            }
        }
        Ok(())
    }

    /// What an iteration ends with: word for the leases that are renewed.
    pub(super) fn send_renewals(&mut self, stage: u32) {
        let now = self.w.now;
        let Some(duty) = self.duty(stage) else { return };
        let due = duty.last_sent.is_none_or(|last| now - last >= duty.every);
        if duty.renewals.is_empty() || !due {
            return;
        }
        duty.last_sent = Some(now);
        for k in 0..duty.renewals.len() {
            let Some(duty) = self.duty(stage) else { return };
            let Renewal { session, pool, time, after } = duty.renewals[k];
            let serial = self.w.sessions[session as usize].serial;
            let word = Word { at: now + after, serial, pool, time };
            for at in 0..self.c.minders[pool as usize].len() {
                let minds = self.c.minders[pool as usize][at];
                if let Some(duty) = self.duty(minds) {
                    duty.hear(word, now);
                }
            }
        }
    }

    /// `renew`
    pub(crate) fn renew(&mut self, s: u32, k: u32) -> Result<()> {
        let plan = &self.c.renews[k as usize];
        let pool = self.pool_of(s, plan.pool)?;
        let from = self.pool_of(s, plan.from)?;
        let time = amount(self.value(s, plan.time)?, "the time a lease is renewed for")?;
        let every = amount(self.value(s, plan.every)?, "the time between renewals")?;
        let after = match plan.after {
            Some(e) => amount(self.value(s, e)?, "the time a renewal takes")?,
            None => 0.0,
        };
        self.end_renewals(s, Some(pool));
        if let Kind::Step(step) = &mut self.w.stages[from as usize].kind {
            step.duty.every = every;
            step.duty.renewals.push(Renewal { session: s, pool, time, after });
            step.news += 1;
        }
        self.alert_stages.insert(from);
        Ok(())
    }

    /// A session's leases, or its lease of one pool, are not renewed any more.
    pub(crate) fn end_renewals(&mut self, s: u32, pool: Option<u32>) {
        if self.c.renews.is_empty() {
            return;
        }
        for stage in &mut self.w.stages {
            if let Kind::Step(step) = &mut stage.kind {
                let other = |r: &Renewal| r.session != s || pool.is_some_and(|p| p != r.pool);
                step.duty.renewals.retain(other);
            }
        }
    }

    /// A session stops waiting for steps.
    pub(crate) fn leave_steps(&mut self, s: u32, stage: u32) {
        if let Some(duty) = self.duty(stage) {
            duty.waiting.retain(|w| w.session != s);
            duty.over.retain(|w| w.session != s);
            for batch in &mut duty.flying {
                batch.over.retain(|w| w.session != s);
            }
        }
    }
}

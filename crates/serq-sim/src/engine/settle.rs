//! What happens at an instant besides its events: sessions execute, pools admit, engines begin iterations.

use super::Engine;
use crate::Phase;
use crate::error::{Reason, Result};
use crate::stage::Kind;

/// Rounds one instant may take to settle.
const MOST_ROUNDS: u32 = 100_000;

impl Engine<'_> {
    /// Lets everything that can happen at this instant happen.
    ///
    /// First, until no session is ready: the ready sessions run, then every pool in order retries
    /// its growths and, unless a stage serves its queue, admits. Then the stages in order: an idle
    /// step stage with something to do starts an iteration, unless another event is due at this
    /// instant (a scheduler sees everything that arrived by then); a ps stage whose population
    /// changed gets its new rate. Room that an iteration's preemptions freed is offered at the
    /// next event. Only if an iteration's admissions gave work to what was passed already, in the
    /// order of stages or because its queue is served by nobody, does the instant go round again:
    /// that work would wait for an event that may never come.
    #[inline(always)]
    pub(super) fn settle(&mut self) -> Result<()> {
        self.settle_sessions()?;
        #[cfg(debug_assertions)]
        self.check_alert();
        if self.watched || self.w.flows.dirty || !self.alert_stages.is_empty() {
            return self.settle_stages();
        }
        self.delivered = None;
        self.calm = self.c.coasts && self.is_calm();
        Ok(())
    }

    /// The sessions have settled: the stages, and both again while one gives the other work.
    #[inline(never)]
    fn settle_stages(&mut self) -> Result<()> {
        for round in 0..MOST_ROUNDS {
            if round > 0 {
                self.settle_sessions()?;
            }
            if let Some(stage) = self.delivered.take() {
                self.show_engine(stage, Phase::Delivered);
            }
            let plain = self.plain_news;
            let now = self.w.now;
            let pending = self.events.next().is_some_and(|t| t <= now);
            #[cfg(debug_assertions)]
            self.check_alert();
            let mut seen = Vec::new();
            let mut from = 0;
            while let Some(stage) = self.alert_stages.next(from) {
                if !pending && self.can_iterate(stage) {
                    self.iterate(stage)?;
                    seen.push((stage, self.news(stage)));
                } else if self.is_dirty(stage) {
                    self.reschedule(stage)?;
                }
                from = stage + 1;
            }
            let mut again = self.plain_news > plain;
            let mut from = 0;
            while let Some(stage) = self.alert_stages.next(from) {
                if self.is_dirty(stage) {
                    self.reschedule(stage)?;
                }
                if self.can_iterate(stage) {
                    let tried =
                        seen.iter().any(|(s, news)| *s == stage && *news == self.news(stage));
                    again |= !pending && !tried;
                } else {
                    self.alert_stages.remove(stage);
                }
                from = stage + 1;
            }
            if self.w.flows.dirty {
                self.share_flows();
            }
            if !again {
                if self.watched && !pending {
                    self.show_idle();
                }
                self.calm = self.c.coasts && self.is_calm();
                return Ok(());
            }
        }
        Err(Reason::new(
            "instant-loop",
            "the instant does not settle: sessions and stages keep each other busy".into(),
            "look for work of size 0 in a loop",
        ))
    }

    #[inline(always)]
    fn settle_sessions(&mut self) -> Result<()> {
        loop {
            self.run_ready()?;
            if self.alert_pools.is_empty() {
                return Ok(());
            }
            let mut from = 0;
            while let Some(p) = self.alert_pools.next(from) {
                let pool = &self.w.pools[p as usize];
                if !pool.growers.is_empty() {
                    self.retry_growers(p)?;
                }
                if self.w.pools[p as usize].queue.len() > 0
                    && self.c.pools[p as usize].admit_via.is_none()
                {
                    self.admit_all(p)?;
                }
                if !self.pool_waits(p) {
                    self.alert_pools.remove(p);
                }
                from = p + 1;
            }
            if self.ready.is_empty() {
                return Ok(());
            }
        }
    }

    /// Whether engines may coast: settling again, with nothing changed but an engine's decoding, would do nothing, since
    /// nobody waits for room that is not a stage's to give, and no stage is about to start.
    fn is_calm(&self) -> bool {
        // Live keys may change who is first by time alone: a program with such a pool does not coast.
        self.settings.coalesce
            && !self.trace_iterations
            && !self.watched
            && !self.alert_pools.iter().any(|p| self.pool_waits(p))
            && !self.alert_stages.iter().any(|s| self.stage_waits(s))
    }

    fn news(&self, stage: u32) -> u64 {
        match &self.w.stages[stage as usize].kind {
            Kind::Step(step) => step.news,
            _ => 0,
        }
    }
}

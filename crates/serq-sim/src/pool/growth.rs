//! Making an allocation larger.
//!
//! A growth that does not fit takes room from a victim of the pool's policy, or waits. Those who
//! wait are served in the order in which they stalled; the first that does not fit blocks the
//! others.

use crate::engine::Engine;
use crate::error::{Result, Subject};
use crate::pool::shared::NONE;
use crate::session::Status;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    Grown,
    /// The session itself was the victim.
    Preempted,
    /// Nobody can give way: the caller decides who waits and how.
    Stalled,
    /// Who would give way has tokens under way that may still be written.
    Fenced,
}

impl Engine<'_> {
    /// Adds `units`, in whole blocks, to a claim.
    pub(crate) fn grow_claim(&mut self, s: u32, claim: u32, units: f64) -> Result<Growth> {
        let now = self.w.now;
        loop {
            let c = self.w.sessions[s as usize].claims[claim as usize];
            let pool = &self.w.pools[c.pool as usize];
            let more = pool.round_up(c.alloc + units) - c.alloc;
            if c.holder != NONE {
                if self.grow_shared(s, claim, c.alloc + units) {
                    return Ok(Growth::Grown);
                }
            } else if pool.fits(more) {
                self.make_room(c.pool, more)?;
                self.w.pools[c.pool as usize].allocate(now, more);
                self.w.sessions[s as usize].claims[claim as usize].alloc += more;
                return Ok(Growth::Grown);
            }
            let Some((victim, its_claim)) = self.victim(c.pool)? else {
                return Ok(Growth::Stalled);
            };
            if self.is_fenced(victim, its_claim) {
                return Ok(Growth::Fenced);
            }
            self.preempt(victim, its_claim)?;
            if victim == s {
                return Ok(Growth::Preempted);
            }
        }
    }

    /// Takes blank blocks until a claim has `units`; false if there are too few.
    pub(crate) fn grow_shared(&mut self, s: u32, claim: u32, units: f64) -> bool {
        let now = self.w.now;
        let c = &mut self.w.sessions[s as usize].claims[claim as usize];
        let pool = &mut self.w.pools[c.pool as usize];
        let Some(shared) = &mut pool.shared else { return false };
        if !shared.grow(c.holder, units) {
            return false;
        }
        c.alloc = shared.alloc(c.holder);
        pool.note_shared(now);
        true
    }

    /// A session's growth joins those who wait.
    pub(crate) fn stall(&mut self, s: u32, claim: u32, units: f64) {
        let session = &mut self.w.sessions[s as usize];
        session.growth = (claim, units);
        let pool = session.claims[claim as usize].pool;
        self.w.pools[pool as usize].growers.push_back(s);
        self.alert_pools.insert(pool);
    }

    /// Tries those who wait to grow, first come first served.
    pub(crate) fn retry_growers(&mut self, p: u32) -> Result<()> {
        while let Some(s) = self.w.pools[p as usize].growers.pop_front() {
            let (claim, units) = self.w.sessions[s as usize].growth;
            let outcome =
                self.grow_claim(s, claim, units).map_err(|r| r.about(Subject::Pool(p)).of(s))?;
            match outcome {
                Growth::Preempted => {}
                Growth::Stalled | Growth::Fenced => {
                    self.w.pools[p as usize].growers.push_front(s);
                    return Ok(());
                }
                Growth::Grown => match self.w.sessions[s as usize].status {
                    Status::Working { job } => self.w.jobs[job as usize].stalled = false,
                    _ => {
                        self.w.sessions[s as usize].pc += 1;
                        self.wake(s)?;
                    }
                },
            }
        }
        Ok(())
    }
}

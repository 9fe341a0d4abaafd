//! Sessions come and go.

use serq_lang::ir::{Arrival, Rate, Trace};

use crate::engine::Engine;
use crate::error::{Reason, Result, Subject, amount_or_inf};
use crate::event::Event;
use crate::expr::{Env, NO_VARS};
use crate::rng::{Purpose, Rng};
use crate::session::{Script, Session, Status};

/// Sessions of a closed workload that may end at the instant of their birth, at one instant.
const MOST_STILLBORN: u64 = 1_000_000;
/// Sessions that renewal arrivals may bring at one instant.
const MOST_CROWD: u64 = 100_000;

impl Engine<'_> {
    /// What is there at time 0.
    pub(crate) fn start_arrivals(&mut self) -> Result<()> {
        let c = self.c;
        match &c.ir.arrival {
            Arrival::None => {}
            Arrival::Poisson(_) => self.schedule(0.0, Event::Arrive),
            Arrival::Renewal(_) | Arrival::Rates(_) | Arrival::Times(_) | Arrival::Trace => {
                self.schedule_arrival()?;
            }
            Arrival::Closed(n) | Arrival::Batch(n) => {
                for _ in 0..*n {
                    self.spawn()?;
                }
            }
            Arrival::Sessions(all) => {
                for (number, session) in all.iter().enumerate() {
                    let number = number as u32;
                    if session.at > 0.0 {
                        self.schedule(session.at, Event::Come { number });
                    } else {
                        self.spawn_as(Some(number))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// An arrival: the next one is scheduled first, then the session comes.
    pub(crate) fn arrive(&mut self) -> Result<()> {
        self.coming += 1;
        self.schedule_arrival()?;
        self.spawn()
    }

    /// Schedules the arrival after the `coming` ones scheduled so far, if there is one.
    fn schedule_arrival(&mut self) -> Result<()> {
        let (c, now) = (self.c, self.w.now);
        if c.ir.limit.is_some_and(|n| self.coming >= n) {
            return Ok(());
        }
        let at = match &c.ir.arrival {
            Arrival::Poisson(rate) => now + self.arrival_units.next(&mut self.arrival_rng) / rate,
            Arrival::Renewal(_) => now + self.gap()?,
            Arrival::Rates(rates) => {
                let unit = self.arrival_units.next(&mut self.arrival_rng);
                next_of_rates(rates, now, unit)
            }
            Arrival::Times(times) => self.listed(times),
            Arrival::Trace => self.listed(&c.ir.trace_times),
            _ => return Ok(()),
        };
        self.schedule(at, Event::Arrive);
        Ok(())
    }

    /// The next of a list of times; one that is past the last never comes.
    fn listed(&self, times: &[f64]) -> f64 {
        times.get(self.coming as usize).copied().unwrap_or(f64::INFINITY)
    }

    /// Draws the gap of renewal arrivals.
    fn gap(&mut self) -> Result<f64> {
        let Some(e) = self.c.gap else { return Ok(f64::INFINITY) };
        let env = Env::stage(&NO_VARS);
        let gap = self.c.code.eval(e, &self.w, &env, &mut self.arrival_rng)?;
        let gap = amount_or_inf(gap, "the gap between arrivals")?;
        if gap > 0.0 {
            self.crowd = 0;
            return Ok(gap);
        }
        self.crowd += 1;
        if self.crowd > MOST_CROWD {
            return Err(Reason::new(
                "instant-loop",
                format!("{MOST_CROWD} sessions came at one instant"),
                "let the gap between arrivals be positive now and then",
            ));
        }
        Ok(gap)
    }

    /// Whether no session lives and none will come.
    pub(crate) fn is_drained(&self) -> bool {
        let ir = self.c.ir;
        let all = match &ir.arrival {
            Arrival::Times(times) => times.len() as u64,
            Arrival::Trace => ir.trace_times.len() as u64,
            Arrival::Batch(_) => self.arrived,
            Arrival::Sessions(all) => all.len() as u64,
            _ => ir.limit.unwrap_or(u64::MAX),
        };
        self.live == 0 && self.arrived >= all
    }

    pub(crate) fn spawn(&mut self) -> Result<()> {
        self.spawn_as(None)
    }

    /// A session comes, that of the workload's data with this number if it is given as data.
    pub(crate) fn spawn_as(&mut self, data: Option<u32>) -> Result<()> {
        let now = self.w.now;
        let c = self.c;
        let s = self.new_slot();
        let serial = data.map_or(self.arrived, u64::from);
        self.arrived += 1;
        self.live += 1;
        self.live_average.set(now, self.live as f64);
        self.session_rng[s as usize] = self.statements.stream(serial, 0);
        let session = &mut self.w.sessions[s as usize];
        session.serial = serial;
        session.pc = c.session;
        session.frames.clear();
        session.forgone.clear();
        session.born = now;
        session.turns = 0;
        session.stuck = false;
        session.admission = 0;
        session.woken_at = -1.0;
        session.script = match (&c.ir.arrival, &c.ir.trace) {
            (Arrival::Sessions(_), _) => Script::Data(serial as u32),
            (arrival, Some(Trace::Inline(all)))
                if c.ir.trace_ordered || *arrival == Arrival::Trace =>
            {
                Script::Trace((serial % all.len().max(1) as u64) as u32)
            }
            (_, Some(Trace::Inline(all))) => {
                let mut rng = Rng::stream(self.seed, Purpose::Trace, serial, 0);
                Script::Trace(rng.below(all.len()) as u32)
            }
            _ => Script::None,
        };
        if c.shares {
            self.first_content(s, data.map(|i| i as usize));
        }
        self.begin_request(s);
        let from = s as usize * self.w.width;
        self.w.attrs[from..from + self.w.width].fill(0.0);
        *self.w.attr_mut(s, c.slots.serial as u32) = serial as f64;
        if !matches!(c.ops[c.init as usize], crate::program::Op::Return) {
            self.workload(s, c.init, Rng::stream(self.seed, Purpose::Workload, serial, 0))?;
        }
        if let Arrival::Sessions(all) = &c.ir.arrival {
            for preset in &all[serial as usize].attrs {
                *self.w.attr_mut(s, preset.0 as u32) = preset.1;
            }
        }
        self.wake(s)
    }

    fn new_slot(&mut self) -> u32 {
        if let Some(s) = self.free_sessions.pop() {
            return s;
        }
        self.w.sessions.push(Session::new());
        self.w.attrs.resize(self.w.sessions.len() * self.w.width, 0.0);
        self.session_rng.push(Rng::stream(0, Purpose::Statements, 0, 0));
        self.w.sessions.len() as u32 - 1
    }

    /// The session is over: its holds and leases are given back, its cached prefixes stay,
    /// usable by nobody. A closed workload sends the next one.
    pub(crate) fn end_session(&mut self, s: u32) -> Result<()> {
        let now = self.w.now;
        self.end_request(s);
        if !self.c.renews.is_empty() || !self.w.sessions[s as usize].has_nothing() {
            self.leave(s)?;
        }
        let session = &mut self.w.sessions[s as usize];
        session.status = Status::Gone;
        session.frames.clear();
        session.pending.clear();
        session.preempted.clear();
        let born = session.born;
        self.free_sessions.push(s);
        self.live -= 1;
        self.live_average.set(now, self.live as f64);
        self.ended += u64::from(self.warm);
        if self.c.closed() == 0 {
            return Ok(());
        }
        if born == now {
            self.stillborn = if self.stillborn_at == now { self.stillborn + 1 } else { 1 };
            self.stillborn_at = now;
            if self.stillborn > MOST_STILLBORN {
                return Err(Reason::new(
                    "instant-loop",
                    "sessions of the closed workload end at the instant of their birth".into(),
                    "a closed workload replaces them at once: let its sessions run something",
                )
                .about(Subject::Op(self.c.session)));
            }
        }
        self.spawn()
    }

    /// A session that ends gives back what it has, waits for and asks of others.
    fn leave(&mut self, s: u32) -> Result<()> {
        self.detach(s);
        self.unwind(s, 0)?;
        while !self.w.sessions[s as usize].leases.is_empty() {
            self.end_lease(s, 0)?;
        }
        while let Some(&(id, stage)) = self.w.sessions[s as usize].minded.first() {
            self.end_minded_of(s, id, stage)?;
        }
        self.end_renewals(s, None);
        self.cancel_bookings(s, None);
        self.orphan_prefixes(s);
        Ok(())
    }

    fn orphan_prefixes(&mut self, s: u32) {
        let cached = std::mem::take(&mut self.w.sessions[s as usize].cached);
        for &(p, at) in &cached {
            let snapshot = self.snapshot(s);
            let pool = &mut self.w.pools[p as usize];
            if pool.cap == f64::INFINITY {
                let entry = pool.cache.remove(at);
                pool.cache.add_anonymous(entry.size);
                continue;
            }
            let entry = pool.cache.get_mut(at);
            entry.owner = None;
            entry.attrs = snapshot;
            if self.c.pools[p as usize].tier
                && let Some(serial) = entry.serial
            {
                pool.orphans.insert(serial, at);
            }
        }
        let session = &mut self.w.sessions[s as usize];
        session.cached = cached;
        session.cached.clear();
    }
}

/// The time at which Poisson arrivals of a piecewise constant rate have spent `unit`, the integral
/// of the rate from `now` on: exact, since between two entries the integral is linear.
fn next_of_rates(rates: &[Rate], now: f64, unit: f64) -> f64 {
    let first = rates.partition_point(|r| r.1 <= now).saturating_sub(1);
    let (mut at, mut left) = (now, unit);
    for (k, Rate(rate, from)) in rates.iter().enumerate().skip(first) {
        at = at.max(*from);
        let until = rates.get(k + 1).map_or(f64::INFINITY, |next| next.1);
        let spent = rate * (until - at);
        if *rate > 0.0 && spent >= left {
            return at + left / rate;
        }
        left -= if *rate > 0.0 { spent } else { 0.0 };
        at = until;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::next_of_rates;
    use serq_lang::ir::Rate;

    #[test]
    fn a_unit_is_spent_over_the_rates() {
        let rates = [Rate(2.0, 1.0), Rate(0.0, 3.0), Rate(0.5, 10.0)];
        for (now, unit, at) in [
            (0.0, 1.0, 1.5),
            (1.5, 1.0, 2.0),
            (1.0, 4.0, 3.0),
            (1.0, 5.0, 12.0),
            (5.0, 1.0, 12.0),
            (12.0, 1.0, 14.0),
        ] {
            assert_eq!(next_of_rates(&rates, now, unit), at, "from {now}");
        }
        assert_eq!(next_of_rates(&[Rate(1.0, 0.0), Rate(0.0, 2.0)], 1.0, 1.5), f64::INFINITY);
        assert_eq!(next_of_rates(&[Rate(0.0, 0.0)], 0.0, 1.0), f64::INFINITY);
    }
}

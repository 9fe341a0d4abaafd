//! Sessions come and go.

use serq_lang::ir::{Arrival, Trace};

use crate::engine::Engine;
use crate::error::{Reason, Result, Subject};
use crate::event::Event;
use crate::rng::{Purpose, Rng, dist};
use crate::session::{Script, Session, Status};

/// Sessions of a closed workload that may end at the instant of their birth, at one instant.
const MOST_STILLBORN: u64 = 1_000_000;

impl Engine<'_> {
    /// What is there at time 0.
    pub(crate) fn start_arrivals(&mut self) -> Result<()> {
        let c = self.c;
        match &c.ir.arrival {
            Arrival::None
            | Arrival::Renewal(_)
            | Arrival::Rates(_)
            | Arrival::Times(_)
            | Arrival::Trace => {}
            Arrival::Poisson(_) => self.schedule(0.0, Event::Arrive),
            Arrival::Closed(n) | Arrival::Batch(n) => {
                for _ in 0..*n {
                    self.spawn()?;
                }
            }
            Arrival::Sessions(all) => {
                for _ in all {
                    self.spawn()?;
                }
            }
        }
        Ok(())
    }

    /// A Poisson arrival: the next one is scheduled first, then the session comes.
    pub(crate) fn arrive(&mut self) -> Result<()> {
        if let Arrival::Poisson(rate) = self.c.ir.arrival {
            let gap = dist::exponential(&mut self.arrival_rng, 1.0) / rate;
            self.schedule(self.w.now + gap, Event::Arrive);
        }
        self.spawn()
    }

    pub(crate) fn spawn(&mut self) -> Result<()> {
        let now = self.w.now;
        let c = self.c;
        let s = self.new_slot();
        let serial = self.arrived;
        self.arrived += 1;
        self.live += 1;
        self.live_average.set(now, self.live as f64);
        self.session_rng[s as usize] = Rng::stream(self.seed, Purpose::Statements, serial, 0);
        let session = &mut self.w.sessions[s as usize];
        session.serial = serial;
        session.pc = c.session;
        session.born = now;
        session.turns = 0;
        session.stuck = false;
        session.admission = 0;
        session.woken_at = -1.0;
        session.script = match (&c.ir.arrival, &c.ir.trace) {
            (Arrival::Sessions(_), _) => Script::Data(serial as u32),
            (_, Some(Trace::Inline(all))) if c.ir.trace_ordered => {
                Script::Trace((serial % all.len().max(1) as u64) as u32)
            }
            (_, Some(Trace::Inline(all))) => {
                let mut rng = Rng::stream(self.seed, Purpose::Trace, serial, 0);
                Script::Trace(rng.below(all.len()) as u32)
            }
            _ => Script::None,
        };
        let from = s as usize * self.w.width;
        self.w.attrs[from..from + self.w.width].fill(0.0);
        *self.w.attr_mut(s, c.slots.serial as u32) = serial as f64;
        self.workload(s, c.init, Rng::stream(self.seed, Purpose::Workload, serial, 0))?;
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
        self.detach(s);
        self.unwind(s, 0)?;
        while !self.w.sessions[s as usize].leases.is_empty() {
            self.end_lease(s, 0)?;
        }
        self.orphan_prefixes(s);
        let session = &mut self.w.sessions[s as usize];
        session.status = Status::Gone;
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

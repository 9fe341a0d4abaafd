//! Allocations asked for in advance.
//!
//! A session that books stands in the queue of the booking's first pool and goes on; when the
//! booking's turn comes it is allocated, and counts as used and as a holder, but belongs to no hold:
//! it is nobody's resident and no victim. `enter` makes a hold of it, waiting if need be. From then
//! on it is a hold like any other, except that done again after a preemption it asks for the units
//! that were booked.

use crate::engine::Engine;
use crate::error::{Reason, Result, amount, whole};
use crate::expr::Env;
use crate::pool::admission::Attempt;
use crate::pool::queue::{Keys, Who};
use crate::session::{Claim, Hold, Pending, Status};

/// What became of a booking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In the queue of its first pool.
    Waiting,
    /// Allocated.
    Granted,
    /// A hold was made of it.
    Opened,
    /// That hold was preempted: what it asks for when it is entered again.
    Lapsed,
}

#[derive(Clone, Debug)]
pub(crate) struct Booking {
    pub(crate) claims: Vec<Pending>,
    pub(crate) state: State,
    /// Holds around the statement that booked.
    pub(crate) depth: usize,
    pub(crate) queued_at: f64,
    granted_at: f64,
}

impl Booking {
    /// The pool by which it is known.
    pub(crate) fn first(&self) -> u32 {
        self.claims[0].pool
    }

    /// What it has allocated beside the session's holds.
    pub(crate) fn granted(&self) -> &[Pending] {
        if self.state == State::Granted { &self.claims } else { &[] }
    }
}

impl Engine<'_> {
    /// `book`; the session ends if it asks for more than there ever is.
    pub(crate) fn book(&mut self, s: u32, plan: u32) -> Result<()> {
        let now = self.w.now;
        let Engine { w, c, session_rng, .. } = self;
        let rng = &mut session_rng[s as usize];
        let mut claims: Vec<Pending> = Vec::new();
        let mut over = None;
        for claim in &c.books[plan as usize] {
            let env = Env::session(w, s);
            let p = c.code.resolve(claim.pool, w, &env, rng)?;
            if claims.iter().any(|other| other.pool == p) {
                return Err(Reason::new(
                    "hold-twice",
                    format!("a booking names pool `{}` twice", c.pool_name(p as usize)),
                    "claim the sum of the units once",
                ));
            }
            let units = amount(c.code.eval(claim.units, w, &env, rng)?, "a booking's units")?;
            let reserve = match claim.reserve {
                Some(e) => amount(c.code.eval(e, w, &env, rng)?, "a booking's reserve")?,
                None => 0.0,
            };
            let integral = c.pools[p as usize].integral;
            let units = whole(units, integral, "a booking's units")?;
            let reserve = whole(reserve, integral, "a booking's reserve")?;
            let pool = &w.pools[p as usize];
            let (units, need) = (pool.round_up(units), pool.round_up(units.max(reserve)));
            if need > pool.cap {
                over.get_or_insert(p);
            }
            claims.push(Pending { pool: p, units, need });
        }
        let Some(first) = claims.first().map(|c| c.pool) else { return Ok(()) };
        if let Some(pool) = over {
            return self.reject(s, pool);
        }
        if self.w.sessions[s as usize].booking(first).is_some() {
            return Err(Reason::new(
                "booked-twice",
                format!("pool `{}` is booked already", self.c.pool_name(first as usize)),
                "enter the first booking, or release it, before the next",
            ));
        }
        let session = &mut self.w.sessions[s as usize];
        session.bookings.push(Booking {
            claims,
            state: State::Waiting,
            depth: session.holds.len(),
            queued_at: now,
            granted_at: now,
        });
        session.pc += 1;
        let who = Who::Booking(s);
        let plan = &self.c.pools[first as usize];
        if plan.queue.is_empty() || plan.live {
            self.w.pools[first as usize].queue.join(who);
        } else {
            let keys = Keys::new(&self.queue_keys(who, first)?);
            self.w.pools[first as usize].queue.join_by(who, keys);
        }
        self.w.pools[first as usize].note_queue(now);
        self.note_news(first);
        Ok(())
    }

    /// Tries a booking at the head of its queue.
    pub(crate) fn grant(&mut self, p: u32, s: u32) -> Result<Attempt> {
        let now = self.w.now;
        let Some(k) = self.w.sessions[s as usize].booking(p) else { return Ok(Attempt::Empty) };
        let claims = self.w.sessions[s as usize].bookings[k].claims.clone();
        if !claims.iter().all(|c| self.w.pools[c.pool as usize].fits(c.need)) {
            return Ok(Attempt::Blocked);
        }
        self.leave_queue(p, Who::Booking(s));
        for (i, claim) in claims.iter().enumerate() {
            self.make_room(claim.pool, claim.units)?;
            let warm = self.warm;
            let pool = &mut self.w.pools[claim.pool as usize];
            pool.add_holder(now);
            pool.allocate(now, claim.units);
            pool.stats.admissions += 1;
            if i == 0 && warm {
                pool.stats.wait.add(now - self.w.sessions[s as usize].bookings[k].queued_at);
            }
        }
        let session = &mut self.w.sessions[s as usize];
        session.bookings[k].state = State::Granted;
        session.bookings[k].granted_at = now;
        if session.status == (Status::Booked { pool: p }) {
            self.open(s, k)?;
            self.wake(s)?;
        }
        Ok(Attempt::Admitted)
    }

    /// `enter`: opens the booking, or waits for it.
    pub(crate) fn enter(&mut self, s: u32, plan: u32) -> Result<()> {
        let Some(booked) = &self.c.holds[plan as usize].booked else { return Ok(()) };
        let p = self.pool_of(s, booked.pool)?;
        let session = &mut self.w.sessions[s as usize];
        let at = session.booking(p).filter(|k| session.bookings[*k].state != State::Opened);
        let Some(k) = at else {
            return Err(Reason::new(
                "enter",
                format!("the session has no booking of pool `{}`", self.c.pool_name(p as usize)),
                "book before, on every way to this statement",
            ));
        };
        match session.bookings[k].state {
            State::Granted => self.open(s, k),
            State::Lapsed => {
                session.pending.clone_from(&session.bookings[k].claims);
                self.enqueue(s, false)
            }
            State::Waiting | State::Opened => {
                session.status = Status::Booked { pool: p };
                Ok(())
            }
        }
    }

    /// A granted booking becomes the hold of the `enter` the session stands at.
    fn open(&mut self, s: u32, k: usize) -> Result<()> {
        let plan = self.pending_plan(s);
        let reuse = match self.c.holds[plan as usize].reuse {
            Some(e) => {
                let reuse = amount(self.value(s, e)?, "the prefix to reuse")?;
                Some(whole(reuse, self.c.holds[plan as usize].integral, "the prefix to reuse")?)
            }
            None => None,
        };
        self.admissions += 1;
        let record = self.admissions;
        let session = &mut self.w.sessions[s as usize];
        let first = session.claims.len() as u32;
        let since = session.bookings[k].granted_at;
        session.bookings[k].state = State::Opened;
        let mut cached = 0.0f64;
        for claim in self.w.sessions[s as usize].bookings[k].claims.clone() {
            let p = claim.pool;
            let position = self.consume(s, p, reuse);
            cached = cached.max(position);
            let keeps = self.c.pools[p as usize].keeps_order();
            self.w.pools[p as usize].order.extend(keeps.then_some((record, s)));
            self.w.sessions[s as usize].claims.push(Claim {
                pool: p,
                alloc: claim.units,
                position,
                record,
                since,
                active: true,
            });
        }
        *self.w.attr_mut(s, self.c.slots.cached as u32) = cached;
        let session = &mut self.w.sessions[s as usize];
        session.holds.push(Hold { plan, pc: session.pc, first, touched: false });
        session.admission = record;
        session.pc += 1;
        Ok(())
    }

    /// The hold of a booking is done, or done for now.
    pub(crate) fn close_booking(&mut self, s: u32, hold: Hold, lapses: bool) {
        if self.c.holds[hold.plan as usize].booked.is_none() {
            return;
        }
        let session = &mut self.w.sessions[s as usize];
        let Some(claim) = session.claims.get(hold.first as usize) else { return };
        let Some(k) = session.booking(claim.pool) else { return };
        if lapses {
            session.bookings[k].state = State::Lapsed;
        } else {
            session.bookings.remove(k);
        }
    }

    /// Ends a booking that no hold is made of.
    pub(crate) fn cancel_booking(&mut self, s: u32, k: usize) {
        let now = self.w.now;
        let booking = self.w.sessions[s as usize].bookings.remove(k);
        if booking.state == State::Waiting {
            self.leave_queue(booking.first(), Who::Booking(s));
        }
        for claim in booking.granted() {
            let pool = &mut self.w.pools[claim.pool as usize];
            pool.remove_holder(now);
            pool.free(now, claim.units);
        }
    }

    /// Ends the unopened bookings made inside more than `depth` holds.
    pub(crate) fn cancel_bookings(&mut self, s: u32, depth: Option<usize>) {
        let inside = |b: &Booking| depth.is_none_or(|d| b.depth > d);
        while let Some(k) = self.w.sessions[s as usize].bookings.iter().position(inside) {
            self.cancel_booking(s, k);
        }
    }
}

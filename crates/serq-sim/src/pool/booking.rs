//! Allocations asked for in advance.
//!
//! A session that books a hold stands in its queue and goes on; when its turn comes the units are
//! allocated, and count as used and as a holder, but belong to no hold: the session is no resident by
//! them, and they are no victim. Coming to the hold makes it one of them, waiting for the grant if need be;
//! preempted, it is admitted again as any hold.

use crate::What;
use crate::engine::Engine;
use crate::error::{Reason, Result};
use crate::pool::queue::{Keys, Who};
use crate::session::{Claim, Hold, Pending, Status};

#[derive(Clone, Debug)]
pub(crate) struct Booking {
    /// The hold.
    pub(crate) plan: u32,
    /// What it asks for.
    pub(crate) claims: Vec<Pending>,
    /// What it has, once granted.
    pub(crate) granted: Vec<Claim>,
    /// What the grant set: attributes of the hold's bindings, and the units found.
    pub(crate) binds: Vec<f64>,
    pub(crate) cached: f64,
    /// Admission number of the grant, 0 before.
    pub(crate) record: u64,
    /// Holds and frames around the statement that booked.
    pub(crate) depth: usize,
    pub(crate) frames: usize,
    pub(crate) queued_at: f64,
}

impl Booking {
    /// The pool whose queue it is in.
    pub(crate) fn first(&self) -> u32 {
        self.claims[0].pool
    }

    pub(crate) fn waits(&self) -> bool {
        self.record == 0
    }
}

impl Engine<'_> {
    /// `book`; the session ends if it asks for more than there ever is.
    pub(crate) fn book(&mut self, s: u32, plan: u32) -> Result<()> {
        let now = self.w.now;
        self.name_pools(s, plan)?;
        let mut claims = self.w.sessions[s as usize].pending.clone();
        let over = self.measure(s, plan, &mut claims);
        self.w.hits.clear();
        if let Some(pool) = over? {
            return self.reject(s, pool);
        }
        let Some(first) = claims.first().map(|c| c.pool) else { return Ok(()) };
        if self.w.sessions[s as usize].booking(first).is_some() {
            return Err(Reason::new(
                "booked-twice",
                format!("pool `{}` is booked already", self.c.pool_name(first as usize)),
                "enter the first booking before the next",
            ));
        }
        let session = &mut self.w.sessions[s as usize];
        session.bookings.push(Booking {
            plan,
            claims,
            granted: Vec::new(),
            binds: Vec::new(),
            cached: 0.0,
            record: 0,
            depth: session.holds.len(),
            frames: session.frames.len(),
            queued_at: now,
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
        self.alert_queue(first);
        self.note_news(first);
        Ok(())
    }

    /// A booking's turn has come, and it fits: its units are allocated.
    pub(crate) fn grant(&mut self, s: u32, plan: u32, reuse: Option<f64>) -> Result<()> {
        let Some(k) = self.w.sessions[s as usize].booking_of(plan) else { return Ok(()) };
        self.admissions += 1;
        let record = self.admissions;
        let booking = &self.w.sessions[s as usize].bookings[k];
        let (claims, since) = (booking.claims.clone(), booking.queued_at);
        let mut granted = Vec::with_capacity(claims.len());
        let mut cached = 0.0f64;
        for (i, claim) in claims.iter().enumerate() {
            let waited = (i == 0).then_some(self.w.now - since);
            let claim = self.claim(s, claim, reuse, record, waited)?;
            cached = cached.max(claim.position);
            granted.push(claim);
        }
        let session = &mut self.w.sessions[s as usize];
        let booking = &mut session.bookings[k];
        booking.granted = granted;
        booking.cached = cached;
        booking.record = record;
        let pool = booking.first();
        if session.status == (Status::Booked { pool }) {
            self.open(s, k);
            self.wake(s)?;
        }
        Ok(())
    }

    /// The session comes to a hold it has booked: opens the booking, or waits for it.
    pub(crate) fn enter(&mut self, s: u32, plan: u32) -> Result<()> {
        let session = &mut self.w.sessions[s as usize];
        let Some(k) = session.booking_of(plan) else {
            return Err(Reason::new(
                "enter",
                "the session has not booked this hold".into(),
                "book before, on every way to this statement",
            ));
        };
        if session.bookings[k].waits() {
            session.status = Status::Booked { pool: session.bookings[k].first() };
        } else {
            self.open(s, k);
        }
        Ok(())
    }

    /// A granted booking becomes the hold the session stands at.
    fn open(&mut self, s: u32, k: usize) {
        let c = self.c;
        let session = &mut self.w.sessions[s as usize];
        let booking = session.bookings.remove(k);
        let first = session.claims.len() as u32;
        for claim in booking.granted {
            let keeps = c.pools[claim.pool as usize].keeps_order();
            let order = &mut self.w.pools[claim.pool as usize].order;
            order.extend(keeps.then_some((booking.record, s)));
            session.claims.push(claim);
        }
        session.admission = booking.record;
        session.holds.push(Hold {
            plan: booking.plan,
            pc: session.pc,
            first,
            touched: false,
            frames: session.frames.len() as u32,
        });
        session.pc += 1;
        *self.w.attr_mut(s, c.slots.cached as u32) = booking.cached;
        for ((slot, _), value) in c.holds[booking.plan as usize].binds.iter().zip(booking.binds) {
            *self.w.attr_mut(s, *slot) = value;
        }
    }

    /// Ends a booking that no hold is made of.
    pub(crate) fn cancel_booking(&mut self, s: u32, k: usize) {
        let now = self.w.now;
        let booking = self.w.sessions[s as usize].bookings.remove(k);
        if booking.waits() {
            self.leave_queue(booking.first(), Who::Booking(s));
        }
        for claim in booking.granted {
            self.tell(s, What::BookingEnded { pool: claim.pool as usize });
            if claim.holder != crate::pool::shared::NONE {
                self.close_holder(claim.pool, claim.holder, claim.fed);
                continue;
            }
            let pool = &mut self.w.pools[claim.pool as usize];
            pool.remove_holder(now);
            pool.free(now, claim.alloc);
        }
    }

    /// Ends the bookings made inside more than `depth` holds, or all.
    pub(crate) fn cancel_bookings(&mut self, s: u32, depth: Option<usize>) {
        let inside = |b: &Booking| depth.is_none_or(|d| b.depth > d);
        while let Some(k) = self.w.sessions[s as usize].bookings.iter().position(inside) {
            self.cancel_booking(s, k);
        }
    }

    /// A deadline that a shield is in the way of comes: what was booked inside of its frame, the one of this
    /// index, and still waits leaves its queue. Nothing of it is under way.
    pub(crate) fn forgo_bookings(&mut self, s: u32, frame: usize) {
        let waits = |b: &Booking| b.frames > frame && b.waits();
        while let Some(k) = self.w.sessions[s as usize].bookings.iter().position(waits) {
            let plan = self.w.sessions[s as usize].bookings[k].plan;
            self.cancel_booking(s, k);
            self.w.sessions[s as usize].forgone.push(plan);
        }
    }

    /// Whether the session's booking of a hold left its queue like that; then it waits as for any hold.
    pub(crate) fn forgone(&mut self, s: u32, plan: u32) -> bool {
        let forgone = &mut self.w.sessions[s as usize].forgone;
        let at = forgone.iter().position(|p| *p == plan);
        at.map(|at| forgone.remove(at)).is_some()
    }

    /// Ends the bookings made inside more than `depth` frames.
    pub(crate) fn cancel_bookings_of_frames(&mut self, s: u32, depth: usize) {
        let inside = |b: &Booking| b.frames > depth;
        while let Some(k) = self.w.sessions[s as usize].bookings.iter().position(inside) {
            self.cancel_booking(s, k);
        }
    }
}

//! What the statements do.

use crate::engine::Engine;
use crate::error::{Reason, Result, Subject, amount, whole};
use crate::expr::{Env, Expr};
use crate::pool::growth::Growth;
use crate::pool::release::no_hold;
use crate::program::Op;
use crate::rng::{Purpose, Rng};
use crate::session::{Script, Status};
use crate::stage::Mode;
use crate::stage::duty::Telling;
use serq_lang::ir::{Arrival, Trace};

/// Statements a session may execute before it must wait for something.
const MOST_STATEMENTS: u32 = 1_000_000;
/// Times a session may be woken at one instant.
const MOST_WAKES: u32 = 1_000;
/// Candidates of one `choose`.
const MOST_CANDIDATES: f64 = 1e6;

impl Engine<'_> {
    /// An expression for a session, drawing from the stream of its statements.
    #[inline(always)]
    pub(crate) fn value(&mut self, s: u32, e: Expr) -> Result<f64> {
        let rng = &mut self.session_rng[s as usize];
        self.c.code.eval(e, &self.w, &Env::session(&self.w, s), rng)
    }

    pub(crate) fn pool_of(&mut self, s: u32, r: crate::expr::Ref) -> Result<u32> {
        let rng = &mut self.session_rng[s as usize];
        self.c.code.resolve(r, &self.w, &Env::session(&self.w, s), rng)
    }

    /// A session becomes ready to execute.
    #[inline(always)]
    pub(crate) fn wake(&mut self, s: u32) -> Result<()> {
        let now = self.w.now;
        let session = &mut self.w.sessions[s as usize];
        session.status = Status::Ready;
        if session.woken_at == now {
            session.wakes += 1;
            if session.wakes > MOST_WAKES {
                return Err(Reason::new(
                    "instant-loop",
                    format!("the session was woken {MOST_WAKES} times at one instant"),
                    "its loop has a way without positive work, or its growth preempts itself again and again",
                )
                .about(Subject::Op(session.pc))
                .of(s));
            }
        } else {
            session.woken_at = now;
            session.wakes = 1;
        }
        self.ready.push_back(s);
        Ok(())
    }

    /// Runs every ready session, in the order in which they became ready, until it waits.
    #[inline(always)]
    pub(crate) fn run_ready(&mut self) -> Result<()> {
        while let Some(s) = self.ready.pop_front() {
            self.w.sessions[s as usize].status = Status::Executing;
            self.execute(s).map_err(|r| {
                let pc = self.w.sessions[s as usize].pc;
                r.about(Subject::Op(pc)).of(s)
            })?;
        }
        Ok(())
    }

    /// Executes a session's statements until it waits or ends.
    fn execute(&mut self, s: u32) -> Result<()> {
        let c = self.c;
        let at = s as usize;
        for _ in 0..MOST_STATEMENTS {
            let pc = self.w.sessions[at].pc;
            match c.ops[pc as usize] {
                Op::Set(slot, e) => {
                    let value = self.value(s, e)?;
                    if value.is_nan() {
                        return Err(not_a_number(&c.ir.attrs[slot as usize]));
                    }
                    *self.w.attr_mut(s, slot) = value;
                }
                Op::Observe(k, e) => {
                    let value = self.value(s, e)?;
                    self.observe(s, k, value)?;
                }
                Op::Branch(guard, otherwise) => {
                    let guard = self.value(s, guard)?;
                    if guard == 0.0 {
                        self.w.sessions[at].pc = otherwise;
                        continue;
                    }
                    if guard != 1.0 {
                        return Err(Reason::new(
                            "guard",
                            format!("a branch or `while` is guarded by {guard}, not 0 or 1"),
                            "compare with something, or write `branch with` for a draw",
                        ));
                    }
                }
                Op::Jump(to) => {
                    self.w.sessions[at].pc = to;
                    continue;
                }
                Op::Choose(k) => self.choose(s, k)?,
                Op::Turn => self.turn(s)?,
                Op::Hold(plan) => {
                    self.reach_hold(s, plan)?;
                    // It goes on if it had booked the hold.
                    if self.w.sessions[at].status != Status::Executing {
                        return Ok(());
                    }
                    continue;
                }
                Op::Book(plan) => {
                    self.book(s, plan)?;
                    if self.w.sessions[at].status != Status::Executing {
                        return Ok(());
                    }
                    continue;
                }
                Op::Content(k) => self.set_content(s, k)?,
                Op::Tell(k) => {
                    if let Some(telling) = self.telling(s, Some(k))? {
                        self.tell_lease(s, telling, None)?;
                    }
                }
                Op::Abandon(pool) => {
                    let p = self.pool_of(s, pool)?;
                    self.abandon(s, p)?;
                }
                Op::Renew(k) => self.renew(s, k)?,
                Op::Until(deadline, otherwise) => self.begin_until(s, deadline, otherwise)?,
                Op::Shield => self.begin_shield(s),
                Op::FrameEnd => {
                    if self.end_frame(s)? {
                        continue;
                    }
                }
                Op::HoldEnd => {
                    // Moves on by itself: what it offers may preempt this very session.
                    self.end_hold(s)?;
                    if self.w.sessions[at].status != Status::Executing {
                        return Ok(());
                    }
                    continue;
                }
                Op::Release(pool) => {
                    let p = self.pool_of(s, pool)?;
                    self.w.sessions[at].pc += 1;
                    self.release(s, p).map_err(|r| r.about(Subject::Op(pc)))?;
                    if self.w.sessions[at].status != Status::Executing {
                        return Ok(());
                    }
                    continue;
                }
                Op::Grow(pool, e) => {
                    if !self.grow(s, pool, e)? {
                        return Ok(());
                    }
                }
                Op::Load(pool, e) => {
                    let p = self.pool_of(s, pool)?;
                    let n = self.value(s, e)?;
                    self.load(s, p, n)?;
                }
                Op::Drop(pool) => {
                    let p = self.pool_of(s, pool)?;
                    self.drop_prefix(s, p);
                }
                Op::Run(k) => {
                    if self.start_run(s, k)? {
                        return Ok(());
                    }
                }
                Op::End | Op::Return => return self.end_session(s),
            }
            self.w.sessions[at].pc += 1;
        }
        Err(Reason::new(
            "endless",
            format!("the session executed {MOST_STATEMENTS} statements without waiting"),
            "a loop needs a run with positive work on every way through it",
        ))
    }

    #[inline]
    pub(crate) fn observe(&mut self, s: u32, k: u32, value: f64) -> Result<()> {
        if !value.is_finite() {
            return Err(Reason::new(
                "observe",
                format!("observe `{}` is {value}", self.c.ir.observes[k as usize]),
                "observe finite numbers: check for a division by zero",
            ));
        }
        if self.warm {
            self.samples[k as usize].add(value);
            if self.show_samples {
                let session = &self.w.sessions[s as usize];
                self.observer.sample(&crate::Sample {
                    observe: k as usize,
                    time: self.w.now,
                    session: session.serial,
                    turn: session.turns,
                    value,
                });
            }
        }
        Ok(())
    }

    /// `choose`: the first index with the smallest key.
    fn choose(&mut self, s: u32, k: u32) -> Result<()> {
        let plan = &self.c.chooses[k as usize];
        // Without candidates the choice is 0.
        let count = self.value(s, plan.count)?;
        let count = if count < 0.0 { 0.0 } else { count };
        if count.fract() != 0.0 || count > MOST_CANDIDATES {
            return Err(Reason::new(
                "choose",
                format!("`choose` is among {count} candidates"),
                "give a whole number, at most a million",
            ));
        }
        let (mut best, mut least) = (0.0, f64::INFINITY);
        for candidate in 0..count as u64 {
            let candidate = candidate as f64;
            *self.w.attr_mut(s, plan.var) = candidate;
            let key = self.value(s, plan.key)?;
            if key.is_nan() {
                return Err(Reason::new(
                    "key",
                    format!("the key of candidate {candidate} is not a number"),
                    "check the expression for a division by zero",
                ));
            }
            if key < least {
                (best, least) = (candidate, key);
            }
        }
        *self.w.attr_mut(s, plan.var) = best;
        Ok(())
    }

    /// Draws the session's next request: from its data or recording, then by the `turn` block.
    fn turn(&mut self, s: u32) -> Result<()> {
        let c = self.c;
        let slots = c.slots;
        let session = &mut self.w.sessions[s as usize];
        session.turns += 1;
        self.turns_begun += u64::from(self.warm);
        self.begin_request(s);
        let session = &self.w.sessions[s as usize];
        let (number, script, serial) = (session.turns, session.script, session.serial);
        let k = number as usize - 1;
        *self.w.attr_mut(s, slots.turn_no as u32) = number as f64;
        match (script, &c.ir.arrival, &c.ir.trace) {
            (Script::Data(i), Arrival::Sessions(all), _) => {
                let turns = &all[i as usize].turns;
                for preset in turns.get(k).into_iter().flatten() {
                    *self.w.attr_mut(s, preset.0 as u32) = preset.1;
                }
                *self.w.attr_mut(s, slots.more as u32) = f64::from(k + 1 < turns.len());
            }
            (Script::Trace(i), _, Some(Trace::Inline(all))) => {
                let turns = &all[i as usize];
                if let Some(turn) = turns.get(k) {
                    *self.w.attr_mut(s, slots.new as u32) = turn.0;
                    *self.w.attr_mut(s, slots.out as u32) = turn.1;
                    *self.w.attr_mut(s, slots.think as u32) = turn.2;
                    *self.w.attr_mut(s, slots.forced as u32) = turn.3;
                }
                *self.w.attr_mut(s, slots.more as u32) = f64::from(k + 1 < turns.len());
            }
            _ => {}
        }
        if matches!(c.ops[c.turn as usize], Op::Return) {
            return Ok(());
        }
        self.workload(s, c.turn, Rng::stream(self.seed, Purpose::Workload, serial, number))
    }

    /// Executes an `init` or `turn` block on a stream of its own.
    pub(crate) fn workload(&mut self, s: u32, start: u32, mut rng: Rng) -> Result<()> {
        let c = self.c;
        for pc in start.. {
            let result = match c.ops[pc as usize] {
                Op::Set(slot, e) => c
                    .code
                    .eval(e, &self.w, &Env::session(&self.w, s), &mut rng)
                    .and_then(|v| {
                        if v.is_nan() {
                            Err(not_a_number(&c.ir.attrs[slot as usize]))
                        } else {
                            Ok(v)
                        }
                    })
                    .map(|v| *self.w.attr_mut(s, slot) = v),
                Op::Observe(k, e) => c
                    .code
                    .eval(e, &self.w, &Env::session(&self.w, s), &mut rng)
                    .and_then(|v| self.observe(s, k, v)),
                _ => break,
            };
            result.map_err(|r| r.about(Subject::Op(pc)).of(s))?;
        }
        Ok(())
    }

    /// `grow`; false if the session now waits, elsewhere or here.
    fn grow(&mut self, s: u32, pool: crate::expr::Ref, e: Expr) -> Result<bool> {
        let p = self.pool_of(s, pool)?;
        let units = amount(self.value(s, e)?, "the units to grow by")?;
        let units = whole(units, self.c.pools[p as usize].integral, "the units to grow by")?;
        let Some(claim) = self.w.sessions[s as usize].claim_on(p) else {
            return Err(no_hold("grow", &self.c.pool_name(p as usize)));
        };
        match self.grow_claim(s, claim as u32, units)? {
            Growth::Grown => Ok(true),
            Growth::Preempted => Ok(false),
            Growth::Stalled | Growth::Fenced => {
                self.stall(s, claim as u32, units);
                self.w.sessions[s as usize].status = Status::Growing { pool: p };
                Ok(false)
            }
        }
    }

    fn drop_prefix(&mut self, s: u32, p: u32) {
        let now = self.w.now;
        if let Some(entry) = self.w.sessions[s as usize].own_entry(p) {
            self.w.sessions[s as usize].forget_entry(p);
            let pool = &mut self.w.pools[p as usize];
            pool.cache.remove(entry);
            pool.note_cached(now);
        }
    }

    /// `run`; true if the session now works at a stage.
    fn start_run(&mut self, s: u32, k: u32) -> Result<bool> {
        let plan = &self.c.runs[k as usize];
        let stage = self.pool_of(s, plan.stage)?;
        let mut also = Vec::new();
        for &r in &plan.also {
            let other = self.pool_of(s, r)?;
            if other == stage || also.contains(&other) {
                return Err(Reason::new(
                    "run-twice",
                    format!("a run names stage `{}` twice", self.c.stage_name(other as usize)),
                    "a flow is on a stage once: check the indices",
                ));
            }
            also.push(other);
        }
        let work = amount(self.value(s, plan.work)?, "the work of a run")?;
        if plan.mode == Mode::Steps {
            let telling = self.telling(s, plan.telling)?;
            return self.start_steps(s, stage, work, telling);
        }
        let integral = self.w.plans[stage as usize].as_ref().is_some_and(|p| p.integral);
        let work = whole(work, integral, "the work of a run")?;
        let then = match plan.then {
            Some(e) => {
                let then = amount(self.value(s, e)?, "the tokens of a run")?;
                whole(then, integral, "the tokens of a run")?
            }
            None => 0.0,
        };
        // A run without prefill tokens decodes from the start.
        let (mode, work, then) = if work <= 0.0 && then > 0.0 {
            (Mode::Decode, then, 0.0)
        } else {
            (plan.mode, work, then)
        };
        let growing = match plan.growing {
            Some(pool) => Some(self.pool_of(s, pool)?),
            None => None,
        };
        if work <= 0.0 {
            return Ok(false);
        }
        let growing = match growing {
            Some(p) => {
                let session = &mut self.w.sessions[s as usize];
                let Some(claim) = session.claim_on(p) else {
                    return Err(no_hold("growing", &self.c.pool_name(p as usize)));
                };
                let hold = session.hold_of(claim);
                session.holds[hold].touched = true;
                let c = &mut session.claims[claim];
                let prefill = if mode == Mode::Prefill { work } else { 0.0 };
                c.decided = c.decided.max(c.position + prefill);
                Some(claim as u32)
            }
            None => None,
        };
        self.w.sessions[s as usize].pc += 1;
        match mode {
            Mode::Plain | Mode::Steps => self.settle_request(s),
            Mode::Decode => self.requests.decodes(s),
            Mode::Prefill => {}
        }
        let id = self.join_over((stage, &also), Some(s), work, mode, growing)?;
        let job = &mut self.w.jobs[id as usize];
        job.run = k;
        job.then = then;
        Ok(true)
    }

    /// Which lease a statement or run tells of, and whom.
    fn telling(&mut self, s: u32, k: Option<u32>) -> Result<Option<Telling>> {
        let Some(k) = k else { return Ok(None) };
        let plan = &self.c.tells[k as usize];
        let pool = self.pool_of(s, plan.pool)?;
        let on = match plan.on {
            Some(stage) => Some(self.pool_of(s, stage)?),
            None => None,
        };
        let after = match plan.after {
            Some(e) => amount(self.value(s, e)?, "the time of a message")?,
            None => 0.0,
        };
        Ok(Some(Telling { pool, on, after }))
    }
}

pub(crate) fn not_a_number(attr: &str) -> Box<Reason> {
    Reason::new(
        "set",
        format!("`{attr}` is set to something that is not a number"),
        "check the expression for a division of 0 by 0 or the like",
    )
}

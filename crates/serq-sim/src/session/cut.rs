//! Deadlines: `until (e) {…} else {…}` and `shield {…}`.
//!
//! A session has a stack of frames, a deadline or a shield each. A deadline is an event that comes
//! after every other of its instant; then the session leaves wherever it is, unwinds the holds inside
//! the frame and goes on behind it. If a shield is inside, it goes on until the shield's end. A frame
//! that is left has no deadline any more: its event is recognised by number. What was booked inside and waits
//! in a queue is no work under way that a shield protects: it leaves the queue at once.

use crate::What;
use crate::engine::Engine;
use crate::error::{Reason, Result, Subject};
use crate::event::Event;
use crate::expr::Expr;
use crate::session::Session;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// Number among all there were; 0 for a shield.
    id: u64,
    /// When its time comes, seconds.
    at: f64,
    /// Where a session that is cut goes on.
    otherwise: u32,
    /// Holds around it.
    holds: u32,
    /// Its time has come, and a shield is in the way.
    due: bool,
}

impl Frame {
    fn is_shield(&self) -> bool {
        self.id == 0
    }

    /// Holds around it.
    #[cfg(debug_assertions)]
    pub(crate) fn holds(&self) -> usize {
        self.holds as usize
    }
}

impl Session {
    /// Whether a deadline will take it out of what it waits for: no shield is in the way.
    pub(crate) fn will_be_cut(&self) -> bool {
        let inner = self.frames.iter().rev().take_while(|f| !f.is_shield());
        inner.into_iter().any(|f| f.at < f64::INFINITY)
    }
}

impl Engine<'_> {
    /// `until`: a frame begins.
    pub(crate) fn begin_until(&mut self, s: u32, at: Expr, otherwise: u32) -> Result<()> {
        let at = self.value(s, at)?;
        if at.is_nan() {
            return Err(Reason::new(
                "until",
                "the time of an `until` is not a number".into(),
                "check the expression for a division by zero",
            ));
        }
        self.frames += 1;
        let id = self.frames;
        let session = &mut self.w.sessions[s as usize];
        let holds = session.holds.len() as u32;
        session.frames.push(Frame { id, at, otherwise, holds, due: false });
        let at = at.max(self.w.now);
        self.schedule_late(at, Event::Deadline { session: s, frame: id });
        Ok(())
    }

    pub(crate) fn begin_shield(&mut self, s: u32) {
        let session = &mut self.w.sessions[s as usize];
        let holds = session.holds.len() as u32;
        session.frames.push(Frame { id: 0, at: f64::INFINITY, otherwise: 0, holds, due: false });
    }

    /// The innermost frame is over where its block is. What it shielded may be cut now: true if the
    /// session goes on elsewhere.
    pub(crate) fn end_frame(&mut self, s: u32) -> Result<bool> {
        self.w.sessions[s as usize].frames.pop();
        match self.due_frame(s) {
            Some(at) => self.cut(s, at).map(|()| true),
            None => Ok(false),
        }
    }

    /// The outermost frame whose time has come and that no shield is in.
    fn due_frame(&self, s: u32) -> Option<usize> {
        let frames = &self.w.sessions[s as usize].frames;
        let from = frames.iter().rposition(Frame::is_shield).map_or(0, |k| k + 1);
        (from..frames.len()).find(|k| frames[*k].due)
    }

    /// A deadline comes; nothing if its frame was left.
    pub(crate) fn deadline(&mut self, s: u32, id: u64) -> Result<()> {
        let frames = &mut self.w.sessions[s as usize].frames;
        let Some(k) = frames.iter().position(|f| f.id == id) else { return Ok(()) };
        frames[k].due = true;
        self.end_renewals(s, None);
        let due = self.due_frame(s);
        self.tell(s, What::Cut { shielded: due.is_none() });
        let Some(at) = due else {
            self.forgo_bookings(s, k);
            return Ok(());
        };
        let pc = self.w.sessions[s as usize].pc;
        self.detach(s);
        self.cut(s, at).map_err(|r| r.about(Subject::Op(pc)).of(s))?;
        self.wake(s)
    }

    /// A session that is nowhere any more unwinds to a frame and goes on behind it.
    fn cut(&mut self, s: u32, at: usize) -> Result<()> {
        self.drop_under_way(s);
        let frame = self.w.sessions[s as usize].frames[at];
        self.unwind(s, frame.holds as usize)?;
        self.cancel_bookings_of_frames(s, at);
        let session = &mut self.w.sessions[s as usize];
        session.forgone.clear();
        session.frames.truncate(at);
        session.pc = frame.otherwise;
        Ok(())
    }

    /// Leaves the frames inside a hold that begins again. A deadline that waited for one of their shields
    /// comes once more.
    pub(crate) fn leave_frames(&mut self, s: u32, depth: u32) {
        let session = &mut self.w.sessions[s as usize];
        if session.frames.len() <= depth as usize {
            return;
        }
        session.frames.truncate(depth as usize);
        if let Some(at) = self.due_frame(s) {
            let frame = self.w.sessions[s as usize].frames[at].id;
            self.schedule_late(self.w.now, Event::Deadline { session: s, frame });
        }
    }
}

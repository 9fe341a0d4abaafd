//! When a session's requests begin and end; what is measured of them is in
//! [`stats::request`](crate::stats::Requests).

use crate::engine::Engine;
use crate::session::Status;
use crate::stage::Mode;

impl Engine<'_> {
    /// The session is born or takes its next turn.
    #[inline]
    pub(crate) fn begin_request(&mut self, s: u32) {
        if self.requests.on {
            self.end_request(s);
            let session = &self.w.sessions[s as usize];
            let name = (session.serial, session.turns);
            self.requests.begin(s, name, self.w.now, self.warm);
        }
    }

    /// The session has no more tokens to come for its request.
    #[inline]
    pub(crate) fn end_request(&mut self, s: u32) {
        if !self.requests.on {
            return;
        }
        let warm_at = self.warm.then_some(self.warm_at);
        if let Some(request) = self.requests.end(s, warm_at) {
            self.observer.request(&request);
        }
    }

    /// The session turns to something that is no prefill or decode: its request is answered,
    /// unless more tokens may follow before the next turn.
    #[inline]
    pub(crate) fn settle_request(&mut self, s: u32) {
        if self.requests.on && self.is_answered(s) {
            self.end_request(s);
        }
    }

    /// Whether neither the program nor a preemption leads to more tokens for the request.
    fn is_answered(&self, s: u32) -> bool {
        let session = &self.w.sessions[s as usize];
        !self.c.ahead[session.pc as usize]
            && !session.claims.iter().any(|c| c.active && self.c.pools[c.pool as usize].lifo)
    }

    /// Ends the requests that are answered, at the end of the run; the number of counted ones
    /// that are not.
    pub(crate) fn end_answered(&mut self) -> u64 {
        let mut unfinished = 0;
        if !self.requests.on {
            return unfinished;
        }
        for s in 0..self.w.sessions.len() as u32 {
            let session = &self.w.sessions[s as usize];
            let computes = match session.status {
                Status::Gone => continue,
                Status::Working { job } => self.w.jobs[job as usize].mode != Mode::Plain,
                _ => false,
            };
            if !computes && !self.c.ahead[session.pc as usize] {
                self.end_request(s);
            } else {
                unfinished += u64::from(self.requests.pending(s));
            }
        }
        unfinished
    }
}

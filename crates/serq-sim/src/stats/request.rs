//! Measures of requests that the program need not spell out.
//!
//! A request is what a session asks between two turns. Its tokens come from step stages: the end
//! of a prefill is a token, and every iteration that decodes for it ends with one. Prefills before
//! the first decode run count once, as the last of them (a prompt prefilled elsewhere is finished
//! where it is decoded); a prefill after it recomputes what a preemption threw away and gives the
//! token that comes next.
//!
//! Only requests that start after the warm-up count, except in the rates, which count what is
//! answered after it. Of gaps there is one per token, so they go into a [`Histogram`]; all
//! that decoded through the iteration before have the same gap and are entered together.

use super::{Histogram, Rate, Samples};
use crate::{Request, Slo};

#[derive(Debug)]
pub(crate) struct Requests {
    /// Whether the program runs anything on a step stage.
    pub(crate) on: bool,
    slo: Slo,
    /// By session slot.
    open: Vec<Open>,
    /// Counted residents of the iteration that ends whose previous token came when it began.
    together: u64,
    pub(crate) ttft: Samples,
    pub(crate) tpot: Samples,
    pub(crate) e2e: Samples,
    pub(crate) tokens: Samples,
    pub(crate) itl: Histogram,
    /// 1 for each request within the bounds, 0 for others; and how many are.
    pub(crate) within: Samples,
    pub(crate) kept: u64,
    pub(crate) answered: Rate,
    /// Tokens of those.
    pub(crate) answered_tokens: u64,
    pub(crate) good: Rate,
    /// Requests that ended because a hold could never fit.
    pub(crate) rejected: u64,
}

/// The request of a session.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    live: bool,
    /// Whether it started after the warm-up.
    counted: bool,
    /// Whether its first decode run has begun.
    decodes: bool,
    request: Request,
}

impl Requests {
    pub(crate) fn new(on: bool, slo: Slo, from: f64, until: f64) -> Self {
        Self {
            on,
            slo,
            open: Vec::new(),
            together: 0,
            ttft: Samples::default(),
            tpot: Samples::default(),
            e2e: Samples::default(),
            tokens: Samples::default(),
            itl: Histogram::default(),
            within: Samples::default(),
            kept: 0,
            answered: Rate::new(from, until),
            answered_tokens: 0,
            good: Rate::new(from, until),
            rejected: 0,
        }
    }

    pub(crate) fn begin(&mut self, slot: u32, (session, turn): (u64, u64), now: f64, warm: bool) {
        let slot = slot as usize;
        if slot >= self.open.len() {
            self.open.resize(slot + 1, Open::default());
        }
        let request = Request { session, turn, start: now, ..Request::default() };
        self.open[slot] = Open { live: true, counted: warm, decodes: false, request };
    }

    /// A decode run with work begins.
    pub(crate) fn decodes(&mut self, slot: u32) {
        if self.on {
            self.open[slot as usize].decodes = true;
        }
    }

    /// A prefill run ends.
    pub(crate) fn prefilled(&mut self, slot: u32, now: f64) {
        if !self.on || !self.open[slot as usize].live {
            return;
        }
        if self.open[slot as usize].decodes {
            if let Some((gap, _)) = self.next_token(slot, now) {
                self.itl.add(gap, 1);
            }
            return;
        }
        let request = &mut self.open[slot as usize].request;
        request.first = now;
        request.last = now;
        request.tokens = 1;
    }

    /// An iteration that began at `began` ends with a token of this session. To be followed by
    /// [`iteration_ended`](Self::iteration_ended).
    pub(crate) fn decoded(&mut self, slot: u32, began: f64, now: f64) {
        if !self.on {
            return;
        }
        match self.next_token(slot, now) {
            Some((_, before)) if before == began => self.together += 1,
            Some((gap, _)) => self.itl.add(gap, 1),
            None => {}
        }
    }

    pub(crate) fn iteration_ended(&mut self, began: f64, now: f64) {
        if self.together > 0 {
            self.itl.add(now - began, self.together);
            self.together = 0;
        }
    }

    /// As many [`decoded`](Self::decoded) and [`iteration_ended`](Self::iteration_ended) as there
    /// are residents, all of which had a token when the iteration began, do for the gaps;
    /// `counted` of their requests count. The tokens are to be entered with
    /// [`skipped`](Self::skipped).
    pub(crate) fn steady(&mut self, began: f64, now: f64, counted: u64) {
        if counted > 0 {
            self.itl.add(now - began, counted);
        }
    }

    /// The session got `tokens` in steady iterations, the last of which ended at `last`.
    pub(crate) fn skipped(&mut self, slot: u32, tokens: u64, last: f64, longest_gap: f64) {
        if !self.on || !self.open[slot as usize].live {
            return;
        }
        let r = &mut self.open[slot as usize].request;
        r.tokens += tokens;
        r.last = last;
        r.longest_gap = r.longest_gap.max(longest_gap);
    }

    /// Counts a token: its gap and the time of the one before, if there is one to count.
    fn next_token(&mut self, slot: u32, now: f64) -> Option<(f64, f64)> {
        let open = &mut self.open[slot as usize];
        if !open.live {
            return None;
        }
        let r = &mut open.request;
        r.tokens += 1;
        let before = std::mem::replace(&mut r.last, now);
        if r.tokens == 1 {
            r.first = now;
            return None;
        }
        let gap = now - before;
        r.longest_gap = r.longest_gap.max(gap);
        open.counted.then_some((gap, before))
    }

    /// Whether the session's request is under way and counts.
    pub(crate) fn pending(&self, slot: u32) -> bool {
        self.open.get(slot as usize).is_some_and(|o| o.live && o.counted)
    }

    /// The session's request has all its tokens, if it has any. Given back if it counts.
    pub(crate) fn end(&mut self, slot: u32, warm_at: Option<f64>) -> Option<Request> {
        let open = self.open.get_mut(slot as usize)?;
        if !std::mem::replace(&mut open.live, false) || open.request.tokens == 0 {
            return None;
        }
        let (r, counted) = (open.request, open.counted);
        let within = r.meets(&self.slo);
        if warm_at.is_some_and(|at| r.last >= at) {
            self.answered.add(r.last);
            self.answered_tokens += r.tokens;
            if within {
                self.good.add(r.last);
            }
        }
        if !counted {
            return None;
        }
        self.ttft.add(r.ttft());
        if r.tokens > 1 {
            self.tpot.add(r.tpot());
        }
        self.e2e.add(r.e2e());
        self.tokens.add(r.tokens as f64);
        self.within.add(f64::from(within));
        self.kept += u64::from(within);
        Some(r)
    }

    /// The session ends because a hold can never fit: its request was not served.
    pub(crate) fn reject(&mut self, slot: u32) {
        let Some(open) = self.open.get_mut(slot as usize) else { return };
        if std::mem::replace(&mut open.live, false) && open.counted {
            self.rejected += 1;
            self.within.add(0.0);
        }
    }
}

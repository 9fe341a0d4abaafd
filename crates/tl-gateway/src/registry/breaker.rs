//! A worker that fails again and again leaves rotation and comes back by one request.
//!
//! After [`TRIP`] failures in a row the breaker is open for a while that doubles with each
//! further failure. Then exactly one request at a time is let through; its success closes the
//! breaker, its failure opens it again. A probe that never reports (its driver was cut) does
//! not hold the breaker: after [`PROBE_LIMIT`] the next one may try.

use std::time::{Duration, Instant};

/// Failures in a row that open it.
pub const TRIP: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
const PROBE_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum State {
    #[default]
    Closed,
    Open {
        until: Instant,
        pause: Duration,
    },
    Probing {
        since: Instant,
        pause: Duration,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Breaker {
    state: State,
    failures: u32,
}

impl Breaker {
    /// Whether a request may go there now.
    pub fn admits(&self, now: Instant) -> bool {
        match self.state {
            State::Closed => true,
            State::Open { until, .. } => now >= until,
            State::Probing { since, .. } => now.saturating_duration_since(since) >= PROBE_LIMIT,
        }
    }

    /// Whether the next request would be the one that decides: it should go there first.
    pub fn wants_probe(&self, now: Instant) -> bool {
        self.state != State::Closed && self.admits(now)
    }

    /// Closed: in rotation.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// A request has been sent there.
    pub fn entered(&mut self, now: Instant) {
        if let State::Open { pause, .. } | State::Probing { pause, .. } = self.state {
            self.state = State::Probing { since: now, pause };
        }
    }

    pub fn succeeded(&mut self) {
        *self = Breaker::default();
    }

    /// Says whether this failure took the worker out of rotation.
    pub fn failed(&mut self, now: Instant) -> bool {
        self.failures = self.failures.saturating_add(1);
        let pause = match self.state {
            State::Closed if self.failures < TRIP => return false,
            State::Closed => FIRST_PAUSE,
            // Requests that were under way when it opened say nothing new.
            State::Open { .. } => return false,
            State::Probing { pause, .. } => (pause * 2).min(LONGEST_PAUSE),
        };
        self.state = State::Open { until: now + pause, pause };
        true
    }
}

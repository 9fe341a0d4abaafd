//! The receiving end of a request.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;

use super::door::Ticket;
use super::run::Command;
use super::{EngineError, Event};

/// How much later than the engine's thread this side gives up. The thread answers first unless it
/// hangs in a step.
const GRACE: Duration = Duration::from_millis(500);

/// The events of one request. Dropping it cancels the request: the engine notices before the next
/// step and between the layers of this one, and the blocks are back within one step.
///
/// The channel has no bound of its own and needs none: a request sends at most one `Admitted`,
/// `max_new_tokens` tokens (clipped to the context) and one last event, whether anybody reads or
/// not.
#[derive(Debug)]
pub struct Generation {
    events: UnboundedReceiver<Event>,
    ticket: Arc<Ticket>,
    commands: Sender<Command>,
    /// When a request that has not run yet is given up.
    queue: Option<Timer>,
    ended: bool,
}

#[derive(Debug)]
struct Timer {
    since: Instant,
    limit: Duration,
}

impl Generation {
    pub(super) fn new(
        events: UnboundedReceiver<Event>,
        ticket: Arc<Ticket>,
        commands: Sender<Command>,
        queue_deadline: Duration,
    ) -> Generation {
        let queue = Some(Timer { since: Instant::now(), limit: queue_deadline });
        Generation { events, ticket, commands, queue, ended: false }
    }

    /// The next event; `None` after the last one. Cancel safe. Needs a tokio runtime with a timer.
    ///
    /// Deadlines are watched here as well as in the engine, so that a step that hangs does not take
    /// those who wait for it along.
    pub async fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let event = match self.give_up_at() {
            None => self.events.recv().await,
            Some(at) => match tokio::time::timeout_at(at.into(), self.events.recv()).await {
                Ok(event) => event,
                Err(_) => Some(Event::Failed(self.timed_out())),
            },
        };
        // The engine's thread ended without a word to this request.
        let event = event.unwrap_or(Event::Failed(EngineError::Stopped));
        self.queue = None;
        if event.is_last() {
            self.end();
        }
        Some(event)
    }

    fn give_up_at(&self) -> Option<Instant> {
        let queue = self.queue.as_ref().and_then(|t| t.since.checked_add(t.limit));
        let at = match (queue, self.ticket.deadline) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b)?,
        };
        at.checked_add(GRACE)
    }

    fn timed_out(&self) -> EngineError {
        let now = Instant::now();
        match (&self.queue, self.ticket.deadline) {
            (_, Some(deadline)) if deadline <= now => EngineError::DeadlineExceeded,
            (Some(timer), _) => {
                let waited_ms = now.saturating_duration_since(timer.since).as_millis() as u64;
                EngineError::QueueTimeout { waited_ms }
            }
            (None, _) => EngineError::DeadlineExceeded,
        }
    }

    fn end(&mut self) {
        if !self.ended {
            self.ended = true;
            self.ticket.cancel();
            // A blocked thread looks up; one that is gone has nothing to cancel.
            let _ = self.commands.send(Command::Look);
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.end();
    }
}

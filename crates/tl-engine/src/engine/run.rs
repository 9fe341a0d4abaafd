//! The engine's thread.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

use tl_kv::{SharedKv, Slabs, lock};

use super::door::{Door, Ticket};
use super::live::{Job, Live, Work};
use super::{EngineError, Event, Finish, Refused, TokenOut};
use crate::backend::{Backend, Span, StepError};
use crate::sample::Sampler;
use crate::sched::{Batch, Ended, Expired, NewSeq, Origin, Outcome, Row, Scheduler, SeqId};

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Command {
    Submit(Box<Job>),
    /// Something changed in a ticket or at the door.
    Look,
}

/// Requests may wait for blocks that others hold: pushes, handles of resumes to come. Their owners
/// do not know who waits, the pool does: it sends [`Command::Look`] when a block comes back, once
/// after each time the thread has looked.
#[derive(Debug, Clone, Default)]
pub(super) struct RoomBell(Arc<AtomicBool>);

impl RoomBell {
    pub(super) fn hang(kv: &SharedKv, commands: &Sender<Command>) -> RoomBell {
        let bell = RoomBell::default();
        let (armed, commands) = (Arc::clone(&bell.0), commands.clone());
        lock(kv).on_room(move || {
            if armed.swap(false, Ordering::Relaxed) {
                // A thread that has ended waits for nothing.
                let _ = commands.send(Command::Look);
            }
        });
        bell
    }

    /// Before looking: a block that comes back after the look, which takes the pool's lock, rings.
    fn arm(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) struct Runner {
    backend: Box<dyn Backend>,
    sched: Scheduler,
    kv: SharedKv,
    slabs: Arc<Slabs>,
    door: Arc<Door>,
    inbox: Receiver<Command>,
    bell: RoomBell,
    live: HashMap<SeqId, Live>,
    sampler: Sampler,
}

/// What a row of a computed step came to.
enum RowResult {
    Computed,
    Sampled(TokenOut),
    /// Dropped between layers.
    Dropped,
    Bad(String),
}

/// Closes the door however the thread ends, so that nobody waits for it.
struct CloseOnExit(Arc<Door>);

impl Drop for CloseOnExit {
    fn drop(&mut self) {
        self.0.close(Refused::Stopped);
    }
}

impl Runner {
    pub(super) fn new(
        backend: Box<dyn Backend>,
        sched: Scheduler,
        kv: SharedKv,
        door: Arc<Door>,
        inbox: Receiver<Command>,
        bell: RoomBell,
    ) -> Runner {
        let slabs = lock(&kv).slabs();
        Runner {
            backend,
            sched,
            kv,
            slabs,
            door,
            inbox,
            bell,
            live: HashMap::new(),
            sampler: Sampler::new(),
        }
    }

    pub(super) fn run(mut self) {
        let _close = CloseOnExit(Arc::clone(&self.door));
        loop {
            while let Ok(command) = self.inbox.try_recv() {
                self.take(command);
            }
            if self.stopped() {
                break;
            }
            let now = Instant::now();
            self.sweep(now);
            self.bell.arm();
            let batch = self.sched.schedule(now);
            self.door.gauges.batch(batch.tokens);
            if batch.rows.is_empty() {
                self.publish();
                if !self.sleep(now) {
                    break;
                }
            } else {
                self.admit(&batch);
                self.publish();
                self.step(&batch);
            }
        }
        let ids: Vec<SeqId> = self.live.keys().copied().collect();
        for id in ids {
            self.fail(id, EngineError::Stopped);
        }
    }

    fn stopped(&self) -> bool {
        self.door.gauges.stopped.load(Ordering::Relaxed)
    }

    /// Waits for a command, the next timer, or blocks that come back; `false` when nobody can send
    /// a command any more.
    fn sleep(&mut self, now: Instant) -> bool {
        let command = match self.sched.next_timer() {
            None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => self.inbox.recv_timeout(at.saturating_duration_since(now)),
        };
        match command {
            Ok(command) => self.take(command),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        true
    }

    fn take(&mut self, command: Command) {
        let Command::Submit(job) = command else { return };
        let Job { max_new_tokens, ref stop_ids, ref work, ref prompt, .. } = *job;
        if let Work::Resume { first: Some(first), .. } = *work {
            let room = self.sched.limits().context() - prompt.len();
            let end = if stop_ids.contains(&first) {
                Some((Finish::Stop, 0))
            } else if max_new_tokens.min(room) == 1 {
                Some((Finish::Length, 1))
            } else {
                None
            };
            if let Some((reason, completion_tokens)) = end {
                let (live, work, _) = Live::new(*job);
                drop(work);
                live.send(Event::Admitted { cached_tokens: 0 });
                live.end(Event::Finished { reason, completion_tokens });
                return;
            }
        }
        let (live, work, prompt) = Live::new(*job);
        let new = NewSeq {
            prompt: prompt.to_vec(),
            max_new_tokens: live.max_new_tokens,
            priority: live.priority,
            deadline: live.ticket().deadline,
            hand_over: live.hand_over,
            origin: match work {
                Work::Fresh => Origin::Here,
                Work::Resume { table, first, .. } => Origin::Elsewhere { table, first },
            },
        };
        match self.sched.add(new, Instant::now()) {
            Ok(id) => {
                self.live.insert(id, live);
            }
            // The same checks let it in; should they ever differ, the request still gets an answer.
            Err(refused) => live.end(Event::Failed(EngineError::Step(refused.to_string()))),
        }
    }

    /// Takes out what is no longer wanted and what has waited too long.
    fn sweep(&mut self, now: Instant) {
        let aborted: Vec<(SeqId, EngineError)> = self
            .live
            .iter()
            .filter_map(|(id, live)| Some((*id, live.ticket().aborted(now)?)))
            .collect();
        for (id, why) in aborted {
            self.fail(id, why);
        }
        for (id, why) in self.sched.expire(now) {
            let error = match why {
                Expired::Queue { waited } => {
                    EngineError::QueueTimeout { waited_ms: waited.as_millis() as u64 }
                }
                Expired::Deadline => EngineError::DeadlineExceeded,
            };
            self.fail(id, error);
        }
    }

    fn admit(&mut self, batch: &Batch) {
        for (id, cached_tokens) in &batch.admitted {
            if let Some(live) = self.live.get_mut(id) {
                live.leave_queue();
                live.send(Event::Admitted { cached_tokens: *cached_tokens });
            }
        }
    }

    fn step(&mut self, batch: &Batch) {
        let computed = catch_unwind(AssertUnwindSafe(|| self.compute(&batch.rows)));
        let error = match computed {
            Ok(Ok(results)) => {
                self.door.gauges.step_done();
                return self.book(batch, results);
            }
            Ok(Err(error)) => EngineError::Step(error.to_string()),
            Err(panic) => EngineError::Panicked(panic_text(&*panic)),
        };
        tracing::error!(%error, rows = batch.rows.len(), "step failed");
        for id in self.sched.remove_running() {
            self.fail(id, error.clone());
        }
    }

    /// Runs the model over the rows and samples. Nothing of the scheduler's state changes here.
    fn compute(&mut self, rows: &[Row]) -> Result<Vec<RowResult>, StepError> {
        let Runner { backend, sched, slabs, door, live, sampler, .. } = self;
        let ticket = |row: &Row| live.get(&row.id).map(|live| Arc::clone(live.ticket()));
        let tickets: Vec<Option<Arc<Ticket>>> = rows.iter().map(ticket).collect();
        let mut dropped = vec![false; rows.len()];
        let mut keep = |i: usize| {
            let wanted = tickets[i].as_ref().is_some_and(|t| t.aborted(Instant::now()).is_none());
            let keep = wanted && !door.gauges.stopped.load(Ordering::Relaxed);
            dropped[i] |= !keep;
            keep
        };
        let spans: Vec<Span<'_>> = rows
            .iter()
            .map(|row| {
                let (tokens, table) = sched.row(row);
                Span { tokens, start: row.start, table, logits: row.sample }
            })
            .collect();
        backend.step(slabs, &spans, &mut keep)?;
        let results = rows.iter().zip(dropped).enumerate().map(|(i, (row, dropped))| {
            if dropped {
                return RowResult::Dropped;
            }
            if !row.sample {
                return RowResult::Computed;
            }
            let Some(live) = live.get_mut(&row.id) else { return RowResult::Dropped };
            match backend.logits(i) {
                None => RowResult::Bad("the model gave no logits".into()),
                Some(logits) => match live.sample(sampler, logits) {
                    Ok(token) => RowResult::Sampled(token),
                    Err(error) => RowResult::Bad(error.to_string()),
                },
            }
        });
        Ok(results.collect())
    }

    fn book(&mut self, batch: &Batch, results: Vec<RowResult>) {
        let now = Instant::now();
        let mut outcomes = Vec::with_capacity(results.len());
        for (row, result) in batch.rows.iter().zip(results) {
            match result {
                RowResult::Computed => outcomes.push((*row, Outcome::Computed)),
                RowResult::Sampled(token) => {
                    let Some(live) = self.live.get(&row.id) else { continue };
                    let id = token.id;
                    let stop = live.stops_at(id);
                    if !stop {
                        live.send(Event::Token(token));
                    }
                    outcomes.push((*row, Outcome::Token { token: id, stop }));
                }
                RowResult::Dropped => {
                    let aborted = self.live.get(&row.id).and_then(|l| l.ticket().aborted(now));
                    self.fail(row.id, aborted.unwrap_or(EngineError::Stopped));
                }
                RowResult::Bad(why) => self.fail(row.id, EngineError::BadLogits(why)),
            }
        }
        for ended in self.sched.on_step(&outcomes) {
            match ended {
                Ended::Finished { id, reason, generated } => {
                    self.end(id, Event::Finished { reason, completion_tokens: generated });
                }
                Ended::HandOver { id, held, hashes, cached_tokens } => {
                    self.end(id, Event::Prefilled { held, hashes, cached_tokens });
                }
            }
        }
    }

    fn fail(&mut self, id: SeqId, error: EngineError) {
        self.sched.remove(id);
        self.end(id, Event::Failed(error));
    }

    /// The last event of a request that the scheduler no longer has. Gauges come first, so that
    /// whoever reads them after the event finds it gone.
    fn end(&mut self, id: SeqId, event: Event) {
        if let Some(live) = self.live.remove(&id) {
            self.publish();
            self.door.gauges.progress();
            live.end(event);
        }
    }

    fn publish(&self) {
        let evictions = lock(&self.kv).stats().evictions;
        self.door.gauges.publish(&self.sched, evictions);
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

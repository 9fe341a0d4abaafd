//! One engine: a thread that owns the model, and a handle to talk to it.
//!
//! Everything a request does happens on that one thread, in steps: take in what has come, take out
//! what is no longer wanted, let the scheduler choose a batch, compute it, sample, tell. So there
//! is no lock around the model or the scheduler, and between two steps every state is a whole one.
//! The pool's lock is taken for bookkeeping alone and never while a step computes.
//!
//! | what ends a request | noticed | its blocks |
//! |---|---|---|
//! | stop id, length, hand-over | after the step that sampled it | back before the last event |
//! | dropped or cancelled | before the next step, between layers of this one | back within a step |
//! | queue deadline, own deadline | by the thread's timer, also when nothing runs | back at once |
//! | failed or panicked step | at once, for all requests that run | back before the event |
//! | logits without a choice | after the step, this request alone | back before the event |
//! | drain, stop | as cancelled | back within a step |

mod door;
mod error;
mod generation;
mod live;
mod run;
mod stats;
#[cfg(test)]
mod tests;
mod types;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use tl_kv::SharedKv;
use tokio::sync::mpsc::unbounded_channel;

pub use error::{EngineError, Refused};
pub use generation::Generation;
pub use stats::EngineStats;
pub use types::{EngineConfig, Event, Finish, FirstToken, Request, Start, TokenOut, Until};

use crate::backend::Backend;
use crate::sched::{Blocks, Limits, SchedConfig, Scheduler};
use door::Door;
use live::{Job, Work};
use run::{Command, RoomBell, Runner};

/// How long a drain waits after its deadline for aborted requests to leave. A step notices between
/// layers, so only one that hangs takes longer.
const ABORT_GRACE: Duration = Duration::from_secs(10);

/// A handle to an engine. The thread ends when told to (`stop`) or when the last handle goes; what
/// is in flight then fails with [`EngineError::Stopped`].
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    commands: Sender<Command>,
    door: Arc<Door>,
    kv: SharedKv,
    blocks: Blocks,
    limits: Limits,
    vocab: usize,
    queue_deadline: Duration,
}

impl Engine {
    /// Builds the pool and starts the thread.
    pub fn spawn(backend: Box<dyn Backend>, cfg: EngineConfig) -> Result<Engine, EngineError> {
        let shape = backend.shape();
        let config = |why: &str| Err(EngineError::Config(why.to_owned()));
        match () {
            () if cfg.max_batch_tokens == 0 => {
                return config("max_batch_tokens must be at least 1");
            }
            () if cfg.max_seqs == 0 => return config("max_seqs must be at least 1"),
            () if cfg.queue_capacity == 0 => return config("queue_capacity must be at least 1"),
            () if cfg.prefill_chunk == 0 => return config("prefill_chunk must be at least 1"),
            () => {}
        }
        let kv = tl_kv::shared(shape.kv_cfg(cfg.kv_blocks, cfg.block_tokens))
            .map_err(|e| EngineError::Config(format!("KV pool: {e}")))?;
        let blocks = Blocks::new(Arc::clone(&kv), cfg.prefix_cache);
        let limits = Limits::new(&blocks, shape.max_positions);
        let sched = SchedConfig {
            max_batch_tokens: cfg.max_batch_tokens,
            max_seqs: cfg.max_seqs,
            prefill_chunk: cfg.prefill_chunk,
            max_waiting: cfg.queue_capacity,
            queue_deadline: cfg.queue_deadline,
            policy: cfg.policy,
            aging_steps: cfg.aging_steps,
        };
        let sched = Scheduler::new(blocks.clone(), sched, shape.max_positions);
        let door = Arc::new(Door::new(cfg.queue_capacity));
        let (commands, inbox) = channel();
        let bell = RoomBell::hang(&kv, &commands);
        let runner = Runner::new(backend, sched, Arc::clone(&kv), Arc::clone(&door), inbox, bell);
        std::thread::Builder::new()
            .name("tl-engine".into())
            .spawn(move || runner.run())
            .map_err(|e| EngineError::Spawn(e.to_string()))?;
        let vocab = shape.vocab;
        let queue_deadline = cfg.queue_deadline;
        let inner = Inner { commands, door, kv, blocks, limits, vocab, queue_deadline };
        Ok(Engine { inner: Arc::new(inner) })
    }

    /// Queues a request, or says at once why not. Never blocks; blocks of a refused resume are
    /// given back.
    pub fn submit(&self, r: Request) -> Result<Generation, Refused> {
        let Request {
            id,
            prompt,
            sampling,
            seed,
            max_new_tokens,
            stop_ids,
            logprobs,
            priority,
            deadline,
            start,
            until,
        } = r;
        let Inner { commands, door, blocks, limits, vocab, queue_deadline, .. } = &*self.inner;
        let hand_over = until == Until::FirstToken;
        limits.check(prompt.len(), max_new_tokens, hand_over)?;
        sampling.validate().map_err(Refused::Sampling)?;
        let first = match &start {
            Start::Resume { first, .. } => first.map(|f| f.id),
            Start::Fresh => None,
        };
        if let Some(&token) = prompt.iter().chain(&first).find(|&&t| t as usize >= *vocab) {
            return Err(Refused::UnknownToken { token, vocab: *vocab });
        }
        let work = match start {
            Start::Fresh => Work::Fresh,
            Start::Resume { .. } if hand_over => return Err(Refused::ResumeForFirstToken),
            Start::Resume { held, draws, .. } => {
                let table = blocks.adopt(held, &prompt)?;
                Work::Resume { table, first, draws: if first.is_some() { draws } else { 0 } }
            }
        };
        let resumed = matches!(work, Work::Resume { .. });
        let (place, entry) = door.enter(id, deadline)?;
        let (events, receiver) = unbounded_channel();
        let ticket = Arc::clone(entry.ticket());
        let job = Job {
            entry,
            place,
            events,
            prompt,
            sampling,
            seed,
            max_new_tokens,
            stop_ids,
            logprobs,
            priority,
            work,
            hand_over,
        };
        commands.send(Command::Submit(Box::new(job))).map_err(|_| Refused::Stopped)?;
        if resumed {
            door.gauges.remote_prefill_total.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Generation::new(receiver, ticket, commands.clone(), *queue_deadline))
    }

    /// The KV pool, for transfers and for its counts.
    pub fn pool(&self) -> SharedKv {
        Arc::clone(&self.inner.kv)
    }

    /// A snapshot; takes no lock.
    pub fn stats(&self) -> EngineStats {
        self.inner.door.gauges.snapshot()
    }

    /// The longest sequence, prompt and answer together.
    pub fn context(&self) -> usize {
        self.inner.limits.context()
    }

    /// Cancels all requests of this id; `false` when there is none (any more). They fail with
    /// [`EngineError::Cancelled`] and their blocks are back within one step.
    pub fn cancel(&self, id: &str) -> bool {
        let found = self.inner.door.cancel(id);
        if found {
            self.look();
        }
        found
    }

    /// Takes no new requests, lets those inside end until the deadline, aborts the rest and returns
    /// when nothing is in flight; the number of aborted ones. An engine never leaves this state.
    pub async fn drain(&self, deadline: Duration) -> i32 {
        let door = &self.inner.door;
        door.close(Refused::Draining);
        if door.empty_by(later(deadline)).await {
            return 0;
        }
        let aborted = door.abort_all();
        self.look();
        if !door.empty_by(later(ABORT_GRACE)).await {
            tracing::error!("a step hangs: drained requests have not left");
        }
        i32::try_from(aborted).unwrap_or(i32::MAX)
    }

    pub fn is_draining(&self) -> bool {
        self.inner.door.gauges.draining.load(Ordering::Relaxed)
    }

    /// Tells the thread to end; it does before its next step or between two layers of this one.
    /// Does not wait for it.
    pub fn stop(&self) {
        self.inner.stop();
    }

    fn look(&self) {
        // A thread that has ended has nothing to look for.
        let _ = self.inner.commands.send(Command::Look);
    }
}

impl Inner {
    fn stop(&self) {
        self.door.close(Refused::Stopped);
        let _ = self.commands.send(Command::Look);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop();
    }
}

fn later(by: Duration) -> Instant {
    let now = Instant::now();
    // A deadline beyond what the clock can say is no deadline; thirty years are one in practice.
    now.checked_add(by).unwrap_or_else(|| now + Duration::from_secs(30 * 365 * 86_400))
}

//! A team of threads that splits one job into parts, many thousand times a second.
//!
//! A forward pass is hundreds of short jobs with a barrier after each. A general
//! work-stealing pool wakes and parks around every one of them, and a classic barrier
//! waits for every worker even when one of them lost its time slice to another
//! process. Here the caller works too and takes parts until none is left; a worker
//! takes part only if it arrives while the job is open, so the caller waits for parts
//! that were begun, never for threads that slept through.
//!
//! - A part is run exactly once, by one thread. Which one says nothing about the result.
//! - Between jobs a worker spins for some tens of microseconds, then sleeps.
//! - A panic in a part stops the handing out of parts and continues in the caller.
//! - A job started while another runs on the same team (from another thread or from
//!   inside a part) is run by its caller alone: slower, never stuck.
//! - Dropping the team ends and joins its threads.

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

/// Looks at the gate before a waiting thread offers its core to others.
const SPINS: u32 = 2_000;
/// Offers of the core before a waiting thread goes to sleep.
const YIELDS: u32 = 16;

/// The job is open: workers may join.
const OPEN: u64 = 1 << 31;
/// The low bits of the gate count the workers inside the job.
const INSIDE: u64 = OPEN - 1;
/// The high bits number the jobs.
const JOB: u64 = 1 << 32;

type Part<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// A team of `n` threads, the caller's among them.
pub struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held while a job runs; whoever finds it held works alone.
    busy: Mutex<()>,
}

struct Shared {
    /// `job number << 32 | OPEN | workers inside`.
    gate: AtomicU64,
    /// Written by the caller while the gate is closed and nobody is inside, read by workers inside.
    job: UnsafeCell<Option<Job>>,
    next: AtomicUsize,
    stop: AtomicBool,
    sleepers: AtomicUsize,
    caller_waits: AtomicBool,
    sleep: Mutex<()>,
    work: Condvar,
    done: Condvar,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Clone, Copy)]
struct Job {
    part: *const Part<'static>,
    parts: usize,
}

// SAFETY: `job` is the only field that is not Sync; the gate orders every access to it (see
// `Threads::run_slots`), and what it points to is Sync.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer is only followed while the caller keeps the closure alive.
unsafe impl Send for Shared {}

impl Threads {
    /// A team of `n` threads: the caller's and `n - 1` workers of its own. Zero counts as one.
    ///
    /// A worker the system refuses to start is done without.
    pub fn new(n: usize) -> Self {
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            caller_waits: AtomicBool::new(false),
            sleep: Mutex::new(()),
            work: Condvar::new(),
            done: Condvar::new(),
            panic: Mutex::new(None),
        });
        let workers = (1..n)
            .map_while(|slot| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name(format!("tl-kernel-{slot}"))
                    .spawn(move || shared.work(slot))
                    .ok()
            })
            .collect();
        Self { shared, workers, busy: Mutex::new(()) }
    }

    /// Threads of the team, the caller's included.
    pub fn count(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `part(i)` once for every `i < parts`, on whichever threads are there.
    ///
    /// Returns when all have returned. With one thread or one part it is a plain loop.
    ///
    /// # Panics
    /// Continues the first panic of a part, after the parts under way have ended.
    pub fn run(&self, parts: usize, part: impl Fn(usize) + Sync) {
        self.run_slots(parts, |i, _slot| part(i));
    }

    /// As [`Threads::run`]; `part` also gets the number of its thread, below
    /// [`Threads::count`]. Two parts that run at the same time have different numbers, so
    /// a thread can have scratch memory of its own.
    pub fn run_slots(&self, parts: usize, part: impl Fn(usize, usize) + Sync) {
        let alone = parts <= 1 || self.workers.is_empty();
        let Some(_busy) = (if alone { None } else { self.busy.try_lock() }) else {
            for i in 0..parts {
                part(i, 0);
            }
            return;
        };
        let shared = &*self.shared;
        let erased: *const Part<'_> = &part;
        // SAFETY: only the lifetime is erased. The pointer is followed by workers inside the
        // gate alone, and this function does not return or unwind before it has closed the
        // gate and seen nobody inside.
        let erased: *const Part<'static> = unsafe { std::mem::transmute(erased) };
        // SAFETY: the gate is closed with nobody inside, and `busy` keeps other callers out.
        unsafe { *shared.job.get() = Some(Job { part: erased, parts }) };
        shared.next.store(0, Ordering::Relaxed);
        let number = (shared.gate.load(Ordering::Relaxed) & !(JOB - 1)).wrapping_add(JOB);
        // Sequentially consistent with the sleepers' count: either a worker that goes to
        // sleep sees the open gate, or it is counted here and woken.
        shared.gate.store(number | OPEN, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            drop(shared.sleep.lock());
            shared.work.notify_all();
        }

        shared.take_parts(&part, parts, 0);

        shared.gate.fetch_and(!OPEN, Ordering::SeqCst);
        shared.wait_until_empty();
        if let Some(panic) = shared.panic.lock().take() {
            resume_unwind(panic);
        }
    }
}

impl Shared {
    fn take_parts(&self, part: &Part<'_>, parts: usize, slot: usize) {
        let all = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let i = self.next.fetch_add(1, Ordering::Relaxed);
                if i >= parts {
                    break;
                }
                part(i, slot);
            }
        }));
        if let Err(panic) = all {
            self.next.store(parts, Ordering::Relaxed);
            self.panic.lock().get_or_insert(panic);
        }
    }

    /// A worker's life.
    fn work(&self, slot: usize) {
        let mut last = 0;
        while let Some(gate) = self.next_open(last) {
            last = gate & !(JOB - 1);
            // SAFETY: this worker is inside the open gate, so the caller has written the job
            // (the gate's store orders it) and will not touch it or drop the closure before
            // the worker has left.
            let job = unsafe { *self.job.get() };
            if let Some(Job { part, parts }) = job {
                // SAFETY: as above.
                self.take_parts(unsafe { &*part }, parts, slot);
            }
            let left = self.gate.fetch_sub(1, Ordering::SeqCst) - 1;
            if left & (OPEN | INSIDE) == 0 && self.caller_waits.load(Ordering::SeqCst) {
                drop(self.sleep.lock());
                self.done.notify_all();
            }
        }
    }

    /// Waits for a job other than `last` and enters it; `None` when the team ends.
    fn next_open(&self, last: u64) -> Option<u64> {
        let mut tries = 0;
        loop {
            if self.stop.load(Ordering::SeqCst) {
                return None;
            }
            let gate = self.gate.load(Ordering::SeqCst);
            if is_new(gate, last) {
                let entered = self.gate.compare_exchange_weak(
                    gate,
                    gate + 1,
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                );
                if entered.is_ok() {
                    return Some(gate);
                }
                continue;
            }
            tries += 1;
            if tries < SPINS {
                std::hint::spin_loop();
            } else if tries < SPINS + YIELDS {
                std::thread::yield_now();
            } else {
                let mut guard = self.sleep.lock();
                self.sleepers.fetch_add(1, Ordering::SeqCst);
                let idle = || {
                    !self.stop.load(Ordering::SeqCst)
                        && !is_new(self.gate.load(Ordering::SeqCst), last)
                };
                if idle() {
                    self.work.wait(&mut guard);
                }
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
                tries = 0;
            }
        }
    }

    /// Waits, with the gate closed, until the last worker has left.
    fn wait_until_empty(&self) {
        let empty = || self.gate.load(Ordering::SeqCst) & INSIDE == 0;
        for _ in 0..SPINS {
            if empty() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut guard = self.sleep.lock();
        self.caller_waits.store(true, Ordering::SeqCst);
        while !empty() {
            self.done.wait(&mut guard);
        }
        self.caller_waits.store(false, Ordering::SeqCst);
    }
}

/// Whether `gate` is an open job other than the one numbered `last`.
fn is_new(gate: u64, last: u64) -> bool {
    gate & OPEN != 0 && gate & !(JOB - 1) != last
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(self.shared.sleep.lock());
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its parts, so there is none to report.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("count", &self.count()).finish()
    }
}

#[cfg(test)]
mod tests;

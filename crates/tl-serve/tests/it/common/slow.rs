//! The tiny model behind a gate, so that a test decides when a step ends.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tl_engine::backend::{Backend, BackendShape, Span, StepError};
use tl_kv::Slabs;

/// How many steps may still begin; unlimited when open.
#[derive(Debug, Default)]
pub struct Gate {
    permits: Mutex<Permits>,
    changed: Condvar,
    pub steps: AtomicU64,
}

#[derive(Debug, Default)]
struct Permits {
    left: u64,
    open: bool,
    failing: bool,
    /// What a step takes at least, once open.
    pace: Duration,
}

impl Gate {
    pub fn new() -> Arc<Gate> {
        Arc::new(Gate::default())
    }

    /// Lets `n` more steps run.
    pub fn permit(&self, n: u64) {
        self.permits.lock().left += n;
        self.changed.notify_all();
    }

    /// Lets everything run.
    pub fn open(&self) {
        self.permits.lock().open = true;
        self.changed.notify_all();
    }

    /// Lets everything run, each step taking at least `pace`: a model of a size that matters.
    pub fn slow(&self, pace: Duration) {
        let mut permits = self.permits.lock();
        permits.open = true;
        permits.pace = pace;
        self.changed.notify_all();
    }

    /// Makes the following steps fail.
    pub fn fail(&self) {
        self.permits.lock().failing = true;
    }

    pub fn wrap(self: &Arc<Gate>) -> impl FnOnce(Box<dyn Backend>) -> Box<dyn Backend> + use<> {
        let gate = Arc::clone(self);
        move |inner| Box::new(Gated { inner, gate })
    }

    fn pass(&self) -> Result<(), StepError> {
        let mut permits = self.permits.lock();
        while !permits.open && permits.left == 0 {
            self.changed.wait(&mut permits);
        }
        if !permits.open {
            permits.left -= 1;
        }
        let pace = permits.pace;
        let end = Instant::now() + pace;
        while pace > Duration::ZERO && !self.changed.wait_until(&mut permits, end).timed_out() {}
        self.steps.fetch_add(1, Ordering::Relaxed);
        if permits.failing {
            Err(StepError("the test said so, with a secret".into()))
        } else {
            Ok(())
        }
    }
}

struct Gated {
    inner: Box<dyn Backend>,
    gate: Arc<Gate>,
}

impl Backend for Gated {
    fn shape(&self) -> BackendShape {
        self.inner.shape()
    }

    fn step(
        &mut self,
        slabs: &Slabs,
        spans: &[Span<'_>],
        keep: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), StepError> {
        self.gate.pass()?;
        self.inner.step(slabs, spans, keep)
    }

    fn logits(&self, span: usize) -> Option<&[f32]> {
        self.inner.logits(span)
    }
}

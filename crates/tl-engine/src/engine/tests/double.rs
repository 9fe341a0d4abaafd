//! A backend that does what a test tells it.
//!
//! The token after `t` is `t + 1`, so every answer is known. It goes through layers like a model
//! and asks `keep` between them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;
use tl_kv::Slabs;

use crate::backend::{Backend, BackendShape, Span, StepError};
use crate::engine::{Engine, EngineConfig};

pub(super) const VOCAB: usize = 64;
/// A span whose last token is one of these gets logits nothing can be chosen from.
pub(super) const NAN: u32 = 60;
pub(super) const MASKED: u32 = 61;
const LAYERS: usize = 4;

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Error,
    Panic,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    /// Rows of each step: first position and length.
    pub(super) steps: Vec<Vec<(usize, usize)>>,
    pub(super) dropped: usize,
    pub(super) thread: Option<std::path::PathBuf>,
    /// The step of this number (from 0) goes wrong.
    pub(super) faults: HashMap<usize, Fault>,
}

/// What a test keeps of its double.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) log: Arc<Mutex<Log>>,
    /// Each message lets a gated double through one layer; dropping it opens the gate.
    pub(super) gate: Option<Sender<()>>,
    /// A gated double says when it has come to a layer.
    pub(super) arrived: Receiver<()>,
}

impl Handle {
    pub(super) fn open(&mut self) {
        self.gate = None;
    }

    /// Blocks until the double stands before a layer.
    pub(super) fn wait_in_step(&self) {
        self.arrived.recv_timeout(super::PATIENCE).expect("no step begins");
    }
}

struct Double {
    log: Arc<Mutex<Log>>,
    gate: Option<Receiver<()>>,
    arrived: Sender<()>,
    logits: Vec<Option<Vec<f32>>>,
}

pub(super) fn config() -> EngineConfig {
    EngineConfig {
        kv_blocks: 64,
        block_tokens: 4,
        max_batch_tokens: 64,
        max_seqs: 8,
        prefill_chunk: 16,
        queue_capacity: 64,
        ..EngineConfig::default()
    }
}

pub(super) fn spawn(cfg: EngineConfig) -> (Engine, Handle) {
    build(cfg, false, [])
}

/// With its steps under the test's control.
pub(super) fn gated(cfg: EngineConfig) -> (Engine, Handle) {
    build(cfg, true, [])
}

pub(super) fn faulty(faults: impl IntoIterator<Item = (usize, Fault)>) -> (Engine, Handle) {
    build(config(), false, faults)
}

fn build(
    cfg: EngineConfig,
    gated: bool,
    faults: impl IntoIterator<Item = (usize, Fault)>,
) -> (Engine, Handle) {
    let log = Arc::new(Mutex::new(Log { faults: faults.into_iter().collect(), ..Log::default() }));
    let (gate, at_gate) = channel();
    let (arrived, arrivals) = channel();
    let double = Double {
        log: Arc::clone(&log),
        gate: gated.then_some(at_gate),
        arrived,
        logits: Vec::new(),
    };
    let engine = Engine::spawn(Box::new(double), cfg).unwrap();
    (engine, Handle { log, gate: gated.then_some(gate), arrived: arrivals })
}

impl Backend for Double {
    fn shape(&self) -> BackendShape {
        BackendShape {
            vocab: VOCAB,
            max_positions: 1 << 16,
            n_layers: LAYERS,
            n_kv_heads: 1,
            head_dim: 2,
        }
    }

    fn step(
        &mut self,
        slabs: &Slabs,
        spans: &[Span<'_>],
        keep: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), StepError> {
        let mut kept = vec![true; spans.len()];
        let mut log = self.log.lock();
        log.thread = std::fs::read_link("/proc/thread-self").ok();
        let fault = log.faults.get(&log.steps.len()).copied();
        log.steps.push(spans.iter().map(|s| (s.start, s.tokens.len())).collect());
        drop(log);
        for span in spans {
            // Writing is what a model would do; the pool refuses a block that is not this span's.
            for position in span.start..span.start + span.tokens.len() {
                slabs.write(span.table[position / 4]).map_err(|e| StepError(e.to_string()))?;
            }
        }
        for layer in 0..LAYERS {
            if layer > 0 {
                for (i, kept) in kept.iter_mut().enumerate() {
                    *kept = *kept && keep(i);
                }
            }
            if let Some(gate) = &self.gate {
                // A test that no longer looks or has dropped the gate lets everything pass.
                let _ = self.arrived.send(());
                let _ = gate.recv();
            }
        }
        match fault {
            Some(Fault::Error) => return Err(StepError("told to fail".into())),
            Some(Fault::Panic) => panic!("told to panic"),
            None => {}
        }
        self.log.lock().dropped += kept.iter().filter(|kept| !**kept).count();
        let of = |(span, kept): (&Span<'_>, bool)| {
            (span.logits && kept).then(|| logits_after(span.tokens[span.tokens.len() - 1]))
        };
        self.logits = spans.iter().zip(kept).map(of).collect();
        Ok(())
    }

    fn logits(&self, span: usize) -> Option<&[f32]> {
        self.logits.get(span)?.as_deref()
    }
}

fn logits_after(token: u32) -> Vec<f32> {
    let mut logits = vec![0.0; VOCAB];
    match token {
        NAN => logits[3] = f32::NAN,
        MASKED => logits.fill(f32::NEG_INFINITY),
        _ => logits[(token as usize + 1) % VOCAB] = 20.0,
    }
    logits
}

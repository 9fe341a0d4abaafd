//! What a step needs of a model.
//!
//! The engine's thread owns its backend and calls it with one batch at a time. The trait is this
//! narrow so that the tests can put something else behind it: a model that fails, hangs or gives
//! nonsense.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tl_kv::{Held, KV_FORMAT_V1, KvCfg, Slabs, TL_F16, lock};
use tl_model::{Kernels, Model, Threads, Workspace};

pub use tl_model::Span;

/// The sizes that the rest of the engine must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendShape {
    /// Logits per position.
    pub vocab: usize,
    /// Positions the model can address.
    pub max_positions: usize,
    pub n_layers: usize,
    pub n_kv_heads: usize,
    pub head_dim: usize,
}

impl BackendShape {
    /// The pool for this model. A size that does not fit its field becomes one the pool refuses.
    pub fn kv_cfg(&self, n_blocks: u32, block_tokens: u32) -> KvCfg {
        let size = |n: usize| u32::try_from(n).unwrap_or(0);
        KvCfg {
            n_blocks,
            block_tokens,
            n_layers: size(self.n_layers),
            n_kv_heads: size(self.n_kv_heads),
            head_dim: size(self.head_dim),
            dtype: TL_F16,
            format: KV_FORMAT_V1,
        }
    }
}

/// A forward pass that could not be completed. All its rows are void.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StepError(pub String);

/// A model as the engine's thread uses it.
pub trait Backend: Send + 'static {
    fn shape(&self) -> BackendShape;

    /// Computes all spans, writes their K and V into the blocks of their tables, and keeps the
    /// logits of those that ask for them until the next step. `keep(i)` is asked between layers;
    /// once it says no, span `i` is left out of the rest of the pass.
    fn step(
        &mut self,
        slabs: &Slabs,
        spans: &[Span<'_>],
        keep: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), StepError>;

    /// The logits of a span's last token, one per vocabulary entry.
    fn logits(&self, span: usize) -> Option<&[f32]>;
}

/// A model with what it takes to run it.
#[derive(Debug)]
pub struct ModelBackend {
    model: Arc<Model>,
    workspace: Workspace,
    kernels: Kernels,
    threads: Threads,
}

impl ModelBackend {
    /// With the best instruction set of this machine. The model may be shared with other engines.
    pub fn new(model: Arc<Model>, threads: Threads) -> ModelBackend {
        ModelBackend { model, workspace: Workspace::new(), kernels: Kernels::detect(), threads }
    }
}

impl Backend for ModelBackend {
    fn shape(&self) -> BackendShape {
        let config = self.model.config();
        BackendShape {
            vocab: config.vocab,
            max_positions: config.max_positions,
            n_layers: config.n_layers,
            n_kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
        }
    }

    fn step(
        &mut self,
        slabs: &Slabs,
        spans: &[Span<'_>],
        keep: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), StepError> {
        let ModelBackend { model, workspace, kernels, threads } = self;
        model
            .forward(workspace, *kernels, threads, slabs, spans, keep)
            .map_err(|e| StepError(e.to_string()))
    }

    fn logits(&self, span: usize) -> Option<&[f32]> {
        self.workspace.logits(span)
    }
}

/// The shortest and the longest chunk that [`pick_prefill_chunk`] answers.
const CHUNKS: (usize, usize) = (16, 512);
/// How long a step may take before those who decode beside a prompt notice.
const STEP_TARGET: Duration = Duration::from_millis(100);
/// Tokens of the timed pass: enough to fill the matrix kernels' tiles, little enough to be over
/// soon.
const PROBE_TOKENS: usize = 64;

/// A prefill chunk with which a step of this model on this machine takes about 100 ms: a multiple
/// of the block size, about 16 to 512. Runs the model twice over a few made-up tokens, the second
/// time with a clock.
///
/// The choice is one of latency alone. Chunking never changes bits, so engines with other chunks
/// still give the same tokens.
pub fn pick_prefill_chunk(
    backend: &mut dyn Backend,
    block_tokens: u32,
) -> Result<usize, StepError> {
    let shape = backend.shape();
    let b = block_tokens.max(1) as usize;
    let tokens = vec![0; PROBE_TOKENS.min(shape.max_positions)];
    let blocks = tokens.len().div_ceil(b);
    let failed = |e: tl_kv::KvError| StepError(format!("calibration: {e}"));
    let kv = tl_kv::shared(shape.kv_cfg(blocks as u32, b as u32)).map_err(failed)?;
    let held = Held::alloc(&kv, blocks).map_err(failed)?;
    let slabs = lock(&kv).slabs();
    let span = Span { tokens: &tokens, start: 0, table: held.ids(), logits: true };
    backend.step(&slabs, &[span], &mut |_| true)?;
    let start = Instant::now();
    backend.step(&slabs, &[span], &mut |_| true)?;
    Ok(chunk_for(tokens.len(), start.elapsed(), b))
}

/// The chunk that takes `STEP_TARGET` when `tokens` take `took`.
fn chunk_for(tokens: usize, took: Duration, block_tokens: usize) -> usize {
    let per_target = tokens as f64 * STEP_TARGET.as_secs_f64() / took.as_secs_f64().max(1e-9);
    let (least, most) = CHUNKS;
    let blocks = (per_target as usize).clamp(least, most) / block_tokens;
    blocks.max(1) * block_tokens
}

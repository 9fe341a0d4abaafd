//! What the loader needs of a weight file, whatever its format.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::ModelError;

/// How the elements of a stored tensor are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    F32,
    F16,
    Bf16,
    /// 32 elements: f16 scale, 16 bytes of nibbles; `d * (q - 8)`.
    Q4_0,
    /// 32 elements: f16 scale, f16 minimum, 16 bytes of nibbles; `d * q + m`.
    Q4_1,
    /// 32 elements: f16 scale, 32 signed bytes; `d * q`.
    Q8_0,
}

impl Dtype {
    /// Elements per block.
    pub const fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q8_0 => 32,
        }
    }

    /// Bytes per block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
        }
    }
}

/// Where a tensor lies and how it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    pub dtype: Dtype,
    /// Slowest dimension first; a matrix is `[rows, columns]`.
    pub shape: Vec<usize>,
    /// Byte position in the file.
    pub offset: u64,
    pub n_bytes: u64,
}

/// The tensors of one model under the names that GGUF gives them (`blk.0.attn_q.weight`).
pub(crate) trait Checkpoint: Sync {
    fn shape(&self, name: &str) -> Option<(Dtype, Vec<usize>)>;

    /// Raw bytes, row-major, exactly as long as dtype and shape say.
    fn bytes(&self, name: &str) -> Result<Vec<u8>, ModelError>;

    /// Whether the query and key rows are stored for the half-split form of RoPE and have to be
    /// reordered for the interleaved form that the model computes with.
    fn half_split_rope(&self) -> bool;
}

/// Runs `job(0..n)` on up to `threads` threads, in any order, and gives the results in order.
/// After a failure the jobs not yet begun are skipped; the failure of the smallest index is given.
pub(crate) fn in_parallel<T: Send>(
    n: usize,
    threads: usize,
    job: impl Fn(usize) -> Result<T, ModelError> + Sync,
) -> Result<Vec<T>, ModelError> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let worker = || {
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= n {
                break;
            }
            let result = job(i);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            done.push((i, result));
        }
        done
    };
    let mut all = std::thread::scope(|scope| {
        let helpers: Vec<_> =
            (1..threads.clamp(1, n.max(1))).map(|_| scope.spawn(worker)).collect();
        let mut all = worker();
        for helper in helpers {
            match helper.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_by_key(|(i, _)| *i);
    all.into_iter().map(|(_, result)| result).collect()
}

//! Whether what one engine writes is what another reads.
//!
//! A pair that differs in anything that shapes a block would at best fail on every request
//! and at worst answer with wrong tokens, so it is never formed, and the reason has a name.

use super::WorkerInfo;

/// Why two engines do not exchange KV.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("model {prefill:?} is not {decode:?}")]
    Model { prefill: String, decode: String },
    #[error("model fingerprint {prefill:016x} is not {decode:016x}: other weights under one name")]
    Fingerprint { prefill: u64, decode: u64 },
    #[error("{what} {prefill} is not {decode}")]
    Shape { what: &'static str, prefill: u32, decode: u32 },
    #[error("kv format {writes} is not among those read: {reads:?}")]
    Format { writes: u32, reads: Vec<u32> },
}

/// Whether KV of `prefill` may go to `decode`. A peer that does not say its fingerprint is
/// paired by model name; a dimension that one of the two does not say is not compared then.
pub fn check(prefill: &WorkerInfo, decode: &WorkerInfo) -> Result<(), Mismatch> {
    if prefill.model != decode.model {
        let (prefill, decode) = (prefill.model.clone(), decode.model.clone());
        return Err(Mismatch::Model { prefill, decode });
    }
    let named_only = prefill.fingerprint == 0 || decode.fingerprint == 0;
    if !named_only && prefill.fingerprint != decode.fingerprint {
        return Err(Mismatch::Fingerprint {
            prefill: prefill.fingerprint,
            decode: decode.fingerprint,
        });
    }
    let shapes = [
        ("block size", prefill.block_size, decode.block_size),
        ("layers", prefill.layers, decode.layers),
        ("kv heads", prefill.kv_heads, decode.kv_heads),
        ("head dimension", prefill.head_dim, decode.head_dim),
    ];
    for (what, p, d) in shapes {
        if p != d && !(named_only && (p == 0 || d == 0)) {
            return Err(Mismatch::Shape { what, prefill: p, decode: d });
        }
    }
    if !decode.kv_formats_read.contains(&prefill.kv_format) {
        return Err(Mismatch::Format {
            writes: prefill.kv_format,
            reads: decode.kv_formats_read.clone(),
        });
    }
    Ok(())
}

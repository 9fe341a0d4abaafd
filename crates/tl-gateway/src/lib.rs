//! The front door: worker registry, routing, prefill/decode orchestration, streaming

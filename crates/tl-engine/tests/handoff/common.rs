//! What the tests of this target share.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tl_engine::kv_transfer::{
    GrpcServer, HandleCfg, KvReceiver, PeerOptions, PooledOptions, PooledTransport, SharedKv,
    build_chunks, lock, serve_kv,
};
use tl_proto::kv::v1::KvChunk;
use tl_testkit::fake;
use tonic::Status;

pub(crate) fn used(pool: &SharedKv) -> u32 {
    lock(pool).stats().used
}

pub(crate) fn loopback() -> TcpListener {
    TcpListener::bind(("127.0.0.1", 0)).expect("a free port")
}

/// A decode engine's receiving half, served.
pub(crate) struct Decode {
    pub(crate) pool: SharedKv,
    pub(crate) receiver: Arc<KvReceiver>,
    pub(crate) server: GrpcServer,
}

impl Decode {
    pub(crate) fn start(blocks: u32) -> Decode {
        Decode::with(blocks, HandleCfg::default())
    }

    pub(crate) fn with(blocks: u32, cfg: HandleCfg) -> Decode {
        let pool = fake::pool(blocks);
        let receiver = Arc::new(KvReceiver::with_config(pool.clone(), cfg));
        let server = serve_kv(loopback(), receiver.clone()).expect("a server");
        Decode { pool, receiver, server }
    }

    pub(crate) fn target(&self) -> String {
        self.server.addr.to_string()
    }
}

/// A transport that gives up after `progress` without a chunk taken.
pub(crate) fn pooled(progress: Duration, incarnation: u64) -> Arc<PooledTransport> {
    PooledTransport::new(PooledOptions {
        peer: PeerOptions { connect_timeout: Duration::from_secs(2), ..PeerOptions::default() },
        call_timeout: progress,
        progress_timeout: progress,
        incarnation,
        token: None,
    })
}

/// A prompt whose tokens no other `n` shares.
pub(crate) fn prompt(n: u32, len: u32) -> Vec<u32> {
    (0..len).map(|i| n * 1000 + i).collect()
}

/// The chunks of a prompt that some engine ran.
pub(crate) fn chunks(id: &str, tokens: &[u32]) -> Vec<KvChunk> {
    let pool = fake::pool(tokens.len().div_ceil(4) as u32);
    let seq = fake::prefill(&pool, tokens).expect("room");
    build_chunks(&pool, id, seq.held.ids(), &seq.hashes, &[]).expect("blocks in hand")
}

pub(crate) fn ok(chunks: &[KvChunk]) -> impl Iterator<Item = Result<KvChunk, Status>> + '_ {
    chunks.iter().cloned().map(Ok)
}

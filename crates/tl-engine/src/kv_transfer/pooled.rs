//! Kept connections to the decode engines, and a bound on silence instead of one on
//! the whole push: a long prompt over a slow link takes as long as it takes, a peer
//! that stops taking chunks is given up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tl_proto::kv::v1::{KvAck, KvChunk};
use tonic::Code;
use tonic::transport::Channel;

use super::call::{self, Metadata};
use super::{ClusterToken, KvTransport, Outgoing, PeerOptions, TransferError};

/// Connections kept at most; the one unused for longest makes room.
const MAX_CHANNELS: usize = 256;

/// Settings of a [`PooledTransport`].
#[derive(Clone, Debug)]
pub struct PooledOptions {
    /// How connections are made.
    pub peer: PeerOptions,
    /// Bound of `HasBlocks` and `Release`.
    pub call_timeout: Duration,
    /// Longest time without one more chunk taken by the connection, and from the last
    /// chunk to the acknowledgement. Up to 8 MiB may be under way at that point: on a
    /// link slower than 1 MB/s, raise it.
    pub progress_timeout: Duration,
    /// This process's incarnation; 0 for none.
    pub incarnation: u64,
    /// Sent with every call when the cluster demands one.
    pub token: Option<ClusterToken>,
}

impl Default for PooledOptions {
    fn default() -> PooledOptions {
        PooledOptions {
            peer: PeerOptions::default(),
            call_timeout: Duration::from_secs(5),
            progress_timeout: Duration::from_secs(10),
            incarnation: 0,
            token: None,
        }
    }
}

struct Kept {
    channel: Channel,
    /// Tells this connection from one that replaced it.
    serial: u64,
    last_use: u64,
}

/// One kept connection per decode engine, shared by every push there. A connection on
/// which a call failed is dropped, so that the next call makes a new one.
pub struct PooledTransport {
    options: PooledOptions,
    metadata: Metadata,
    channels: Mutex<HashMap<String, Kept>>,
    clock: AtomicU64,
}

impl std::fmt::Debug for PooledTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PooledTransport").field("options", &self.options).finish_non_exhaustive()
    }
}

impl PooledTransport {
    /// A transport without connections. Its calls must be made within one tokio
    /// runtime, which drives the connections.
    pub fn new(options: PooledOptions) -> Arc<PooledTransport> {
        let metadata = Metadata::new(options.incarnation, options.token.clone());
        let channels = Mutex::new(HashMap::new());
        Arc::new(PooledTransport { options, metadata, channels, clock: AtomicU64::new(1) })
    }

    /// Connections kept at the moment.
    pub fn connections(&self) -> usize {
        self.channels.lock().len()
    }

    fn channel(&self, target: &str) -> Result<(Channel, u64), TransferError> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut channels = self.channels.lock();
        if let Some(kept) = channels.get_mut(target) {
            kept.last_use = now;
            return Ok((kept.channel.clone(), kept.serial));
        }
        let channel = self.options.peer.endpoint(target)?.connect_lazy();
        if channels.len() >= MAX_CHANNELS {
            let oldest = channels.iter().min_by_key(|(_, kept)| kept.last_use);
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                channels.remove(&name);
            }
        }
        let kept = Kept { channel: channel.clone(), serial: now, last_use: now };
        channels.insert(target.to_owned(), kept);
        Ok((channel, now))
    }

    /// Forgets the connection that failed, unless another has replaced it already.
    fn evict(&self, target: &str, serial: u64) {
        let mut channels = self.channels.lock();
        if channels.get(target).is_some_and(|kept| kept.serial == serial) {
            channels.remove(target);
        }
    }

    async fn on_channel<T, F>(
        &self,
        target: &str,
        call: impl FnOnce(Channel) -> F,
    ) -> Result<T, TransferError>
    where
        F: Future<Output = Result<T, TransferError>>,
    {
        let (channel, serial) = self.channel(target)?;
        let answer = call(channel).await;
        if let Err(error) = &answer
            && says_nothing_of_the_peer(error.code)
        {
            self.evict(target, serial);
        }
        answer
    }

    async fn bounded<T>(
        &self,
        target: &str,
        what: &str,
        call: impl Future<Output = Result<T, TransferError>>,
    ) -> Result<T, TransferError> {
        match tokio::time::timeout(self.options.call_timeout, call).await {
            Ok(answer) => answer,
            Err(_) => Err(silent(target, what, self.options.call_timeout)),
        }
    }
}

/// Codes that come from a broken connection rather than from the engine behind it.
fn says_nothing_of_the_peer(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded)
}

fn silent(target: &str, what: &str, timeout: Duration) -> TransferError {
    TransferError::new(
        Code::DeadlineExceeded,
        format!("{what} to {target}: nothing heard for {timeout:?}"),
    )
}

#[tonic::async_trait]
impl KvTransport for PooledTransport {
    async fn has_blocks(
        &self,
        target: &str,
        hashes: &[u64],
        fmt: u32,
    ) -> Result<Vec<bool>, TransferError> {
        self.on_channel(target, |channel| {
            let call = call::has_blocks(channel, &self.metadata, hashes, fmt);
            self.bounded(target, "HasBlocks", call)
        })
        .await
    }

    async fn push(&self, target: &str, chunks: Vec<KvChunk>) -> Result<KvAck, TransferError> {
        self.on_channel(target, |channel| {
            let call = call::push(channel, &self.metadata, chunks);
            self.bounded(target, "PushKv", call)
        })
        .await
    }

    async fn push_blocks(&self, target: &str, push: Outgoing) -> Result<KvAck, TransferError> {
        let timeout = self.options.progress_timeout;
        let mut progress = push.progress();
        self.on_channel(target, |channel| async move {
            let call = call::push_blocks(channel, &self.metadata, push);
            tokio::pin!(call);
            loop {
                tokio::select! {
                    biased;
                    answer = &mut call => return answer,
                    moved = tokio::time::timeout(timeout, progress.changed()) => match moved {
                        Ok(Ok(())) => {}
                        // Nobody will report progress any more: the push is fenced or
                        // the stream is gone, and the call ends by itself, in time.
                        Ok(Err(_)) => {
                            return self.bounded(target, "PushKv", call).await;
                        }
                        Err(_) => return Err(silent(target, "PushKv", timeout)),
                    },
                }
            }
        })
        .await
    }

    async fn release(&self, target: &str, handle_id: &str) -> Result<(), TransferError> {
        self.on_channel(target, |channel| {
            let call = call::release(channel, &self.metadata, handle_id);
            self.bounded(target, "Release", call)
        })
        .await
    }
}

//! A TCP relay that misbehaves on request.
//!
//! Faults are set on the relay, not on the client or the server, so that the real
//! code runs unchanged on both sides. A change of faults applies to open
//! connections too, which lets a test break a link in the middle of a transfer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// What a [`FaultProxy`] does to the bytes that pass; the default does nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Each connection is closed on both sides after this many bytes from the client.
    pub cut_after: Option<u64>,
    /// After this many bytes nothing more is read from the client, while the
    /// connection stays open: a peer that hangs without going.
    pub stall_after: Option<u64>,
    /// Each piece read from the client waits this long before it is passed on.
    pub delay: Option<Duration>,
    /// Bytes per second from client to server, per connection.
    pub bytes_per_second: Option<u64>,
    /// Connections are accepted and never answered.
    pub black_hole: bool,
    /// The server's bytes do not come back: requests arrive, answers are lost.
    pub drop_answers: bool,
}

#[derive(Default)]
struct Counters {
    connections: AtomicU64,
    upstream_bytes: AtomicU64,
    flipped: AtomicU64,
    /// Bytes that still pass before one is damaged.
    flip_after: Mutex<Option<usize>>,
}

impl Counters {
    fn damage(&self, piece: &mut [u8]) {
        let mut after = self.flip_after.lock();
        let Some(at) = *after else { return };
        if let Some(byte) = piece.get_mut(at) {
            *byte ^= 1 << (at % 8);
            self.flipped.fetch_add(1, Ordering::Relaxed);
            *after = None;
        } else {
            *after = Some(at - piece.len());
        }
    }
}

/// A relay from a port of its own to one server. Dropping it closes everything.
pub struct FaultProxy {
    addr: SocketAddr,
    faults: watch::Sender<Faults>,
    counters: Arc<Counters>,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
    acceptor: AbortHandle,
}

impl std::fmt::Debug for FaultProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultProxy").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl FaultProxy {
    /// Starts a relay to `upstream` on a free port of 127.0.0.1.
    pub async fn start(upstream: SocketAddr, faults: Faults) -> io::Result<FaultProxy> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let addr = listener.local_addr()?;
        let (faults, watcher) = watch::channel(faults);
        let counters = Arc::new(Counters::default());
        let connections = Arc::new(Mutex::new(Vec::new()));
        let acceptor = tokio::spawn(accept_loop(
            listener,
            upstream,
            watcher,
            counters.clone(),
            connections.clone(),
        ))
        .abort_handle();
        Ok(FaultProxy { addr, faults, counters, connections, acceptor })
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// [`FaultProxy::addr`] as `host:port`.
    pub fn target(&self) -> String {
        self.addr.to_string()
    }

    /// Replaces the faults, for open connections too.
    pub fn set(&self, faults: Faults) {
        self.faults.send_replace(faults);
    }

    /// One bit is turned, once: of the byte after so many more from clients. `None`: of none.
    pub fn flip(&self, after: Option<usize>) {
        *self.counters.flip_after.lock() = after;
    }

    /// Closes every open connection now.
    pub fn cut_all(&self) {
        for connection in self.connections.lock().drain(..) {
            connection.abort();
        }
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> u64 {
        self.counters.connections.load(Ordering::Relaxed)
    }

    /// Bytes passed from clients to the server so far.
    pub fn upstream_bytes(&self) -> u64 {
        self.counters.upstream_bytes.load(Ordering::Relaxed)
    }

    /// Bits turned so far.
    pub fn flipped(&self) -> u64 {
        self.counters.flipped.load(Ordering::Relaxed)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.acceptor.abort();
        self.cut_all();
    }
}

async fn accept_loop(
    listener: TcpListener,
    upstream: SocketAddr,
    faults: watch::Receiver<Faults>,
    counters: Arc<Counters>,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
) {
    while let Ok((client, _)) = listener.accept().await {
        counters.connections.fetch_add(1, Ordering::Relaxed);
        let task = tokio::spawn(relay(client, upstream, faults.clone(), counters.clone()));
        let mut open = connections.lock();
        open.retain(|c: &AbortHandle| !c.is_finished());
        open.push(task.abort_handle());
    }
}

async fn relay(
    client: TcpStream,
    upstream: SocketAddr,
    faults: watch::Receiver<Faults>,
    counters: Arc<Counters>,
) {
    if faults.borrow().black_hole {
        // Until the task is aborted, which closes it.
        return std::future::pending().await;
    }
    let Ok(server) = TcpStream::connect(upstream).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    // The first direction that ends takes the other with it: dropping the set
    // closes all four halves.
    let mut directions = JoinSet::new();
    directions.spawn(to_server(client_read, server_write, faults.clone(), counters));
    directions.spawn(to_client(server_read, client_write, faults));
    directions.join_next().await;
}

async fn to_server(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    faults: watch::Receiver<Faults>,
    counters: Arc<Counters>,
) {
    let mut passed = 0u64;
    let mut link_free = Instant::now();
    let mut buf = vec![0u8; 16 * 1024];
    loop {
        let Ok(n @ 1..) = from.read(&mut buf).await else { return };
        let f = faults.borrow().clone();
        counters.damage(&mut buf[..n]);
        let mut piece = &buf[..n];
        if let Some(delay) = f.delay {
            tokio::time::sleep(delay).await;
        }
        let limit = f.cut_after.into_iter().chain(f.stall_after).min().unwrap_or(u64::MAX);
        let allowed = usize::try_from(limit.saturating_sub(passed)).unwrap_or(usize::MAX);
        let at_limit = piece.len() >= allowed;
        piece = &piece[..piece.len().min(allowed)];
        if let Some(rate) = f.bytes_per_second {
            let takes = Duration::from_secs_f64(piece.len() as f64 / rate.max(1) as f64);
            link_free = link_free.max(Instant::now()) + takes;
            tokio::time::sleep_until(link_free).await;
        }
        if to.write_all(piece).await.is_err() {
            return;
        }
        passed += piece.len() as u64;
        counters.upstream_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        if at_limit && f.cut_after.is_some_and(|cut| passed >= cut) {
            return;
        }
        if at_limit {
            wait_until(faults.clone(), |f| f.stall_after.is_none()).await;
        }
    }
}

async fn to_client(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    faults: watch::Receiver<Faults>,
) {
    let mut buf = vec![0u8; 16 * 1024];
    loop {
        let Ok(n @ 1..) = from.read(&mut buf).await else { return };
        if faults.borrow().drop_answers {
            continue;
        }
        if to.write_all(&buf[..n]).await.is_err() {
            return;
        }
    }
}

async fn wait_until(mut faults: watch::Receiver<Faults>, done: impl Fn(&Faults) -> bool) {
    if faults.wait_for(|f| done(f)).await.is_err() {
        std::future::pending::<()>().await;
    }
}

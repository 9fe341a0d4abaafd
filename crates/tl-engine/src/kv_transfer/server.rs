//! gRPC servers on listeners that the caller has bound.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};
use tonic::transport::Server;
use tonic::transport::server::{Connected, Router, TcpConnectInfo, TcpIncoming};

/// HTTP/2 window of one stream, in bytes: two of the largest messages, so that a push
/// never waits for a window update between chunks. The default is 64 KiB.
pub(super) const STREAM_WINDOW: u32 = 8 * 1024 * 1024;
/// HTTP/2 window of one connection, in bytes.
pub(super) const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// Largest HTTP/2 frame, in bytes: fewer headers per block than the 16 KiB default.
const FRAME: u32 = 1024 * 1024;
/// How often a silent peer is pinged.
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a ping may stay unanswered before the connection is given up.
pub(super) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a shutdown lets calls in flight go on.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// A server builder with what block transfer needs: wide windows, and pings that find
/// out about a peer that went without saying so.
pub fn server_builder() -> Server {
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
}

/// A running server. Dropping it closes every connection at once, with the calls in
/// flight on it; [`GrpcServer::shutdown`] waits for them first.
#[derive(Debug)]
pub struct GrpcServer {
    /// Where it listens.
    pub addr: SocketAddr,
    /// Takes no more calls.
    stop: CancellationToken,
    task: JoinHandle<()>,
    /// Closes the connections.
    cut: DropGuard,
}

impl GrpcServer {
    /// Takes no more calls, and returns when those in flight have ended or, after five
    /// seconds, have been cut.
    pub async fn shutdown(self) {
        let GrpcServer { stop, mut task, cut, .. } = self;
        stop.cancel();
        if tokio::time::timeout(SHUTDOWN_GRACE, &mut task).await.is_err() {
            drop(cut);
            if let Err(error) = task.await {
                tracing::error!(%error, "grpc server task");
            }
        }
    }
}

/// Serves `router` on `listener`, on the runtime of the caller.
///
/// Must be called within a tokio runtime. The error is the system's refusal to use the
/// listener in non-blocking mode.
pub fn spawn_router(listener: TcpListener, router: Router) -> io::Result<GrpcServer> {
    listener.set_nonblocking(true)?;
    let addr = listener.local_addr()?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let cut = CancellationToken::new();
    let connections = TcpIncoming::from(listener).with_nodelay(Some(true)).map({
        let cut = cut.clone();
        move |accepted| accepted.map(|stream| Cuttable::new(stream, &cut))
    });
    // A server whose value is dropped stops listening too.
    let stop = cut.child_token();
    let stopped = stop.clone().cancelled_owned();
    let task = tokio::spawn(async move {
        if let Err(error) = router.serve_with_incoming_shutdown(connections, stopped).await {
            tracing::error!(%addr, %error, "grpc server ended");
        }
    });
    Ok(GrpcServer { addr, stop, task, cut: cut.drop_guard() })
}

/// A connection that reads as broken once it is cut. The server library gives
/// connections tasks of their own and no way to end them.
#[derive(Debug)]
struct Cuttable {
    stream: TcpStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Cuttable {
    fn new(stream: TcpStream, cut: &CancellationToken) -> Cuttable {
        Cuttable { stream, cut: Box::pin(cut.clone().cancelled_owned()) }
    }

    /// `Err` once the connection is cut; else the task is woken when it will be.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl Connected for Cuttable {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Cuttable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_open(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Cuttable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_open(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_open(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

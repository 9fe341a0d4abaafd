//! One HTTP/1 listener: accept, serve, stop.
//!
//! Written over hyper's connection rather than a ready-made accept loop because the order of a
//! shutdown matters here: the listener closes first, open connections go on answering (new requests
//! on them get a 503) while the work in flight ends, and only then are connections told to close.
//! It also makes sure that a peer that goes away is noticed while its request is still computing: a
//! connection whose read side ends is closed, which drops the handler or the response body, and
//! with them the work.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// Pause after a failed accept (no file descriptor left), so that the loop does not spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Longest wait for the head of a request, and thus the longest an idle connection stays open.
/// Longer than clients keep idle connections in their pools, so that they close first and no
/// request meets a closing one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// A running listener. Dropping it cuts every connection.
#[derive(Debug)]
pub(crate) struct HttpServer {
    addr: SocketAddr,
    accept: CancellationToken,
    close: CancellationToken,
    task: JoinHandle<()>,
}

impl HttpServer {
    pub(crate) fn spawn(listener: TcpListener, app: Router) -> io::Result<HttpServer> {
        let addr = listener.local_addr()?;
        let accept = CancellationToken::new();
        let close = CancellationToken::new();
        let task = tokio::spawn(run(listener, app, accept.clone(), close.clone()));
        Ok(HttpServer { addr, accept, close, task })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Closes the listener. Open connections go on.
    pub(crate) fn stop_accepting(&self) {
        self.accept.cancel();
    }

    /// Closes the listener and every connection after the answer it is sending; cuts them after
    /// `grace`.
    pub(crate) async fn close(mut self, grace: Duration) {
        self.accept.cancel();
        self.close.cancel();
        if tokio::time::timeout(grace, &mut self.task).await.is_err() {
            tracing::warn!(addr = %self.addr, "connections cut at the end of the grace period");
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // The task owns the connections' tasks and aborts them when it goes.
        self.task.abort();
    }
}

async fn run(
    listener: TcpListener,
    app: Router,
    accept: CancellationToken,
    close: CancellationToken,
) {
    let mut connections = JoinSet::new();
    let mut listener = Some(listener);
    loop {
        let incoming = async {
            match &listener {
                Some(l) => l.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = close.cancelled() => break,
            () = accept.cancelled(), if listener.is_some() => listener = None,
            Some(_) = connections.join_next() => {}
            socket = incoming => match socket {
                Ok((socket, _)) => {
                    connections.spawn(connection(socket, app.clone(), close.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection(socket: TcpStream, app: Router, close: CancellationToken) {
    // Tokens are small writes that must not wait for each other.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "nodelay not set");
    }
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).half_close(false);
    let serving = builder.serve_connection(TokioIo::new(socket), TowerToHyperService::new(app));
    tokio::pin!(serving);
    let result = tokio::select! {
        result = &mut serving => result,
        () = close.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended");
    }
}

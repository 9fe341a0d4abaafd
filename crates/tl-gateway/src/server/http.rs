//! An HTTP/1.1 server that can be stopped in steps: no new connections, then a wait for what
//! is in flight, then a cut.
//!
//! axum's own `serve` leaves its connection tasks running when it is dropped, so that an
//! answer could outlive the deadline; here they are in one set that can be aborted.

use std::net::SocketAddr;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// A connection that sends no request head for so long is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// After a failed accept (no file descriptors left), before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct HttpServer {
    addr: SocketAddr,
    stop: watch::Sender<Stop>,
    task: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Serving,
    /// No new connections; those that are open end with their current request.
    Draining,
    Cut,
}

impl HttpServer {
    pub(crate) fn start(
        listener: TcpListener,
        router: axum::Router,
    ) -> std::io::Result<HttpServer> {
        let addr = listener.local_addr()?;
        let (stop, stopped) = watch::channel(Stop::Serving);
        let task = tokio::spawn(accept(listener, router, stopped));
        Ok(HttpServer { addr, stop, task })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops listening, lets requests in flight end until the deadline, cuts the rest.
    pub(crate) async fn shut_down(mut self, deadline: Duration) {
        self.stop.send_replace(Stop::Draining);
        if tokio::time::timeout(deadline, &mut self.task).await.is_err() {
            self.stop.send_replace(Stop::Cut);
            let _ = self.task.await;
        }
    }
}

async fn accept(listener: TcpListener, router: axum::Router, mut stop: watch::Receiver<Stop>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            _ = stop.changed() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    connections.spawn(connection(socket, router.clone(), stop.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    loop {
        if *stop.borrow_and_update() == Stop::Cut {
            connections.shutdown().await;
        }
        tokio::select! {
            ended = connections.join_next() => if ended.is_none() { return },
            changed = stop.changed() => if changed.is_err() {
                connections.shutdown().await;
                return;
            },
        }
    }
}

/// Until serving ends, or its owner has gone.
async fn stopping(stop: &mut watch::Receiver<Stop>) {
    let _ = stop.wait_for(|s| *s != Stop::Serving).await;
}

async fn connection(socket: TcpStream, router: axum::Router, mut stop: watch::Receiver<Stop>) {
    // Events are small and each one matters at once.
    let _ = socket.set_nodelay(true);
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let service = TowerToHyperService::new(router);
    let connection = builder.serve_connection(TokioIo::new(socket), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

//! When a part has to stop: SIGTERM, Ctrl-C, or the end of standard input where it is watched.

use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};

/// Why a process was asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    Terminate,
    Interrupt,
    /// The supervisor's end of the pipe is gone: it died, so nobody would ever stop us.
    ParentGone,
}

/// Resolves once, at the first reason to stop.
pub(crate) async fn requested(watch_stdin: bool) -> StopReason {
    let mut terminate =
        signal(SignalKind::terminate()).expect("signal handlers can be installed at start");
    let mut interrupt =
        signal(SignalKind::interrupt()).expect("signal handlers can be installed at start");
    tokio::select! {
        _ = terminate.recv() => StopReason::Terminate,
        _ = interrupt.recv() => StopReason::Interrupt,
        () = stdin_closed(), if watch_stdin => StopReason::ParentGone,
    }
}

async fn stdin_closed() {
    let mut stdin = tokio::io::stdin();
    let mut buffer = [0_u8; 64];
    while !matches!(stdin.read(&mut buffer).await, Ok(0) | Err(_)) {}
}

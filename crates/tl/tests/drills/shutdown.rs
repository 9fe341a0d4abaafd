//! Parts that are asked to stop.

use nix::sys::signal::Signal;

use super::client::{End, body, complete, open, read};
use super::parts::{Drill, Shape};

/// SIGTERM on a decode engine with running streams: all of them finish, no new ones come, it exits with 0.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_engine_finishes_its_streams() {
    let mut drill = Drill::start(Shape::new(1, 2)).await;
    let mut streams = Vec::new();
    for i in 0..8 {
        let answer = open(&drill, &body(&format!("{i} streams that must end well"), 400, i)).await;
        streams.push(tokio::spawn(read(answer, |_| ())));
    }
    drill.decode[0].signal(Signal::SIGTERM);
    for stream in streams {
        assert_eq!(stream.await.expect("no panic").end, End::Done);
    }
    assert_eq!(drill.decode[0].exit_code(), Some(0));
    complete(&drill, &body("the other engine goes on", 8, 1)).await;
}

/// SIGTERM on the gateway: what runs finishes, it exits with 0.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_gateway_finishes_its_streams() {
    let mut drill = Drill::start(Shape::new(1, 1)).await;
    let mut streams = Vec::new();
    for i in 0..4 {
        let answer =
            open(&drill, &body(&format!("{i} streams through a leaving gateway"), 300, i)).await;
        streams.push(tokio::spawn(read(answer, |_| ())));
    }
    drill.gateway.signal(Signal::SIGTERM);
    for stream in streams {
        assert_eq!(stream.await.expect("no panic").end, End::Done);
    }
    assert_eq!(drill.gateway.exit_code(), Some(0));
}

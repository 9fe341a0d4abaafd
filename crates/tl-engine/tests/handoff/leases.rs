//! Handles that nobody claims, and pushes that are over before they end.

use std::time::{Duration, Instant};

use tl_engine::kv_transfer::{HandleCfg, KvReceiver};
use tl_testkit::{Baseline, DEADLINE, eventually_blocking, fake};
use tonic::Code;

use crate::common::{chunks, ok, prompt, used};

fn lease(lease_ms: u64) -> HandleCfg {
    HandleCfg { lease_ms, ..HandleCfg::default() }
}

#[test]
fn a_lease_ends_by_the_timer_alone() {
    let pool = fake::pool(16);
    let receiver = KvReceiver::with_config(pool.clone(), lease(50));
    for round in 1..=3 {
        receiver.accept_all(ok(&chunks("h", &prompt(1, 9)))).expect("a sound push");
        assert_eq!(receiver.pending(), 1);
        let start = Instant::now();
        // Only the pool is looked at: the receiver is left entirely alone.
        assert!(eventually_blocking(DEADLINE, || used(&pool) == 0), "round {round}");
        assert!(start.elapsed() >= Duration::from_millis(40), "not before its time");
        assert_eq!(receiver.counters().handles_expired, round);
        assert!(receiver.claim("h").is_none());
    }
}

#[test]
fn a_pool_full_of_orphans_recovers_by_itself() {
    let pool = fake::pool(12);
    let receiver = KvReceiver::with_config(pool.clone(), lease(100));
    for n in 0..4 {
        receiver.accept_all(ok(&chunks(&format!("h{n}"), &prompt(n + 1, 12)))).expect("room");
    }
    assert_eq!(used(&pool), 12);
    assert!(eventually_blocking(DEADLINE, || used(&pool) == 0));
    assert_eq!((receiver.pending(), receiver.counters().handles_expired), (0, 4));
}

#[test]
fn claimed_and_released_handles_do_not_expire_too() {
    let pool = fake::pool(16);
    let receiver = KvReceiver::with_config(pool.clone(), lease(60));
    for id in ["claimed", "released", "left"] {
        let n = id.len() as u32;
        receiver.accept_all(ok(&chunks(id, &prompt(n, 9)))).expect("a sound push");
    }
    let claimed = receiver.claim_held("claimed").expect("in time");
    receiver.release("released");
    assert!(eventually_blocking(DEADLINE, || receiver.counters().handles_expired == 1));
    let counters = receiver.counters();
    assert_eq!((counters.handles_claimed, counters.handles_released), (1, 1));
    assert_eq!(used(&pool), 3, "the claimed blocks are the claimer's");
    fake::check_contents(&pool, claimed.held.ids(), &prompt(7, 9)).expect("untouched");
}

#[test]
fn dropping_the_receiver_gives_everything_back() {
    let pool = fake::pool(16);
    let receiver = KvReceiver::new(pool.clone());
    receiver.accept_all(ok(&chunks("h", &prompt(1, 9)))).expect("a sound push");
    assert_eq!(used(&pool), 3);
    drop(receiver);
    assert!(eventually_blocking(DEADLINE, || used(&pool) == 0));
    Baseline::of(&[("D", &pool)]).assert_restored();
}

/// What can end a handle, at each point of its life: after `k` chunks of a push that is
/// under way, and once it is complete.
#[test]
fn every_end_at_every_state_frees() {
    type End<'a> = &'a dyn Fn(&KvReceiver);
    let ends: [(&str, End<'_>); 3] = [
        ("release", &|r| r.release("h")),
        ("release twice", &|r| {
            r.release("h");
            r.release("h");
        }),
        ("claim", &|r| drop(r.claim_held("h"))),
    ];
    let push = chunks("h", &prompt(1, 18));
    for (name, end) in ends {
        for k in 0..=push.len() {
            let pool = fake::pool(8);
            let receiver = KvReceiver::new(pool.clone());
            let baseline = Baseline::of(&[("D", &pool)]);
            let mut fed = 0;
            let outcome = receiver.accept_all(push.iter().cloned().map(|chunk| {
                if fed == k {
                    end(&receiver);
                }
                fed += 1;
                Ok(chunk)
            }));
            let complete = k == push.len();
            // A claim while the push runs takes nothing and does it no harm.
            let lands = complete || name == "claim";
            match outcome {
                Ok(_) => assert!(lands, "{name} before chunk {k}: a released push has landed"),
                Err(status) => {
                    assert!(!lands, "{name} before chunk {k}: {status}");
                    assert_eq!(status.code(), Code::Aborted, "{name} before chunk {k}");
                }
            }
            assert_eq!(receiver.pending(), usize::from(lands));
            end(&receiver);
            baseline.assert_restored();
            assert_eq!(receiver.pending(), 0, "{name} before chunk {k}");
        }
    }
}

#[test]
fn a_push_that_comes_after_its_release_does_not_land() {
    let pool = fake::pool(16);
    let receiver = KvReceiver::new(pool.clone());
    receiver.release("h");
    let late = receiver.accept_all(ok(&chunks("h", &prompt(1, 9)))).expect_err("released");
    assert_eq!(late.code(), Code::Aborted);
    assert_eq!((used(&pool), receiver.pending()), (0, 0));
    receiver.accept_all(ok(&chunks("another", &prompt(1, 9)))).expect("another attempt");
}

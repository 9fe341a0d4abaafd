use std::collections::BTreeMap;
use std::rc::Rc;

use proptest::prelude::*;
use tl_kv::Code;
use tl_kv::handoff::{ClaimError, End, HandleCfg, HandleError, HandleTable, Ticket};

const CFG: HandleCfg = HandleCfg {
    lease_ms: 100,
    receive_ms: 50,
    tombstone_ms: 200,
    max_handles: 3,
    max_handles_per_peer: 2,
    max_blocks: 20,
    max_handle_len: 8,
    max_tombstones: 4,
};

/// Stands in for blocks: how many references live is what a pool would count as used.
#[derive(Debug)]
struct Blocks {
    _reference: Rc<()>,
}

struct World {
    table: HandleTable<Blocks>,
    used: Rc<()>,
}

impl World {
    fn new(cfg: HandleCfg) -> Self {
        Self { table: HandleTable::new(cfg), used: Rc::new(()) }
    }

    fn blocks(&self) -> Blocks {
        Blocks { _reference: Rc::clone(&self.used) }
    }

    fn used(&self) -> usize {
        self.table.check().unwrap();
        Rc::strong_count(&self.used) - 1
    }

    fn begin(&mut self, handle: &str, now: u64) -> Result<Ticket, HandleError> {
        self.table.begin(handle, 0, 1, now)
    }

    fn ready(&mut self, handle: &str, now: u64) {
        let ticket = self.begin(handle, now).unwrap();
        let blocks = self.blocks();
        self.table.complete(ticket, blocks, now).unwrap();
    }

    /// Completes an attempt that must be refused.
    fn too_late(&mut self, ticket: Ticket, now: u64) -> HandleError {
        let blocks = self.blocks();
        self.table.complete(ticket, blocks, now).unwrap_err().error
    }
}

#[test]
fn the_ordinary_way() {
    let mut w = World::new(CFG);
    let ticket = w.begin("h", 0).unwrap();
    assert_eq!((ticket.handle(), w.table.claim("h", 1).err()), ("h", Some(ClaimError::Receiving)));
    w.table.touch(&ticket, 40).unwrap();
    let blocks = w.blocks();
    w.table.complete(ticket, blocks, 80).unwrap();
    assert_eq!((w.table.next_deadline(), w.used(), w.table.ready()), (Some(180), 1, 1));
    let blocks = w.table.claim("h", 179).unwrap();
    assert_eq!((w.table.live(), w.table.next_deadline(), w.used()), (0, None, 1));
    drop(blocks);
    assert_eq!(w.used(), 0);
    assert_eq!(w.table.claim("h", 179).unwrap_err(), ClaimError::Ended(End::Claimed));
    assert_eq!(w.table.claim("x", 179).unwrap_err(), ClaimError::Unknown);
}

#[test]
fn a_live_id_is_taken_and_its_holder_stays() {
    let mut w = World::new(CFG);
    let ticket = w.begin("h", 0).unwrap();
    let again = w.begin("h", 1).unwrap_err();
    assert_eq!((again.code(), again), (Code::AlreadyExists, HandleError::AlreadyLive));
    let blocks = w.blocks();
    w.table.complete(ticket, blocks, 2).unwrap();
    assert_eq!(w.begin("h", 3).unwrap_err(), HandleError::AlreadyLive);
    assert!(w.table.claim("h", 4).is_ok());
}

#[test]
fn release_in_every_state() {
    let mut w = World::new(CFG);
    assert!(w.table.release("never", 0).is_none());
    assert_eq!(w.begin("never", 1).unwrap_err(), HandleError::Ended(End::Released));

    let ticket = w.begin("fly", 10).unwrap();
    assert!(w.table.release("fly", 11).is_none());
    assert_eq!(w.table.touch(&ticket, 12), Err(HandleError::Ended(End::Released)));
    assert_eq!(w.begin("fly", 12).unwrap_err().code(), Code::Aborted);
    assert_eq!(w.too_late(ticket, 12), HandleError::Ended(End::Released));
    assert_eq!(w.used(), 0);

    w.ready("done", 20);
    assert_eq!(w.used(), 1);
    drop(w.table.release("done", 21));
    assert!(w.table.release("done", 21).is_none());
    assert_eq!(w.used(), 0);
    w.ready("done", 22);
    assert_eq!(w.used(), 1, "nothing of the first can be in flight");
    drop(w.table.claim("done", 23).unwrap());
    assert!(w.table.release("done", 24).is_none());
    assert_eq!(w.used(), 0);
}

#[test]
fn a_failed_push_may_be_repeated_and_the_first_attempt_stays_dead() {
    let mut w = World::new(CFG);
    let first = w.begin("h", 0).unwrap();
    w.table.abort(first, 1);
    let second = w.begin("h", 2).unwrap();
    w.table.abort(second, 3);
    w.ready("h", 4);
    assert_eq!((w.table.counters().aborted, w.table.counters().completed), (2, 1));
}

#[test]
fn leases_end_on_the_clock_of_the_caller() {
    let mut w = World::new(CFG);
    w.ready("a", 0);
    let stalled = w.begin("b", 30).unwrap();
    assert_eq!(w.table.next_deadline(), Some(80));
    assert!(w.table.expire(79).is_empty());
    let ended = w.table.expire(80);
    assert_eq!((ended.len(), ended[0].0.as_str(), ended[0].1.is_none()), (1, "b", true));
    assert_eq!(w.table.touch(&stalled, 81), Err(HandleError::Ended(End::Expired)));
    assert_eq!(w.too_late(stalled, 81), HandleError::Ended(End::Expired));
    assert_eq!(w.table.claim("a", 100).unwrap_err(), ClaimError::Ended(End::Expired));
    assert_eq!((w.used(), w.table.next_deadline()), (1, Some(100)));
    drop(w.table.expire(100));
    assert_eq!((w.used(), w.table.next_deadline(), w.table.counters().expired), (0, None, 2));
}

/// The timer may be late: the lease is over all the same.
#[test]
fn a_push_past_its_time_cannot_land_before_the_timer_ran() {
    let mut w = World::new(CFG);
    let ticket = w.begin("h", 0).unwrap();
    assert_eq!(w.too_late(ticket, 50), HandleError::Ended(End::Expired));
    assert_eq!((w.table.live(), w.used(), w.table.counters().expired), (0, 0, 1));
}

#[test]
fn a_dead_incarnation_ends_with_all_it_began() {
    let mut w = World::new(CFG);
    let flying = w.table.begin("a", 7, 1, 0).unwrap();
    let blocks = w.blocks();
    let done = w.table.begin("b", 7, 1, 0).unwrap();
    w.table.complete(done, blocks, 0).unwrap();
    let other = w.table.begin("c", 8, 1, 0).unwrap();
    let ended = w.table.fence(7, 1);
    assert_eq!(ended.len(), 2);
    drop(ended);
    assert_eq!((w.used(), w.table.live()), (0, 1));
    assert_eq!(w.table.touch(&flying, 2), Err(HandleError::Ended(End::Fenced)));
    assert_eq!(w.too_late(flying, 2), HandleError::Ended(End::Fenced));
    assert_eq!(w.table.begin("d", 7, 1, 2).unwrap_err(), HandleError::Fenced);
    assert_eq!(w.table.claim("b", 2).unwrap_err(), ClaimError::Ended(End::Fenced));
    w.table.touch(&other, 3).unwrap();
    assert!(w.table.fence(0, 3).is_empty(), "nobody");
    let _ticket = w.table.begin("e", 0, 1, 3).unwrap();
    assert_eq!(w.table.counters().fenced, 2);
}

#[test]
fn bounds() {
    let mut w = World::new(CFG);
    #[track_caller]
    fn check(got: Result<Ticket, HandleError>, code: Code) {
        assert_eq!(got.unwrap_err().code(), code);
    }
    check(w.begin("", 0), Code::InvalidArgument);
    check(w.begin("123456789", 0), Code::InvalidArgument);
    check(w.table.begin("a", 0, 21, 0), Code::ResourceExhausted);
    let a = w.table.begin("a", 7, 15, 0).unwrap();
    check(w.table.begin("b", 7, 6, 0), Code::ResourceExhausted);
    let _ticket = w.table.begin("b", 7, 5, 0).unwrap();
    check(w.table.begin("c", 7, 0, 0), Code::ResourceExhausted);
    let _ticket = w.table.begin("c", 8, 0, 0).unwrap();
    check(w.table.begin("d", 9, 0, 0), Code::ResourceExhausted);
    assert_eq!((w.table.live_blocks(), w.table.counters().refused), (20, 6));
    w.table.abort(a, 1);
    let _ticket = w.table.begin("d", 7, 15, 1).unwrap();
    for i in 0..100 {
        w.table.release(&format!("r{i}"), 2);
        w.table.check().unwrap();
    }
    let full = HandleError::TooMany { live: 3, max: 3 };
    assert_eq!(w.begin("r0", 3).unwrap_err(), full, "forgotten: only four ends are remembered");
    assert_eq!(w.begin("r99", 3).unwrap_err(), HandleError::Ended(End::Released));
}

#[test]
fn tombstones_are_forgotten_in_time() {
    let mut w = World::new(CFG);
    w.table.release("h", 0);
    assert_eq!(w.begin("h", 199).unwrap_err(), HandleError::Ended(End::Released));
    assert!(w.begin("h", 200).is_ok());
}

/// Whoever says `release` a second time knows of something that is still on its way.
#[test]
fn a_release_said_again_is_remembered_from_then_on() {
    let mut w = World::new(CFG);
    w.table.release("h", 0);
    w.table.release("h", 150);
    assert_eq!(w.begin("h", 349).unwrap_err(), HandleError::Ended(End::Released));
    assert!(w.begin("h", 350).is_ok());
}

/// A push that something on the way repeats finds its handle over, however that ended; one whose
/// sender does not say who it is may use an id again.
#[test]
fn an_echo_of_a_known_pusher_does_not_begin() {
    #[track_caller]
    fn check(end: impl Fn(&mut World), want: End) {
        for (incarnation, refused) in [(7, true), (0, false)] {
            let mut w = World::new(CFG);
            let ticket = w.table.begin("h", incarnation, 1, 0).unwrap();
            let blocks = w.blocks();
            w.table.complete(ticket, blocks, 1).unwrap();
            end(&mut w);
            let echo = w.table.begin("h", incarnation, 1, 102);
            assert_eq!(echo.err(), refused.then_some(HandleError::Ended(want)));
            assert_eq!(w.used(), 0);
        }
    }
    check(|w| drop(w.table.claim("h", 2).unwrap()), End::Claimed);
    check(|w| drop(w.table.release("h", 2)), End::Released);
    check(|w| drop(w.table.expire(101)), End::Expired);
}

#[test]
fn a_lease_without_an_end_is_told_by_its_rule() {
    let mut w = World::new(HandleCfg { lease_ms: u64::MAX, ..CFG });
    w.ready("h", 0);
    let broken = w.table.check_at(0).unwrap_err();
    assert_eq!(broken.invariant.name(), "lease_ends");
}

#[derive(Clone, Debug)]
enum Op {
    Begin(usize, u64, u64),
    Touch(usize),
    Complete(usize),
    Abort(usize),
    Claim(usize),
    Release(usize),
    Fence(u64),
    Expire,
    Wait(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let handle = 0..5usize;
    let op = prop_oneof![
        6 => (handle.clone(), 0..4u64, 0..9u64).prop_map(|(h, i, b)| Op::Begin(h, i, b)),
        3 => (0..8usize).prop_map(Op::Touch),
        5 => (0..8usize).prop_map(Op::Complete),
        2 => (0..8usize).prop_map(Op::Abort),
        3 => handle.clone().prop_map(Op::Claim),
        2 => handle.prop_map(Op::Release),
        1 => (0..4u64).prop_map(Op::Fence),
        3 => Just(Op::Expire),
        4 => (0..60u64).prop_map(Op::Wait),
    ];
    prop::collection::vec(op, 1..150)
}

/// What the rules say about one handle, without the table's indices.
#[derive(Clone, Debug)]
struct Live {
    attempt: usize,
    incarnation: u64,
    blocks: u64,
    deadline: u64,
    ready: bool,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]
    /// Whatever happens in whatever order: dead attempts do not land, nothing is lost or kept,
    /// and everything is idle once time has passed.
    #[test]
    fn the_table_does_what_the_rules_say(ops in ops()) {
        let mut w = World::new(CFG);
        let mut now = 0;
        let mut tickets: Vec<(usize, usize, Ticket)> = Vec::new();
        let mut attempts = 0;
        let mut live: BTreeMap<usize, Live> = BTreeMap::new();
        let mut fenced: Vec<u64> = Vec::new();
        let name = |h: usize| format!("h{h}");
        for op in ops {
            match op {
                Op::Begin(h, incarnation, blocks) => {
                    let got = w.table.begin(&name(h), incarnation, blocks, now);
                    let sum: u64 = live.values().map(|l| l.blocks).sum();
                    let peers = live.values()
                        .filter(|l| incarnation != 0 && l.incarnation == incarnation).count();
                    let fits = live.len() < CFG.max_handles && peers < CFG.max_handles_per_peer
                        && sum + blocks <= CFG.max_blocks;
                    match got {
                        Ok(ticket) => {
                            prop_assert!(fits && !live.contains_key(&h));
                            prop_assert!(!fenced.contains(&incarnation));
                            let deadline = now + CFG.receive_ms;
                            live.insert(h, Live {
                                attempt: attempts, incarnation, blocks, deadline, ready: false,
                            });
                            tickets.push((attempts, h, ticket));
                            attempts += 1;
                        }
                        Err(HandleError::Fenced) => prop_assert!(fenced.contains(&incarnation)),
                        Err(HandleError::AlreadyLive) => prop_assert!(live.contains_key(&h)),
                        Err(HandleError::Ended(_)) => prop_assert!(!live.contains_key(&h)),
                        Err(_) => prop_assert!(!fits),
                    }
                }
                Op::Touch(i) if !tickets.is_empty() => {
                    let (attempt, h, ticket) = &tickets[i % tickets.len()];
                    let alive = live.get(h)
                        .is_some_and(|l| l.attempt == *attempt && l.deadline > now);
                    prop_assert_eq!(w.table.touch(ticket, now).is_ok(), alive);
                    let entry = live.get_mut(h).filter(|l| l.attempt == *attempt);
                    match entry {
                        Some(l) if alive => l.deadline = now + CFG.receive_ms,
                        Some(_) => { live.remove(h); }
                        None => {}
                    }
                }
                Op::Complete(i) if !tickets.is_empty() => {
                    let (attempt, h, ticket) = tickets.remove(i % tickets.len());
                    let mine = live.get(&h).is_some_and(|l| l.attempt == attempt);
                    let alive = mine && live[&h].deadline > now;
                    let blocks = w.blocks();
                    prop_assert_eq!(w.table.complete(ticket, blocks, now).is_ok(), alive);
                    if alive {
                        let l = live.get_mut(&h).unwrap();
                        l.ready = true;
                        l.deadline = now + CFG.lease_ms;
                    } else if mine {
                        live.remove(&h);
                    }
                }
                Op::Abort(i) if !tickets.is_empty() => {
                    let (attempt, h, ticket) = tickets.remove(i % tickets.len());
                    w.table.abort(ticket, now);
                    if live.get(&h).is_some_and(|l| l.attempt == attempt) {
                        live.remove(&h);
                    }
                }
                Op::Claim(h) => {
                    let alive = live.get(&h).is_some_and(|l| l.ready && l.deadline > now);
                    prop_assert_eq!(w.table.claim(&name(h), now).is_ok(), alive);
                    if alive {
                        live.remove(&h);
                    }
                }
                Op::Release(h) => {
                    let had = live.remove(&h).is_some_and(|l| l.ready);
                    prop_assert_eq!(w.table.release(&name(h), now).is_some(), had);
                }
                Op::Fence(incarnation) => {
                    let before = live.len();
                    if incarnation != 0 {
                        fenced.push(incarnation);
                        live.retain(|_, l| l.incarnation != incarnation);
                    }
                    prop_assert_eq!(w.table.fence(incarnation, now).len(), before - live.len());
                }
                Op::Expire => {
                    let before = live.len();
                    live.retain(|_, l| l.deadline > now);
                    prop_assert_eq!(w.table.expire(now).len(), before - live.len());
                }
                Op::Wait(ms) => now += ms,
                _ => {}
            }
            prop_assert_eq!(w.table.check_at(now), Ok(()));
            prop_assert_eq!(w.table.live(), live.len());
            prop_assert_eq!(w.used(), live.values().filter(|l| l.ready).count());
            prop_assert_eq!(w.table.next_deadline(), live.values().map(|l| l.deadline).min());
        }
        while let Some(deadline) = w.table.next_deadline() {
            drop(w.table.expire(deadline));
        }
        prop_assert_eq!((w.table.live(), w.used(), w.table.live_blocks()), (0, 0, 0));
    }
}

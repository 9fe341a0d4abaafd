//! Every invariant that can be broken from here is found broken by the very next check, of what changed
//! alone; and by the one that looks at everything.

use super::Ledger;
use crate::engine::Engine;
use crate::engine::invariant::Invariant;
use crate::pool::queue::Who;
use crate::pool::shared::{NONE, Shared};
use crate::session::Status;
use crate::stage::Kind;
use crate::stage::duty::Duty;
use crate::stage::step::Step;
use crate::{NoObserver, Options, program};

use Invariant as I;

/// Two slots for four; leases, deadlines, a cache.
const PLAIN: &str = "
    pool slots { cap 2; }
    pool kv { cap 20; block 2; }
    stage clock : delay;
    workload { arrive batch (4); }
    session {
      hold slots (1), kv (4) { run clock (1); } cache (2) lease kv (5);
      hold kv (2) { until (9) { run clock (10); } else {} }
    }
    run { horizon 100; }";

/// Session 0 leaves its blocks to the engine and reads them, 1 is cut with tokens under way, 2 sends word, 3
/// decodes.
const ENGINE: &str = "
    pool kv { cap 64; block 4; shared; preempt lifo; admit via E; }
    stage E : step { budget 40; cost 1; memory kv; ahead 1; fenced 1; };
    stage clock : delay;
    workload { arrive batch (4); init { set a = 0; } }
    session {
      branch (serial == 0) {
        hold kv (8) { run E prefill (7) growing kv; } lease kv (inf) on E;
        run E steps (50) telling kv;
      } else {}
      branch (serial == 2) {
        hold kv (8) { run E prefill (7) growing kv; } lease kv (inf) on E;
        release kv on E after (30);
      } else {}
      until (serial == 1 ? 4.5 : inf) {
        hold kv (8) { run E prefill (7) decode (20) growing kv answers a; }
      } else { run clock (9); }
    }
    run { horizon 100; }";

/// Runs a program to a time, changes the state, and asks what changed.
#[track_caller]
fn check(text: &str, at: f64, change: fn(&mut Engine<'_>), expected: Invariant) {
    let compiled = serq_lang::compile("test.sq", text.as_bytes(), &[]);
    let ir = compiled.program.expect("valid");
    let options = Options { horizon: Some(at), ..Options::default() };
    let settings = crate::settings(&ir, &options).expect("settings");
    let (c, plans, capacities) = program::compile(&ir);
    let mut observer = NoObserver;
    let mut e = Engine::new(&c, (plans, capacities), settings, &mut observer);
    e.run().expect("a run");
    assert_eq!(e.newly_broken(), None);
    change(&mut e);
    let found = e.newly_broken().unwrap_or_else(|| panic!("{expected:?} is not found"));
    assert_eq!(found.0, expected, "{}", found.1);
    // What was computed in once is in the account alone.
    let whole = e.broken_invariant().or_else(|| e.lost_read());
    assert!(whole.is_some() || e.ledger.differs(&e.w).is_some(), "{}", found.1);
}

fn step<'a>(e: &'a mut Engine<'_>) -> &'a mut Step {
    match &mut e.w.stages[0].kind {
        Kind::Step(step) => step,
        _ => panic!("an engine"),
    }
}

fn duty<'a>(e: &'a mut Engine<'_>) -> &'a mut Duty {
    &mut step(e).duty
}

fn blocks<'a>(e: &'a mut Engine<'_>) -> &'a mut Shared {
    e.w.pools[0].shared.as_mut().expect("shared")
}

/// What breaks which invariant, in the plain program.
#[test]
fn what_breaks_without_an_engine_is_found_at_once() {
    type Change = fn(&mut Engine<'_>);
    let changes: [(f64, Change, Invariant); 24] = [
        (0.5, |e| e.w.pools[1].cap = 7.0, I::Capacity),
        (9.5, |e| e.w.pools[1].cap = 5.0, I::Capacity),
        (0.5, |e| e.w.pools[1].used += 1.0, I::UsedIsHeldAndLeased),
        (0.5, |e| e.w.sessions[1].claims[1].alloc -= 1.0, I::UsedIsHeldAndLeased),
        (0.5, |e| e.w.sessions[1].claims[1].active = false, I::UsedIsHeldAndLeased),
        (1.5, |e| e.w.sessions[1].leases[0].alloc += 1.0, I::UsedIsHeldAndLeased),
        (1.5, |e| e.w.sessions[1].status = Status::Gone, I::UsedIsHeldAndLeased),
        (9.5, |e| e.w.pools[1].cache.total += 1.0, I::CachedIsEntries),
        (9.5, |e| e.w.pools[1].cache.get_mut(0).size -= 1.0, I::CachedIsEntries),
        (0.5, |e| e.w.pools[1].holders += 1, I::HoldersAreOwned),
        (0.5, |e| e.w.pools[0].queue.remove(Who::Session(3)), I::WaitersStandInQueues),
        (0.5, |e| e.w.pools[0].queue.join(Who::Session(3)), I::WaitersStandInQueues),
        (0.5, |e| e.w.pools[1].queue.join(Who::Session(1)), I::WaitersStandInQueues),
        (0.5, |e| e.w.pools[0].queue.join(Who::Booking(2)), I::WaitersStandInQueues),
        (0.5, |e| e.w.sessions[3].status = Status::Executing, I::WaitersStandInQueues),
        (0.5, |e| e.w.sessions[3].status = Status::Queued { pool: 1 }, I::WaitersStandInQueues),
        (0.5, |e| e.w.stages[0].present -= 1, I::PopulationIsJobs),
        (0.5, |e| e.w.jobs[1].alive = false, I::PopulationIsJobs),
        (0.5, |e| e.ready.push_back(0), I::InstantSettled),
        (0.5, |e| e.w.sessions[0].holds[0].first = 3, I::ClaimsBelongToHolds),
        (1.5, |e| e.w.sessions[0].holds.clear(), I::FramesBelongToHolds),
        (1.5, |e| e.w.sessions[0].leases[0].until = 0.5, I::LeasesEnd),
        // Nobody was lent for change: time passes.
        (1.5, |e| e.w.now = 6.5, I::LeasesEnd),
        (0.5, |e| e.w.sessions[0].status = Status::Stepping { stage: 0 }, I::SteppersAreCounted),
    ];
    for (at, change, expected) in changes {
        check(PLAIN, at, change, expected);
    }
}

#[test]
fn what_breaks_in_an_engine_is_found_at_once() {
    type Change = fn(&mut Engine<'_>);
    let changes: [(f64, Change, Invariant); 28] = [
        (4.6, |e| e.w.pools[0].used -= 4.0, I::UsedIsHeldAndLeased),
        (4.6, |e| e.w.sessions[3].claims[0].alloc += 4.0, I::UsedIsHeldAndLeased),
        (4.6, |e| duty(e).leases[0].alloc += 4.0, I::UsedIsHeldAndLeased),
        (4.6, |e| duty(e).told[0].1.holder = NONE, I::UsedIsHeldAndLeased),
        (4.6, |e| duty(e).deferred.clear(), I::UsedIsHeldAndLeased),
        (4.6, |e| blocks(e).break_books(), I::SharedBlocks),
        (4.6, |e| e.w.pools[0].holders -= 1, I::HoldersAreOwned),
        (4.6, |e| e.w.stages[0].present += 1, I::PopulationIsJobs),
        (4.6, |e| step(e).residents.swap(0, 1), I::ResidentsInOrder),
        (4.6, |e| step(e).residents.clear(), I::ResidentsInOrder),
        (4.6, |e| e.w.jobs[3].admission = 99, I::ResidentsInOrder),
        (4.6, |e| e.w.sessions[0].minded.clear(), I::LeasesEnd),
        (4.6, |e| e.w.sessions[3].minded.push((1, 0)), I::LeasesEnd),
        (4.6, |e| e.w.sessions[0].serial = 9, I::LeasesEnd),
        (4.6, |e| duty(e).leases[0].id = 9, I::LeasesEnd),
        (4.6, |e| duty(e).told[0].0 = f64::INFINITY, I::LeasesEnd),
        (4.6, |e| e.w.jobs[3].flying += 1.0, I::UnderWayIsScheduled),
        (4.6, |e| step(e).assigned[1].1 += 1.0, I::UnderWayIsScheduled),
        (4.6, |e| drop(duty(e).flying.pop_front()), I::UnderWayIsScheduled),
        (4.6, |e| duty(e).delivered = duty(e).latest, I::DeferredIsDelivered),
        (4.6, |e| duty(e).deferred[0].0 = 99, I::DeferredIsDelivered),
        (4.6, |e| duty(e).waiting.clear(), I::SteppersAreCounted),
        (4.6, |e| e.w.sessions[0].status = Status::Executing, I::SteppersAreCounted),
        // A reader's blocks, those of a lease, and those of an iteration under way are free.
        (4.6, |e| close(e, |e| e.w.sessions[3].claims[0].holder), I::NoReadAfterFree),
        (4.6, |e| close(e, |e| duty(e).leases[0].holder), I::NoReadAfterFree),
        (4.6, |e| close(e, |e| duty(e).deferred[0].2), I::NoReadAfterFree),
        // They are free and nobody says to have them, but the iteration does not know.
        (4.6, free_deferred, I::NoReadAfterFree),
        (4.6, |e| e.w.sessions[3].status = Status::Executing, I::NoReadAfterFree),
    ];
    for (at, change, expected) in changes {
        check(ENGINE, at, change, expected);
    }
}

/// Gives blocks back behind their owner's back.
fn close(e: &mut Engine<'_>, holder: fn(&mut Engine<'_>) -> u32) {
    let holder = holder(e);
    blocks(e).close(holder);
    let now = e.w.now;
    e.w.pools[0].note_shared(now);
}

fn free_deferred(e: &mut Engine<'_>) {
    close(e, |e| duty(e).deferred[0].2);
    duty(e).deferred.clear();
}

/// A row of an engine that is not ahead has a living job.
#[test]
fn only_who_is_ahead_computes_for_nobody() {
    let text = ENGINE.replace("ahead 1; fenced 1;", "");
    let dies = |e: &mut Engine<'_>| {
        let held = e.w.sessions[3].claims[0];
        assert!(held.active && step(e).assigned.iter().any(|(job, _)| *job == 3));
        e.w.sessions[3].claims[0].position += 1.0;
        e.w.jobs[3].growing = Some(9);
    };
    check(&text, 3.5, dies, I::NoReadAfterFree);
}

/// The account of changes is compared with a fresh one.
#[test]
fn an_account_that_is_wrong_is_found() {
    let compiled = serq_lang::compile("test.sq", PLAIN.as_bytes(), &[]);
    let ir = compiled.program.expect("valid");
    let settings = crate::settings(&ir, &Options::default()).expect("settings");
    let (c, plans, capacities) = program::compile(&ir);
    let mut observer = NoObserver;
    let mut e = Engine::new(&c, (plans, capacities), settings, &mut observer);
    e.run().expect("a run");
    assert_eq!(e.ledger.differs(&e.w), None);
    for change in [
        |l: &mut Ledger| l.pools[1].held.add(1.0),
        |l: &mut Ledger| l.pools[1].cached.add(1.0),
        |l: &mut Ledger| l.pools[1].standing += 1,
        |l: &mut Ledger| l.stages[0].population += 1,
        |l: &mut Ledger| l.sessions[0].stands.push((0, false)),
        |l: &mut Ledger| l.jobs[0].rows += 1,
        |l: &mut Ledger| l.bound(0, false),
    ] {
        let mut ledger = Ledger::of(&e.w);
        change(&mut ledger);
        assert_ne!(ledger.differs(&e.w), None);
    }
}

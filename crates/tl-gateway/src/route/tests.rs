use std::time::{Duration, Instant};

use tl_api::config::{RoutePolicy, Target};
use tl_proto::control::v1::WorkerStatus;

use super::ring::{Ring, bound, hash64};
use super::*;
use crate::registry::tests::status;
use crate::registry::{Registry, Slot, breaker};

const MS: Duration = Duration::from_millis(1);

fn candidate(id: &str, load: u64, weight: u32) -> Candidate<'_> {
    Candidate { id, load, weight, share: 1.0, eligible: true }
}

fn policy(kind: RoutePolicy) -> Policy {
    Policy { kind, load_factor: 1.25 }
}

#[test]
fn hash_vectors() {
    let check = |text: &str, expect: u64| assert_eq!(hash64(text.as_bytes()), expect, "{text}");
    check("", 0xF52A_15E9_A9B5_E89B);
    check("a", 0x02C0_BDBF_4814_20F8);
    check("engine-0#0", 0xC6C1_4AE6_8B51_F3BE);
    check("engine-a#0", 0x4F53_E64F_1893_D550);
    check("req-0", 0xAA07_2E09_CA77_3097);
}

#[test]
fn the_ring_moves_only_what_it_must() {
    let ids = ["a", "b", "c", "d"];
    let four = Ring::new(ids);
    let three = Ring::new(["a", "b", "c"]);
    let owner = |ring: &Ring, key: u32| ring.from_owner(&key.to_le_bytes()).next().unwrap();
    let mut per_worker = [0; 4];
    for key in 0..4000 {
        let before = owner(&four, key);
        per_worker[before] += 1;
        if before != 3 {
            assert_eq!(owner(&three, key), before);
        }
    }
    assert!(per_worker.iter().all(|n| (700..1300).contains(n)), "{per_worker:?}");
    let order: Vec<usize> = four.from_owner(b"x").collect();
    assert_eq!(order.len(), 4);
}

#[test]
fn affinity_passes_over_an_owner_above_the_bound() {
    assert_eq!(bound(1.25, 3, 4), 2);
    assert_eq!(bound(1.0, 0, 4), 1);
    let ids = ["w0", "w1", "w2", "w3"];
    let order: Vec<usize> = Ring::new(ids).from_owner(b"key").collect();
    let mut router = Router::default();
    let mut pick = |loads: [u64; 4], eligible: [bool; 4]| {
        let candidates: Vec<Candidate<'_>> = (0..4)
            .map(|i| Candidate { eligible: eligible[i], ..candidate(ids[i], loads[i], 1) })
            .collect();
        router.pick(policy(RoutePolicy::Affinity), "g", b"key", &candidates)
    };
    let all = [true; 4];
    assert_eq!(pick([0; 4], all), Some((order[0], Reason::Affinity)));
    let mut busy = [0; 4];
    busy[order[0]] = 3;
    assert_eq!(pick(busy, all), Some((order[1], Reason::Affinity)));
    busy[order[0]] = 1;
    busy[order[1]] = 2;
    assert_eq!(pick(busy, all), Some((order[0], Reason::Affinity)));
    let mut without = all;
    without[order[0]] = false;
    assert_eq!(pick([0; 4], without), Some((order[1], Reason::Affinity)));
    assert_eq!(pick([0; 4], [false; 4]), None);
    let mut only = [false; 4];
    only[order[2]] = true;
    let mut loads = [0; 4];
    loads[order[2]] = 100;
    assert_eq!(pick(loads, only), Some((order[2], Reason::Load)));
}

#[test]
fn weighted_turns_are_spread_out() {
    let mut router = Router::default();
    let candidates = [candidate("big", 0, 3), candidate("small", 0, 1)];
    let mut turn = || {
        let picked = router.pick(policy(RoutePolicy::Weighted), "g", b"", &candidates);
        candidates[picked.unwrap().0].id
    };
    let turns: Vec<&str> = (0..8).map(|_| turn()).collect();
    assert_eq!(turns, ["big", "big", "small", "big", "big", "big", "small", "big"]);
}

#[test]
fn least_outstanding_takes_the_least_loaded_and_the_smallest_id() {
    let mut router = Router::default();
    let mut pick = |loads: [u64; 3]| {
        let candidates =
            [candidate("a", loads[0], 1), candidate("b", loads[1], 1), candidate("c", loads[2], 1)];
        router.pick(policy(RoutePolicy::LeastOutstanding), "g", b"", &candidates).unwrap().0
    };
    assert_eq!(pick([2, 1, 1]), 1);
    assert_eq!(pick([0, 0, 0]), 0);
    assert_eq!(pick([5, 4, 3]), 2);
}

#[test]
fn a_new_workers_share_ramps_under_every_policy() {
    for kind in [RoutePolicy::LeastOutstanding, RoutePolicy::Weighted, RoutePolicy::Affinity] {
        let share_of_new = |share: f64| {
            let mut router = Router::default();
            let mut loads = [0u64; 3];
            for key in 0..300u32 {
                let candidates = [
                    candidate("a", loads[0], 10),
                    candidate("b", loads[1], 10),
                    Candidate { share, ..candidate("new", loads[2], 10) },
                ];
                let key = key.to_le_bytes();
                loads[router.pick(policy(kind), "g", &key, &candidates).unwrap().0] += 1;
            }
            loads[2]
        };
        let (early, late) = (share_of_new(0.1), share_of_new(1.0));
        assert!(early < 45, "{kind:?}: {early} of 300 at a tenth of the ramp");
        assert!((70..=130).contains(&late), "{kind:?}: {late} of 300 at the end of the ramp");
    }
}

struct Fleet {
    registry: Registry,
    router: Router,
    t0: Instant,
}

/// A [`Want`] that owns its lists.
struct Case {
    model: &'static str,
    demand: Demand,
    targets: Vec<Target>,
    tried: Tried,
}

impl Fleet {
    fn new(workers: &[WorkerStatus]) -> Fleet {
        let t0 = Instant::now();
        let mut registry = Registry::new(3);
        for status in workers {
            registry.beat(t0, status).unwrap();
        }
        Fleet { registry, router: Router::default(), t0 }
    }

    fn slot(&self, id: &str) -> Slot {
        self.registry.live(self.t0).find(|w| w.info.id == id).unwrap().slot
    }

    fn plan(&mut self, change: impl FnOnce(&mut Case)) -> String {
        let mut case = Case {
            model: "m",
            demand: Demand { prompt_tokens: 30, answer_tokens: 10 },
            targets: Vec::new(),
            tried: Tried::default(),
        };
        change(&mut case);
        let want = Want {
            model: case.model,
            key: b"key",
            demand: case.demand,
            targets: &case.targets,
            tried: &case.tried,
        };
        let policy = policy(RoutePolicy::LeastOutstanding);
        let plan = plan(&self.registry, &mut self.router, policy, &want, self.t0 + MS * 1000);
        let skips = |skipped: Vec<Skipped>| -> String {
            skipped.iter().map(|s| format!("; {} {}", s.id, s.why)).collect()
        };
        match plan {
            Plan::Pair { prefill, decode, skipped } => {
                format!(
                    "{} -> {} ({} blocks){}",
                    prefill.id,
                    decode.id,
                    decode.blocks,
                    skips(skipped)
                )
            }
            Plan::Alone { engine, why, skipped } => {
                format!("{} alone: {}{}", engine.id, why.as_str(), skips(skipped))
            }
            Plan::Blocked { why, skipped } => format!("{why:?}{}", skips(skipped)),
        }
    }
}

fn p(id: &str, port: u16) -> WorkerStatus {
    status(id, "prefill", port)
}

fn d(id: &str, port: u16) -> WorkerStatus {
    status(id, "decode", port)
}

#[test]
fn a_pair_is_planned_with_room_for_the_whole_answer() {
    let mut fleet = Fleet::new(&[p("p", 100), d("d", 200)]);
    assert_eq!(fleet.plan(|_| {}), "p -> d (3 blocks)");
    let full = WorkerStatus { kv_free_blocks: 2, ..d("d", 200) };
    let mut fleet = Fleet::new(&[p("p", 100), full]);
    assert_eq!(fleet.plan(|_| {}), "NoRoom; d needs 3 blocks, has room for 2");
    let demand = Demand { prompt_tokens: 30, answer_tokens: 2 };
    assert_eq!(fleet.plan(|w| w.demand = demand), "p -> d (2 blocks)");
}

#[test]
fn what_can_never_fit_is_too_long_and_not_a_wait() {
    let mut fleet = Fleet::new(&[p("p", 100), d("d", 200)]);
    let demand = |prompt_tokens| Demand { prompt_tokens, answer_tokens: 1 };
    assert_eq!(fleet.plan(|w| w.demand = demand(1023)), "p -> d (64 blocks)");
    // The prefill engine alone could hold it, the decode engine can not.
    let (p_slot, d_slot) = (fleet.slot("p"), fleet.slot("d"));
    fleet.registry.set_max_context(p_slot, 100);
    fleet.registry.set_max_context(d_slot, 100);
    assert_eq!(fleet.plan(|w| w.demand = demand(100)), "TooLong");
    let huge = Demand { prompt_tokens: 90, answer_tokens: 1_000_000 };
    assert_eq!(fleet.plan(|w| w.demand = huge), "p -> d (7 blocks)");
}

#[test]
fn without_prefill_decode_serves_alone_and_says_why() {
    let mut fleet = Fleet::new(&[d("d", 200)]);
    assert_eq!(fleet.plan(|_| {}), "d alone: no prefill engine in rotation");
    assert_eq!(fleet.plan(|w| w.tried.whole = Whole::Never), "NoWorker");
    let mut fleet = Fleet::new(&[p("p", 100), d("d", 200)]);
    let slot = fleet.slot("p");
    assert_eq!(
        fleet.plan(|w| w.tried.exclude = vec![slot]),
        "d alone: no prefill engine in rotation; p failed this request before"
    );
    for _ in 0..breaker::TRIP {
        fleet.registry.failed(fleet.t0 + MS * 900, slot);
    }
    assert_eq!(
        fleet.plan(|_| {}),
        "d alone: no prefill engine in rotation; p failing, out of rotation"
    );
}

#[test]
fn only_pairs_that_agree_are_formed() {
    let other = WorkerStatus { model_fingerprint: 9, ..p("p2", 110) };
    let d2 = WorkerStatus { model_fingerprint: 9, ..d("d2", 210) };
    let mut fleet = Fleet::new(&[p("p1", 100), other.clone(), d("d1", 200), d2]);
    let busy = fleet.slot("d1");
    assert!(fleet.plan(|_| {}).starts_with("p1 -> d1"));
    assert!(fleet.plan(|w| w.tried.exclude = vec![busy]).starts_with("p2 -> d2"));
    let mut fleet = Fleet::new(&[other, d("d1", 200)]);
    let plan = fleet.plan(|_| {});
    assert!(plan.starts_with("d1 alone: no prefill engine pairs"), "{plan}");
    assert!(plan.contains("p2 does not pair: model fingerprint"), "{plan}");
    // A decode engine whose only partner is full is passed over for one whose is not.
    let mut pairs = Fleet::new(&[
        p("p1", 100),
        WorkerStatus { model_fingerprint: 9, ..p("p2", 110) },
        d("d1", 200),
        WorkerStatus { model_fingerprint: 9, ..d("d2", 210) },
    ]);
    let full = pairs.slot("p1");
    assert!(pairs.plan(|w| w.tried.avoid = vec![full]).starts_with("p2 -> d2"));
    // A decode engine without a partner is passed over while another has one.
    let lonely = WorkerStatus { block_size: 32, ..d("d0", 220) };
    let mut fleet = Fleet::new(&[p("p1", 100), lonely, d("d1", 200)]);
    assert!(fleet.plan(|_| {}).starts_with("p1 -> d1"));
}

#[test]
fn a_way_that_fails_is_left_out_and_its_engines_are_not() {
    let mut fleet = Fleet::new(&[p("p1", 100), p("p2", 110), d("d1", 200), d("d2", 210)]);
    let slots = ["p1", "p2", "d1", "d2"].map(|id| fleet.slot(id));
    let [p1, p2, d1, d2] = slots;
    assert_eq!(fleet.plan(|_| {}), "p1 -> d1 (3 blocks)");
    // Of this request.
    let around = fleet.plan(|w| w.tried.broken = vec![(p1, d1)]);
    assert_eq!(around, "p2 -> d1 (3 blocks); p1 its hand-offs to d1 fail");
    let around = fleet.plan(|w| w.tried.broken = vec![(p1, d1), (p2, d1)]);
    assert_eq!(around, "p1 -> d2 (3 blocks)");
    let all = vec![(p1, d1), (p2, d1), (p1, d2), (p2, d2)];
    let alone = fleet.plan(|w| w.tried.broken = all.clone());
    assert!(alone.starts_with("d1 alone: hand-offs from the prefill engines fail"), "{alone}");
    let whole = fleet.plan(|w| w.tried.whole = Whole::Only);
    assert!(whole.starts_with("d1 alone: hand-offs"), "{whole}");
    let never =
        fleet.plan(|w| w.tried = Tried { broken: all, whole: Whole::Never, ..Tried::default() });
    assert_eq!(never.split(';').next(), Some("NoWorker"));
    // Of any request: the way has a breaker, and comes back by one hand-off.
    let at = |ms: u32| MS * ms;
    for _ in 0..breaker::TRIP {
        for d in [d1, d2] {
            fleet.registry.link_failed(fleet.t0 + at(900), p1, d);
        }
    }
    assert!(fleet.plan(|_| {}).starts_with("p2 -> d1"));
    for d in [d1, d2] {
        for _ in 0..breaker::TRIP {
            fleet.registry.link_failed(fleet.t0 - at(100), p2, d);
        }
    }
    assert!(fleet.plan(|_| {}).starts_with("p2 -> d1"), "its pause is over");
    fleet.registry.link_entered(fleet.t0 + at(950), p2, d1);
    fleet.registry.link_entered(fleet.t0 + at(950), p2, d2);
    assert!(fleet.plan(|_| {}).starts_with("d1 alone: hand-offs"), "one at a time");
    fleet.registry.link_succeeded(p2, d1);
    assert!(fleet.plan(|_| {}).starts_with("p2 -> d1"));
}

#[test]
fn nobody_full_and_unknown_are_three_answers() {
    let mut fleet = Fleet::new(&[p("p", 100), d("d", 200)]);
    assert_eq!(fleet.plan(|w| w.model = "x"), "UnknownModel");
    let slot = fleet.slot("d");
    assert_eq!(
        fleet.plan(|w| w.tried.exclude = vec![slot]),
        "NoWorker; d failed this request before"
    );
    assert_eq!(fleet.plan(|w| w.tried.avoid = vec![slot]), "NoRoom; d was full a moment ago");
    let p_slot = fleet.slot("p");
    let full_p = fleet.plan(|w| w.tried.avoid = vec![p_slot]);
    assert_eq!(full_p, "NoRoom; p was full a moment ago", "not done without");
    fleet.registry.beat(fleet.t0, &WorkerStatus { draining: true, ..d("d", 200) }).unwrap();
    assert_eq!(fleet.plan(|_| {}), "NoWorker; d draining");
}

#[test]
fn targets_say_what_comes_first() {
    let mut fleet = Fleet::new(&[p("p", 100), d("d", 200), status("u", "unified", 300)]);
    assert_eq!(fleet.plan(|_| {}), "p -> d (3 blocks)");
    assert_eq!(fleet.plan(|w| w.targets = vec![Target::Unified]), "u alone: unified");
    let slot = fleet.slot("d");
    let plan = fleet.plan(|w| w.tried.exclude = vec![slot]);
    assert!(plan.starts_with("u alone: unified"), "{plan}");
    let only = fleet.plan(|w| {
        w.targets = vec![Target::Disaggregated];
        w.tried.exclude = vec![slot];
    });
    assert!(only.starts_with("NoWorker"), "{only}");
}

#[test]
fn a_worker_that_is_due_for_a_probe_gets_the_next_request() {
    let mut fleet = Fleet::new(&[p("p", 100), d("d1", 200), d("d2", 210)]);
    let slot = fleet.slot("d2");
    for _ in 0..breaker::TRIP {
        fleet.registry.failed(fleet.t0 - MS * 100, slot);
    }
    assert!(fleet.plan(|_| {}).starts_with("p -> d2"));
    fleet.registry.begin(fleet.t0 + MS * 950, slot, 1).unwrap();
    assert!(fleet.plan(|_| {}).starts_with("p -> d1"));
}

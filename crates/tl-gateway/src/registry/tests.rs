use proptest::prelude::*;

use super::pairing::Mismatch;
use super::*;

pub(crate) fn status(id: &str, role: &str, port: u16) -> WorkerStatus {
    WorkerStatus {
        worker_id: id.into(),
        http_address: format!("127.0.0.1:{port}"),
        grpc_address: format!("127.0.0.1:{}", port + 1),
        kv_address: if role == "decode" {
            format!("127.0.0.1:{}", port + 2)
        } else {
            String::new()
        },
        role: role.into(),
        model: "m".into(),
        kv_format: 1,
        kv_free_blocks: 64,
        kv_total_blocks: 64,
        incarnation: 1,
        model_fingerprint: 7,
        block_size: 16,
        layers: 2,
        kv_heads: 1,
        head_dim: 8,
        kv_formats_read: vec![1],
        ..WorkerStatus::default()
    }
}

fn ids(registry: &Registry, now: Instant) -> Vec<String> {
    registry.live(now).map(|w| w.info.id.clone()).collect()
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_worker_lives_until_exactly_three_intervals() {
    let t0 = Instant::now();
    let mut registry = Registry::new(3);
    registry.beat(t0, &status("p", "prefill", 100)).unwrap();
    assert_eq!(ids(&registry, t0 + MS * 5999), ["p"]);
    assert_eq!(ids(&registry, t0 + MS * 6000), [""; 0]);
    assert_eq!(registry.evict(t0 + MS * 5999), [""; 0]);
    assert_eq!(registry.evict(t0 + MS * 6000), ["p"]);
    let beat = registry.beat(t0 + MS * 7000, &status("p", "prefill", 100)).unwrap();
    assert_eq!(beat.change, Change::Joined { replaced: vec![] });
    assert!(registry.has_known("m"));
    assert!(!registry.has_known("other"));
}

#[test]
fn the_epoch_grows_with_each_change_and_only_then() {
    let t0 = Instant::now();
    let mut registry = Registry::new(3);
    let mut beat = |s: WorkerStatus| registry.beat(t0, &s).unwrap().route_epoch;
    let one = status("p", "prefill", 100);
    assert_eq!(beat(one.clone()), 1);
    assert_eq!(beat(WorkerStatus { running: 5, ..one.clone() }), 1);
    assert_eq!(beat(WorkerStatus { draining: true, ..one.clone() }), 2);
    assert_eq!(beat(status("d", "decode", 200)), 3);
    assert_eq!(beat(WorkerStatus { incarnation: 2, ..one }), 4);
}

#[test]
fn operators_drain_a_model_or_one_life_of_a_worker() {
    let t0 = Instant::now();
    let mut registry = Registry::new(3);
    let other = WorkerStatus { model: "other".into(), ..status("o", "unified", 300) };
    for beat in [status("p", "prefill", 100), status("d", "decode", 200), other] {
        registry.beat(t0, &beat).unwrap();
    }
    let routable = |registry: &Registry| -> Vec<String> {
        let routable = registry.live(t0).filter(|w| w.is_routable(t0));
        routable.map(|w| w.info.id.clone()).collect()
    };
    let epoch = registry.route_epoch();
    assert_eq!(registry.drain_worker("nobody"), None);
    assert_eq!(registry.route_epoch(), epoch);
    assert_eq!(registry.drain_worker("d").as_deref(), Some("127.0.0.1:201"));
    assert_eq!(routable(&registry), ["o", "p"]);
    let beat = registry.beat(t0, &status("d", "decode", 200)).unwrap();
    assert!(beat.drain && beat.route_epoch == epoch + 1);
    let again = WorkerStatus { incarnation: 2, ..status("d", "decode", 200) };
    assert!(!registry.beat(t0, &again).unwrap().drain, "a restarted worker serves");
    assert_eq!(routable(&registry), ["d", "o", "p"]);

    assert_eq!(registry.drain_model("m"), ["127.0.0.1:201", "127.0.0.1:101"]);
    assert_eq!(routable(&registry), ["o"]);
    assert!(registry.beat(t0, &again).unwrap().drain);
    assert!(
        registry.beat(t0, &status("late", "decode", 400)).unwrap().drain,
        "who comes later too"
    );
    assert_eq!(routable(&registry), ["o"]);
    assert!(registry.undrain_model("m") && !registry.undrain_model("m"));
    assert!(!registry.beat(t0, &again).unwrap().drain);
    assert_eq!(routable(&registry), ["d", "late", "o", "p"]);
}

#[test]
fn an_address_belongs_to_the_id_that_spoke_last() {
    let t0 = Instant::now();
    let mut registry = Registry::new(3);
    registry.beat(t0, &status("old", "decode", 100)).unwrap();
    let beat = registry.beat(t0, &status("new", "decode", 100)).unwrap();
    assert_eq!(beat.change, Change::Joined { replaced: vec!["old".into()] });
    assert_eq!(ids(&registry, t0), ["new"]);
}

#[test]
fn a_new_incarnation_forgets_what_the_old_one_was_promised() {
    let t0 = Instant::now();
    let mut registry = Registry::new(3);
    let first = registry.beat(t0, &status("d", "decode", 100)).unwrap().slot;
    let ticket = registry.begin(t0, first, 40).unwrap();
    for _ in 0..breaker::TRIP {
        registry.failed(t0, first);
    }
    let again = WorkerStatus { incarnation: 2, ..status("d", "decode", 100) };
    let second = registry.beat(t0, &again).unwrap().slot;
    assert_ne!(first, second);
    let worker = registry.worker(second).unwrap();
    assert_eq!((worker.room(), worker.in_flight()), (64, 0));
    assert!(worker.is_routable(t0));
    registry.end(first, ticket);
    registry.failed(t0, first);
    assert_eq!(registry.worker(second).unwrap().room(), 64);
    assert_eq!(registry.begin(t0, first, 1), None);
}

#[test]
fn beats_are_checked() {
    let check = |change: fn(&mut WorkerStatus), expect: &str| {
        let mut s = status("d", "decode", 100);
        change(&mut s);
        let error = Registry::new(3).beat(Instant::now(), &s).expect_err(expect);
        assert!(error.to_string().starts_with(expect), "{error}");
    };
    check(|s| s.worker_id.clear(), "worker_id");
    check(|s| s.worker_id = "a b".into(), "worker_id");
    check(|s| s.worker_id = "x".repeat(129), "worker_id");
    check(|s| s.role = "both".into(), "role");
    check(|s| s.model.clear(), "model");
    check(|s| s.http_address.clear(), "http_address");
    check(|s| s.http_address = "http://a:1".into(), "http_address");
    check(|s| s.http_address = "a:1/path".into(), "http_address");
    check(|s| s.http_address = "u@a:1".into(), "http_address");
    check(|s| s.grpc_address = "a:0".into(), "grpc_address");
    check(|s| s.grpc_address = "a:70000".into(), "grpc_address");
    check(|s| s.grpc_address = "[::1:5".into(), "grpc_address");
    check(|s| s.kv_address.clear(), "kv_address");
    let fine = WorkerStatus { http_address: "[::1]:5".into(), ..status("p", "prefill", 100) };
    assert!(Registry::new(3).beat(Instant::now(), &fine).is_ok());
    let odd = WorkerStatus { kv_free_blocks: -5, queue_depth: -1, ..status("p", "prefill", 1) };
    let mut registry = Registry::new(3);
    let slot = registry.beat(Instant::now(), &odd).unwrap().slot;
    assert_eq!(registry.worker(slot).unwrap().info.free_blocks, 0);
}

#[test]
fn room_is_what_the_beat_said_minus_what_was_sent_since() {
    let t0 = Instant::now();
    let beat = |free: i32| WorkerStatus { kv_free_blocks: free, ..status("d", "decode", 100) };
    let mut registry = Registry::new(3);
    let slot = registry.beat(t0, &beat(10)).unwrap().slot;
    let room = |r: &Registry| r.worker(slot).unwrap().room();
    let a = registry.begin(t0, slot, 6).unwrap();
    assert_eq!(room(&registry), 4);
    assert_eq!(registry.begin(t0, slot, 5), None);
    let b = registry.begin(t0, slot, 4).unwrap();
    assert_eq!(room(&registry), 0);
    // A landed with 5 of its 6 blocks, and the beat has counted them.
    registry.landed(t0, slot, a, 5);
    registry.beat(t0 + MS * 2000, &beat(5)).unwrap();
    assert_eq!(room(&registry), 0);
    // B never landed; A ends, and its 5 blocks are free before the next beat says so.
    registry.end(slot, b);
    assert_eq!(room(&registry), 4);
    registry.end(slot, a);
    assert_eq!(room(&registry), 10);
    registry.beat(t0 + MS * 4000, &beat(10)).unwrap();
    assert_eq!(room(&registry), 10);
}

#[test]
fn a_beat_that_was_sent_before_the_blocks_landed_absorbs_nothing() {
    let t0 = Instant::now();
    let mut registry = Registry::new(3);
    let slot = registry.beat(t0, &status("d", "decode", 100)).unwrap().slot;
    let ticket = registry.begin(t0, slot, 10).unwrap();
    registry.landed(t0 + MS * 1990, slot, ticket, 10);
    registry.beat(t0 + MS * 2000, &status("d", "decode", 100)).unwrap();
    assert_eq!(registry.worker(slot).unwrap().room(), 54);
}

proptest! {
    /// Whatever happens, room stays within the pool, and an idle ledger shows what the beat said.
    #[test]
    fn the_ledger_balances(ops in proptest::collection::vec((0u8..4, 0u32..20, 0usize..8), 0..60)) {
        let t0 = Instant::now();
        let mut registry = Registry::new(3);
        let slot = registry.beat(t0, &status("d", "decode", 100)).unwrap().slot;
        let mut open: Vec<Ticket> = Vec::new();
        for (step, (op, n, which)) in ops.into_iter().enumerate() {
            let now = t0 + MS * (step as u32 * 50);
            match op {
                0 => open.extend(registry.begin(now, slot, n)),
                1 if !open.is_empty() => registry.landed(now, slot, open[which % open.len()], n),
                2 if !open.is_empty() => {
                    let ticket = open.swap_remove(which % open.len());
                    registry.end(slot, ticket);
                }
                _ => {
                    let free = WorkerStatus { kv_free_blocks: 64 - n as i32, ..status("d", "decode", 100) };
                    registry.beat(now, &free).unwrap();
                }
            }
            let worker = registry.worker(slot).unwrap();
            prop_assert!(worker.room() <= 64);
            prop_assert_eq!(worker.in_flight() as usize, open.len());
        }
        for ticket in open {
            registry.end(slot, ticket);
        }
        registry.beat(t0 + MS * 4000, &status("d", "decode", 100)).unwrap();
        prop_assert_eq!(registry.worker(slot).unwrap().room(), 64);
        prop_assert_eq!(registry.worker(slot).unwrap().in_flight(), 0);
    }
}

#[test]
fn a_failing_worker_leaves_rotation_and_comes_back_by_one_request() {
    let t0 = Instant::now();
    let at = |ms: u32| t0 + MS * ms;
    let mut b = breaker::Breaker::default();
    assert!(!b.failed(at(0)) && !b.failed(at(0)) && b.admits(at(0)));
    b.succeeded();
    assert!(!b.failed(at(0)) && !b.failed(at(0)) && b.failed(at(0)));
    assert!(!b.admits(at(999)));
    assert!(!b.failed(at(500)), "a request that was under way says nothing new");
    assert!(b.admits(at(1000)) && b.wants_probe(at(1000)));
    b.entered(at(1000));
    assert!(!b.admits(at(1001)), "one probe at a time");
    assert!(b.failed(at(1100)));
    assert!(!b.admits(at(3099)) && b.admits(at(3100)));
    b.entered(at(3100));
    assert!(b.admits(at(13_100)), "a probe that never reports does not hold it");
    b.succeeded();
    assert!(b.is_closed() && b.admits(at(3200)) && !b.wants_probe(at(3200)));
    let mut now = at(20_000);
    for _ in 0..12 {
        b.failed(now);
        b.failed(now);
        b.failed(now);
        now += Duration::from_secs(15);
        assert!(b.admits(now), "never out for more than the longest pause");
        b.entered(now);
    }
}

#[test]
fn ways_between_engines_go_with_them() {
    let t0 = Instant::now();
    let mut registry = Registry::new(3);
    let p = registry.beat(t0, &status("p", "prefill", 100)).unwrap().slot;
    let d = registry.beat(t0, &status("d", "decode", 200)).unwrap().slot;
    let trip = |registry: &mut Registry, d: Slot| {
        for n in 1..=breaker::TRIP {
            assert_eq!(registry.link_failed(t0, p, d), n == breaker::TRIP);
        }
    };
    trip(&mut registry, d);
    assert!(!registry.link_admits(t0, p, d));
    assert!(registry.worker(d).unwrap().is_routable(t0), "the engine itself is well");
    registry.link_succeeded(p, d);
    assert!(registry.link_admits(t0, p, d) && registry.links.is_empty());
    trip(&mut registry, d);
    // Another life at the same address is reached by another way.
    let again = WorkerStatus { incarnation: 99, ..status("d", "decode", 200) };
    let d2 = registry.beat(t0, &again).unwrap().slot;
    assert!(registry.link_admits(t0, p, d2) && registry.links.is_empty());
    // A hand-off that ends after its engine did leaves nothing.
    assert!(!registry.link_failed(t0, p, d) && registry.links.is_empty());
    trip(&mut registry, d2);
    registry.evict(t0 + BEAT_INTERVAL * 3);
    assert!(registry.links.is_empty());
}

#[test]
fn a_new_worker_reaches_its_share_over_the_ramp() {
    let t0 = Instant::now();
    let mut registry = Registry::new(100);
    let slot = registry.beat(t0, &status("d", "decode", 100)).unwrap().slot;
    let share = |ms: u32| registry.worker(slot).unwrap().share(t0 + MS * ms);
    assert_eq!(share(0), 0.1);
    assert_eq!(share(5000), 0.5);
    assert_eq!(share(60_000), 1.0);
}

#[test]
fn pairs_that_differ_in_anything_are_refused_by_name() {
    let info = |change: fn(&mut WorkerStatus), role: &str| {
        let mut s = status("w", role, 100);
        change(&mut s);
        WorkerInfo::read(&s).unwrap()
    };
    let check = |change: fn(&mut WorkerStatus), expect: &str| {
        let prefill = info(|_| {}, "prefill");
        let error = pairing::check(&prefill, &info(change, "decode")).expect_err(expect);
        assert!(error.to_string().contains(expect), "{error}");
    };
    assert_eq!(pairing::check(&info(|_| {}, "prefill"), &info(|_| {}, "decode")), Ok(()));
    check(|s| s.model = "other".into(), "model");
    check(|s| s.model_fingerprint = 8, "fingerprint");
    check(|s| s.block_size = 32, "block size 16 is not 32");
    check(|s| s.layers = 3, "layers");
    check(|s| s.kv_heads = 3, "kv heads");
    check(|s| s.head_dim = 3, "head dimension");
    check(|s| s.kv_formats_read = vec![2], "kv format 1 is not among those read: [2]");
    // A peer from before the extension: by name, what it does not say is not compared.
    let old = |s: &mut WorkerStatus| {
        (s.model_fingerprint, s.block_size, s.layers, s.kv_heads, s.head_dim) = (0, 0, 0, 0, 0);
        s.kv_formats_read.clear();
    };
    assert_eq!(pairing::check(&info(|_| {}, "prefill"), &info(old, "decode")), Ok(()));
    assert_eq!(pairing::check(&info(old, "prefill"), &info(old, "decode")), Ok(()));
    let other_size = |s: &mut WorkerStatus| {
        (s.model_fingerprint, s.block_size) = (0, 32);
    };
    assert_eq!(
        pairing::check(&info(|_| {}, "prefill"), &info(other_size, "decode")),
        Err(Mismatch::Shape { what: "block size", prefill: 16, decode: 32 })
    );
}

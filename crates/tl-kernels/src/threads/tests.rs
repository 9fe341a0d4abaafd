use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn count_parts(team: &Threads, parts: usize) {
    let seen: Vec<_> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
    team.run(parts, |i| {
        seen[i].fetch_add(1, Ordering::Relaxed);
    });
    assert!(seen.iter().all(|n| n.load(Ordering::Relaxed) == 1), "{parts} parts on {team:?}");
}

#[test]
fn every_part_runs_once() {
    for threads in 0..6 {
        let team = Threads::new(threads);
        assert_eq!(team.count(), threads.max(1));
        for parts in [0, 1, 2, 3, 7, 64, 1000] {
            count_parts(&team, parts);
        }
    }
}

#[test]
fn many_short_jobs_in_a_row() {
    let team = Threads::new(4);
    for round in 0..20_000 {
        count_parts(&team, round % 9);
    }
}

#[test]
fn jobs_after_the_workers_fell_asleep() {
    let team = Threads::new(3);
    for _ in 0..20 {
        while team.shared.sleepers.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        count_parts(&team, 32);
    }
}

#[test]
fn workers_do_take_part() {
    let team = Threads::new(2);
    let both = std::sync::Barrier::new(2);
    let names = Mutex::new(HashSet::new());
    // Each part waits for the other, so one thread alone could not finish.
    team.run_slots(2, |_, slot| {
        both.wait();
        names.lock().insert((slot, std::thread::current().id()));
    });
    let slots: HashSet<_> = names.lock().iter().map(|(slot, _)| *slot).collect();
    assert_eq!(slots, HashSet::from([0, 1]));
    assert_eq!(names.lock().len(), 2);
}

#[test]
fn slots_are_never_shared() {
    let team = Threads::new(4);
    let inside: Vec<_> = (0..4).map(|_| AtomicUsize::new(0)).collect();
    for _ in 0..500 {
        team.run_slots(16, |_, slot| {
            assert_eq!(inside[slot].fetch_add(1, Ordering::SeqCst), 0);
            std::hint::spin_loop();
            inside[slot].fetch_sub(1, Ordering::SeqCst);
        });
    }
}

#[test]
fn a_panic_reaches_the_caller_and_the_team_lives_on() {
    let team = Threads::new(3);
    for bad in [0, 5, 31] {
        let result = catch_unwind(AssertUnwindSafe(|| {
            team.run(32, |i| assert!(i != bad, "part {i} is bad"));
        }));
        let panic = result.expect_err("the panic is passed on");
        let text = panic.downcast_ref::<String>().expect("its message too");
        assert!(text.contains("is bad"), "{text}");
        count_parts(&team, 100);
    }
}

#[test]
fn a_job_inside_a_part_runs_alone() {
    let team = Threads::new(2);
    let total = AtomicUsize::new(0);
    team.run(8, |_| {
        team.run(8, |_| {
            total.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!(total.load(Ordering::Relaxed), 64);
}

#[test]
fn jobs_from_many_threads_at_once() {
    let team = Threads::new(3);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..500 {
                    count_parts(&team, round % 20);
                }
            });
        }
    });
}

#[test]
fn a_dropped_team_ends_its_threads() {
    for _ in 0..50 {
        let team = Threads::new(4);
        let shared = Arc::clone(&team.shared);
        team.run(4, |_| ());
        drop(team);
        assert_eq!(Arc::strong_count(&shared), 1, "joined threads have let go");
    }
}

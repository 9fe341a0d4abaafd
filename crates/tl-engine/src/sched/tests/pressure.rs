//! More work than blocks.

use super::*;

#[test]
fn the_lowest_rank_gives_way_and_is_computed_again() {
    let mut b = Bench::with(4, cfg(), false);
    let a = b.add(&[1; 7], 8);
    let c = b.add(&[2; 7], 8);
    let mut preempted = Vec::new();
    for _ in 0..40 {
        if b.sched.running() + b.sched.waiting() == 0 {
            break;
        }
        preempted.extend(b.step().preempted);
    }
    assert_eq!(preempted, [c], "once, and not the older one");
    assert_eq!(b.sched.counters().preemptions, 1);
    for id in [a, c] {
        assert_eq!(b.finished[&id], Finish::Length);
        assert_eq!(b.tokens[&id].len(), 8);
    }
    // Every position was sampled exactly once: the second computation repeats no token.
    let want: Vec<u32> = (7..15).map(|n| 1000 + 100 + n).collect();
    assert_eq!(b.tokens[&c], want);
    assert_eq!(b.stats().free, 4);
}

#[test]
fn two_holders_that_each_need_one_more_block_both_finish() {
    for prefix_cache in [false, true] {
        let mut b = Bench::with(4, cfg(), prefix_cache);
        let first = b.add(&[1, 2, 3, 4, 5, 6, 7, 8], 2);
        let second = b.add(&[11, 12, 13, 14, 15, 16, 17, 18], 2);
        let batch = b.step();
        assert_eq!(batch.rows.len(), 2);
        assert_eq!(b.stats().used, 4, "the pool is full and both need a block");
        let batch = b.step();
        assert_eq!(batch.preempted, [second]);
        b.run_until_idle(10);
        assert_eq!((b.tokens[&first].len(), b.tokens[&second].len()), (2, 2));
        assert_eq!(b.sched.counters().preemptions, 1);
        assert_eq!(b.stats().used, 0);
    }
}

#[test]
fn a_request_alone_gives_way_to_blocks_held_elsewhere() {
    let mut b = Bench::with(3, cfg(), false);
    let id = b.add(&[1; 4], 4);
    b.step();
    let elsewhere = Held::alloc(&b.kv, 2).unwrap();
    let batch = b.plan();
    assert_eq!((batch.rows.len(), &batch.preempted[..]), (0, &[id][..]));
    assert_eq!(b.sched.running(), 0);
    assert!(b.plan().rows.is_empty(), "two blocks are needed and one is there");
    assert_eq!(b.sched.counters().preemptions, 1, "waiting is no preemption");
    // It waits since it gave way, not since it came.
    let waits_since = b.now - Duration::from_millis(1);
    assert_eq!(b.sched.next_timer(), Some(waits_since + Duration::from_secs(30)));
    drop(elsewhere);
    b.run_until_idle(10);
    assert_eq!(b.tokens[&id].len(), 4);
}

#[test]
fn a_prompt_in_progress_gives_its_blocks_to_an_older_decode() {
    let mut b = Bench::with(4, SchedConfig { prefill_chunk: 2, ..cfg() }, false);
    let old = b.add(&[1; 2], 6);
    b.step();
    let young = b.add(&[2; 11], 1);
    let mut preempted = Vec::new();
    while !b.finished.contains_key(&old) {
        preempted.extend(b.step().preempted);
    }
    assert_eq!(preempted, [young]);
    b.run_until_idle(20);
    assert_eq!(b.tokens[&young].len(), 1);
}

#[test]
fn more_decodes_than_budget_take_turns_by_rank() {
    let mut b = Bench::new(32, SchedConfig { max_batch_tokens: 2, ..cfg() });
    for _ in 0..5 {
        b.add(&[1, 2], 3);
    }
    b.run_until_idle(60);
    assert_eq!(b.finished.len(), 5);
}

//! Prompts with a common beginning that arrive together: it is computed once.

use super::*;

fn chunks_of(prefill_chunk: usize) -> SchedConfig {
    SchedConfig { prefill_chunk, ..cfg() }
}

const TEN: [u32; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

#[test]
fn choices_of_one_request_wait_for_the_first_ones_blocks() {
    let mut b = Bench::new(32, chunks_of(4));
    let ids: Vec<SeqId> = (0..3).map(|_| b.add(&TEN, 2)).collect();
    let rows = |b: &mut Bench| {
        let batch = b.step();
        b.rows(&batch)
    };
    assert_eq!(rows(&mut b), [(0, 0, 4)]);
    assert_eq!(rows(&mut b), [(0, 4, 4)]);
    // Both full blocks are there; each computes the rest of its own.
    assert_eq!(rows(&mut b), [(0, 8, 2), (1, 8, 2), (2, 8, 2)]);
    assert_eq!(ids.iter().map(|id| b.cached[id]).collect::<Vec<_>>(), [0, 8, 8]);
    assert_eq!(b.stats().used, 2 + 3, "two shared blocks and a tail each");
    b.run_until_idle(5);
    let n = b.sched.counters();
    assert_eq!((n.prefix_lookups, n.prefix_query_tokens, n.prefix_hit_tokens), (3, 30, 16));
    assert_eq!(b.stats().used, 0);
}

#[test]
fn one_waits_no_longer_than_for_what_it_shares() {
    let mut b = Bench::new(32, chunks_of(4));
    b.add(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], 1);
    let one_block = b.add(&[1, 2, 3, 4, 50, 60, 70, 80, 90], 1);
    let no_block = b.add(&[1, 2, 3, 50, 60], 1);
    let short = b.add(&[1, 2, 3, 4], 1);
    let batch = b.step();
    assert_eq!(b.rows(&batch), [(0, 0, 4), (no_block.0, 0, 4), (short.0, 0, 4)]);
    let batch = b.step();
    assert_eq!(b.rows(&batch), [(no_block.0, 4, 1), (0, 4, 4), (one_block.0, 4, 4)]);
    assert_eq!(b.cached[&one_block], 4);
    b.run_until_idle(5);
}

#[test]
fn one_that_waits_keeps_its_slot_and_its_blocks() {
    let other = [7; 6];
    // Two slots: they are the first one's and the second one's.
    let mut b = Bench::new(32, SchedConfig { max_seqs: 2, ..chunks_of(4) });
    b.add(&TEN, 4);
    let equal = b.add(&TEN, 4);
    let behind = b.add(&other, 1);
    for _ in 0..3 {
        assert!(b.step().rows.iter().all(|r| r.id != behind), "overtook");
    }
    assert!(b.cached.contains_key(&equal));
    b.run_until_idle(10);
    // Seven blocks: three are taken and three are set aside, two do not fit into the rest.
    for (pool, passes) in [(7, false), (8, true)] {
        let mut b = Bench::new(pool, chunks_of(4));
        b.add(&TEN, 1);
        let equal = b.add(&TEN, 1);
        let behind = b.add(&other, 1);
        let batch = b.step();
        assert_eq!(batch.rows.iter().any(|r| r.id == behind), passes, "a pool of {pool}");
        b.run_until_idle(10);
        assert_eq!(b.cached[&equal], 8);
    }
}

#[test]
fn nobody_waits_for_one_of_lower_rank() {
    let mut b = Bench::new(32, SchedConfig { policy: Policy::Priority, ..chunks_of(4) });
    let low = b.add_with(&TEN, 1, 0).unwrap();
    b.step();
    let high = b.add_with(&TEN, 1, 5).unwrap();
    let batch = b.step();
    assert_eq!(b.rows(&batch), [(low.0, 4, 4), (high.0, 4, 4)], "with what is there already");
    b.run_until_idle(5);
}

#[test]
fn when_the_first_one_goes_the_next_one_computes() {
    let mut b = Bench::new(32, chunks_of(4));
    let first = b.add(&TEN, 1);
    let (second, third) = (b.add(&TEN, 1), b.add(&TEN, 1));
    b.step();
    assert!(b.sched.remove(first));
    let batch = b.step();
    assert_eq!(b.rows(&batch), [(second.0, 4, 4)], "one block of the first is left");
    let batch = b.step();
    assert_eq!(b.rows(&batch), [(second.0, 8, 2), (third.0, 8, 2)]);
    assert_eq!((b.cached[&second], b.cached[&third]), (4, 8));
}

#[test]
fn without_a_cache_there_is_nothing_to_wait_for() {
    let mut b = Bench::with(32, cfg(), false);
    b.add(&TEN, 1);
    b.add(&TEN, 1);
    let batch = b.step();
    assert_eq!(b.rows(&batch), [(0, 0, 10), (1, 0, 10)]);
}

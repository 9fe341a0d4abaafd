//! The order of a step, chunks, the prefix cache, ranks, refusals and timers.

use super::*;

#[test]
fn two_slots_three_requests_by_hand() {
    let mut b = Bench::new(6, SchedConfig { max_batch_tokens: 8, max_seqs: 2, ..cfg() });
    b.add(&[1, 2, 3, 4, 5], 3);
    b.add(&[6, 7, 8], 2);
    let c = b.add(&[9, 10], 1);

    let step = b.step();
    assert_eq!(b.rows(&step), [(0, 0, 5), (1, 0, 3)]);
    let step = b.step();
    assert_eq!(b.rows(&step), [(0, 5, 1), (1, 3, 1)]);
    assert_eq!(b.finished.len(), 1);
    let step = b.step();
    assert_eq!(b.rows(&step), [(0, 6, 1), (2, 0, 2)]);
    assert_eq!(b.finished[&c], Finish::Length);
    assert_eq!(b.finished.len(), 3);
    assert_eq!(b.stats().used, 0);
}

#[test]
fn a_long_prompt_goes_in_chunks_beside_decodes() {
    let mut b = Bench::new(8, SchedConfig { max_batch_tokens: 8, prefill_chunk: 4, ..cfg() });
    b.add(&[1, 2], 3);
    let long = b.add(&[11, 12, 13, 14, 15, 16, 17, 18, 19, 20], 1);
    let mut sizes = Vec::new();
    while b.finished.len() < 2 {
        sizes.push(b.step().tokens);
        assert_eq!(b.tokens.contains_key(&long), sizes.len() == 3, "one token, in step 3");
    }
    assert_eq!(sizes, [6, 5, 3]);
    let pieces: Vec<_> = Chunked { chunk: 4 }.split(10).collect();
    assert_eq!(pieces, [(0, 4), (4, 4), (8, 2)]);
}

#[test]
fn chunk_lengths() {
    let check = |chunk, remaining, budget, want| {
        assert_eq!(Chunked { chunk }.chunk_len(remaining, budget), want);
    };
    check(4, 10, 8, 4);
    check(4, 3, 8, 3);
    check(4, 10, 2, 2);
    check(0, 10, 8, 1);
    check(4, 10, 0, 0);
    check(usize::MAX, 10, 8, 8);
}

#[test]
fn prompts_share_full_blocks_and_compute_their_last_token() {
    let mut b = Bench::new(16, SchedConfig { max_seqs: 1, ..cfg() });
    let a = b.add(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 1);
    b.step();
    let second = b.add(&[1, 2, 3, 4, 5, 6, 7, 8, 99, 98, 97], 1);
    let free = b.stats().free;
    let batch = b.plan();
    assert_eq!(free - b.stats().free, 1, "one fresh block");
    assert_eq!(b.rows(&batch), [(1, 8, 3)]);
    b.finish(&batch);
    assert_eq!((b.cached[&a], b.cached[&second]), (0, 8));
    let n = b.sched.counters();
    assert_eq!((n.prefix_lookups, n.prefix_query_tokens, n.prefix_hit_tokens), (2, 21, 8));

    // All its blocks are here; the last token is computed all the same.
    let third = b.add(&[1, 2, 3, 4, 5, 6, 7, 8], 1);
    b.step();
    assert_eq!(b.cached[&third], 4);
    // The second block's tokens at the front are another prefix.
    let fourth = b.add(&[5, 6, 7, 8, 9, 10], 1);
    b.step();
    assert_eq!(b.cached[&fourth], 0);
    assert_eq!(b.stats().used, 0);
}

#[test]
fn blocks_are_found_while_their_request_runs() {
    let mut b = Bench::new(16, cfg());
    let prompt: Vec<u32> = (1..=9).collect();
    b.add(&prompt, 8);
    b.step();
    let second = b.add(&prompt, 1);
    b.step();
    assert_eq!(b.cached[&second], 8);
    // Generated tokens are part of a block's name like any other.
    while b.tokens[&SeqId(0)].len() < 4 {
        b.step();
    }
    let generated = b.tokens[&SeqId(0)][..3].to_vec();
    let longer: Vec<u32> = prompt.into_iter().chain(generated).chain([2]).collect();
    let third = b.add(&longer, 1);
    b.step();
    assert_eq!(b.cached[&third], 12);
    b.run_until_idle(20);
    assert_eq!(b.stats().used, 0);
}

#[test]
fn without_the_cache_nothing_is_kept() {
    let mut b = Bench::with(16, cfg(), false);
    for _ in 0..2 {
        let id = b.add(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 2);
        b.run_until_idle(5);
        assert_eq!(b.cached[&id], 0);
    }
    assert_eq!((b.stats().free, b.sched.counters().prefix_lookups), (16, 0));
}

#[test]
fn the_head_of_the_line_is_not_overtaken() {
    let mut b = Bench::with(4, cfg(), false);
    b.add(&[1; 8], 4);
    b.step();
    let big = b.add(&[2; 9], 1);
    let small = b.add(&[3; 2], 1);
    while b.finished.len() < 1 {
        assert!(b.step().rows.iter().all(|r| r.id == SeqId(0)), "somebody overtook");
    }
    let batch = b.step();
    assert_eq!(batch.rows.iter().map(|r| r.id).collect::<Vec<_>>(), [big, small]);
}

#[test]
fn priority_goes_first_and_age_catches_up() {
    let one_at_a_time =
        SchedConfig { max_seqs: 1, policy: Policy::Priority, aging_steps: 4, ..cfg() };
    let mut b = Bench::new(16, one_at_a_time);
    let order = |b: &mut Bench| {
        let mut order = Vec::new();
        while b.sched.waiting() + b.sched.running() > 0 {
            order.extend(b.step().rows.iter().map(|r| r.id.0));
        }
        order
    };
    b.add_with(&[1], 1, 0).unwrap();
    b.add_with(&[2], 1, 5).unwrap();
    b.add_with(&[3], 1, 5).unwrap();
    b.add_with(&[4], 1, -1).unwrap();
    assert_eq!(order(&mut b), [1, 2, 0, 3], "priority, then arrival");

    // A low one is passed by higher ones that come within aging_steps per level, and by no later
    // ones.
    let low = b.add_with(&[5], 1, 0).unwrap();
    let mut passed = 0;
    while !b.finished.contains_key(&low) {
        b.add_with(&[6], 1, 2).unwrap();
        b.step();
        passed += 1;
        assert!(passed < 20, "starved");
    }
    assert_eq!(passed, 2 * 4 + 1, "two levels of four steps each");
}

#[test]
fn refusals_name_what_does_not_fit() {
    let mut b = Bench::new(4, SchedConfig { max_waiting: 2, ..cfg() });
    assert_eq!(b.add_with(&[], 1, 0), Err(Refused::Empty));
    assert_eq!(b.add_with(&[1], 0, 0), Err(Refused::NoNewTokens));
    assert_eq!(b.add_with(&[1; 16], 1, 0), Err(Refused::NeverFits { blocks: 5, pool: 4 }));
    assert!(b.add_with(&[1; 15], usize::MAX, 0).is_ok(), "the answer is clipped to the context");
    assert!(b.add_with(&[1; 3], 2, 0).is_ok());
    assert_eq!(b.add_with(&[1], 1, 0), Err(Refused::Full { capacity: 2 }));
    // Fewer blocks than the model's context, and fewer positions than the pool's.
    let limits = Limits { max_positions: 100, kv_blocks: 3, block_tokens: 4 };
    assert_eq!(limits.context(), 12);
    let limits = Limits { max_positions: 10, ..limits };
    assert_eq!(limits.context(), 10);
    assert_eq!(limits.check(9, 1, false), Ok(()));
    assert_eq!(limits.check(10, 1, false), Err(Refused::TooLong { prompt: 10, context: 10 }));
    b.run_until_idle(40);
}

#[test]
fn a_stop_token_ends_without_counting() {
    let mut b = Bench::new(4, cfg());
    b.add(&[1, 2], 5);
    b.step();
    let batch = b.plan();
    let ended = b.sched.on_step(&[(batch.rows[0], Outcome::Token { token: 7, stop: true })]);
    assert!(
        matches!(ended[..], [Ended::Finished { reason: Finish::Stop, generated: 1, .. }]),
        "{ended:?}"
    );
    assert_eq!(b.stats().used, 0);
}

#[test]
fn waiting_and_living_too_long_end_in_time() {
    let wait = Duration::from_secs(2);
    let mut b = Bench::new(4, SchedConfig { max_seqs: 1, queue_deadline: wait, ..cfg() });
    let start = b.now;
    let running = b.add(&[1, 2], 8);
    b.step();
    let queued = b.add(&[3, 4], 8);
    let queued_at = b.now;
    assert_eq!(b.sched.next_timer(), Some(queued_at + wait));
    assert_eq!(b.sched.expire(queued_at + wait - Duration::from_millis(1)), []);
    assert_eq!(b.sched.expire(queued_at + wait), [(queued, Expired::Queue { waited: wait })]);
    assert_eq!(b.sched.next_timer(), None, "what runs may run");

    let deadline = Some(start + Duration::from_secs(9));
    let new = NewSeq {
        prompt: vec![5],
        max_new_tokens: 1,
        priority: 0,
        deadline,
        hand_over: false,
        origin: Origin::Here,
    };
    b.now = start + Duration::from_secs(8);
    let late = b.sched.add(new, b.now).unwrap();
    assert_eq!(b.sched.next_timer(), deadline);
    assert_eq!(b.sched.expire(deadline.unwrap()), [(late, Expired::Deadline)]);
    assert!(b.sched.remove(running));
    assert!(!b.sched.remove(running));
    assert_eq!(b.stats().used, 0);
}

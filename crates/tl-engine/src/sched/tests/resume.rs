//! Requests that come with the KV of their prompt.

use super::*;

#[test]
fn a_resumed_request_computes_no_prompt_token() {
    for (prompt, blocks) in [(vec![1, 2, 3, 4, 5, 6], 2), (vec![1, 2, 3, 4, 5, 6, 7, 8], 3)] {
        let mut b = Bench::new(8, cfg());
        let id = b.add_resumed(&prompt, 4, Some(77));
        let batch = b.step();
        assert_eq!(b.rows(&batch), [(0, prompt.len(), 1)], "the first token is the first input");
        assert_eq!(b.stats().used, blocks);
        assert_eq!(b.cached[&id], 0, "what it brought is no hit");
        b.run_until_idle(5);
        assert_eq!(b.tokens[&id].len(), 3, "the first token counts");
        assert_eq!(b.sched.counters().resumed_prompt_tokens, 0);
        assert_eq!(b.stats().used, 0);
    }
}

#[test]
fn without_the_first_token_one_position_is_computed_in_a_private_block() {
    for prompt_len in [6, 8] {
        for shared in [false, true] {
            let prompt: Vec<u32> = (1..=prompt_len).collect();
            let mut b = Bench::new(8, cfg());
            let other = shared.then(|| {
                // The same prompt's full blocks, registered and held by somebody else.
                let held = b.arrive(&prompt);
                b.sched.blocks.adopt(held, &prompt).unwrap()
            });
            let id = match &other {
                None => b.add_resumed(&prompt, 2, None),
                Some(table) => {
                    let mut held = Held::empty(&b.kv);
                    let full = prompt.len() / B as usize;
                    for &block in &table.ids()[..full] {
                        lock(&b.kv).retain(block).unwrap();
                        held.push(block);
                    }
                    if prompt.len() > full * B as usize {
                        held.append(b.arrive(&prompt[full * B as usize..]));
                    }
                    let table = b.sched.blocks.adopt(held, &prompt).unwrap();
                    let origin = Origin::Elsewhere { table, first: None };
                    let new = NewSeq {
                        prompt: prompt.clone(),
                        max_new_tokens: 2,
                        priority: 0,
                        deadline: None,
                        hand_over: false,
                        origin,
                    };
                    b.sched.add(new, b.now).unwrap()
                }
            };
            // `step` checks that the row writes no shared or registered block.
            let batch = b.step();
            assert_eq!(b.rows(&batch), [(id.0, prompt.len() - 1, 1)]);
            b.run_until_idle(5);
            assert_eq!(b.tokens[&id].len(), 2);
            assert_eq!(b.sched.counters().resumed_prompt_tokens, 1);
            drop(other);
            assert_eq!(b.stats().used, 0);
        }
    }
}

#[test]
fn a_misfit_at_the_head_does_not_block_one_with_its_blocks() {
    let mut b = Bench::with(8, cfg(), false);
    let elsewhere = Held::alloc(&b.kv, 4).unwrap();
    let head = b.add(&[1; 16], 2);
    let ready = b.add_resumed(&[2; 6], 2, Some(9));
    let behind = b.add(&[3; 2], 1);
    let batch = b.step();
    assert_eq!(b.rows(&batch), [(ready.0, 6, 1)], "neither the head nor the one behind it");
    assert!(b.finished.contains_key(&ready));
    drop(elsewhere);
    b.run_until_idle(10);
    assert!(b.finished.contains_key(&head) && b.finished.contains_key(&behind));
}

#[test]
fn a_full_pool_of_waiting_holders_moves() {
    // Every block is held by a request that needs one more before its first step.
    let mut b = Bench::with(8, cfg(), false);
    let ids: Vec<SeqId> = (0..4).map(|n| b.add_resumed(&[n; 8], 3, Some(n))).collect();
    assert_eq!(b.stats().used, 8);
    let batch = b.step();
    assert_eq!(batch.preempted, [ids[3]], "the lowest rank makes room for the first");
    assert_eq!(batch.rows[0].id, ids[0]);
    b.run_until_idle(40);
    for id in &ids {
        assert_eq!(b.tokens[id].len(), 2, "{id:?}");
    }
    assert_eq!(b.stats().free, 8);
}

#[test]
fn a_holder_without_room_keeps_what_it_has_while_others_run() {
    let mut b = Bench::with(4, SchedConfig { max_batch_tokens: 1, ..cfg() }, false);
    let old = b.add(&[1], 3);
    b.step();
    let _elsewhere = Held::alloc(&b.kv, 1).unwrap();
    let ready = b.add_resumed(&[2; 8], 2, Some(9));
    assert_eq!(b.stats().free, 0);
    while !b.finished.contains_key(&old) {
        let batch = b.step();
        assert!(batch.preempted.is_empty(), "{batch:?}");
    }
    b.run_until_idle(5);
    assert_eq!(b.tokens[&ready].len(), 1);
    assert_eq!(b.sched.counters().resumed_prompt_tokens, 0);
}

#[test]
fn after_a_preemption_a_resumed_request_is_computed_here() {
    let mut b = Bench::with(5, cfg(), false);
    let old = b.add(&[1; 7], 8);
    b.step();
    let resumed = b.add_resumed(&[2; 8], 4, Some(9));
    let batch = b.step();
    assert_eq!(batch.rows.len(), 2);
    let mut preempted = Vec::new();
    while !b.finished.contains_key(&old) {
        preempted.extend(b.step().preempted);
    }
    assert_eq!(preempted, [resumed]);
    b.run_until_idle(20);
    let want: Vec<u32> = (9..12).map(|n| 1000 + 100 + n).collect();
    assert_eq!(b.tokens[&resumed], want, "no token is sampled twice");
    assert_eq!(b.sched.counters().resumed_prompt_tokens, 8);
    assert_eq!(b.stats().free, 5);
}

#[test]
fn blocks_of_another_prompt_are_refused() {
    let b = Bench::new(16, cfg());
    let adopt = |held, prompt: &[u32]| b.sched.blocks.adopt(held, prompt).map(|_| ());
    let prompt = [1, 2, 3, 4, 5, 6];
    let wrong = |got, want, prompt| Err(Refused::WrongBlocks { got, want, prompt });
    assert_eq!(adopt(b.arrive(&prompt), &[1; 4]), wrong(2, 1, 4));
    assert_eq!(adopt(b.arrive(&prompt), &[1; 9]), wrong(2, 3, 9));
    assert_eq!(adopt(Held::alloc(&pool(4), 2).unwrap(), &prompt), wrong(2, 2, 6));
    let fills = adopt(b.arrive(&prompt), &[1, 2, 3, 4, 5]);
    assert_eq!(fills, Err(Refused::ForeignBlock { index: 1 }));
    assert_eq!(b.stats().free, 16, "and nothing of a refused prompt is kept");

    let named = b.arrive(&prompt);
    let hash = tl_kv::block_hash(0, &prompt[..4]);
    assert!(lock(&b.kv).register(named.ids()[0], hash).unwrap());
    let other = adopt(named.share().unwrap(), &[9, 9, 9, 9, 5, 6]);
    assert_eq!(other, Err(Refused::ForeignBlock { index: 0 }));
    assert_eq!(adopt(named, &prompt), Ok(()));
    assert_eq!(b.stats().used, 0, "refused blocks are back");
    // They now have tokens and are found by them.
    assert_eq!(lock(&b.kv).match_prefix(&prompt).len(), 1);
}

#[test]
fn a_hand_over_needs_room_for_the_prompt_alone() {
    let limits = Limits { max_positions: 100, kv_blocks: 3, block_tokens: 4 };
    let never_fits = Err(Refused::NeverFits { blocks: 4, pool: 3 });
    assert_eq!(limits.check(12, 50, true), Ok(()));
    assert_eq!(limits.check(13, 50, true), never_fits);
    assert_eq!(limits.check(12, 50, false), never_fits);
    // One place is left in this pool and more in the next one's: that is no end.
    assert_eq!((limits.room(11, true), limits.room(11, false)), (89, 1));
    assert_eq!(Limits { max_positions: 12, ..limits }.room(11, true), 1);
}

#[test]
fn a_hand_over_gives_the_prompts_blocks_out() {
    for prefix_cache in [true, false] {
        let mut b = Bench::with(8, cfg(), prefix_cache);
        let prompt: Vec<u32> = (1..=10).collect();
        let new = NewSeq {
            prompt: prompt.clone(),
            max_new_tokens: 5,
            priority: 0,
            deadline: None,
            hand_over: true,
            origin: Origin::Here,
        };
        let id = b.sched.add(new, b.now).unwrap();
        let batch = b.plan();
        let mut ended =
            b.sched.on_step(&[(batch.rows[0], Outcome::Token { token: 7, stop: false })]);
        let Some(Ended::HandOver { id: of, held, hashes, cached_tokens: 0 }) = ended.pop() else {
            panic!("{ended:?}")
        };
        assert_eq!(of, id);
        assert_eq!(hashes, tl_kv::prompt_hashes(&prompt, 4));
        let fills: Vec<u32> = held.ids().iter().map(|&i| lock(&b.kv).fill(i).unwrap()).collect();
        assert_eq!(fills, [4, 4, 2]);
        assert_eq!(b.stats().used, 3);
        assert_eq!(b.sched.running(), 0);
        drop(held);
        let cached = if prefix_cache { 2 } else { 0 };
        assert_eq!((b.stats().used, b.stats().cached), (0, cached));
    }
}

//! Rules one by one, and random histories against a model that stores every token.

#[cfg(debug_assertions)]
mod broken;
mod model;

use super::invariant;
use super::{Chain, Holder, Pool, PoolError, Segment, Short};

fn chain(segments: &[(u64, u64)]) -> Chain {
    Chain::new(segments.iter().map(|&(key, len)| Segment { key, len }))
}

fn pool(blocks: u64) -> Pool {
    Pool::new(blocks, 4, true).expect("a small pool")
}

/// Admits a request that computes all its tokens at once.
fn admit(pool: &mut Pool, chain: &Chain) -> (u64, Holder) {
    let hit = pool.hit(chain, chain.len() - 1);
    let tokens = hit.tokens();
    let mut holder = pool.open(hit, chain.len()).expect("room");
    pool.register(&mut holder, chain, chain.len());
    (tokens, holder)
}

#[track_caller]
fn hits(pool: &Pool, segments: &[(u64, u64)], tokens: u64) {
    let chain = chain(segments);
    assert_eq!(pool.hit(&chain, chain.len()).tokens(), tokens, "{segments:?}");
}

#[test]
fn a_prefix_is_shared_as_far_as_the_chains_agree() {
    let mut pool = pool(20);
    let (_, first) = admit(&mut pool, &chain(&[(1, 6), (2, 10)]));
    hits(&pool, &[(1, 6), (2, 10)], 16);
    hits(&pool, &[(1, 6), (2, 3)], 8);
    hits(&pool, &[(1, 6), (3, 10)], 4);
    hits(&pool, &[(1, 16)], 4);
    hits(&pool, &[(1, 5), (2, 11)], 4);
    hits(&pool, &[(2, 16)], 0);
    hits(&pool, &[(1, 0), (1, 6), (7, 0), (2, 10)], 16);
    // A segment that begins again is not a segment that goes on.
    hits(&pool, &[(1, 4), (1, 12)], 4);
    invariant::check(&pool, &[&first]).expect("invariants");
    pool.close(first);
}

#[test]
fn a_whole_cached_prompt_recomputes_its_last_block() {
    let mut pool = pool(20);
    let prompt = chain(&[(1, 12)]);
    let (cold, first) = admit(&mut pool, &prompt);
    let (warm, second) = admit(&mut pool, &prompt);
    assert_eq!((cold, warm), (0, 8));
    // Two blocks are shared; of the third there are two copies, and both count.
    assert_eq!(pool.used(), 4);
    pool.close(first);
    pool.close(second);
    assert_eq!((pool.used(), pool.cached()), (0, 4));
    hits(&pool, &[(1, 12)], 12);
}

#[test]
fn the_longest_unused_prefix_is_reused_first_from_its_end() {
    let mut pool = pool(7);
    let (_, a) = admit(&mut pool, &chain(&[(1, 12)]));
    let (_, b) = admit(&mut pool, &chain(&[(2, 12)]));
    pool.close(a);
    pool.close(b);
    // One blank block, then the last two of a.
    let (_, c) = admit(&mut pool, &chain(&[(3, 12)]));
    hits(&pool, &[(1, 12)], 4);
    hits(&pool, &[(2, 12)], 12);
    assert_eq!(pool.evictions(), 2);
    pool.close(c);
    // Using what is left of a makes b the oldest.
    let (hit, a) = admit(&mut pool, &chain(&[(1, 8)]));
    assert_eq!(hit, 4);
    hits(&pool, &[(2, 12)], 8);
    pool.close(a);
}

#[test]
fn blocks_without_content_are_reused_before_any_that_has_some() {
    let mut pool = pool(4);
    let (_, a) = admit(&mut pool, &chain(&[(1, 8)]));
    pool.close(a);
    let partial = chain(&[(2, 7)]);
    let (_, b) = admit(&mut pool, &partial);
    pool.close(b);
    // Blank: the partial block of b. Cached: two of a, one of b.
    assert_eq!(pool.cached(), 3);
    let (_, c) = admit(&mut pool, &chain(&[(3, 3)]));
    hits(&pool, &[(1, 8)], 8);
    hits(&pool, &[(2, 4)], 4);
    pool.close(c);
}

#[test]
fn what_is_not_registered_is_not_found() {
    let mut pool = pool(8);
    let prompt = chain(&[(1, 16)]);
    let hit = pool.hit(&prompt, 15);
    let mut holder = pool.open(hit, 16).expect("room");
    hits(&pool, &[(1, 16)], 0);
    pool.register(&mut holder, &prompt, 11);
    hits(&pool, &[(1, 16)], 8);
    pool.register(&mut holder, &prompt, 16);
    hits(&pool, &[(1, 16)], 16);
    pool.close(holder);
    let mut off = Pool::new(8, 4, false).expect("pool");
    let (_, holder) = admit(&mut off, &prompt);
    assert_eq!(off.hit(&prompt, 16).tokens(), 0);
    off.close(holder);
    assert_eq!((off.free(), off.cached()), (8, 0));
}

#[test]
fn an_answer_extends_the_chain() {
    let mut pool = pool(8);
    let mut request = chain(&[(1, 6)]);
    let (_, mut holder) = admit(&mut pool, &request);
    for token in 7..=13 {
        request.extend(100, 1);
        pool.grow(&mut holder, token).expect("room");
        pool.register(&mut holder, &request, token);
    }
    hits(&pool, &[(1, 6), (100, 7)], 12);
    hits(&pool, &[(1, 6), (101, 7)], 4);
    pool.close(holder);
}

#[test]
fn a_request_that_does_not_fit_changes_nothing() {
    let mut pool = pool(4);
    let (_, a) = admit(&mut pool, &chain(&[(1, 12)]));
    let long = chain(&[(1, 8), (2, 8)]);
    let hit = pool.hit(&long, 15);
    assert_eq!((hit.tokens(), pool.needed(&hit, 16)), (8, 2));
    let short = pool.open(hit, 16).expect_err("one block free");
    assert_eq!(short, PoolError::Short(Short { needed: 2, free: 1 }));
    invariant::check(&pool, &[&a]).expect("invariants");
    // The blocks of a hit that nobody holds are taken from the free ones too.
    pool.close(a);
    let hit = pool.hit(&long, 15);
    assert_eq!(pool.needed(&hit, 16), 4);
    let b = pool.open(hit, 16).expect("fits");
    assert_eq!(pool.free(), 0);
    pool.close(b);
}

#[test]
fn misuse_is_an_error() {
    assert_eq!(Pool::new(4, 0, true).err(), Some(PoolError::EmptyBlock));
    assert_eq!(Pool::new(1 << 40, 4, true).err(), Some(PoolError::TooManyBlocks(1 << 40)));
    let mut pool = pool(4);
    let prompt = chain(&[(1, 4)]);
    let old = pool.hit(&prompt, 4);
    let (_, holder) = admit(&mut pool, &prompt);
    assert_eq!(pool.open(old, 4).err(), Some(PoolError::StaleHit));
    pool.close(holder);
}

#[test]
fn a_broken_pool_is_noticed() {
    let mut pool = pool(4);
    let (_, a) = admit(&mut pool, &chain(&[(1, 8)]));
    let broken = |change: fn(&mut Pool)| {
        let mut pool = pool.clone();
        change(&mut pool);
        invariant::check(&pool, &[&a]).expect_err("broken").statement
    };
    assert_eq!(broken(|p| p.free_count -= 1), "every block is used, cached or blank");
    assert_eq!(broken(|p| p.blocks[0].refs += 1), "a block's references are its holders");
    assert_eq!(
        broken(|p| p.free_links.remove(&mut p.free, 2)),
        "the free list is the unreferenced blocks"
    );
    assert_eq!(
        broken(|p| p.copy_links.remove(&mut p.table.node_mut(1).copies, 0)),
        "the copies of a content are the blocks that carry it"
    );
    assert_eq!(
        broken(|p| p.table.node_mut(1).refs += 1),
        "a content is known while something needs it"
    );
    assert_eq!(
        broken(|p| p.table.node_mut(2).parent = 0),
        "a content is known while something needs it"
    );
    assert_eq!(invariant::check(&pool, &[]).unwrap_err().statement, invariant::STATEMENTS[1].0);
    pool.close(a);
}

#[test]
fn nothing_is_remembered_that_no_block_needs() {
    let mut pool = pool(8);
    for round in 0..1000 {
        let (_, holder) = admit(&mut pool, &chain(&[(round, 5), (round + 1, 14)]));
        pool.close(holder);
    }
    // Four blocks a request, one of two pieces, of the last two requests at most; and the root.
    assert!(pool.table.live().count() <= 11, "{}", pool.table.live().count());
}

//! Many threads on one pool: nothing lost, nothing doubled, nothing torn.

use std::sync::Barrier;

use tl_kv::{EnvelopeView, Held, SharedKv, export_block, import_block, lock};

use crate::common::{B, cfg, counts, holds, pool, prefill};

#[test]
fn concurrent_pushes_of_one_block_share_it() {
    const PUSHES: usize = 32;
    let (p, d) = (pool(1), pool(PUSHES as u32));
    let tokens = [1, 2, 3, 4];
    let (held, hashes) = prefill(&p, &tokens);
    let bytes = export_block(&p, held.ids()[0]).unwrap();
    let barrier = Barrier::new(PUSHES);
    let blocks: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..PUSHES)
            .map(|_| {
                scope.spawn(|| {
                    let view = EnvelopeView::parse(&bytes, Some(&cfg(1))).unwrap();
                    barrier.wait();
                    import_block(&d, &view, hashes[0]).unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let id = blocks[0].id();
    assert!(blocks.iter().all(|b| b.id() == id));
    assert_eq!(blocks.iter().filter(|b| !b.shared).count(), 1, "one import");
    assert_eq!(lock(&d).refs(id), PUSHES as u32);
    assert_eq!(counts(&d), (PUSHES as u32 - 1, 1, 0));
    assert!(holds(&d, &[id], &tokens));
    drop(blocks);
    assert_eq!(counts(&d), (PUSHES as u32 - 1, 0, 1));
}

/// Prompts of all threads overlap in their first blocks and differ after; each thread checks
/// what it got while the others evict, share and free.
#[test]
fn prompts_come_and_go_on_many_threads() {
    const THREADS: u32 = 8;
    const ROUNDS: u32 = 200;
    let d = pool(64);
    let source = pool(8 * THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (d, source) = (&d, &source);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    one_prompt(source, d, thread, round);
                }
            });
        }
    });
    let (_, used, _) = counts(&d);
    assert_eq!(used, 0);
    assert_eq!(counts(&source).1, 0);
    lock(&d).reset_cache();
    assert_eq!(counts(&d), (64, 0, 0));
}

fn one_prompt(source: &SharedKv, d: &SharedKv, thread: u32, round: u32) {
    let shared_part = (0..8).map(|i| i + round % 3);
    let own_part = (0..7).map(|i| 1000 + thread * 100 + round * 10 + i);
    let tokens: Vec<u32> = shared_part.chain(own_part).collect();
    let (sent, hashes) = prefill(source, &tokens);
    let mut got = Held::adopt(d, lock(d).match_prefix(&tokens));
    let cached = got.len();
    for (i, &id) in sent.ids().iter().enumerate().skip(cached) {
        let bytes = export_block(source, id).unwrap();
        let view = EnvelopeView::parse(&bytes, Some(&cfg(1))).unwrap();
        let block = import_block(d, &view, hashes.get(i).copied().unwrap_or(0)).unwrap();
        got.append(block.held);
    }
    let mut parent = 0;
    for ((&id, block), hash) in got.ids().iter().zip(tokens.chunks_exact(B)).zip(hashes) {
        lock(d).attach_tokens(id, parent, block).unwrap();
        parent = hash;
    }
    assert!(holds(d, got.ids(), &tokens));
}

/// Registering races with a writer: one of them is refused, never neither.
#[test]
fn a_block_is_never_written_after_it_is_registered() {
    for round in 0..2000u64 {
        let p = pool(1);
        let held = Held::alloc(&p, 1).unwrap();
        let id = held.ids()[0];
        lock(&p).set_fill(id, 4).unwrap();
        let slabs = lock(&p).slabs();
        let barrier = Barrier::new(2);
        let (registered, wrote_after) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                barrier.wait();
                let open = slabs.write(id);
                // While a writer is in, the block must not be registered.
                open.is_ok() && lock(&p).hash_of(id) != 0
            });
            barrier.wait();
            let registered = lock(&p).register(id, round + 1);
            (registered, writer.join().unwrap())
        });
        assert!(!wrote_after, "round {round}: a registered block was open for writing");
        assert!(matches!(registered, Ok(true)) || slabs.write(id).is_ok());
    }
}

use super::*;
use crate::cfg::{KV_FORMAT_V1, TL_F16};
use crate::hash::{block_hash, prompt_hashes};
use crate::slabs::Access;

fn cfg(n_blocks: u32) -> KvCfg {
    KvCfg {
        n_blocks,
        block_tokens: 4,
        n_layers: 2,
        n_kv_heads: 1,
        head_dim: 4,
        dtype: TL_F16,
        format: KV_FORMAT_V1,
    }
}

fn pool(n_blocks: u32) -> KvPool {
    KvPool::new(cfg(n_blocks)).unwrap()
}

/// A full block whose every element is `value`.
fn full(pool: &mut KvPool, value: u16) -> u32 {
    let id = pool.alloc(1).unwrap()[0];
    pool.slabs().write(id).unwrap().all_mut().fill(value);
    pool.set_fill(id, 4).unwrap();
    id
}

fn counts(pool: &KvPool) -> (u32, u32, u32) {
    pool.check().unwrap();
    let s = pool.stats();
    (s.free, s.used, s.cached)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, KvError>, status: i32) {
    assert_eq!(result.unwrap_err().status, status);
}

#[test]
fn impossible_pools() {
    for broken in [
        KvCfg { n_blocks: 0, ..cfg(1) },
        KvCfg { block_tokens: 0, ..cfg(1) },
        KvCfg { n_layers: 0, ..cfg(1) },
        KvCfg { n_kv_heads: 0, ..cfg(1) },
        KvCfg { head_dim: 0, ..cfg(1) },
    ] {
        refused(KvPool::new(broken), KvError::EINVAL);
    }
    refused(KvPool::new(KvCfg { dtype: 3, ..cfg(1) }), KvError::EUNSUPPORTED);
    refused(KvPool::new(KvCfg { format: 2, ..cfg(1) }), KvError::EUNSUPPORTED);
    let huge = KvCfg { n_layers: u32::MAX, n_kv_heads: u32::MAX, ..cfg(u32::MAX - 1) };
    refused(KvPool::new(huge), KvError::ENOMEM);
    let larger_than_memory = KvCfg { n_layers: 1 << 30, n_kv_heads: 1 << 16, ..cfg(1) };
    refused(KvPool::new(larger_than_memory), KvError::ENOMEM);
}

#[test]
fn a_block_goes_free_used_cached_used() {
    let mut p = pool(4);
    assert_eq!(counts(&p), (4, 0, 0));
    let id = full(&mut p, 1);
    assert!(p.register(id, 77).unwrap());
    p.retain(id).unwrap();
    p.release(id).unwrap();
    assert_eq!(counts(&p), (3, 1, 0));
    p.release(id).unwrap();
    assert_eq!(counts(&p), (3, 0, 1));
    assert!(p.contains(77) && counts(&p) == (3, 0, 1), "asking takes no reference");
    assert_eq!(p.lookup(77), Some(id));
    assert_eq!(counts(&p), (3, 1, 0));
    p.release(id).unwrap();
    assert_eq!(p.reset_cache(), 1);
    assert_eq!((counts(&p), p.stats().evictions), ((4, 0, 0), 0));
    assert_eq!(p.lookup(77), None);
}

#[test]
fn an_owner_too_many_or_too_few_is_told_by_its_rule() {
    let mut p = pool(3);
    let ids = p.alloc(2).unwrap();
    p.retain(ids[0]).unwrap();
    let (one, both) = ([ids[0]], ids.as_slice());
    p.check_owners([both, &one]).unwrap();
    for owners in [vec![both], vec![both, &one, &one]] {
        let broken = p.check_owners(owners).unwrap_err();
        assert_eq!(broken.invariant.name(), "used_is_owned");
    }
}

#[test]
fn a_fork_goes_its_own_way() {
    let mut p = pool(3);
    let id = full(&mut p, 7);
    assert!(p.register(id, 77).unwrap());
    let mut copy = p.fork();
    let private = copy.writable(id).unwrap();
    copy.slabs().write(private).unwrap().all_mut().fill(9);
    assert_eq!((counts(&p), counts(&copy)), ((2, 1, 0), (1, 1, 1)));
    assert!(p.slabs().read(id).unwrap().all().iter().all(|&x| x == 7));
    assert_eq!(p.lookup(77), Some(id));
}

#[test]
fn references_are_refused_on_blocks_that_have_none() {
    let mut p = pool(2);
    refused(p.retain(0), KvError::EINVAL);
    refused(p.release(0), KvError::EINVAL);
    refused(p.release(9), KvError::EINVAL);
    let id = full(&mut p, 1);
    assert!(p.register(id, 5).unwrap());
    p.release(id).unwrap();
    refused(p.retain(id), KvError::EINVAL);
    refused(p.release(id), KvError::EINVAL);
    refused(p.export(&[id]), KvError::EINVAL);
    refused(p.set_fill(id, 1), KvError::EINVAL);
    assert_eq!(counts(&p), (1, 0, 1));
}

#[test]
fn allocation_is_all_or_nothing_and_evicts_the_oldest() {
    let mut p = pool(3);
    let ids: Vec<u32> = (0..3).map(|v| full(&mut p, v)).collect();
    for (&id, hash) in ids.iter().zip(10..) {
        assert!(p.register(id, hash).unwrap());
        p.release(id).unwrap();
    }
    let touched = p.lookup(10).unwrap();
    p.release(touched).unwrap();
    refused(p.alloc(4), KvError::EFULL);
    assert_eq!((counts(&p), p.stats().evictions), ((0, 0, 3), 0));
    let new = p.alloc(1).unwrap()[0];
    assert_eq!((new, p.fill(new), p.hash_of(new)), (ids[1], Ok(0), 0));
    assert_eq!([p.contains(10), p.contains(11), p.contains(12)], [true, false, true]);
    assert_eq!(p.stats().evictions, 1);
    assert_eq!(p.alloc(0).unwrap(), []);
}

#[test]
fn registration_rules() {
    let mut p = pool(4);
    let a = full(&mut p, 1);
    let b = full(&mut p, 2);
    let partial = p.alloc(1).unwrap()[0];
    p.set_fill(partial, 3).unwrap();
    refused(p.register(a, 0), KvError::EINVAL);
    refused(p.register(partial, 8), KvError::EINVAL);
    refused(p.register(3, 8), KvError::EINVAL);
    assert!(p.register(a, 7).unwrap());
    assert!(p.register(a, 7).unwrap(), "again");
    refused(p.register(a, 8), KvError::EINVAL);
    assert!(!p.register(b, 7).unwrap(), "another block has it");
    assert_eq!((p.hash_of(b), p.lookup(7)), (0, Some(a)));
    refused(p.set_fill(a, 2), KvError::EINVAL);
    refused(p.set_fill(b, 5), KvError::EINVAL);
    p.check().unwrap();
}

#[test]
fn copy_on_write() {
    let mut p = pool(4);
    let a = full(&mut p, 9);
    assert_eq!(p.cow(a).unwrap(), a);
    assert!(p.register(a, 7).unwrap());
    assert_eq!(p.cow(a).unwrap(), a);
    let private = p.writable(a).unwrap();
    assert_ne!(private, a);
    assert_eq!(counts(&p), (2, 1, 1), "the registered one stays cached");
    assert_eq!((p.fill(private), p.hash_of(private)), (Ok(4), 0));
    assert!(p.slabs().read(private).unwrap().all().iter().all(|&x| x == 9));
    assert_eq!(p.writable(private).unwrap(), private);
    p.retain(private).unwrap();
    let copy = p.cow(private).unwrap();
    assert!(copy != private && p.refs(private) == 1 && p.refs(copy) == 1);
    assert_eq!(counts(&p), (1, 2, 1));
}

#[test]
fn copy_on_write_without_room_changes_nothing() {
    let mut p = pool(1);
    let a = full(&mut p, 9);
    p.retain(a).unwrap();
    refused(p.cow(a), KvError::EFULL);
    assert_eq!((p.refs(a), counts(&p)), (2, (0, 1, 0)));
}

#[test]
fn only_the_owner_of_an_unregistered_block_writes() {
    let mut p = pool(2);
    let slabs = p.slabs();
    refused(slabs.read(0), KvError::EINVAL);
    refused(slabs.write(0), KvError::EINVAL);
    refused(slabs.write(2), KvError::EINVAL);
    let id = full(&mut p, 1);
    {
        let open = slabs.write(id).unwrap();
        refused(slabs.read(id), KvError::EBUSY);
        refused(slabs.write(id), KvError::EBUSY);
        refused(p.register(id, 7), KvError::EBUSY);
        refused(p.export(&[id]), KvError::EBUSY);
        assert!(open.k(1).iter().all(|&x| x == 1));
    }
    drop(slabs.write(id).unwrap());
    p.retain(id).unwrap();
    refused(slabs.write(id), KvError::EINVAL);
    p.release(id).unwrap();
    assert!(p.register(id, 7).unwrap());
    refused(slabs.write(id), KvError::EINVAL);
    refused(p.slab_mut(id, 0, true).map(drop), KvError::EINVAL);
    let first = slabs.read(id).unwrap();
    let second = slabs.read(id).unwrap();
    assert_eq!(first.v(0), second.v(0));
    drop((first, second));
    p.release(id).unwrap();
    refused(slabs.read(id), KvError::EINVAL);
}

#[test]
fn slabs_are_where_the_format_puts_them() {
    let mut p = KvPool::new(KvCfg { n_kv_heads: 3, ..cfg(2) }).unwrap();
    assert_eq!((p.slab_len(), p.block_bytes()), (48, 2 * 2 * 48 * 2));
    let id = p.alloc(1).unwrap()[0];
    for (i, (layer, is_v)) in [(0, false), (0, true), (1, false), (1, true)].iter().enumerate() {
        p.slab_mut(id, *layer, *is_v).unwrap().fill(i as u16);
    }
    refused(p.slab(id, 2, false).map(drop), KvError::EINVAL);
    assert_eq!(p.slab(id, 1, true).unwrap()[0], 3);
    let slabs = p.slabs();
    let block = slabs.read(id).unwrap();
    for layer in 0..2 {
        assert!(block.k(layer).iter().all(|&x| x == layer as u16 * 2));
        assert!(block.v(layer).iter().all(|&x| x == layer as u16 * 2 + 1));
    }
    assert!(block.all().chunks(48).enumerate().all(|(i, s)| s.iter().all(|&x| x == i as u16)));
}

#[test]
fn a_recycled_block_shows_nothing_of_its_past() {
    let mut p = pool(1);
    let secret = full(&mut p, 0xBEEF);
    p.release(secret).unwrap();
    let id = p.alloc(1).unwrap()[0];
    assert_eq!((id, p.fill(id)), (secret, Ok(0)));
    refused(p.export(&[id]), KvError::EINVAL);
    p.slab_mut(id, 0, false).unwrap()[..4].fill(0x1111);
    p.set_fill(id, 1).unwrap();
    let bytes = p.export(&[id]).unwrap();
    let payload = &bytes[40..bytes.len() - 4];
    let head = 4 * 4 * 2;
    assert_eq!(payload[..8], [0x11; 8]);
    assert!(payload.chunks(head).all(|slab| slab[8..].iter().all(|&b| b == 0)));
}

#[test]
fn import_is_all_or_nothing() {
    let mut source = pool(4);
    let ids: Vec<u32> = (1..=3).map(|v| full(&mut source, v)).collect();
    assert!(source.register(ids[0], 100).unwrap());
    assert!(source.register(ids[1], 101).unwrap());
    let bytes = source.export(&ids).unwrap();

    let mut p = pool(3);
    let held = p.alloc(1).unwrap()[0];
    refused(p.import(&bytes), KvError::EFULL);
    assert_eq!(counts(&p), (2, 1, 0));
    p.release(held).unwrap();
    refused(p.import(&bytes[..bytes.len() - 1]), KvError::EFORMAT);
    let other_shape = KvPool::new(KvCfg { head_dim: 8, ..cfg(3) }).unwrap().import(&bytes);
    refused(other_shape, KvError::ESHAPE);
    let got = p.import(&bytes).unwrap();
    assert_eq!(got.iter().map(|&id| p.hash_of(id)).collect::<Vec<_>>(), [100, 101, 0]);
    assert_eq!(p.export(&got).unwrap(), bytes);
    let mut wide = pool(6);
    let first = wide.import(&bytes).unwrap();
    let second = wide.import(&bytes).unwrap();
    assert_eq!(second.iter().map(|&id| wide.hash_of(id)).collect::<Vec<_>>(), [0, 0, 0]);
    assert_eq!(wide.lookup(100), Some(first[0]));
    wide.check().unwrap();
}

/// What a debug build asks after a transition finds a wrong number of that block.
#[test]
fn a_broken_block_is_noticed_at_once() {
    let check = |change: fn(&mut KvPool), id: u32, rule: &str| {
        let mut p = pool(6);
        let ids = p.alloc(4).unwrap();
        (0..3).for_each(|i| p.set_fill(ids[i], 4).unwrap());
        p.register(ids[0], 100).unwrap();
        p.register(ids[1], 101).unwrap();
        p.release(ids[1]).unwrap();
        (0..6).for_each(|id| p.check_block(id).unwrap());
        change(&mut p);
        let broken = p.check_block(id).unwrap_err();
        assert_eq!(broken.invariant.name(), rule, "{broken}");
        // The books themselves are right, or cannot even be summed.
        let alone = ["held_blocks_only", "shared_is_read_only", "within_capacity"];
        assert!(alone.contains(&rule) || p.check().is_err(), "{broken}");
    };
    // 0 is registered, 1 cached, 2 full, 3 empty, the others free.
    check(|p| p.meta[2].refs = 0, 2, "unused_listed");
    check(|p| p.meta[1].refs = 1, 1, "unused_listed");
    check(|p| p.meta[4].hash = 7, 4, "unused_listed");
    check(|p| p.free.remove(&mut p.links, 4), 4, "unused_listed");
    check(|p| p.lru.push_back(&mut p.links, 3), 3, "unused_listed");
    check(|p| p.free.len += 6, 0, "within_capacity");
    check(|p| p.meta[0].hash = 7, 0, "index_exact");
    check(|p| p.index.clear(), 1, "index_exact");
    check(|p| p.meta[0].fill = 3, 0, "registered_is_full");
    check(|p| p.slabs.set_access(4, Access::Owned), 4, "held_blocks_only");
    check(|p| p.slabs.set_access(0, Access::Owned), 0, "shared_is_read_only");
    check(|p| p.slabs.set_access(2, Access::Shared), 2, "shared_is_read_only");
}

/// A transition that leaves the books wrong stops a debug build.
#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "RegisteredIsFull")]
fn a_transition_that_breaks_a_rule_is_stopped() {
    let mut p = pool(4);
    let id = full(&mut p, 1);
    p.register(id, 100).unwrap();
    p.meta[id as usize].fill = 2;
    p.retain(id).unwrap();
}

#[test]
fn a_prefix_hit_needs_the_tokens() {
    let mut p = pool(8);
    let tokens: Vec<u32> = (10..=18).collect();
    let hashes = prompt_hashes(&tokens, 4);
    let a = full(&mut p, 1);
    let b = full(&mut p, 2);
    assert!(p.register_tokens(a, 0, &tokens[..4]).unwrap());
    assert!(p.register(b, hashes[1]).unwrap());
    assert_eq!(p.match_prefix(&tokens), [a], "b came by hash alone");
    p.release(a).unwrap();
    refused(p.attach_tokens(b, 0, &tokens[4..8]), KvError::EINVAL);
    refused(p.attach_tokens(b, hashes[0], &tokens[..3]), KvError::EINVAL);
    refused(p.attach_tokens(b, hashes[0], &tokens[..4]), KvError::EINVAL);
    p.attach_tokens(b, hashes[0], &tokens[4..8]).unwrap();
    p.attach_tokens(b, hashes[0], &tokens[4..8]).unwrap();
    assert_eq!(p.match_prefix(&tokens), [a, b]);
    assert_eq!(p.match_prefix(&tokens[..8]), [a], "one token is left to compute");
    assert_eq!(p.match_prefix(&tokens[..4]), []);
    assert_eq!(p.match_prefix(&[]), []);
    assert_eq!(p.lookup_tokens(hashes[0], &[14, 15, 16, 99]), None);
    assert_eq!((p.refs(a), p.refs(b)), (3, 2));
    p.check().unwrap();
}

/// Two prompts of one hash: the block is found under the name but is no hit.
#[test]
fn a_collision_is_no_hit() {
    let mut p = pool(4);
    let a = full(&mut p, 1);
    let tokens = [1, 2, 3, 4];
    assert!(p.register(a, block_hash(0, &tokens)).unwrap());
    p.attach_tokens(a, 0, &tokens).unwrap();
    // No real collision is known; the same books with other tokens stand in for one.
    p.tokens[0] = 9;
    assert_eq!(p.lookup_tokens(0, &tokens), None);
    refused(p.attach_tokens(a, 0, &tokens), KvError::EINVAL);
    p.meta[a as usize].parent = 5;
    p.tokens[0] = 1;
    assert_eq!(p.lookup_tokens(0, &tokens), None, "another parent");
}

#[test]
fn a_computed_block_replaces_a_cached_one_of_unknown_tokens() {
    let mut p = pool(4);
    let tokens = [1, 2, 3, 4];
    let hash = block_hash(0, &tokens);
    let pushed = full(&mut p, 1);
    assert!(p.register(pushed, hash).unwrap());
    let own = full(&mut p, 2);
    assert!(!p.register_tokens(own, 0, &tokens).unwrap(), "somebody uses the pushed one");
    p.release(pushed).unwrap();
    assert!(p.register_tokens(own, 0, &tokens).unwrap());
    assert_eq!(counts(&p), (3, 1, 0));
    assert_eq!(p.lookup_tokens(0, &tokens), Some(own));
    let third = full(&mut p, 3);
    assert!(!p.register_tokens(third, 0, &tokens).unwrap(), "known tokens stay");
    refused(p.register_tokens(third, 0, &tokens[..2]), KvError::EINVAL);
}

#[test]
fn the_digest_names_the_set_of_blocks() {
    let (mut a, mut b) = (pool(4), pool(4));
    for hash in [3, 1, 2] {
        let id = full(&mut a, 0);
        assert!(a.register(id, hash).unwrap());
    }
    for hash in [2, 3, 1] {
        let id = full(&mut b, 0);
        assert!(b.register(id, hash).unwrap());
        b.release(id).unwrap();
    }
    assert_eq!(a.index_digest(), b.index_digest());
    b.alloc(2).unwrap();
    assert_ne!(a.index_digest(), b.index_digest());
}

#[test]
fn reset_leaves_what_is_in_use() {
    let mut p = pool(3);
    let (a, b) = (full(&mut p, 1), full(&mut p, 2));
    assert!(p.register(a, 1).unwrap() && p.register(b, 2).unwrap());
    p.release(b).unwrap();
    assert_eq!(p.reset_cache(), 1);
    assert_eq!((counts(&p), p.contains(1), p.contains(2)), ((2, 1, 0), true, false));
}

#[test]
fn whoever_waits_for_room_is_told_of_each_block_that_comes_back() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let told = Arc::new(AtomicU32::new(0));
    let mut pool = pool(3);
    let count = Arc::clone(&told);
    pool.on_room(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let check = |expect: u32, what: &str| {
        assert_eq!(told.load(Ordering::Relaxed), expect, "{what}");
    };
    let ids = pool.alloc(3).unwrap();
    pool.retain(ids[0]).unwrap();
    pool.set_fill(ids[1], pool.cfg().block_tokens).unwrap();
    assert!(pool.register(ids[1], 7).unwrap());
    check(0, "taking makes no room");
    pool.release(ids[0]).unwrap();
    check(0, "somebody still has it");
    pool.release(ids[0]).unwrap();
    check(1, "free");
    pool.release(ids[1]).unwrap();
    check(2, "cached, which can be evicted");
    assert!(pool.release(ids[1]).is_err());
    check(2, "it was nobody's");
    assert_eq!(pool.lookup(7), Some(ids[1]));
    let shared: SharedKv = Arc::new(Mutex::new(pool));
    drop(crate::Held::adopt(&shared, vec![ids[1], ids[2]]));
    check(4, "a value that is dropped");
}

use tl_kv::{Held, KvError, SharedKv, lock};

use crate::common::{counts, pool};

#[test]
fn every_way_to_hold_gives_back() {
    let p = pool(8);
    let mut a = Held::alloc(&p, 5).unwrap();
    let tail = a.split_off(3);
    assert_eq!((a.len(), tail.len(), counts(&p)), (3, 2, (3, 5, 0)));
    assert!(a.split_off(9).is_empty());
    let twice = a.share().unwrap();
    drop(a);
    assert_eq!(counts(&p), (3, 5, 0));
    let mut b = Held::empty(&p);
    b.append(twice);
    b.append(tail);
    assert_eq!((b.len(), counts(&p)), (5, (3, 5, 0)));
    let raw = b.into_raw();
    assert_eq!(counts(&p), (3, 5, 0), "raw references stay");
    let adopted = Held::adopt(&p, raw);
    adopted.release_into(&mut lock(&p));
    assert_eq!(counts(&p), (8, 0, 0));
    assert_eq!(Held::alloc(&p, 9).unwrap_err().status, KvError::EFULL);
}

#[test]
fn an_unwinding_owner_gives_back() {
    let p = pool(4);
    let q = SharedKv::clone(&p);
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _held = Held::alloc(&q, 3).unwrap();
        std::panic::resume_unwind(Box::new("owner"));
    }));
    assert!(died.is_err());
    assert_eq!(counts(&p), (4, 0, 0));
}

/// The tail of a prefix goes before its head, which is what makes the rest findable.
#[test]
fn the_tail_is_evicted_first() {
    let p = pool(3);
    let held = Held::alloc(&p, 3).unwrap();
    for (&id, hash) in held.ids().iter().zip(1..) {
        lock(&p).set_fill(id, 4).unwrap();
        lock(&p).register(id, hash).unwrap();
    }
    drop(held);
    let _new = Held::alloc(&p, 1).unwrap();
    let left: Vec<bool> = (1..=3).map(|hash| lock(&p).contains(hash)).collect();
    assert_eq!(left, [true, true, false]);
}

#[test]
fn books_that_disagree_are_counted() {
    let p = pool(2);
    drop(Held::adopt(&p, vec![0, 7]));
    assert_eq!(lock(&p).violations(), 2);
    lock(&p).check().unwrap();
}

#[test]
fn sharing_is_all_or_nothing() {
    let p = pool(3);
    let held = Held::alloc(&p, 2).unwrap();
    let ids = held.ids().to_vec();
    lock(&p).release(ids[1]).unwrap();
    assert_eq!(held.share().unwrap_err().status, KvError::EINVAL);
    assert_eq!(lock(&p).refs(ids[0]), 1);
    let _ = held.into_raw();
    lock(&p).release(ids[0]).unwrap();
    assert_eq!(counts(&p), (3, 0, 0));
}

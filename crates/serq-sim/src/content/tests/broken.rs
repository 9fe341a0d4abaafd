//! What is broken by one number is found by the next check of what changed, as by that of everything.

use proptest::prelude::*;

use super::super::invariant;
use super::super::ledger::Ledger;
use super::super::list::NONE;
use super::super::{Chain, Holder, Pool, Segment};
use crate::slots::Slots;

/// A change of one number, of whatever there is of its kind.
#[derive(Clone, Copy, Debug)]
enum Change {
    FreeCount(bool),
    CachedCount(bool),
    Refs(usize, bool),
    Content(usize, usize),
    Unlist(usize),
    List(usize, bool),
    ListCopy(usize),
    UnlistCopy(usize),
    NodeRefs(usize, bool),
    NodeDepth(usize, bool),
    NodeParent(usize),
    Registered(usize, bool),
}

fn change() -> impl Strategy<Value = Change> {
    use Change::*;
    let (n, up) = (0_usize..64, any::<bool>());
    prop_oneof![
        up.prop_map(FreeCount),
        up.prop_map(CachedCount),
        (n.clone(), up).prop_map(|(n, up)| Refs(n, up)),
        (n.clone(), n.clone()).prop_map(|(n, c)| Content(n, c)),
        n.clone().prop_map(Unlist),
        (n.clone(), up).prop_map(|(n, up)| List(n, up)),
        n.clone().prop_map(ListCopy),
        n.clone().prop_map(UnlistCopy),
        (n.clone(), up).prop_map(|(n, up)| NodeRefs(n, up)),
        (n.clone(), up).prop_map(|(n, up)| NodeDepth(n, up)),
        n.clone().prop_map(NodeParent),
        (n, up).prop_map(|(n, up)| Registered(n, up)),
    ]
}

fn shift<
    T: From<u8> + Copy + PartialOrd + std::ops::Add<Output = T> + std::ops::Sub<Output = T>,
>(
    number: &mut T,
    up: bool,
) {
    let one = T::from(1);
    *number = if up || *number < one { *number + one } else { *number - one };
}

fn apply(pool: &mut Pool, holders: &mut Slots<Option<Holder>>, change: Change) {
    let (count, used) = (pool.blocks.len(), pool.used());
    let b = |n: usize| (n % count) as u32;
    let live: Vec<u32> = pool.table.live().map(|(id, _)| id).collect();
    let id = |n: usize| live[n % live.len()];
    match change {
        // More than all is a mistake that subtraction finds.
        Change::FreeCount(up) => shift(&mut pool.free_count, up && used > 0),
        Change::CachedCount(up) => shift(&mut pool.cached_count, up),
        Change::Refs(n, up) => shift(&mut pool.blocks[b(n) as usize].refs, up),
        Change::Content(n, c) => {
            let content = if c == 0 { NONE } else { id(c) };
            pool.blocks[b(n) as usize].content = content;
        }
        Change::Unlist(n) => {
            let b = b(n);
            pool.free_links.remove(&mut pool.free, b);
        }
        Change::List(n, front) => {
            let b = b(n);
            match front {
                true => pool.free_links.push_front(&mut pool.free, b),
                false => pool.free_links.push_back(&mut pool.free, b),
            }
        }
        Change::ListCopy(n) => {
            let b = b(n);
            let content = pool.blocks[b as usize].content;
            let to = if content == NONE { id(n) } else { content };
            pool.copy_links.push_back(&mut pool.table.node_mut(to).copies, b);
        }
        Change::UnlistCopy(n) => {
            let (b, of) = (b(n), pool.blocks[b(n) as usize].content);
            let of = if of == NONE { id(n) } else { of };
            pool.copy_links.remove(&mut pool.table.node_mut(of).copies, b);
        }
        Change::NodeRefs(n, up) => shift(&mut pool.table.node_mut(id(n)).refs, up),
        Change::NodeDepth(n, up) => shift(&mut pool.table.node_mut(id(n)).depth, up),
        Change::NodeParent(n) => pool.table.node_mut(id(n)).parent = 0,
        Change::Registered(n, up) => {
            let at = n % holders.len();
            if let Some(holder) = &mut holders[at] {
                shift(&mut holder.registered, up);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn one_wrong_number_is_found_at_once(
        chains in prop::collection::vec(prop::collection::vec((0_u64..3, 1_u64..9), 1..4), 1..6),
        closed in prop::collection::vec(any::<bool>(), 6),
        change in change(),
    ) {
        let mut pool = Pool::new(14, 2, true).expect("pool");
        let mut holders: Slots<Option<Holder>> = Slots::default();
        let mut ledger = Ledger::default();
        for (chain, closed) in chains.iter().zip(closed) {
            let chain = Chain::new(chain.iter().map(|&(key, len)| Segment { key, len }));
            let hit = pool.hit(&chain, chain.len() - 1);
            if let Ok(mut holder) = pool.open(hit, chain.len() + 1) {
                pool.register(&mut holder, &chain, chain.len());
                holders.push(Some(holder));
            } else {
                continue;
            }
            prop_assert!(ledger.check(&mut pool, &mut holders).is_ok());
            let last = holders.len() - 1;
            if closed && let Some(holder) = holders[last].take() {
                pool.close(holder);
            }
        }
        prop_assume!(holders.len() > 0);
        prop_assert!(ledger.check(&mut pool, &mut holders).is_ok());
        apply(&mut pool, &mut holders, change);
        let all: Vec<&Holder> = holders.iter().flatten().collect();
        let whole = invariant::check(&pool, &all);
        let found = ledger.check(&mut pool, &mut holders);
        prop_assert_eq!(whole.is_err(), found.is_err(), "{:?} {:?} {:?}", change, whole, found);
    }
}

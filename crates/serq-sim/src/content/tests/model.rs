//! Random histories of a pool and of a plain model of it: every block's content as a list of
//! tokens, the free list as a list, every search from beginning to end.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::super::invariant;
use super::super::{Chain, Holder, Pool, Segment};
use crate::slots::Slots;

/// A token: a segment's key and the place in it.
type Token = (u64, u64);

struct Model {
    block: usize,
    refs: Vec<u32>,
    /// The whole prefix that ends with the block.
    content: Vec<Option<Vec<Token>>>,
    /// Blocks with content, oldest registration first.
    order: Vec<usize>,
    free: VecDeque<usize>,
}

struct ModelHolder {
    blocks: Vec<usize>,
    registered: usize,
}

fn tokens(chain: &Chain) -> Vec<Token> {
    chain.segments().iter().flat_map(|s| (0..s.len).map(|i| (s.key, i))).collect()
}

impl Model {
    fn new(blocks: usize, block: usize) -> Self {
        Model {
            block,
            refs: vec![0; blocks],
            content: vec![None; blocks],
            order: Vec::new(),
            free: (0..blocks).collect(),
        }
    }

    fn hit(&self, tokens: &[Token], limit: usize) -> Vec<usize> {
        let most = limit.min(tokens.len()) / self.block;
        let copy = |n: usize| {
            let prefix = &tokens[..n * self.block];
            self.order.iter().copied().find(|&b| self.content[b].as_deref() == Some(prefix))
        };
        (1..=most).map_while(copy).collect()
    }

    fn needed(&self, hit: &[usize], tokens: usize) -> usize {
        let idle = hit.iter().filter(|&&b| self.refs[b] == 0).count();
        tokens.div_ceil(self.block).saturating_sub(hit.len()) + idle
    }

    fn open(&mut self, hit: Vec<usize>, tokens: usize) -> Option<ModelHolder> {
        if self.needed(&hit, tokens) > self.free.len() {
            return None;
        }
        for &b in &hit {
            self.refs[b] += 1;
            self.free.retain(|&f| f != b);
        }
        let mut holder = ModelHolder { registered: hit.len(), blocks: hit };
        self.grow(&mut holder, tokens).then_some(holder)
    }

    fn grow(&mut self, holder: &mut ModelHolder, tokens: usize) -> bool {
        let lacking = tokens.div_ceil(self.block).saturating_sub(holder.blocks.len());
        if lacking > self.free.len() {
            return false;
        }
        for b in self.free.drain(..lacking) {
            self.refs[b] = 1;
            self.content[b] = None;
            self.order.retain(|&o| o != b);
            holder.blocks.push(b);
        }
        true
    }

    fn register(&mut self, holder: &mut ModelHolder, tokens: &[Token], upto: usize) {
        let full = (upto.min(tokens.len()) / self.block).min(holder.blocks.len());
        while holder.registered < full {
            let b = holder.blocks[holder.registered];
            holder.registered += 1;
            self.content[b] = Some(tokens[..holder.registered * self.block].to_vec());
            self.order.push(b);
        }
    }

    fn close(&mut self, holder: ModelHolder) {
        for &b in holder.blocks.iter().rev() {
            self.refs[b] -= 1;
            if self.refs[b] == 0 {
                match self.content[b] {
                    Some(_) => self.free.push_back(b),
                    None => self.free.push_front(b),
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// Chain to begin, tokens to hold beyond it, tokens to register.
    Open(Vec<(u64, u64)>, usize, usize),
    /// Which holder, and by how many tokens.
    Grow(usize, usize),
    /// Which holder, the answer's tokens, tokens to register.
    Answer(usize, u64, usize),
    Close(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let segments = prop::collection::vec((0_u64..3, 0_u64..9), 1..4);
    prop_oneof![
        4 => (segments, 0_usize..6, 0_usize..24).prop_map(|(s, n, r)| Op::Open(s, n, r)),
        2 => (any::<usize>(), 0_usize..9).prop_map(|(h, n)| Op::Grow(h, n)),
        3 => (any::<usize>(), 0_u64..7, 0_usize..40).prop_map(|(h, n, r)| Op::Answer(h, n, r)),
        3 => any::<usize>().prop_map(Op::Close),
    ]
}

struct Live {
    key: u64,
    chain: Chain,
    room: usize,
    /// Its number among the holders.
    number: usize,
    model: ModelHolder,
}

/// The holders by number, numbers of closed ones used again, and what is known of a check before.
#[derive(Default)]
struct Kept {
    holders: Slots<Option<Holder>>,
    #[cfg(debug_assertions)]
    ledger: super::super::Ledger,
}

impl Kept {
    fn keep(&mut self, holder: Holder) -> usize {
        let free = self.holders.iter().position(Option::is_none);
        match free {
            Some(number) => self.holders[number] = Some(holder),
            None => self.holders.push(Some(holder)),
        }
        free.unwrap_or(self.holders.len() - 1)
    }

    fn get(&mut self, number: usize) -> &mut Holder {
        self.holders[number].as_mut().expect("kept")
    }
}

fn compare(pool: &mut Pool, model: &Model, live: &[Live], kept: &mut Kept) {
    #[cfg(debug_assertions)]
    {
        kept.ledger.check(pool, &mut kept.holders).expect("what changed");
        assert_eq!(kept.ledger.differs(pool, &kept.holders), None);
    }
    let holders: Vec<&Holder> = kept.holders.iter().flatten().collect();
    if let Err(violation) = invariant::check(pool, &holders) {
        panic!("{violation:?}");
    }
    let free: Vec<usize> = pool.free_links.iter(pool.free).map(|b| b as usize).collect();
    assert_eq!(free, Vec::from(model.free.clone()), "order of reuse");
    for l in live {
        let holder = kept.get(l.number);
        let blocks: Vec<usize> = holder.blocks.iter().map(|&b| b as usize).collect();
        assert_eq!(blocks, l.model.blocks);
        assert_eq!(holder.registered(), l.model.registered);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_pool_is_its_model(
        blocks in 1_usize..14,
        block in 1_usize..5,
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut pool = Pool::new(blocks as u64, block as u32, true).expect("pool");
        let mut model = Model::new(blocks, block);
        let mut live: Vec<Live> = Vec::new();
        let mut kept = Kept::default();
        let mut next = 100;
        for op in ops {
            match op {
                Op::Open(segments, more, registered) => {
                    let chain = Chain::new(segments.iter().map(|&(key, len)| Segment { key, len }));
                    let all = tokens(&chain);
                    let limit = all.len().saturating_sub(1);
                    let hit = pool.hit(&chain, limit as u64);
                    let expected = model.hit(&all, limit);
                    prop_assert_eq!(hit.tokens(), (expected.len() * block) as u64);
                    let room = all.len() + more;
                    let needed = model.needed(&expected, room);
                    prop_assert_eq!(pool.needed(&hit, room as u64), needed as u64);
                    match (pool.open(hit, room as u64), model.open(expected, room)) {
                        (Ok(mut holder), Some(mut held)) => {
                            pool.register(&mut holder, &chain, registered as u64);
                            model.register(&mut held, &all, registered);
                            let number = kept.keep(holder);
                            live.push(Live { key: next, chain, room, number, model: held });
                            next += 1;
                        }
                        (Err(_), None) => {}
                        (a, b) => prop_assert!(false, "{a:?} and {}", b.is_some()),
                    }
                }
                Op::Grow(which, by) if !live.is_empty() => {
                    let at = which % live.len();
                    let l = &mut live[at];
                    let room = l.room + by;
                    let grown = pool.grow(kept.get(l.number), room as u64).is_ok();
                    prop_assert_eq!(grown, model.grow(&mut l.model, room));
                    if grown {
                        l.room = room;
                    }
                }
                Op::Answer(which, by, registered) if !live.is_empty() => {
                    let at = which % live.len();
                    let l = &mut live[at];
                    l.chain.extend(l.key, by);
                    pool.register(kept.get(l.number), &l.chain, registered as u64);
                    model.register(&mut l.model, &tokens(&l.chain), registered);
                }
                Op::Close(which) if !live.is_empty() => {
                    let l = live.swap_remove(which % live.len());
                    pool.close(kept.holders[l.number].take().expect("kept"));
                    model.close(l.model);
                }
                _ => {}
            }
            compare(&mut pool, &model, &live, &mut kept);
        }
    }
}

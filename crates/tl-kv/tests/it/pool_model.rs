//! The pool against a model that keeps plain lists and recounts everything.

use proptest::prelude::*;
use tl_kv::{KvError, KvPool, block_hash, crc32c};

use crate::common::{B, cfg};

const BLOCKS: u32 = 6;

#[derive(Clone, Debug)]
enum Op {
    Alloc(usize),
    Retain(u32),
    Release(u32),
    Cow(u32),
    Writable(u32),
    SetFill(u32, u32),
    Write(u32, u16),
    Register(u32, usize),
    RegisterTokens(u32, usize),
    Attach(u32, usize),
    Lookup(usize),
    LookupTokens(usize),
    MatchPrefix(usize),
    Export(u32),
    Reimport(u32),
    ResetCache,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let id = 0..=BLOCKS;
    let name = 0..NAMES;
    let op = prop_oneof![
        4 => (0..4usize).prop_map(Op::Alloc),
        2 => id.clone().prop_map(Op::Retain),
        8 => id.clone().prop_map(Op::Release),
        2 => id.clone().prop_map(Op::Cow),
        2 => id.clone().prop_map(Op::Writable),
        2 => (id.clone(), 0..=5u32).prop_map(|(i, f)| Op::SetFill(i, f)),
        6 => id.clone().prop_map(|i| Op::SetFill(i, B as u32)),
        3 => (id.clone(), any::<u16>()).prop_map(|(i, v)| Op::Write(i, v)),
        5 => (id.clone(), 0..=NAMES).prop_map(|(i, n)| Op::Register(i, n)),
        5 => (id.clone(), name.clone()).prop_map(|(i, n)| Op::RegisterTokens(i, n)),
        3 => (id.clone(), name.clone()).prop_map(|(i, n)| Op::Attach(i, n)),
        3 => name.clone().prop_map(Op::Lookup),
        3 => name.clone().prop_map(Op::LookupTokens),
        2 => name.prop_map(Op::MatchPrefix),
        2 => id.clone().prop_map(Op::Export),
        2 => id.prop_map(Op::Reimport),
        1 => Just(Op::ResetCache),
    ];
    prop::collection::vec(op, 1..120)
}

/// Names are the blocks of one chain: block `i` holds tokens `[i; B]` after block `i - 1`.
const NAMES: usize = 4;

fn tokens(name: usize) -> [u32; B] {
    [name as u32; B]
}

fn hash(name: usize) -> u64 {
    let parent = if name == 0 { 0 } else { hash(name - 1) };
    block_hash(parent, &tokens(name))
}

fn parent(name: usize) -> u64 {
    if name == 0 { 0 } else { hash(name - 1) }
}

#[derive(Clone, Default, Debug)]
struct Block {
    refs: u32,
    fill: u32,
    hash: u64,
    proven: bool,
    /// Value of every element; `None` after an allocation, when it is whatever was there.
    value: Option<u16>,
}

#[derive(Default)]
struct Model {
    blocks: Vec<Block>,
    lru: Vec<u32>,
    evictions: u64,
}

impl Model {
    fn used(&self, id: u32) -> Option<&Block> {
        self.blocks.get(id as usize).filter(|b| b.refs > 0)
    }

    fn free(&self) -> usize {
        self.blocks.iter().filter(|b| b.refs == 0 && b.hash == 0).count()
    }

    fn holder(&self, hash: u64) -> Option<u32> {
        self.blocks.iter().position(|b| hash != 0 && b.hash == hash).map(|i| i as u32)
    }

    /// What an allocation of `n` must have done, given the ids it returned.
    fn alloc(&mut self, n: usize, got: &[u32]) {
        assert_eq!(got.len(), n);
        let evicted = n.saturating_sub(self.free());
        let oldest: Vec<u32> = self.lru.drain(..evicted).collect();
        self.evictions += evicted as u64;
        for &id in got {
            let block = &self.blocks[id as usize];
            assert!(block.refs == 0 && (block.hash == 0 || oldest.contains(&id)), "{id} not idle");
            self.blocks[id as usize] = Block { refs: 1, ..Block::default() };
        }
    }

    fn take(&mut self, id: u32) {
        self.lru.retain(|&other| other != id);
        self.blocks[id as usize].refs += 1;
    }

    fn release(&mut self, id: u32) {
        let block = &mut self.blocks[id as usize];
        block.refs -= 1;
        if block.refs == 0 {
            if block.hash == 0 {
                *block = Block::default();
            } else {
                self.lru.push(id);
            }
        }
    }

    fn drop_cached(&mut self, id: u32) {
        self.lru.retain(|&other| other != id);
        self.blocks[id as usize] = Block::default();
    }
}

fn step(pool: &mut KvPool, model: &mut Model, op: &Op) {
    let room = model.free() + model.lru.len();
    match *op {
        Op::Alloc(n) => match pool.alloc(n) {
            Ok(ids) => model.alloc(n, &ids),
            Err(e) => assert!(e.status == KvError::EFULL && n > room),
        },
        Op::Retain(id) => {
            assert_eq!(pool.retain(id).is_ok(), model.used(id).is_some());
            if model.used(id).is_some() {
                model.blocks[id as usize].refs += 1;
            }
        }
        Op::Release(id) => {
            assert_eq!(pool.release(id).is_ok(), model.used(id).is_some());
            if model.used(id).is_some() {
                model.release(id);
            }
        }
        Op::Cow(id) => copy(pool.cow(id), model, id, |b| b.refs == 1),
        Op::Writable(id) => copy(pool.writable(id), model, id, |b| b.refs == 1 && b.hash == 0),
        Op::SetFill(id, fill) => {
            let legal = fill <= B as u32 && model.used(id).is_some_and(|b| b.hash == 0);
            assert_eq!(pool.set_fill(id, fill).is_ok(), legal);
            if legal {
                model.blocks[id as usize].fill = fill;
            }
        }
        Op::Write(id, value) => {
            let legal = model.used(id).is_some_and(|b| b.refs == 1 && b.hash == 0);
            let slabs = pool.slabs();
            assert_eq!(slabs.write(id).map(|mut b| b.all_mut().fill(value)).is_ok(), legal);
            if legal {
                model.blocks[id as usize].value = Some(value);
            }
        }
        Op::Register(id, name) => {
            let hash = if name == NAMES { 0 } else { hash(name) };
            let got = pool.register(id, hash);
            match model.used(id) {
                Some(b) if hash != 0 && b.hash == hash => assert_eq!(got, Ok(true)),
                Some(b) if hash != 0 && b.hash == 0 && b.fill == B as u32 => {
                    let free_name = model.holder(hash).is_none();
                    assert_eq!(got, Ok(free_name));
                    if free_name {
                        model.blocks[id as usize].hash = hash;
                    }
                }
                _ => assert_eq!(got.unwrap_err().status, KvError::EINVAL),
            }
        }
        Op::RegisterTokens(id, name) => {
            let got = pool.register_tokens(id, parent(name), &tokens(name));
            if model.used(id).is_none() {
                assert!(got.is_err());
                return;
            }
            if let Some(other) = model.holder(hash(name)).filter(|&other| other != id) {
                let b = &model.blocks[other as usize];
                if b.refs == 0 && !b.proven {
                    model.drop_cached(other);
                }
            }
            let holder = model.holder(hash(name));
            let b = &mut model.blocks[id as usize];
            match (b.hash, holder) {
                (h, _) if h == hash(name) => assert_eq!(got, Ok(true)),
                (0, None) if b.fill == B as u32 => assert_eq!(got, Ok(true)),
                (0, Some(_)) if b.fill == B as u32 => assert_eq!(got, Ok(false)),
                _ => assert!(got.is_err()),
            }
            if got == Ok(true) {
                b.hash = hash(name);
                b.proven = true;
            }
        }
        Op::Attach(id, name) => {
            let legal = model.used(id).is_some_and(|b| b.hash == hash(name));
            assert_eq!(pool.attach_tokens(id, parent(name), &tokens(name)).is_ok(), legal);
            if legal {
                model.blocks[id as usize].proven = true;
            }
        }
        Op::Lookup(name) => {
            let holder = model.holder(hash(name));
            assert_eq!(pool.lookup(hash(name)), holder);
            holder.into_iter().for_each(|id| model.take(id));
        }
        Op::LookupTokens(name) => {
            let holder = model.holder(hash(name)).filter(|&id| model.blocks[id as usize].proven);
            assert_eq!(pool.lookup_tokens(parent(name), &tokens(name)), holder);
            holder.into_iter().for_each(|id| model.take(id));
        }
        Op::MatchPrefix(blocks) => {
            let mut prompt: Vec<u32> = (0..blocks).flat_map(tokens).collect();
            prompt.push(99);
            let want: Vec<u32> = (0..blocks)
                .map_while(|name| {
                    model.holder(hash(name)).filter(|&id| model.blocks[id as usize].proven)
                })
                .collect();
            assert_eq!(pool.match_prefix(&prompt), want);
            want.into_iter().for_each(|id| model.take(id));
        }
        Op::Export(id) => {
            let got = pool.export(&[id]);
            let Some(b) = model.used(id).filter(|b| b.fill > 0) else {
                assert_eq!(got.unwrap_err().status, KvError::EINVAL);
                return;
            };
            check_bytes(&got.unwrap(), b);
        }
        Op::Reimport(id) => {
            let Ok(bytes) = pool.export(&[id]) else {
                return;
            };
            let source = model.blocks[id as usize].clone();
            match pool.import(&bytes) {
                Ok(ids) => {
                    model.alloc(1, &ids);
                    let free_name = source.hash != 0 && model.holder(source.hash).is_none();
                    let b = &mut model.blocks[ids[0] as usize];
                    b.fill = source.fill;
                    b.value = source.value.filter(|_| source.fill == B as u32);
                    if free_name {
                        b.hash = source.hash;
                    }
                }
                Err(e) => assert!(e.status == KvError::EFULL && room == 0),
            }
        }
        Op::ResetCache => {
            assert_eq!(pool.reset_cache() as usize, model.lru.len());
            for id in std::mem::take(&mut model.lru) {
                model.blocks[id as usize] = Block::default();
            }
        }
    }
}

fn copy(got: Result<u32, KvError>, model: &mut Model, id: u32, same: impl Fn(&Block) -> bool) {
    let Some(block) = model.used(id).cloned() else {
        assert_eq!(got.unwrap_err().status, KvError::EINVAL);
        return;
    };
    match got {
        Ok(other) if same(&block) => assert_eq!(other, id),
        Ok(other) => {
            model.alloc(1, &[other]);
            let copy = &mut model.blocks[other as usize];
            (copy.fill, copy.value) = (block.fill, block.value);
            model.release(id);
        }
        Err(e) => {
            assert!(e.status == KvError::EFULL && !same(&block));
            assert_eq!(model.free() + model.lru.len(), 0);
        }
    }
}

fn check_bytes(bytes: &[u8], block: &Block) {
    assert_eq!(bytes.len(), 172);
    assert_eq!(bytes[28..36], block.hash.to_le_bytes());
    assert_eq!(bytes[36..40], block.fill.to_le_bytes());
    assert_eq!(bytes[168..], crc32c(&bytes[..168]).to_le_bytes());
    for head in bytes[40..168].chunks_exact(B * 4 * 2) {
        let (filled, rest) = head.split_at(block.fill as usize * 4 * 2);
        assert!(rest.iter().all(|&b| b == 0), "bytes past the fill");
        if let Some(value) = block.value {
            assert!(filled.chunks_exact(2).all(|x| x == value.to_le_bytes()));
        }
    }
}

fn compare(pool: &KvPool, model: &Model) {
    pool.check().unwrap();
    let stats = pool.stats();
    assert_eq!(stats.free as usize, model.free());
    assert_eq!(stats.cached as usize, model.lru.len());
    assert_eq!(stats.evictions, model.evictions);
    for (id, block) in (0..).zip(&model.blocks) {
        assert_eq!((pool.refs(id), pool.hash_of(id)), (block.refs, block.hash), "block {id}");
        if block.refs > 0 {
            assert_eq!(pool.fill(id), Ok(block.fill));
        }
        if let (true, Some(value)) = (block.refs > 0, block.value) {
            assert!(pool.slab(id, 1, true).unwrap().iter().all(|&x| x == value), "block {id}");
        }
    }
    for name in 0..NAMES {
        assert_eq!(pool.contains(hash(name)), model.holder(hash(name)).is_some());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_pool_does_what_the_model_does(ops in ops()) {
        let mut pool = KvPool::new(cfg(BLOCKS)).unwrap();
        let blocks = vec![Block::default(); BLOCKS as usize];
        let mut model = Model { blocks, ..Model::default() };
        for op in &ops {
            step(&mut pool, &mut model, op);
            compare(&pool, &model);
        }
        for id in 0..BLOCKS {
            while pool.refs(id) > 0 {
                pool.release(id).unwrap();
            }
        }
        pool.reset_cache();
        pool.check().unwrap();
        prop_assert_eq!(pool.stats().free, BLOCKS);
    }
}

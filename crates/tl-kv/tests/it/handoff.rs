//! The whole hand-off without a network: a prefill pool, a decode pool, the three state machines,
//! and everything that can go wrong between any two steps. Afterwards both pools must balance,
//! and what arrived must be what was sent.

use tl_kv::handoff::{
    BlockSend, ChunkHead, ClaimError, HandleCfg, HandleTable, PushAck, PushAssembly, PushLimits,
    SendAction, SendFact, SendPlan, SendStats, Ticket, receive,
};
use tl_kv::{Code, Held, KV_FORMAT_V1, SharedKv, crc32c, export_block, lock};

use crate::common::{B, counts, holds, pool, prefill};

const RECEIVE_MS: u64 = 50;
const INCARNATION: u64 = 77;

struct Decode {
    pool: SharedKv,
    table: HandleTable<Held>,
    now: u64,
    /// Blocks that somebody else has.
    hoard: Option<Held>,
}

impl Decode {
    fn new(n_blocks: u32) -> Self {
        let cfg = HandleCfg { lease_ms: 100, receive_ms: RECEIVE_MS, ..HandleCfg::default() };
        Self { pool: pool(n_blocks), table: HandleTable::new(cfg), now: 0, hoard: None }
    }

    fn has_blocks(&self, hashes: &[u64]) -> Vec<bool> {
        hashes.iter().map(|&hash| lock(&self.pool).contains(hash)).collect()
    }

    /// Takes one stream the way a server does: any error ends the attempt, and dropping the
    /// `Held` is the whole clean-up.
    fn push(&mut self, chunks: &[Chunk], fault: Fault) -> Result<PushAck, Code> {
        let n_blocks = lock(&self.pool).cfg().n_blocks;
        let limits = PushLimits { kv_format: KV_FORMAT_V1, max_blocks: n_blocks };
        let mut push = PushAssembly::new(limits);
        let mut held = Held::empty(&self.pool);
        let mut ticket = None;
        let taken = self.take(chunks, fault, &mut push, &mut held, &mut ticket);
        let result = match (taken, ticket) {
            (Ok(()), Some(ticket)) => match push.finish() {
                Ok(ack) => {
                    let landed = self.table.complete(ticket, held, self.now);
                    return landed.map(|()| ack).map_err(|refused| refused.error.code());
                }
                Err(error) => {
                    self.table.abort(ticket, self.now);
                    Err(error.code())
                }
            },
            (Ok(()), None) => Err(push.finish().map(drop).unwrap_err().code()),
            (Err(code), ticket) => {
                ticket.into_iter().for_each(|t| self.table.abort(t, self.now));
                Err(code)
            }
        };
        drop(held);
        self.check(&Held::empty(&self.pool));
        result
    }

    fn take(
        &mut self,
        chunks: &[Chunk],
        fault: Fault,
        push: &mut PushAssembly,
        held: &mut Held,
        ticket: &mut Option<Ticket>,
    ) -> Result<(), Code> {
        for (i, chunk) in chunks.iter().enumerate() {
            if fault.at == i {
                self.inject(fault.kind, chunk, held)?;
                self.check(held);
            }
            let action = push.chunk(&chunk.head()).map_err(|e| e.code())?;
            match ticket {
                Some(ticket) => self.table.touch(ticket, self.now).map_err(|e| e.code())?,
                None => {
                    let blocks = chunks.len() as u64;
                    let begun = self.table.begin(&chunk.handle, INCARNATION, blocks, self.now);
                    *ticket = Some(begun.map_err(|e| e.code())?);
                }
            }
            receive(action, &chunk.head(), &chunk.payload, held).map_err(|e| e.code())?;
            self.check(held);
        }
        match chunks.first() {
            Some(chunk) if fault.at == chunks.len() => self.inject(fault.kind, chunk, held),
            _ => Ok(()),
        }
    }

    /// The rules, after an event: every reference is the push's, a handle's, or somebody else's.
    fn check(&self, push: &Held) {
        let leased = self.table.values().map(|(_, held)| held.ids());
        let others = self.hoard.iter().map(Held::ids).chain([push.ids()]);
        let pool = lock(&self.pool);
        pool.check().unwrap();
        pool.check_owners(leased.chain(others)).unwrap();
        self.table.check_at(self.now).unwrap();
    }

    /// What the rest of the world does between two chunks.
    fn inject(&mut self, kind: Kind, chunk: &Chunk, held: &Held) -> Result<(), Code> {
        match kind {
            Kind::Nothing => {}
            Kind::PeerGone => return Err(Code::Cancelled),
            Kind::Released => {
                drop(self.table.release(&chunk.handle, self.now));
            }
            Kind::Stalled => {
                self.now += RECEIVE_MS;
                drop(self.table.expire(self.now));
            }
            Kind::Fenced => drop(self.table.fence(INCARNATION, self.now)),
            Kind::CacheReset => {
                lock(&self.pool).reset_cache();
            }
            Kind::NoRoom => {
                let free = lock(&self.pool).stats().free as usize;
                self.hoard = Some(Held::alloc(&self.pool, free).unwrap());
            }
            Kind::SecondPush => {
                let begun = self.table.begin(&chunk.handle, INCARNATION, 1, self.now);
                assert_eq!(begun.is_ok(), held.is_empty(), "an id that is in use");
                begun.into_iter().for_each(|t| self.table.abort(t, self.now));
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct Chunk {
    handle: String,
    hash: u64,
    index: u32,
    total: u32,
    format: u32,
    payload: Vec<u8>,
    crc: u32,
}

impl Chunk {
    fn head(&self) -> ChunkHead<'_> {
        ChunkHead {
            handle_id: &self.handle,
            block_hash: self.hash,
            block_index: self.index,
            n_blocks_total: self.total,
            kv_format: self.format,
            payload_len: self.payload.len(),
            crc32c: self.crc,
        }
    }
}

fn chunks(p: &SharedKv, held: &Held, handle: &str, blocks: &[BlockSend]) -> Vec<Chunk> {
    let total = blocks.len() as u32;
    (0..)
        .zip(blocks.iter().zip(held.ids()))
        .map(|(index, (block, &id))| {
            let payload =
                if block.has_payload() { export_block(p, id).unwrap() } else { Vec::new() };
            let crc = if payload.is_empty() { 0 } else { crc32c(&payload) };
            let handle = handle.to_owned();
            Chunk { handle, hash: block.hash(), index, total, format: 1, payload, crc }
        })
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Nothing,
    PeerGone,
    Released,
    Stalled,
    Fenced,
    CacheReset,
    NoRoom,
    SecondPush,
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    at: usize,
    kind: Kind,
}

const NO_FAULT: Fault = Fault { at: 0, kind: Kind::Nothing };

/// P's side: the plan, and the prompt's blocks until it ends. The fault meets the first stream.
fn transfer(
    d: &mut Decode,
    p: &SharedKv,
    tokens: &[u32],
    handle: &str,
    fault: Fault,
) -> Result<SendStats, Code> {
    let (held, hashes) = prefill(p, tokens);
    let mut plan = SendPlan::new(handle, held.len(), hashes);
    let mut action = plan.start();
    let mut fault = fault;
    loop {
        let fact = match &action {
            SendAction::Ask => SendFact::Present(d.has_blocks(plan.hashes())),
            SendAction::Push(blocks) => {
                let stream = chunks(p, &held, handle, blocks);
                match d.push(&stream, std::mem::replace(&mut fault, NO_FAULT)) {
                    Ok(PushAck { handle_id, blocks_received, blocks_deduped }) => SendFact::Acked {
                        handle_id,
                        received: blocks_received,
                        deduped: blocks_deduped,
                    },
                    Err(code) => SendFact::PushFailed(code),
                }
            }
            SendAction::Done(stats) => return Ok(*stats),
            SendAction::Fail { code, .. } => return Err(*code),
            SendAction::Nothing => panic!("a fact after the end"),
        };
        action = plan.step(&fact);
    }
}

fn prompt(first: u32, n: u32) -> Vec<u32> {
    (first..first + n).collect()
}

#[test]
fn bytes_moved_are_missing_blocks_and_the_tail() {
    let p = pool(32);
    let mut d = Decode::new(32);
    #[track_caller]
    fn check(d: &mut Decode, p: &SharedKv, tokens: &[u32], sent: u32, deduped: u32) {
        let handle = format!("h{}", d.table.counters().created);
        let stats = transfer(d, p, tokens, &handle, NO_FAULT).unwrap();
        assert_eq!((stats.sent, stats.deduped), (sent, deduped));
        assert_eq!(stats.chunks as usize, tokens.len().div_ceil(B));
        let blocks = d.table.claim(&handle, d.now).unwrap();
        assert!(holds(&d.pool, blocks.ids(), tokens));
        drop(blocks);
        assert_eq!((counts(&d.pool).1, counts(p).1), (0, 0));
    }
    let seeded: Vec<u32> = (100..112).chain([7, 8]).collect();
    check(&mut d, &p, &seeded, 4, 0);
    check(&mut d, &p, &prompt(100, 17), 2, 3);
    check(&mut d, &p, &prompt(100, 13), 1, 3);
    check(&mut d, &p, &prompt(100, 8), 0, 2);
    check(&mut d, &p, &prompt(10, 9), 3, 0);
}

/// Every fault before every chunk of a push, with and without cached blocks on D.
#[test]
fn every_fault_at_every_step_leaves_both_pools_balanced() {
    let kinds = [
        Kind::PeerGone,
        Kind::Released,
        Kind::Stalled,
        Kind::Fenced,
        Kind::CacheReset,
        Kind::NoRoom,
        Kind::SecondPush,
    ];
    for kind in kinds {
        for warm in [0, 2, 4] {
            for at in 0..=5 {
                one_fault(Fault { at, kind }, warm);
            }
        }
    }
}

fn one_fault(fault: Fault, warm_blocks: u32) {
    let what = format!("{fault:?}, {warm_blocks} blocks cached");
    let p = pool(16);
    let mut d = Decode::new(16);
    let tokens = prompt(10, 17);
    if warm_blocks > 0 {
        transfer(&mut d, &p, &prompt(10, warm_blocks * 4), "warm", NO_FAULT).unwrap();
        drop(d.table.claim("warm", 0).unwrap());
    }
    let got = transfer(&mut d, &p, &tokens, "h", fault);
    assert_eq!(counts(&p).1, 0, "{what}: P holds nothing after the answer");
    d.hoard = None;
    let want = expected(fault, warm_blocks);
    match (got, want) {
        (Ok(stats), Ok(pushes)) => {
            assert_eq!(stats.pushes, pushes, "{what}");
            let blocks = d.table.claim("h", d.now).unwrap();
            assert!(holds(&d.pool, blocks.ids(), &tokens), "{what}");
            assert_eq!(lock(&d.pool).attach_prompt(blocks.ids(), &tokens), Ok(4), "{what}");
        }
        (Err(got), Err(want)) => {
            assert_eq!(got, want, "{what}");
            assert!(d.table.claim("h", d.now).is_err(), "{what}");
        }
        (got, want) => panic!("{what}: got {got:?}, expected {want:?}"),
    }
    d.table.check().unwrap();
    assert_eq!(d.table.live(), 0, "{what}");
    assert_eq!(counts(&d.pool).1, 0, "{what}: D holds nothing");
    let retry = transfer(&mut d, &pool(16), &tokens[..9], "after", NO_FAULT);
    match fault.kind {
        Kind::Fenced => assert_eq!(retry, Err(Code::Aborted), "{what}"),
        _ => assert!(retry.is_ok(), "{what}: the next push works"),
    }
}

/// Number of streams of a push that succeeds, or the code P reports.
fn expected(fault: Fault, warm: u32) -> Result<u32, Code> {
    let (at, last) = (fault.at as u32, 5);
    match fault.kind {
        Kind::Nothing => Ok(1),
        Kind::PeerGone => Err(Code::Unavailable),
        Kind::Released | Kind::Fenced => Err(Code::Aborted),
        Kind::Stalled if at == 0 => Ok(1),
        Kind::Stalled => Err(Code::Aborted),
        // Blocks are safe once the push holds them.
        Kind::CacheReset => Ok(if at < warm { 2 } else { 1 }),
        // What is cached and not yet taken can still be evicted for this push.
        Kind::NoRoom if at >= last => Ok(1),
        Kind::NoRoom => Err(Code::ResourceExhausted),
        Kind::SecondPush => Ok(1),
    }
}

/// What a damaged or wrong stream gets, and that it changes nothing.
#[test]
fn a_refused_push_leaves_everything_as_it_was() {
    let p = pool(32);
    let mut d = Decode::new(32);
    let tokens = prompt(10, 9);
    transfer(&mut d, &p, &tokens, "h1", NO_FAULT).unwrap();
    let before = (counts(&d.pool), d.table.live());
    let other = pool(8);
    let (held, hashes) = prefill(&other, &tokens);
    let send = [BlockSend::Send { hash: hashes[0] }, BlockSend::Send { hash: hashes[1] }];
    let good = chunks(&other, &held, "h2", &[send[0], send[1], BlockSend::Tail]);
    let mut check = |damage: &dyn Fn(&mut Vec<Chunk>), want: Code| {
        let mut stream = good.clone();
        damage(&mut stream);
        assert_eq!(d.push(&stream, NO_FAULT), Err(want));
        assert_eq!((counts(&d.pool), d.table.live()), before);
    };
    check(&|s| s[2].payload[40] ^= 1, Code::DataLoss);
    check(&|s| s[2].crc ^= 1, Code::DataLoss);
    check(&|s| s[1].format = 2, Code::FailedPrecondition);
    check(
        &|s| {
            s[1].payload.clear();
            (s[1].hash, s[1].crc) = (0xDEAD, 0);
        },
        Code::NotFound,
    );
    check(&|s| s.truncate(2), Code::InvalidArgument);
    check(&|s| s.clear(), Code::InvalidArgument);
    check(&|s| s.swap(0, 1), Code::InvalidArgument);
    check(&|s| s[0].handle = "h1".into(), Code::AlreadyExists);
    check(&|s| s.push(s[2].clone()), Code::InvalidArgument);
    check(&|s| s[1].hash = hashes[0], Code::DataLoss);
    drop(check);
    assert!(d.push(&good, NO_FAULT).is_ok());
    assert!(d.table.claim("h1", 0).is_ok());
    assert_eq!(d.table.claim("h0", 0).unwrap_err(), ClaimError::Unknown);
}

/// Nobody ever claims: the lease gives every block back, by the caller's clock alone.
#[test]
fn an_unclaimed_handle_ends_with_its_lease() {
    let p = pool(16);
    let mut d = Decode::new(16);
    transfer(&mut d, &p, &prompt(0, 9), "lost", NO_FAULT).unwrap();
    assert_eq!(counts(&d.pool).1, 3);
    let deadline = d.table.next_deadline().unwrap();
    assert!(d.table.expire(deadline - 1).is_empty());
    drop(d.table.expire(deadline));
    assert_eq!(counts(&d.pool), (14, 0, 2));
    assert_eq!(d.table.next_deadline(), None);
}

/// A thousand transfers through a pool that holds two prompts.
#[test]
fn a_small_pool_serves_for_ever() {
    let p = pool(8);
    let mut d = Decode::new(8);
    for round in 0..1000 {
        let tokens = prompt(round * 3, 13);
        let handle = format!("r{round}");
        transfer(&mut d, &p, &tokens, &handle, NO_FAULT).unwrap();
        let blocks = d.table.claim(&handle, 0).unwrap();
        assert!(holds(&d.pool, blocks.ids(), &tokens));
    }
    assert_eq!((counts(&d.pool).1, counts(&p).1), (0, 0));
}

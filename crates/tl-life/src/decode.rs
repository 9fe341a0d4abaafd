//! The decode engine: its real pool, its real handle table and its real receiving machine.
//!
//! Modelled are the connections around them, the timer, and a run of one token, which reads every
//! position it stands on.

use std::hash::{Hash, Hasher};

use tl_kv::handoff::{ClaimError, Claimed, HandleCfg, HandleTable, Incoming, PushLimits};
use tl_kv::{
    CRC32C_RESIDUE, Held, KV_FORMAT_V1, SharedKv, crc32c, fork, lock, prompt_hashes, shared,
};

use crate::check::{ACKED_IS_PROVED, Broken, FENCED_IS_OUT, LATE_ADOPTS_NOTHING, RIGHT_BLOCKS};
use crate::content::{B, BLOCKS, block_of, first_token, next_token, pool_cfg, prompt};
use crate::message::{Chunk, Item, Message, name, number};
use crate::prefill::compute;
use crate::setting::{Defect, Setting};
use crate::view::View;
use crate::world::Effects;

/// One tick is half a minute: a lease, the patience with a push, and half of what an end is
/// remembered.
const TABLE: HandleCfg = HandleCfg {
    lease_ms: 1,
    receive_ms: 1,
    tombstone_ms: 2,
    max_handles: 8,
    max_handles_per_peer: 8,
    max_blocks: 64,
    max_handle_len: 8,
    max_tombstones: 64,
};

/// A decode engine in one of its lives.
#[derive(Debug)]
pub struct Decode {
    pub incarnation: u64,
    pub pool: SharedKv,
    pub table: HandleTable<Claimed>,
    pub now: u64,
    pub sessions: Vec<Session>,
    pub runs: Vec<Run>,
    /// Handles that ended, and until when that is remembered: the checker's own books.
    ended: Vec<(u8, u64)>,
    /// Lives of the prefill engine that were declared dead: the checker's own books.
    fenced: Vec<u64>,
}

/// A push under way.
#[derive(Debug)]
pub struct Session {
    pub push: u8,
    pub incoming: Incoming,
    incarnation: u64,
}

/// A request being decoded.
#[derive(Debug)]
pub struct Run {
    pub id: u8,
    pub call: u8,
    pub request: u8,
    /// From the prompt on: the first token is this engine's too.
    whole: bool,
    held: Held,
}

impl Decode {
    pub(crate) fn new(setting: &Setting, incarnation: u64) -> Self {
        let pool = shared(pool_cfg(setting.d_blocks)).expect("a pool of a few bytes");
        let tombstone_ms =
            if matches!(setting.defect, Defect::NoTombstone | Defect::ReleaseBeforeAnswer) {
                0
            } else {
                TABLE.tombstone_ms
            };
        Self {
            incarnation,
            pool,
            table: HandleTable::new(HandleCfg { tombstone_ms, ..TABLE }),
            now: 0,
            sessions: Vec::new(),
            runs: Vec::new(),
            ended: Vec::new(),
            fenced: Vec::new(),
        }
    }

    pub(crate) fn fork(&self) -> Self {
        let pool = fork::pool(&self.pool);
        let session = |s: &Session| Session { incoming: s.incoming.fork(&pool), ..*s };
        let run = |r: &Run| Run { held: r.held.fork(&pool), ..*r };
        Self {
            incarnation: self.incarnation,
            table: self.table.fork(|claimed| claimed.fork(&pool)),
            now: self.now,
            sessions: self.sessions.iter().map(session).collect(),
            runs: self.runs.iter().map(run).collect(),
            ended: self.ended.clone(),
            fenced: self.fenced.clone(),
            pool,
        }
    }

    pub(crate) fn state(&self, view: &View, out: &mut impl Hasher) {
        self.incarnation.hash(out);
        let names = {
            let pool = lock(&self.pool);
            let names = pool.names(self.owners());
            pool.state(&names, out);
            names
        };
        let comes = |handle: &str| view.comes(number(handle));
        self.table.state(self.now, out, comes, |claimed, out| claimed.state(&names, out));
        self.sessions.len().hash(out);
        for session in &self.sessions {
            view.push(session.push).hash(out);
            session.incoming.state(&names, |ticket| self.table.rank(ticket), out);
        }
        for run in &self.runs {
            (view.run(run.id), run.call, run.request, run.whole).hash(out);
            names.state(run.held.ids(), out);
        }
        for (handle, until) in self.ended.iter().filter(|(handle, _)| view.comes(*handle)) {
            (handle, until.saturating_sub(self.now)).hash(out);
        }
        self.fenced.hash(out);
    }

    /// What holds blocks here, leased or used.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &[u32]> {
        let sessions = self.sessions.iter().map(|s| s.incoming.held().ids());
        let leased = self.table.values().map(|(_, claimed)| claimed.held.ids());
        sessions.chain(leased).chain(self.runs.iter().map(|r| r.held.ids()))
    }

    pub(crate) fn has(&self, hashes: &[u64]) -> Vec<bool> {
        let pool = lock(&self.pool);
        hashes.iter().map(|&hash| hash != 0 && pool.contains(hash)).collect()
    }

    /// The checker notes that a handle ended.
    fn note_end(&mut self, handle: u8) {
        self.ended.retain(|(h, until)| *h != handle && *until > self.now);
        self.ended.push((handle, self.now + TABLE.tombstone_ms));
        self.ended.sort_unstable();
    }

    /// A chunk arrives.
    pub(crate) fn chunk(
        &mut self,
        push: u8,
        index: u8,
        chunk: &Chunk,
        fx: &mut Effects<'_>,
    ) -> Result<(), Broken> {
        let believed = believing(chunk);
        let chunk = if fx.setting.defect == Defect::NoChecksum { &believed } else { chunk };
        let position = self.sessions.iter().position(|s| s.push == push);
        let i = position.unwrap_or_else(|| {
            let n_blocks = lock(&self.pool).cfg().n_blocks;
            let limits = PushLimits { kv_format: KV_FORMAT_V1, max_blocks: n_blocks };
            let incoming = Incoming::new(&self.pool, limits, chunk.incarnation);
            self.sessions.push(Session { push, incoming, incarnation: chunk.incarnation });
            self.sessions.len() - 1
        });
        let early =
            fx.setting.defect == Defect::AckBeforeLanding && u32::from(index) + 1 == chunk.total;
        if early {
            self.acknowledge(push, chunk.handle, (chunk.total, 0), fx)?;
        }
        let head = chunk.head(index);
        let (incoming, table, now) = (&mut self.sessions[i].incoming, &mut self.table, self.now);
        let taken = incoming.judge(&head).map_err(|e| e.code()).and_then(|action| {
            incoming.admit(&head, table, now).map_err(|e| e.code())?;
            incoming.take(action, &head, &chunk.payload).map_err(|e| e.code())
        });
        if let Err(code) = taken {
            fx.note(|| format!("D refuses it: {}", code.name()));
            fx.send(Message::PushAnswer { push, answer: Err(code as i32) });
            self.drop_session(push, fx.setting.defect == Defect::LeakOnRefusal);
            return Ok(());
        }
        if self.ended.iter().any(|(h, until)| *h == chunk.handle && *until > now) {
            return Err(Broken::new(
                LATE_ADOPTS_NOTHING,
                format!("D takes block {index} of {}, which has ended", name(chunk.handle)),
            ));
        }
        if self.fenced.contains(&self.sessions[i].incarnation)
            || (chunk.incarnation == 0 && !self.fenced.is_empty())
        {
            return Err(Broken::new(
                FENCED_IS_OUT,
                format!(
                    "D takes block {index} of {} from a life that was fenced",
                    name(chunk.handle)
                ),
            ));
        }
        Ok(())
    }

    /// The sender has closed its side.
    pub(crate) fn close(&mut self, push: u8, fx: &mut Effects<'_>) -> Result<(), Broken> {
        let Some(i) = self.sessions.iter().position(|s| s.push == push) else {
            return Ok(());
        };
        let mut session = self.sessions.remove(i);
        let landed = match session.incoming.whole() {
            Err(error) => Err(error.code()),
            Ok(landing) => session
                .incoming
                .land(landing, &mut self.table, self.now)
                .map_err(|refused| refused.error.code()),
        };
        match landed {
            Ok(ack) => {
                let counts = (ack.blocks_received, ack.blocks_deduped);
                fx.note(|| format!("{} waits on D for its claim", ack.handle_id));
                if fx.setting.defect != Defect::AckBeforeLanding {
                    self.acknowledge(push, number(&ack.handle_id), counts, fx)?;
                }
                if fx.setting.defect == Defect::DoubleFree {
                    let ids = self.table.values().last().map(|(_, c)| c.held.ids().to_vec());
                    for id in ids.unwrap_or_default() {
                        let _ = lock(&self.pool).release(id);
                    }
                }
                Ok(())
            }
            Err(code) => {
                fx.note(|| format!("D refuses it: {}", code.name()));
                fx.send(Message::PushAnswer { push, answer: Err(code as i32) });
                session.incoming.abort(&mut self.table, self.now);
                Ok(())
            }
        }
    }

    fn acknowledge(
        &self,
        push: u8,
        handle: u8,
        counts: (u32, u32),
        fx: &mut Effects<'_>,
    ) -> Result<(), Broken> {
        fx.send(Message::PushAnswer { push, answer: Ok(counts) });
        let request = fx.request_of(handle);
        let landed = self.table.values().find(|(h, _)| *h == name(handle));
        let right = landed.is_some_and(|(_, claimed)| self.reads(&claimed.held, request).is_ok());
        if right {
            return Ok(());
        }
        let what = if landed.is_some() { "other bytes than were sent" } else { "nothing" };
        Err(Broken::new(
            ACKED_IS_PROVED,
            format!("push {push} is acknowledged, and D holds {what} for {}", name(handle)),
        ))
    }

    /// Reads a request's prompt from blocks, as a forward pass does.
    fn reads(&self, held: &Held, request: u8) -> Result<Vec<Vec<u16>>, String> {
        let slabs = lock(&self.pool).slabs();
        let positions = prompt(request).len();
        let mut read = Vec::new();
        for index in 0..BLOCKS {
            let id = *held.ids().get(index).ok_or("a block is missing")?;
            let block = slabs.read(id).map_err(|e| e.to_string())?;
            let filled = B.min(positions - index * B);
            let all = block.all();
            let values: Vec<u16> =
                all[..filled].iter().chain(&all[B..B + filled]).copied().collect();
            if values != block_of(request, index) {
                return Err(format!(
                    "block {id} holds other bytes than block {index} of request {request}"
                ));
            }
            read.push(values);
        }
        Ok(read)
    }

    /// Drops a push under way: its stream broke, or its handle ended.
    pub(crate) fn drop_session(&mut self, push: u8, leak: bool) {
        if let Some(i) = self.sessions.iter().position(|s| s.push == push) {
            let mut session = self.sessions.remove(i);
            session.incoming.abort(&mut self.table, self.now);
            if leak {
                std::mem::forget(session);
            }
        }
    }

    /// `Release`.
    pub(crate) fn release(&mut self, handle: u8) {
        drop(self.table.release(name(handle), self.now));
        self.note_end(handle);
    }

    /// A request resumes from a handle.
    pub(crate) fn resume(&mut self, handle: u8, request: u8, fx: &mut Effects<'_>) {
        let run = fx.fresh_run();
        let claimed = self.claim(handle, fx.setting.defect);
        let held =
            claimed.map_err(|e| e.to_string()).and_then(|claimed| self.adopt(claimed, request));
        match held {
            Ok(held) => {
                fx.note(|| format!("D takes blocks {:?} over from {}", held.ids(), name(handle)));
                self.runs.push(Run { id: run, call: handle, request, whole: false, held });
                fx.send(Message::Stream { call: handle, run, seq: 0, item: Item::Accepted });
            }
            Err(error) => {
                fx.note(|| format!("D refuses it: {error}"));
                fx.send(Message::Stream { call: handle, run, seq: 0, item: Item::NoHandle });
            }
        }
    }

    fn claim(&mut self, handle: u8, defect: Defect) -> Result<Claimed, ClaimError> {
        let ready = || self.table.values();
        let wanted = match defect {
            Defect::ClaimAny => {
                let any = ready().next().map(|(h, _)| h.to_owned());
                any.unwrap_or_else(|| name(handle).to_owned())
            }
            _ => name(handle).to_owned(),
        };
        if defect == Defect::ClaimCopies {
            let found = ready().find(|(h, _)| *h == wanted);
            return found.map(|(_, c)| c.fork(&self.pool)).ok_or(ClaimError::Unknown);
        }
        let claimed = self.table.claim(&wanted, self.now)?;
        self.note_end(number(&wanted));
        Ok(claimed)
    }

    /// Checks that a handle's blocks are the prompt's, and makes its last block writable.
    fn adopt(&self, claimed: Claimed, request: u8) -> Result<Held, String> {
        let prompt = prompt(request);
        let Claimed { mut held, block_hashes, n_tokens, incarnation: _ } = claimed;
        if n_tokens != prompt.len() {
            return Err("another prompt's length".to_owned());
        }
        let own = prompt_hashes(&prompt, B);
        if block_hashes.iter().zip(&own).any(|(given, own)| *given != 0 && given != own) {
            return Err("another prompt's names".to_owned());
        }
        let mut books = lock(&self.pool);
        let known = books.attach_prompt(held.ids(), &prompt).map(drop);
        let known = known.and_then(|()| books.writable(held.ids()[prompt.len() / B]));
        match known {
            Ok(tail) => {
                held.replace(prompt.len() / B, tail);
                drop(books);
                Ok(held)
            }
            Err(error) => {
                held.release_into(&mut books);
                Err(error.to_string())
            }
        }
    }

    /// A request is served whole.
    pub(crate) fn whole(&mut self, call: u8, request: u8, fx: &mut Effects<'_>) {
        let run = fx.fresh_run();
        match compute(&self.pool, request) {
            Some(held) => {
                self.runs.push(Run { id: run, call, request, whole: true, held });
                fx.send(Message::Stream { call, run, seq: 0, item: Item::Accepted });
            }
            None => fx.send(Message::Stream { call, run, seq: 0, item: Item::Full }),
        }
    }

    /// A run reads its prompt, samples what is left of the answer, and ends.
    pub(crate) fn step(&mut self, run: u8, fx: &mut Effects<'_>) -> Result<(), Broken> {
        let Some(i) = self.runs.iter().position(|r| r.id == run) else { return Ok(()) };
        let Run { id: _, call, request, whole, held } = self.runs.remove(i);
        let read = match self.reads(&held, request) {
            Ok(read) => read,
            Err(why) => {
                return Err(Broken::new(RIGHT_BLOCKS, format!("{}: {why}", name(call))));
            }
        };
        let first = first_token(request);
        let tokens = whole.then_some(first).into_iter().chain([next_token(first, &read)]);
        let items = tokens.map(Item::Token).chain([Item::End]);
        for (seq, item) in (1..).zip(items) {
            fx.send(Message::Stream { call, run, seq, item });
        }
        Ok(())
    }

    /// A run whose caller is gone.
    pub(crate) fn drop_run(&mut self, run: u8) {
        self.runs.retain(|r| r.id != run);
    }

    /// Half a minute passes, and the timer ends what is over, unless it is late.
    pub(crate) fn tick(&mut self, fx: &mut Effects<'_>) {
        self.now += 1;
        self.ended.retain(|(_, until)| *until > self.now);
        if !fx.setting.late && fx.setting.defect != Defect::LeaseWithoutTimer {
            self.timer(fx);
        }
    }

    /// The timer ends what is over.
    pub(crate) fn timer(&mut self, fx: &mut Effects<'_>) {
        for (handle, claimed) in self.table.expire(self.now) {
            let what = if claimed.is_some() { "unclaimed" } else { "unfinished" };
            fx.note(|| format!("{handle} expires {what}"));
            drop(claimed);
            self.note_end(number(&handle));
        }
    }

    /// The engine is told that a life of the prefill engine is over.
    pub(crate) fn fence(&mut self, incarnation: u64) {
        for (handle, claimed) in self.table.fence(incarnation, self.now) {
            drop(claimed);
            self.note_end(number(&handle));
        }
        self.fenced.push(incarnation);
    }

    /// Whether a life was declared dead.
    pub(crate) fn has_fenced(&self, incarnation: u64) -> bool {
        self.fenced.contains(&incarnation)
    }
}

/// The chunk with the checksums that its bytes have.
fn believing(chunk: &Chunk) -> Chunk {
    let mut chunk = chunk.clone();
    let body = chunk.payload.len().saturating_sub(4);
    if body > 0 {
        let crc = crc32c(&chunk.payload[..body]).to_le_bytes();
        chunk.payload[body..].copy_from_slice(&crc);
        chunk.crc32c = CRC32C_RESIDUE;
    }
    chunk
}

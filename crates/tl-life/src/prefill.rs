//! The prefill engine: its real pool, its real sending machine, and what stands around them.
//!
//! Modelled are the calls (`tl_serve::control`): a job is one `Prefill`, and dropping it is what
//! dropping that call's future is. It fences what it had lent to the connection, gives its blocks
//! back, and undoes a push whose answer it has not heard.

use std::hash::{Hash, Hasher};
use std::rc::Rc;

use tl_kv::fork::Names;
use tl_kv::handoff::{Lent, SendAction, SendFact, SendPlan};
use tl_kv::invariants::Invariant;
use tl_kv::{CRC32C_RESIDUE, Code, Held, SharedKv, fork, lock, prompt_hashes, shared};

use crate::check::Broken;
use crate::content::{B, kv_of, pool_cfg, prompt};
use crate::message::{Chunk, Message, Verdict, name};
use crate::setting::{Defect, Setting};
use crate::view::View;
use crate::world::Effects;

/// A prefill engine in one of its lives.
#[derive(Debug)]
pub struct Prefill {
    /// Which life it is.
    pub incarnation: u64,
    pub pool: SharedKv,
    pub jobs: Vec<Job>,
    /// Connections that may still read what a call had lent them. Only a defect makes one.
    pub zombies: Vec<Stream>,
}

/// One `Prefill` call.
#[derive(Debug)]
pub struct Job {
    pub id: u8,
    pub handle: u8,
    pub request: u8,
    pub stage: Stage,
}

/// How far a call is.
#[derive(Debug)]
pub enum Stage {
    /// Waits for room.
    Queued,
    /// The decode engine is asked what it has.
    Asking { held: Held, plan: SendPlan },
    /// The blocks are on their way.
    Pushing { held: Held, plan: SendPlan, stream: Stream },
}

/// What a connection sends from.
#[derive(Debug)]
pub struct Stream {
    pub push: u8,
    pub handle: u8,
    pub next: usize,
    pub lent: Lent,
}

impl Stream {
    fn fork(&self, onto: &SharedKv) -> Stream {
        Stream { lent: self.lent.fork(onto), ..*self }
    }

    fn state(&self, view: &View, names: &Names, out: &mut impl Hasher) {
        (view.push(self.push), self.handle, self.next).hash(out);
        self.lent.state(names, out);
    }
}

/// Whether a prompt's blocks find room now.
pub(crate) fn has_room(pool: &SharedKv, request: u8) -> bool {
    let mut copy = lock(pool).fork();
    let prompt = prompt(request);
    let hits = copy.match_prefix(&prompt).len();
    copy.alloc(prompt.len().div_ceil(B) - hits).is_ok()
}

/// A prompt's blocks, computed into a pool or found there; `None` without room.
pub(crate) fn compute(pool: &SharedKv, request: u8) -> Option<Held> {
    let prompt = prompt(request);
    let mut held = {
        let hits = lock(pool).match_prefix(&prompt);
        Held::adopt(pool, hits)
    };
    let hits = held.len();
    held.append(Held::alloc(pool, prompt.len().div_ceil(B) - hits).ok()?);
    let slabs = lock(pool).slabs();
    for (index, tokens) in prompt.chunks(B).enumerate().skip(hits) {
        let id = held.ids()[index];
        {
            let mut block = slabs.write(id).ok()?;
            let all = block.all_mut();
            for slot in 0..tokens.len() {
                let (k, v) = kv_of(&prompt[..=index * B + slot]);
                (all[slot], all[B + slot]) = (k, v);
            }
        }
        let mut books = lock(pool);
        books.set_fill(id, tokens.len() as u32).ok()?;
        if tokens.len() == B {
            let parent = if index == 0 { 0 } else { prompt_hashes(&prompt, B)[index - 1] };
            books.register_tokens(id, parent, tokens).ok()?;
        }
    }
    Some(held)
}

impl Prefill {
    pub(crate) fn new(setting: &Setting, incarnation: u64) -> Self {
        let pool = shared(pool_cfg(setting.p_blocks)).expect("a pool of a few bytes");
        Self { incarnation, pool, jobs: Vec::new(), zombies: Vec::new() }
    }

    pub(crate) fn fork(&self) -> Self {
        let pool = fork::pool(&self.pool);
        let stage = |stage: &Stage| match stage {
            Stage::Queued => Stage::Queued,
            Stage::Asking { held, plan } => {
                Stage::Asking { held: held.fork(&pool), plan: plan.clone() }
            }
            Stage::Pushing { held, plan, stream } => Stage::Pushing {
                held: held.fork(&pool),
                plan: plan.clone(),
                stream: stream.fork(&pool),
            },
        };
        let jobs = self.jobs.iter().map(|job| Job { stage: stage(&job.stage), ..*job });
        Self {
            incarnation: self.incarnation,
            jobs: jobs.collect(),
            zombies: self.zombies.iter().map(|z| z.fork(&pool)).collect(),
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
        self.jobs.len().hash(out);
        for job in &self.jobs {
            (view.job(job.id), job.handle, job.request).hash(out);
            match &job.stage {
                Stage::Queued => 0u8.hash(out),
                Stage::Asking { held, plan } => {
                    (1u8, plan).hash(out);
                    names.state(held.ids(), out);
                }
                Stage::Pushing { held, plan, stream } => {
                    (2u8, plan).hash(out);
                    names.state(held.ids(), out);
                    stream.state(view, &names, out);
                }
            }
        }
        for zombie in &self.zombies {
            zombie.state(view, &names, out);
        }
    }

    /// What holds blocks here.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &[u32]> {
        self.jobs.iter().filter_map(|job| match &job.stage {
            Stage::Queued => None,
            Stage::Asking { held, .. } | Stage::Pushing { held, .. } => Some(held.ids()),
        })
    }

    fn index_of(&self, job: u8) -> Option<usize> {
        self.jobs.iter().position(|j| j.id == job)
    }

    /// Computes the prompt, samples the first token, and begins the transfer.
    pub(crate) fn compute(&mut self, job: u8, fx: &mut Effects<'_>) {
        let Some(i) = self.index_of(job) else { return };
        let (request, handle) = (self.jobs[i].request, self.jobs[i].handle);
        let Some(held) = compute(&self.pool, request) else { return };
        fx.note(|| format!("P computes request {request} in blocks {:?}", held.ids()));
        let mut plan = SendPlan::new(name(handle), held.len(), prompt_hashes(&prompt(request), B));
        let action = plan.start();
        self.jobs[i].stage = Stage::Asking { held, plan };
        self.act(job, action, fx);
    }

    /// Something came of what the sending machine had asked for.
    pub(crate) fn fact(&mut self, job: u8, fact: &SendFact, fx: &mut Effects<'_>) {
        let Some(i) = self.index_of(job) else { return };
        let action = match &mut self.jobs[i].stage {
            Stage::Queued => return,
            Stage::Asking { plan, .. } | Stage::Pushing { plan, .. } => plan.step(fact),
        };
        self.act(job, action, fx);
    }

    /// The job that a push belongs to.
    pub(crate) fn job_of(&self, push: u8) -> Option<u8> {
        let is =
            |job: &&Job| matches!(&job.stage, Stage::Pushing { stream, .. } if stream.push == push);
        self.jobs.iter().find(is).map(|job| job.id)
    }

    /// Whether somebody still sends this push.
    pub(crate) fn sends(&self, push: u8) -> bool {
        self.job_of(push).is_some() || self.zombies.iter().any(|z| z.push == push)
    }

    fn act(&mut self, job: u8, action: SendAction, fx: &mut Effects<'_>) {
        let Some(i) = self.index_of(job) else { return };
        let handle = self.jobs[i].handle;
        match action {
            SendAction::Ask => {
                if let Stage::Asking { plan, .. } = &self.jobs[i].stage {
                    fx.send(Message::Has { job, hashes: plan.hashes().to_vec() });
                }
            }
            SendAction::Push(blocks) => {
                let (mut held, plan) =
                    match std::mem::replace(&mut self.jobs[i].stage, Stage::Queued) {
                        Stage::Asking { held, plan } => (held, plan),
                        Stage::Pushing { held, plan, mut stream } => {
                            stream.lent.fence();
                            (held, plan)
                        }
                        Stage::Queued => return,
                    };
                let lent = match Lent::new(&held, &blocks) {
                    Ok(lent) => lent,
                    Err(error) => {
                        self.jobs[i].stage = Stage::Asking { held, plan };
                        return self.end(
                            job,
                            Verdict::Refused { code: error.code() as i32, of_decode: true },
                            true,
                            fx,
                        );
                    }
                };
                if fx.setting.defect == Defect::FreeBeforeAck {
                    held = Held::empty(&self.pool);
                }
                let stream = Stream { push: fx.fresh_push(), handle, next: 0, lent };
                self.jobs[i].stage = Stage::Pushing { held, plan, stream };
            }
            SendAction::Done(_) => self.end(job, Verdict::Delivered, false, fx),
            SendAction::Fail { code, .. } => {
                // What it has there is somebody else's.
                let undo = code != Code::AlreadyExists;
                let code = code.as_transfer_failure() as i32;
                self.end(job, Verdict::Refused { code, of_decode: true }, undo, fx);
            }
            SendAction::Nothing => {}
        }
    }

    /// The connection takes the next block of a push.
    pub(crate) fn send_chunk(&mut self, push: u8, fx: &mut Effects<'_>) -> Result<(), Broken> {
        let (stream, owned) = match self.jobs.iter_mut().find_map(|job| match &mut job.stage {
            Stage::Pushing { stream, held, .. } if stream.push == push => {
                Some((stream, held.ids()))
            }
            _ => None,
        }) {
            Some((stream, ids)) => (stream, ids.to_vec()),
            None => match self.zombies.iter_mut().find(|z| z.push == push) {
                Some(zombie) => (zombie, Vec::new()),
                None => return Ok(()),
            },
        };
        let index = stream.next;
        let Some(block) = stream.lent.block(index) else { return Ok(()) };
        let mut payload = Vec::new();
        let mut crc32c = 0;
        if !block.present {
            if let Err(error) = stream.lent.write(&block, &mut payload) {
                // The reader knows.
                let handle = stream.handle;
                fx.note(|| {
                    format!("P cannot read block {} for {}: {error}", block.id, name(handle))
                });
                self.zombies.retain(|z| z.push != push);
                if let Some(job) = self.job_of(push) {
                    self.fact(job, &SendFact::PushFailed(Code::Internal), fx);
                }
                return Ok(());
            }
            if !owned.contains(&block.id) {
                return Err(Broken::new(
                    Invariant::NoStaleRead.name(),
                    format!(
                        "block {} is read for {}, which has given it back",
                        block.id,
                        name(stream.handle)
                    ),
                ));
            }
            crc32c = CRC32C_RESIDUE;
        }
        stream.next += 1;
        let (total, handle, last) =
            (stream.lent.len() as u32, stream.handle, stream.next == stream.lent.len());
        let incarnation =
            if fx.setting.defect == Defect::NoIncarnation { 0 } else { self.incarnation };
        let chunk = Chunk { handle, hash: block.hash, total, payload, crc32c, incarnation };
        fx.send(Message::Chunk { push, index: index as u8, chunk: Rc::new(chunk) });
        if last {
            fx.send(Message::Close { push });
            self.zombies.retain(|z| z.push != push);
        }
        Ok(())
    }

    /// Answers a call and drops what it holds. `undo`: a push may have landed all the same.
    pub(crate) fn end(&mut self, job: u8, verdict: Verdict, undo: bool, fx: &mut Effects<'_>) {
        let Some(i) = self.index_of(job) else { return };
        let handle = self.jobs[i].handle;
        fx.send(Message::Prefilled { handle, verdict });
        self.abandon(job, undo, fx);
    }

    /// Drops a call without an answer: nobody waits for it.
    pub(crate) fn abandon(&mut self, job: u8, undo: bool, fx: &mut Effects<'_>) {
        let Some(i) = self.index_of(job) else { return };
        let Job { stage, handle, .. } = self.jobs.remove(i);
        if undo && !matches!(stage, Stage::Queued) {
            fx.send(Message::Release { handle });
        }
        if let Stage::Pushing { held, mut stream, .. } = stage {
            if fx.setting.defect != Defect::NoFence {
                stream.lent.fence();
            }
            drop(held);
            if stream.lent.block(stream.next).is_some() {
                self.zombies.push(stream);
            }
        }
    }

    /// `Cancel`: every call of that id ends.
    pub(crate) fn cancel(&mut self, handle: u8, fx: &mut Effects<'_>) {
        let found: Vec<u8> =
            self.jobs.iter().filter(|j| j.handle == handle).map(|j| j.id).collect();
        for job in found {
            let code = tonic::Code::Cancelled as i32;
            self.end(job, Verdict::Refused { code, of_decode: false }, true, fx);
        }
    }
}

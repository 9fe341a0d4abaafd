//! The scheduler over a real pool. Tokens are made up: what is computed does not matter here, only
//! which rows run when and who holds which blocks.

mod basics;
mod equal;
mod pressure;
mod random;
mod resume;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tl_kv::{KV_FORMAT_V1, KvCfg, KvStats, SharedKv, TL_F16, lock};

use super::*;

/// A scheduler and the time of its steps.
struct Bench {
    kv: SharedKv,
    sched: Scheduler,
    now: Instant,
    /// Tokens each request got, and how it ended.
    tokens: BTreeMap<SeqId, Vec<u32>>,
    finished: BTreeMap<SeqId, Finish>,
    cached: BTreeMap<SeqId, usize>,
}

/// B = 4; everything else is what most tests want.
fn cfg() -> SchedConfig {
    SchedConfig {
        max_batch_tokens: 64,
        max_seqs: 8,
        prefill_chunk: 64,
        max_waiting: 64,
        queue_deadline: Duration::from_secs(30),
        policy: Policy::Fcfs,
        aging_steps: 64,
    }
}

const B: u32 = 4;

fn pool(n_blocks: u32) -> SharedKv {
    tl_kv::shared(KvCfg {
        n_blocks,
        block_tokens: B,
        n_layers: 1,
        n_kv_heads: 1,
        head_dim: 2,
        dtype: TL_F16,
        format: KV_FORMAT_V1,
    })
    .unwrap()
}

impl Bench {
    fn new(n_blocks: u32, cfg: SchedConfig) -> Bench {
        Bench::with(n_blocks, cfg, true)
    }

    fn with(n_blocks: u32, cfg: SchedConfig, prefix_cache: bool) -> Bench {
        let kv = pool(n_blocks);
        let sched = Scheduler::new(Blocks::new(kv.clone(), prefix_cache), cfg, 1 << 20);
        Bench {
            kv,
            sched,
            now: Instant::now(),
            tokens: BTreeMap::new(),
            finished: BTreeMap::new(),
            cached: BTreeMap::new(),
        }
    }

    fn add(&mut self, prompt: &[u32], max_new: usize) -> SeqId {
        self.add_with(prompt, max_new, 0).unwrap()
    }

    fn add_with(&mut self, prompt: &[u32], max: usize, priority: i32) -> Result<SeqId, Refused> {
        let new = NewSeq {
            prompt: prompt.to_vec(),
            max_new_tokens: max,
            priority,
            deadline: None,
            hand_over: false,
            origin: Origin::Here,
        };
        self.sched.add(new, self.now)
    }

    /// Adds a request whose prompt's blocks are here already, as a transfer would leave them.
    fn add_resumed(&mut self, prompt: &[u32], max: usize, first: Option<u32>) -> SeqId {
        let table = self.sched.blocks.adopt(self.arrive(prompt), prompt).unwrap();
        let new = NewSeq {
            prompt: prompt.to_vec(),
            max_new_tokens: max,
            priority: 0,
            deadline: None,
            hand_over: false,
            origin: Origin::Elsewhere { table, first },
        };
        self.sched.add(new, self.now).unwrap()
    }

    /// Blocks of a prompt with their fills, unregistered.
    fn arrive(&self, prompt: &[u32]) -> Held {
        let held = Held::alloc(&self.kv, prompt.len().div_ceil(B as usize)).unwrap();
        let mut books = lock(&self.kv);
        for (&id, tokens) in held.ids().iter().zip(prompt.chunks(B as usize)) {
            books.set_fill(id, tokens.len() as u32).unwrap();
        }
        drop(books);
        held
    }

    /// One step in which every sampled row gets a token that depends on its request and position.
    fn step(&mut self) -> Batch {
        let batch = self.plan();
        self.finish(&batch);
        batch
    }

    fn plan(&mut self) -> Batch {
        self.now += Duration::from_millis(1);
        let batch = self.sched.schedule(self.now);
        self.check(&batch);
        self.cached.extend(batch.admitted.iter().copied());
        batch
    }

    fn finish(&mut self, batch: &Batch) {
        let mut results = Vec::new();
        for row in &batch.rows {
            let outcome = if row.sample {
                let token = 1000 + row.id.0 as u32 * 100 + (row.start + row.len) as u32;
                self.tokens.entry(row.id).or_default().push(token);
                Outcome::Token { token, stop: false }
            } else {
                Outcome::Computed
            };
            results.push((*row, outcome));
        }
        for ended in self.sched.on_step(&results) {
            match ended {
                Ended::Finished { id, reason, generated } => {
                    assert_eq!(self.tokens[&id].len(), generated.min(self.tokens[&id].len()));
                    self.finished.insert(id, reason);
                }
                Ended::HandOver { .. } => panic!("nothing here is handed over"),
            }
        }
    }

    /// What must hold after every `schedule`.
    fn check(&self, batch: &Batch) {
        let cfg = &self.sched.cfg;
        lock(&self.kv).check().unwrap();
        assert_eq!(batch.tokens, batch.rows.iter().map(|r| r.len).sum::<usize>());
        assert!(batch.tokens <= cfg.max_batch_tokens, "budget: {batch:?}");
        assert!(self.sched.running.len() <= cfg.max_seqs, "slots: {batch:?}");
        let mut ids: Vec<SeqId> = batch.rows.iter().map(|r| r.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), batch.rows.len(), "one row per request: {batch:?}");
        for row in &batch.rows {
            let (tokens, table) = self.sched.row(row);
            assert_eq!(tokens.len(), row.len);
            assert!(table.len() * B as usize >= row.start + row.len, "no block for {row:?}");
            let mut books = lock(&self.kv);
            for position in row.start..row.start + row.len {
                let id = table[position / B as usize];
                assert_eq!(books.writable(id).unwrap(), id, "{row:?} writes a shared block");
            }
        }
    }

    fn rows(&self, batch: &Batch) -> Vec<(u64, usize, usize)> {
        batch.rows.iter().map(|r| (r.id.0, r.start, r.len)).collect()
    }

    fn run_until_idle(&mut self, max_steps: usize) -> usize {
        for step in 0..max_steps {
            if self.sched.waiting() + self.sched.running() == 0 {
                return step;
            }
            let batch = self.step();
            assert!(!batch.rows.is_empty(), "nothing runs and nothing is idle");
        }
        panic!("not idle after {max_steps} steps");
    }

    fn stats(&self) -> KvStats {
        lock(&self.kv).stats()
    }
}

//! The shared prefix cache against vLLM's own: every colocated trace's decisions (who is scheduled, with how
//! many tokens) are carried out on a `content::Pool`, and each prefix hit and each count of free blocks
//! must come out as recorded. Which blocks are reused, in what order, is thereby checked too: a wrong one
//! is a hit too many or too few later on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serq::oracle::{self, Mode, Policy, Request, Side, Step, Trace, What};
use serq_sim::content::{Chain, Holder, Pool, invariant};

const SIDE: Side = Side::C;

struct Live<'a> {
    request: &'a Request,
    /// Prompt and answer so far.
    chain: Chain,
    holder: Option<Holder>,
    computed: u64,
    /// Tokens sampled by a batch whose output is not processed yet.
    unseen: u64,
}

struct Replay<'a> {
    trace: &'a Trace,
    pool: Pool,
    live: BTreeMap<&'a str, Live<'a>>,
    running: Vec<&'a str>,
    hits: usize,
    frees: usize,
}

impl<'a> Replay<'a> {
    fn new(trace: &'a Trace) -> Self {
        let engine = &trace.scenario.engines[&SIDE];
        let live = trace.scenario.requests.iter().map(|request| {
            let chain = request.prompt.clone();
            let live = Live { request, chain, holder: None, computed: 0, unseen: 0 };
            (request.id.as_str(), live)
        });
        Replay {
            trace,
            pool: Pool::new(engine.blocks, engine.block, engine.prefix_caching).expect("pool"),
            live: live.collect(),
            running: Vec::new(),
            hits: 0,
            frees: 0,
        }
    }

    fn happened(&self, id: &str, tick: u64) -> impl Iterator<Item = What> + 'a {
        let events = &self.trace.run.events[id];
        events.iter().filter(move |e| e.tick == tick).map(|e| e.what)
    }

    fn leave(&mut self, id: &str) {
        self.running.retain(|&r| r != id);
        let live = self.live.get_mut(id).expect("known");
        live.computed = 0;
        if let Some(holder) = live.holder.take() {
            self.pool.close(holder);
        }
    }

    /// Room for `tokens` more, and what they complete can be found. `false` if there is none.
    fn schedule(&mut self, id: &str, tokens: u64) -> bool {
        let live = self.live.get_mut(id).expect("known");
        let holder = live.holder.as_mut().expect("a request that runs has blocks");
        let computed = live.computed + tokens;
        if self.pool.grow(holder, computed).is_err() {
            return false;
        }
        self.pool.register(holder, &live.chain, computed.min(live.chain.len()));
        live.unseen += u64::from(computed == live.chain.len() + live.unseen);
        live.computed = computed;
        true
    }

    fn victim(&self) -> &'a str {
        let policy = self.trace.scenario.engines[&SIDE].policy;
        let rank = |id: &&&str| {
            let request = self.live[**id].request;
            (request.priority, request.arrive)
        };
        let victim = match policy {
            Policy::Fcfs => self.running.last(),
            // Of equals the first in the list.
            Policy::Priority => self.running.iter().rev().max_by_key(rank),
        };
        victim.expect("somebody runs")
    }

    fn step(&mut self, tick: u64, step: &'a Step) {
        let trace = self.trace;
        let ids: Vec<&str> = trace.scenario.requests.iter().map(|r| r.id.as_str()).collect();
        let did = |this: &Self, what: What| -> Vec<&'a str> {
            ids.iter().copied().filter(|id| this.happened(id, tick).any(|w| w == what)).collect()
        };
        for id in did(self, What::Aborted) {
            self.leave(id);
        }
        let preempted = did(self, What::Preempted);
        let mut gone: Vec<&str> = Vec::new();
        let mut left = trace.scenario.engines[&SIDE].budget;
        'running: for id in self.running.clone() {
            if gone.contains(&id) {
                continue;
            }
            let row = step.batch.iter().find(|row| row.id == id);
            let tokens = match row {
                Some(row) => {
                    assert_eq!(self.live[id].computed, row.before, "tokens computed of {id}");
                    row.tokens
                }
                // Scheduled, then preempted by one behind it; or there was no room for itself.
                None if preempted.contains(&id) => {
                    let live = &self.live[id];
                    (live.chain.len() + live.unseen - live.computed).min(left)
                }
                None => continue,
            };
            while !self.schedule(id, tokens) {
                let victim = self.victim();
                assert!(preempted.contains(&victim), "{victim} would be preempted for {id}");
                if let Some(row) = step.batch.iter().find(|row| row.id == victim) {
                    left += row.tokens;
                }
                self.leave(victim);
                gone.push(victim);
                if victim == id {
                    // Under `fcfs` it is the last; under `priority` those behind it go on.
                    continue 'running;
                }
            }
            left = left.saturating_sub(tokens);
        }
        gone.sort_unstable();
        let mut expected = preempted;
        expected.sort_unstable();
        assert_eq!(gone, expected, "preempted");
        for row in &step.batch {
            let cached = self.happened(&row.id, tick).find_map(|what| match what {
                What::Admitted { cached } | What::Readmitted { cached } => Some(cached),
                _ => None,
            });
            if let Some(cached) = cached {
                let live = self.live.get_mut(row.id.as_str()).expect("known");
                let hit = self.pool.hit(&live.chain, live.chain.len() - 1);
                assert_eq!(hit.tokens(), cached, "prefix hit of {}", row.id);
                self.hits += 1;
                live.computed = hit.tokens();
                let room = hit.tokens() + row.tokens;
                live.holder = Some(self.pool.open(hit, room).expect("room to admit"));
                self.running.push(live.request.id.as_str());
                assert!(self.schedule(&row.id, row.tokens));
            }
        }
        self.compare("after scheduling", step.free_scheduled);
        for (id, n) in trace.delivered.get(&(tick, SIDE)).into_iter().flatten() {
            let live = self.live.get_mut(id.as_str()).expect("known");
            live.chain.extend(live.request.answer_key, *n);
            live.unseen = live.unseen.saturating_sub(*n);
            if let Some(holder) = &mut live.holder {
                let known = (live.computed - live.unseen).min(live.chain.len());
                self.pool.register(holder, &live.chain, known);
            }
        }
        for id in &ids {
            if self.happened(id, tick).any(|what| matches!(what, What::Finished(_))) {
                self.leave(id);
            }
        }
        self.compare("after the step", step.free);
        if step.free.is_some() {
            assert_eq!(self.running, step.running, "running");
        }
        let holders: Vec<&Holder> = self.live.values().filter_map(|l| l.holder.as_ref()).collect();
        assert_eq!(invariant::check(&self.pool, &holders), Ok(()));
    }

    fn compare(&mut self, when: &str, recorded: Option<u64>) {
        if let Some(recorded) = recorded {
            assert_eq!(self.pool.free(), recorded, "free blocks {when}");
            self.frees += 1;
        }
    }
}

fn traces() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/oracle");
    let mut files: Vec<PathBuf> = [folder.clone(), folder.join("fuzz")]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).expect("the traces"))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .filter(|path| {
            !path.ends_with("hash_vectors.json") && !path.ends_with("malformed_params.json")
        })
        .collect();
    files.sort();
    files
}

#[test]
fn every_colocated_trace_finds_and_frees_the_same_blocks() {
    let (mut replayed, mut hits, mut frees) = (0, 0, 0);
    for path in traces() {
        let trace = oracle::read(&path).unwrap_or_else(|e| panic!("{e}"));
        if trace.scenario.mode != Mode::Colocated {
            continue;
        }
        let mut replay = Replay::new(&trace);
        for (&(tick, _), step) in &trace.run.steps {
            // The tick is what one wants to know when an assertion below fails.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                replay.step(tick, step);
            }));
            assert!(outcome.is_ok(), "{}, tick {tick}", trace.name);
        }
        replayed += 1;
        hits += replay.hits;
        frees += replay.frees;
    }
    println!("{replayed} traces: {hits} prefix hits and {frees} counts of free blocks agree");
    assert_eq!((replayed, hits, frees), (56, 571, 3196), "what the traces hold");
}

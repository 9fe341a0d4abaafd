//! Random workloads: everything ends, and nothing is lost on the way.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    Add {
        prompt: Vec<u32>,
        max_new: usize,
        priority: i32,
    },
    Resume {
        prompt: Vec<u32>,
        max_new: usize,
        with_first: bool,
    },
    Cancel(usize),
    /// Blocks taken and given back by somebody else, as by pushes and handles.
    Take(usize),
    GiveBack,
    Step(usize),
}

fn op() -> impl Strategy<Value = Op> {
    // Few distinct tokens, so that prompts share beginnings.
    let prompt = || prop::collection::vec(0u32..2, 1..24);
    prop_oneof![
        3 => (prompt(), 1usize..12, -2i32..3)
            .prop_map(|(prompt, max_new, priority)| Op::Add { prompt, max_new, priority }),
        2 => (prompt(), 2usize..12, any::<bool>())
            .prop_map(|(prompt, max_new, with_first)| Op::Resume { prompt, max_new, with_first }),
        1 => (0usize..32).prop_map(Op::Cancel),
        1 => (1usize..6).prop_map(Op::Take),
        1 => Just(Op::GiveBack),
        4 => (1usize..6).prop_map(Op::Step),
    ]
}

fn config() -> impl Strategy<Value = (u32, SchedConfig, bool)> {
    (8u32..20, 1usize..20, 1usize..5, 1usize..9, any::<bool>(), any::<bool>()).prop_map(
        |(blocks, max_batch_tokens, max_seqs, prefill_chunk, fcfs, prefix_cache)| {
            let policy = if fcfs { Policy::Fcfs } else { Policy::Priority };
            let cfg = SchedConfig {
                max_batch_tokens,
                max_seqs,
                prefill_chunk,
                policy,
                aging_steps: 3,
                ..cfg()
            };
            (blocks, cfg, prefix_cache)
        },
    )
}

fn run(blocks: u32, cfg: SchedConfig, prefix_cache: bool, ops: Vec<Op>) {
    let mut b = Bench::with(blocks, cfg, prefix_cache);
    let mut wanted: BTreeMap<SeqId, usize> = BTreeMap::new();
    let mut elsewhere = Vec::new();
    for op in ops {
        match op {
            Op::Add { prompt, max_new, priority } => {
                if let Ok(id) = b.add_with(&prompt, max_new, priority) {
                    let context = b.sched.limits().context();
                    wanted.insert(id, max_new.min(context - prompt.len()));
                }
            }
            Op::Resume { prompt, max_new, with_first } => {
                let fits = b.sched.limits().check(prompt.len(), max_new, false).is_ok();
                let room = (b.stats().free + b.stats().cached) as usize;
                if fits && prompt.len().div_ceil(B as usize) <= room {
                    let id = b.add_resumed(&prompt, max_new, with_first.then_some(1));
                    let max = max_new.min(b.sched.limits().context() - prompt.len());
                    wanted.insert(id, max - usize::from(with_first));
                }
            }
            Op::Cancel(n) => {
                let id = SeqId(n as u64);
                b.sched.remove(id);
                if !b.finished.contains_key(&id) {
                    wanted.remove(&id);
                }
            }
            Op::Take(n) => elsewhere.extend(Held::alloc(&b.kv, n).ok()),
            Op::GiveBack => {
                elsewhere.pop();
            }
            Op::Step(n) => {
                for _ in 0..n {
                    b.step();
                }
            }
        }
    }
    elsewhere.clear();
    // A bound that a starved or locked-up request would break: each token is computed at most once
    // per preemption, and a preemption makes room for somebody of higher rank.
    b.run_until_idle(20_000);
    for (id, count) in wanted {
        assert_eq!(b.tokens.get(&id).map_or(0, Vec::len), count, "{id:?}");
        assert!(b.finished.contains_key(&id), "{id:?}");
    }
    assert_eq!(b.stats().used, 0);
    assert!(b.sched.ranks.is_empty() && b.sched.fresh == 0);
    lock(&b.kv).check().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_and_every_block_comes_back(
        (blocks, cfg, prefix_cache) in config(),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        run(blocks, cfg, prefix_cache, ops);
    }
}

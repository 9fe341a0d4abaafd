//! A model that fails, and requests it fails for.

use super::double::{Fault, MASKED, NAN, config, faulty, spawn};
use super::*;

/// Five requests run when a step goes wrong: all of them fail, and the engine serves on.
async fn all_running_fail(fault: Fault, code: &str) {
    let (engine, handle) = faulty([(3, fault)]);
    let running: Vec<Generation> =
        (0..5).map(|n| engine.submit(request(&[n, n, n], 40)).unwrap()).collect();
    for g in running {
        let a = answer(g).await;
        // Those that came in after the bad step got their whole answer.
        match a.last {
            Some(Event::Failed(ref error)) => {
                assert_eq!(error.code(), code);
                assert!(error.to_string().contains("told to"), "{error}");
            }
            _ => assert_eq!(a.finish(), (Finish::Length, 40)),
        }
    }
    assert!(at_baseline(&engine));
    assert!(handle.log.lock().steps.len() > 3, "the bad step was made");
    assert_eq!(run(&engine, request(&[1, 2], 3)).await.ids(), [3, 4, 5]);
    assert!(at_baseline(&engine));
}

#[tokio::test]
async fn a_failed_step_fails_what_runs_and_the_engine_serves_on() {
    all_running_fail(Fault::Error, "step").await;
}

#[tokio::test]
async fn a_panicking_step_fails_what_runs_and_the_engine_serves_on() {
    all_running_fail(Fault::Panic, "panicked").await;
}

#[tokio::test]
async fn what_waits_is_not_failed_by_a_step_it_had_no_part_in() {
    let (engine, _handle) = super::double::faulty([(0, Fault::Error)]);
    let elsewhere = tl_kv::Held::alloc(&engine.pool(), 63).unwrap();
    let small = engine.submit(request(&[1, 2, 3], 1)).unwrap();
    let big = engine.submit(request(&[1; 9], 1)).unwrap();
    assert_eq!(answer(small).await.error().code(), "step");
    drop(elsewhere);
    assert_eq!(answer(big).await.ids(), [2]);
}

#[tokio::test]
async fn bad_logits_fail_their_request_alone() {
    let (engine, _handle) = spawn(config());
    // Each gets to the bad token after a different number of good ones.
    let prompts: [&[u32]; 4] = [&[NAN], &[MASKED], &[NAN - 2], &[5]];
    let all = prompts.map(|p| engine.submit(request(p, 4)).unwrap());
    let [nan, masked, later, good] = all;
    let nan = answer(nan).await;
    assert_eq!((nan.error().code(), nan.ids()), ("bad_logits", vec![]));
    assert!(nan.error().to_string().contains("not a number"), "{}", nan.error());
    assert_eq!(answer(masked).await.error().code(), "bad_logits");
    let later = answer(later).await;
    assert_eq!((later.error().code(), later.ids()), ("bad_logits", vec![NAN - 1, NAN]));
    let good = answer(good).await;
    assert_eq!((good.ids(), good.finish()), (vec![6, 7, 8, 9], (Finish::Length, 4)));
    assert!(at_baseline(&engine));
}

#[tokio::test]
async fn configurations_that_cannot_run_are_refused() {
    struct Nothing;
    impl crate::backend::Backend for Nothing {
        fn shape(&self) -> crate::backend::BackendShape {
            crate::backend::BackendShape {
                vocab: 1,
                max_positions: 8,
                n_layers: 1,
                n_kv_heads: 1,
                head_dim: 1,
            }
        }
        fn step(
            &mut self,
            _: &tl_kv::Slabs,
            _: &[crate::backend::Span<'_>],
            _: &mut dyn FnMut(usize) -> bool,
        ) -> Result<(), crate::backend::StepError> {
            Ok(())
        }
        fn logits(&self, _: usize) -> Option<&[f32]> {
            None
        }
    }
    let check = |what: &str, cfg: EngineConfig| match Engine::spawn(Box::new(Nothing), cfg) {
        Err(EngineError::Config(why)) => assert!(why.contains(what), "{why}"),
        other => panic!("{what}: {other:?}"),
    };
    check("max_batch_tokens", EngineConfig { max_batch_tokens: 0, ..config() });
    check("max_seqs", EngineConfig { max_seqs: 0, ..config() });
    check("queue_capacity", EngineConfig { queue_capacity: 0, ..config() });
    check("prefill_chunk", EngineConfig { prefill_chunk: 0, ..config() });
    check("n_blocks", EngineConfig { kv_blocks: 0, ..config() });
    check("block_tokens", EngineConfig { block_tokens: 0, ..config() });
    // A model that gives no logits fails its requests and nothing else.
    let engine = Engine::spawn(Box::new(Nothing), config()).unwrap();
    let a = run(&engine, request(&[0], 1)).await;
    assert_eq!(a.error().code(), "bad_logits");
}

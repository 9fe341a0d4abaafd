//! What a request goes through when nothing is wrong with the model.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::double::{config, gated, spawn};
use super::*;

#[tokio::test]
async fn tokens_come_in_order_and_blocks_are_back_before_the_last_event() {
    let (engine, _handle) = spawn(config());
    let a = run(&engine, request(&[1, 2, 3], 5)).await;
    assert!(at_baseline(&engine), "as soon as the last event is seen");
    assert_eq!(a.ids(), [4, 5, 6, 7, 8]);
    assert_eq!((a.cached, a.finish()), (Some(0), (Finish::Length, 5)));
    assert!(a.tokens.iter().all(|t| t.top.is_empty() && t.draws == 0 && t.logprob < 0.0));
    assert_eq!(engine.stats().steps, 5);
}

#[tokio::test]
async fn a_stop_id_ends_and_is_not_part_of_the_answer() {
    let (engine, _handle) = spawn(config());
    let a = run(&engine, Request { stop_ids: vec![40, 6], ..request(&[1, 2, 3], 9) }).await;
    assert_eq!((a.ids(), a.finish()), (vec![4, 5], (Finish::Stop, 2)));
    let a = run(&engine, Request { stop_ids: vec![4], ..request(&[1, 2, 3], 9) }).await;
    assert_eq!((a.ids(), a.finish()), (vec![], (Finish::Stop, 0)));
}

#[tokio::test]
async fn the_answer_is_clipped_to_the_context() {
    let cfg = EngineConfig { kv_blocks: 2, ..config() };
    let (engine, _handle) = spawn(cfg);
    assert_eq!(engine.context(), 8);
    let a = run(&engine, request(&[1; 5], usize::MAX)).await;
    assert_eq!(a.finish(), (Finish::Length, 3));
}

#[tokio::test]
async fn logprobs_and_draws_are_reported() {
    let (engine, _handle) = spawn(config());
    let sampling = SamplingParams { temperature: 0.5, ..SamplingParams::default() };
    let a = run(&engine, Request { sampling, logprobs: Some(2), ..request(&[1], 3) }).await;
    for (i, t) in a.tokens.iter().enumerate() {
        assert_eq!(t.draws, i as u32 + 1, "one draw a token");
        assert_eq!(t.top.len(), 2);
        assert!(t.top[0].1 >= t.top[1].1 && t.top[0].1 >= t.logprob);
    }
}

#[tokio::test]
async fn refusals_come_at_once_and_cost_nothing() {
    let (engine, _handle) = spawn(EngineConfig { kv_blocks: 4, ..config() });
    let refused = |r: Request| engine.submit(r).map(|_| ()).unwrap_err();
    assert_eq!(refused(request(&[], 1)), Refused::Empty);
    assert_eq!(refused(request(&[1], 0)), Refused::NoNewTokens);
    assert_eq!(refused(request(&[1; 16], 1)), Refused::NeverFits { blocks: 5, pool: 4 });
    assert_eq!(refused(request(&[1, 64], 1)), Refused::UnknownToken { token: 64, vocab: 64 });
    let sampling = SamplingParams { temperature: -1.0, ..SamplingParams::default() };
    assert_eq!(refused(Request { sampling, ..request(&[1], 1) }).code(), "sampling");
    let held = tl_kv::Held::alloc(&engine.pool(), 2).unwrap();
    let start = Start::Resume { held, first: None, draws: 0 };
    assert_eq!(
        refused(Request { start, ..request(&[1], 2) }),
        Refused::WrongBlocks { got: 2, want: 1, prompt: 1 }
    );
    assert!(at_baseline(&engine), "the refused blocks are back");
}

#[tokio::test]
async fn the_queue_is_bounded_and_a_place_is_free_again_on_admission() {
    let cfg = EngineConfig { max_seqs: 1, queue_capacity: 2, ..config() };
    let (engine, mut handle) = gated(cfg);
    let first = engine.submit(request(&[1], 2)).unwrap();
    handle.wait_in_step();
    assert_eq!((engine.stats().queued, engine.stats().running), (0, 1));
    let others: Vec<Generation> =
        (0..2).map(|_| engine.submit(request(&[2], 1)).unwrap()).collect();
    let full = engine.submit(request(&[3], 1)).map(|_| ()).unwrap_err();
    assert_eq!(full, Refused::Full { capacity: 2 });
    assert_eq!(engine.stats().queued, 2);
    handle.open();
    for g in others.into_iter().chain([first]) {
        answer(g).await.finish();
    }
    run(&engine, request(&[3], 1)).await.finish();
    assert!(at_baseline(&engine));
}

#[tokio::test]
async fn waiting_for_blocks_ends_at_the_queue_deadline() {
    let wait = Duration::from_millis(40);
    let (engine, _handle) = spawn(EngineConfig { kv_blocks: 4, queue_deadline: wait, ..config() });
    let _elsewhere = tl_kv::Held::alloc(&engine.pool(), 3).unwrap();
    let start = Instant::now();
    let a = run(&engine, request(&[1; 5], 1)).await;
    let EngineError::QueueTimeout { waited_ms } = *a.error() else { panic!("{a:?}") };
    assert!(waited_ms >= 40 && start.elapsed() >= wait);
    assert_eq!(engine.stats().queued, 0);
    assert_eq!(engine.stats().steps, 0);
}

#[tokio::test]
async fn blocks_that_come_back_are_noticed() {
    let (engine, _handle) = spawn(patient());
    for round in 0..200 {
        let elsewhere = tl_kv::Held::alloc(&engine.pool(), 3).unwrap();
        let g = engine.submit(request(&[1; 5], 1)).unwrap();
        // Before, while and after the thread looks in vain: nothing but the pool tells it later.
        let until = Instant::now() + Duration::from_micros(round * 3);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        drop(elsewhere);
        answer(g).await.finish();
    }
    assert!(at_baseline(&engine));
}

#[tokio::test]
async fn equal_prompts_that_come_together_are_computed_once() {
    let (engine, mut handle) = gated(config());
    let prompt: Vec<u32> = (1..=33).collect();
    // The first one holds the thread until all are there.
    let mut all = vec![engine.submit(request(&[50], 1)).unwrap()];
    handle.wait_in_step();
    all.extend((0..4).map(|_| engine.submit(request(&prompt, 3)).unwrap()));
    handle.open();
    let mut cached = Vec::new();
    for g in all.split_off(1) {
        let answer = answer(g).await;
        assert_eq!(answer.ids(), [34, 35, 36]);
        cached.push(answer.cached.unwrap());
    }
    assert_eq!(cached, [0, 32, 32, 32]);
    let log = handle.log.lock();
    let prefilled: usize =
        log.steps[1..].iter().flatten().filter(|(start, _)| *start < 33).map(|(_, n)| n).sum();
    assert_eq!(prefilled, 33 + 3, "the last token of each, the rest once");
    drop(log);
    eventually("baseline", || at_baseline(&engine)).await;
}

/// A pool of four blocks whose queue nobody leaves for having waited.
fn patient() -> EngineConfig {
    EngineConfig { kv_blocks: 4, queue_deadline: Duration::from_secs(3600), ..config() }
}

#[tokio::test]
async fn what_waits_for_blocks_is_dropped_and_cancelled_without_a_step() {
    let (engine, handle) = spawn(patient());
    let elsewhere = tl_kv::Held::alloc(&engine.pool(), 3).unwrap();
    let dropped = engine.submit(request(&[1; 5], 1)).unwrap();
    let cancelled = engine.submit(Request { id: "c".into(), ..request(&[1; 5], 1) }).unwrap();
    let late = Some(Instant::now() + Duration::from_millis(20));
    let late = engine.submit(Request { deadline: late, ..request(&[1; 5], 1) }).unwrap();
    assert_eq!(engine.stats().queued, 3);
    drop(dropped);
    assert!(engine.cancel("c"));
    assert_eq!(*answer(cancelled).await.error(), EngineError::Cancelled);
    assert_eq!(*answer(late).await.error(), EngineError::DeadlineExceeded);
    eventually("the queue is empty", || engine.stats().queued == 0).await;
    assert!(handle.log.lock().steps.is_empty());
    drop(elsewhere);
    assert!(at_baseline(&engine));
}

#[tokio::test]
async fn a_deadline_ends_a_request_between_layers_and_in_the_queue() {
    let (engine, mut handle) = gated(EngineConfig { max_seqs: 1, ..config() });
    let soon = || Some(Instant::now() + Duration::from_millis(30));
    let running = engine.submit(Request { deadline: soon(), ..request(&[1], 50) }).unwrap();
    handle.wait_in_step();
    let queued = engine.submit(Request { deadline: soon(), ..request(&[1], 50) }).unwrap();
    let at = soon().unwrap();
    eventually("later than the deadlines", || Instant::now() > at).await;
    handle.open();
    for g in [running, queued] {
        assert_eq!(*answer(g).await.error(), EngineError::DeadlineExceeded);
    }
    assert_eq!(handle.log.lock().dropped, 1, "the running one left its step");
    assert!(at_baseline(&engine));
}

#[tokio::test]
async fn a_step_that_hangs_does_not_take_the_waiting_along() {
    let wait = Duration::from_millis(20);
    let cfg = EngineConfig { max_seqs: 1, queue_deadline: wait, ..config() };
    let (engine, mut handle) = gated(cfg);
    let hanging = engine.submit(request(&[1], 1)).unwrap();
    handle.wait_in_step();
    let queued = answer(engine.submit(request(&[2], 1)).unwrap()).await;
    assert_eq!(queued.error().code(), "queue_timeout");
    let late = Some(Instant::now() + wait);
    let late = answer(engine.submit(Request { deadline: late, ..request(&[2], 1) }).unwrap()).await;
    assert!(matches!(late.error().code(), "deadline_exceeded" | "queue_timeout"));
    let stats = engine.stats();
    assert!(stats.stalled(Instant::now(), wait), "{stats:?}");
    handle.open();
    answer(hanging).await.finish();
    eventually("baseline", || at_baseline(&engine)).await;
    assert!(!engine.stats().stalled(Instant::now() + PATIENCE, wait), "idle is no stall");
}

#[tokio::test]
async fn dropping_a_generation_frees_its_blocks_within_the_step() {
    let (engine, mut handle) = gated(config());
    let g = engine.submit(request(&[1; 9], 50)).unwrap();
    handle.wait_in_step();
    assert_eq!(lock(&engine.pool()).stats().used, 3);
    drop(g);
    handle.open();
    eventually("baseline", || at_baseline(&engine)).await;
    let log = handle.log.lock();
    assert_eq!((log.steps.len(), log.dropped), (1, 1), "dropped between the layers of its step");
}

#[tokio::test]
async fn cancel_ends_all_requests_of_an_id() {
    let (engine, mut handle) = gated(EngineConfig { max_seqs: 2, ..config() });
    let id = |id: &str| Request { id: id.into(), ..request(&[1], 40) };
    let cancelled: Vec<Generation> = (0..3).map(|_| engine.submit(id("a")).unwrap()).collect();
    let other = engine.submit(Request { max_new_tokens: 2, ..id("b") }).unwrap();
    handle.wait_in_step();
    assert!(engine.cancel("a"));
    assert!(!engine.cancel("c"));
    handle.open();
    for g in cancelled {
        assert_eq!(*answer(g).await.error(), EngineError::Cancelled);
    }
    answer(other).await.finish();
    assert!(!engine.cancel("a"), "gone");
    assert!(at_baseline(&engine));
}

#[tokio::test]
async fn a_drain_waits_then_aborts_and_takes_nothing_new() {
    let (engine, _handle) = spawn(config());
    let g = engine.submit(request(&[1], 20)).unwrap();
    let start = Instant::now();
    assert_eq!(engine.drain(PATIENCE).await, 0, "it had time to end");
    assert!(start.elapsed() < PATIENCE / 2, "it waits for the end and not for the deadline");
    answer(g).await.finish();
    assert!(engine.is_draining() && engine.stats().draining);
    assert_eq!(engine.submit(request(&[1], 1)).map(|_| ()).unwrap_err(), Refused::Draining);

    let (engine, mut handle) = gated(EngineConfig { max_seqs: 1, ..config() });
    let two = [40, 41].map(|n| engine.submit(request(&[1], n)).unwrap());
    handle.wait_in_step();
    let draining = engine.clone();
    let drain = tokio::spawn(async move { draining.drain(Duration::from_millis(20)).await });
    eventually("draining", || engine.is_draining()).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    handle.open();
    assert_eq!(drain.await.unwrap(), 2);
    for g in two {
        assert_eq!(*answer(g).await.error(), EngineError::Drained);
    }
    assert!(at_baseline(&engine));
    assert_eq!(engine.drain(Duration::MAX).await, 0, "again is nothing");
}

#[tokio::test]
async fn stop_and_the_last_handle_end_the_thread() {
    for stop in [true, false] {
        let (engine, mut handle) = gated(config());
        let g = engine.submit(request(&[1], 50)).unwrap();
        handle.wait_in_step();
        let pool = engine.pool();
        if stop {
            engine.stop();
            assert_eq!(engine.submit(request(&[1], 1)).map(|_| ()).unwrap_err(), Refused::Stopped);
        }
        drop(engine);
        handle.open();
        assert_eq!(*answer(g).await.error(), EngineError::Stopped);
        assert_eq!(lock(&pool).stats().used, 0);
        // The thread owns the double, and with it the only sender of arrivals.
        while handle.arrived.recv_timeout(PATIENCE).is_ok() {}
    }
}

/// Nanoseconds of CPU time that the engine's thread has used.
#[cfg(target_os = "linux")]
fn cpu_time(handle: &super::double::Handle) -> u64 {
    let thread = handle.log.lock().thread.clone().expect("a step was made");
    let stat = std::path::Path::new("/proc").join(thread).join("schedstat");
    let text = std::fs::read_to_string(stat).expect("the thread lives");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds first")
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_idle_engine_uses_no_cpu() {
    let (engine, handle) = spawn(config());
    run(&engine, request(&[1], 3)).await.finish();
    // It goes to sleep some time after the last event.
    let mut before = cpu_time(&handle);
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let after = cpu_time(&handle);
        if after == before {
            return;
        }
        before = after;
    }
    panic!("an idle engine runs");
}

/// Everything but the model: taking in, scheduling 64 rows, sampling from a small vocabulary,
/// events. A decode step of the smallest useful model is some 6 ms.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_step_costs_little_beside_the_model() {
    let cfg = EngineConfig {
        kv_blocks: 64 * 40,
        max_seqs: 64,
        max_batch_tokens: 64 * 100,
        prefill_chunk: 100,
        ..config()
    };
    let (engine, handle) = spawn(cfg);
    run(&engine, request(&[1], 1)).await.finish();
    let (before, steps) = (cpu_time(&handle), engine.stats().steps);
    let all: Vec<Generation> =
        (0..64).map(|n| engine.submit(request(&[n % 8; 90], 50)).unwrap()).collect();
    for g in all {
        answer(g).await.finish();
    }
    let steps = engine.stats().steps - steps;
    let each = Duration::from_nanos((cpu_time(&handle) - before) / steps);
    assert!(steps >= 50 && each < Duration::from_millis(2), "{each:?} in each of {steps} steps");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_cancellations_leaves_nothing_behind() {
    let cfg = EngineConfig { kv_blocks: 24, max_seqs: 6, queue_capacity: 400, ..config() };
    let (engine, _handle) = spawn(cfg);
    let finished = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for n in 0u32..400 {
        let prompt: Vec<u32> = (0..1 + n % 20).map(|i| (n / 7 + i) % 50).collect();
        let mut g = engine.submit(request(&prompt, 1 + n as usize % 30)).unwrap();
        let finished = Arc::clone(&finished);
        let engine = engine.clone();
        tasks.push(tokio::spawn(async move {
            // Each gives up after another number of events, some before the first.
            for _ in 0..n % 13 {
                match next(&mut g).await {
                    Some(Event::Finished { .. }) => {
                        finished.fetch_add(1, Ordering::Relaxed);
                    }
                    Some(Event::Failed(error)) => panic!("{error}"),
                    Some(_) => {}
                    None => return,
                }
            }
            if n % 5 == 0 {
                engine.cancel("nobody");
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    eventually("baseline", || at_baseline(&engine)).await;
    assert!(finished.load(Ordering::Relaxed) > 0, "some were left to end");
    run(&engine, request(&[1, 2, 3], 5)).await.finish();
    assert_eq!(engine.drain(PATIENCE).await, 0);
}

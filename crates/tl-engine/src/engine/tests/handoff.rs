//! Prefill on one engine and decode on another, with the blocks carried over as a transfer would.

use tl_kv::{EnvelopeView, Held, export_block, import_block};

use super::model::{Setup, prompt, sampled, submit_together};
use super::*;

/// What a prefill engine gave.
struct Prefilled {
    first: TokenOut,
    held: Held,
    hashes: Vec<u64>,
    cached: usize,
}

async fn prefill(p: &Engine, r: Request) -> Prefilled {
    let mut answer = answer(p.submit(Request { until: Until::FirstToken, ..r }).unwrap()).await;
    let Some(Event::Prefilled { held, hashes, cached_tokens }) = answer.last.take() else {
        panic!("{answer:?}")
    };
    assert_eq!(answer.tokens.len(), 1);
    let first = answer.tokens.remove(0);
    Prefilled { first, held, hashes, cached: cached_tokens }
}

/// Copies blocks into another engine's pool, each full one under its hash.
fn carry(from: &Prefilled, to: &Engine) -> Held {
    let pool = to.pool();
    let mut held = Held::empty(&pool);
    for (i, &id) in from.held.ids().iter().enumerate() {
        let bytes = export_block(from.held.pool(), id).unwrap();
        let shape = *lock(&pool).cfg();
        let view = EnvelopeView::parse(&bytes, Some(&shape)).unwrap();
        let hash = from.hashes.get(i).copied().unwrap_or(0);
        held.append(import_block(&pool, &view, hash).unwrap().held);
    }
    held
}

fn resume(r: &Request, held: Held, first: Option<&TokenOut>) -> Request {
    Request {
        id: r.id.clone(),
        prompt: Arc::clone(&r.prompt),
        stop_ids: r.stop_ids.clone(),
        sampling: r.sampling,
        start: Start::Resume {
            held,
            first: first.map(|t| FirstToken { id: t.id }),
            draws: first.map_or(0, |t| t.draws),
        },
        until: Until::Finished,
        ..*r
    }
}

#[tokio::test]
async fn two_engines_give_the_tokens_of_one() {
    let [whole, p, d] = [(); 3].map(|()| Setup::default().spawn());
    let mut fallbacks = 0;
    let mut resumed = 0;
    // Around block boundaries, and prompts that share a beginning.
    for (n, len) in [1, 15, 16, 17, 31, 32, 33, 100].into_iter().enumerate() {
        for seed in [None, Some(7), Some(1 << 40)] {
            let r = || sampled(&prompt(n as u64 % 2, len), 12, seed);
            let want = run(&whole, r()).await;
            let from = prefill(&p, r()).await;
            assert_eq!(from.first, want.tokens[0], "length {len}, seed {seed:?}");
            assert_eq!(from.hashes, tl_kv::prompt_hashes(&r().prompt, 16));

            let with = run(&d, resume(&r(), carry(&from, &d), Some(&from.first))).await;
            assert_eq!(with.tokens, want.tokens[1..], "length {len}, seed {seed:?}");
            assert_eq!(with.finish(), want.finish());
            assert_eq!(with.cached, Some(0));

            let without = run(&d, resume(&r(), carry(&from, &d), None)).await;
            assert_eq!(without.tokens, want.tokens, "length {len}, seed {seed:?}, fall-back");
            assert_eq!(without.finish(), want.finish());
            fallbacks += 1;
            resumed += 2;
            assert!(from.cached < len);
            drop(from);
            let stats = d.stats();
            assert_eq!(stats.resumed_prompt_tokens, fallbacks, "one each in the fall-back");
            assert_eq!(stats.remote_prefill_total, resumed);
        }
    }
    assert!(at_baseline(&p) && at_baseline(&d) && at_baseline(&whole));
    assert_eq!(d.stats().prefix_lookups, 0, "no prompt was computed on the decode engine");
}

#[tokio::test]
async fn penalties_know_the_first_token_as_output() {
    let [whole, p, d] = [(); 3].map(|()| Setup::default().spawn());
    let sampling = SamplingParams {
        repetition_penalty: 1.3,
        presence_penalty: 1.5,
        frequency_penalty: 0.7,
        ..SamplingParams::default()
    };
    let r = || Request { sampling, logprobs: Some(3), ..sampled(&prompt(3, 40), 16, Some(5)) };
    let want = run(&whole, r()).await;
    let from = prefill(&p, r()).await;
    let resumed = resume(&r(), carry(&from, &d), Some(&from.first));
    assert_eq!(run(&d, resumed).await.tokens, want.tokens[1..]);
}

#[tokio::test]
async fn a_first_token_that_is_the_end_is_not_handed_over() {
    let p = Setup::default().spawn();
    let r = || sampled(&prompt(1, 20), 5, None);
    let first = prefill(&p, r()).await.first.id;
    let until = Until::FirstToken;
    let a = run(&p, Request { until, stop_ids: vec![first], ..r() }).await;
    assert_eq!((a.ids(), a.finish()), (vec![], (Finish::Stop, 0)));
    let a = run(&p, Request { until, max_new_tokens: 1, ..r() }).await;
    assert_eq!((a.ids(), a.finish()), (vec![first], (Finish::Length, 1)));
    assert!(at_baseline(&p));
}

#[tokio::test]
async fn a_resume_at_the_end_ends_without_a_step() {
    let (p, d) = (Setup::default().spawn(), Setup::default().spawn());
    let r = || sampled(&prompt(1, 20), 5, None);
    let from = prefill(&p, r()).await;
    let first = Some(&from.first);
    let at_end = |r: Request| resume(&r, carry(&from, &d), first);
    let length = run(&d, at_end(Request { max_new_tokens: 1, ..r() })).await;
    assert_eq!((length.ids(), length.finish()), (vec![], (Finish::Length, 1)));
    let stop = run(&d, at_end(Request { stop_ids: vec![from.first.id], ..r() })).await;
    assert_eq!((stop.ids(), stop.finish()), (vec![], (Finish::Stop, 0)));
    assert_eq!(d.stats().steps, 0);
    assert!(at_baseline(&d));
    let again = Request { until: Until::FirstToken, ..at_end(r()) };
    assert_eq!(d.submit(again).map(|_| ()).unwrap_err(), Refused::ResumeForFirstToken);
    assert!(at_baseline(&d));
}

#[tokio::test]
async fn the_prefill_engine_keeps_full_blocks_for_the_next_prompt() {
    let p = Setup::default().spawn();
    let r = || sampled(&prompt(1, 40), 5, None);
    let first = prefill(&p, r()).await;
    assert_eq!((first.cached, lock(&p.pool()).stats().used), (0, 3));
    let again = prefill(&p, r()).await;
    assert_eq!(again.cached, 32, "while the first is still held");
    assert_eq!(again.first, first.first);
    drop((first, again));
    assert!(at_baseline(&p));
    assert_eq!(prefill(&p, r()).await.cached, 32);
}

#[tokio::test]
async fn a_generation_dropped_with_its_blocks_unread_gives_them_back() {
    let p = Setup::default().spawn();
    let g = p.submit(Request { until: Until::FirstToken, ..sampled(&prompt(1, 40), 5, None) });
    let mut g = g.unwrap();
    while !matches!(next(&mut g).await, Some(Event::Token(_))) {}
    eventually("handed over", || p.stats().running == 0).await;
    assert_eq!(lock(&p.pool()).stats().used, 3, "they wait in the channel");
    drop(g);
    assert!(at_baseline(&p));
}

#[tokio::test]
async fn a_preempted_resume_is_computed_here_and_gives_the_same_tokens() {
    let (whole, p) = (Setup::default().spawn(), Setup::default().spawn());
    // Two requests of 2 blocks that grow to 5: the younger has to give way.
    let (d, turn) =
        Setup { kv_blocks: 7, prefix_cache: false, ..Setup::default() }.spawn_in_turns();
    let r = |n| sampled(&prompt(n, 30), 50, Some(n));
    let mut want = Vec::new();
    let mut resumes = Vec::new();
    for n in [1, 2] {
        want.push(run(&whole, r(n)).await);
        let from = prefill(&p, r(n)).await;
        resumes.push(resume(&r(n), carry(&from, &d), Some(&from.first)));
    }
    let running = submit_together(&d, &turn, resumes);
    for (g, want) in running.into_iter().zip(want) {
        let got = answer(g).await;
        assert_eq!(got.tokens, want.tokens[1..]);
    }
    let stats = d.stats();
    assert!(stats.preemptions > 0);
    assert!(stats.resumed_prompt_tokens > 0, "computed again, and said so");
    assert!(at_baseline(&d));
}

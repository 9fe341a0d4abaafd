//! The engine's thread with test doubles behind it (`faults`, `flow`), and with a real model
//! (`model`).

mod double;
mod faults;
mod flow;
mod handoff;
mod model;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tl_kv::lock;

use super::*;
use crate::sample::SamplingParams;

/// The longest any single wait of a test takes before it has failed.
const PATIENCE: Duration = Duration::from_secs(60);

fn request(prompt: &[u32], max_new_tokens: usize) -> Request {
    Request {
        id: "r".into(),
        prompt: prompt.into(),
        sampling: SamplingParams { temperature: 0.0, ..SamplingParams::default() },
        seed: 0,
        max_new_tokens,
        stop_ids: Vec::new(),
        logprobs: None,
        priority: 0,
        deadline: None,
        start: Start::Fresh,
        until: Until::Finished,
    }
}

/// Everything a request gave.
#[derive(Debug, Default)]
struct Answer {
    cached: Option<usize>,
    tokens: Vec<TokenOut>,
    last: Option<Event>,
}

impl Answer {
    fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|t| t.id).collect()
    }

    fn finish(&self) -> (Finish, usize) {
        match self.last {
            Some(Event::Finished { reason, completion_tokens }) => (reason, completion_tokens),
            ref other => panic!("not finished: {other:?}"),
        }
    }

    fn error(&self) -> &EngineError {
        match &self.last {
            Some(Event::Failed(error)) => error,
            other => panic!("not failed: {other:?}"),
        }
    }
}

async fn next(g: &mut Generation) -> Option<Event> {
    tokio::time::timeout(PATIENCE, g.next()).await.expect("a request waits for ever")
}

async fn answer(mut g: Generation) -> Answer {
    let mut answer = Answer::default();
    while let Some(event) = next(&mut g).await {
        assert!(answer.last.is_none(), "{event:?} after {:?}", answer.last);
        match event {
            Event::Admitted { cached_tokens } => {
                assert!(answer.cached.replace(cached_tokens).is_none(), "admitted twice");
            }
            Event::Token(token) => answer.tokens.push(token),
            last => answer.last = Some(last),
        }
    }
    answer
}

async fn run(engine: &Engine, r: Request) -> Answer {
    answer(engine.submit(r).expect("taken")).await
}

/// Polls until `ok`, at most `PATIENCE` long.
async fn eventually(what: &str, mut ok: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !ok() {
        assert!(Instant::now() < until, "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Nothing queued, running or held.
fn at_baseline(engine: &Engine) -> bool {
    let stats = engine.stats();
    let pool = engine.pool();
    let books = lock(&pool);
    books.check().expect("the pool's books");
    stats.queued == 0 && stats.running == 0 && books.stats().used == 0
}

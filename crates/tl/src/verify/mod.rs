//! `tl verify`: the same corpus through the split and through one engine.
//!
//! A hand-off is right when nobody can tell that there was one: text, log-probabilities, finish reasons and
//! usage of every answer are compared exactly. The arithmetic has one order, so a difference of a single bit
//! in a log-probability is a fault, not noise.

mod client;
mod compare;
mod corpus;

use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::mpsc;

use crate::cli::VerifyArgs;
use crate::cluster::{Cluster, ClusterSpec};
use crate::{models, stopping, ui, up};

use client::Client;
use compare::Difference;
use corpus::Case;

/// Exit code when an answer differs.
const DIFFERS: u8 = 3;

pub(crate) async fn run(args: VerifyArgs) -> anyhow::Result<u8> {
    if let (Some(gateway), Some(reference)) = (&args.gateway, &args.reference) {
        return report(&args, gateway, reference).await;
    }
    let spec = ClusterSpec {
        topology: args.cluster.topology,
        model: models::resolve(&args.cluster.model).await?,
        host: "127.0.0.1".to_owned(),
        port: 0,
        kv_blocks: args.cluster.kv_blocks,
        threads: args.cluster.threads,
        reference: true,
    };
    let (events, receiver) = mpsc::unbounded_channel();
    let shown = tokio::spawn(up::show_deaths(receiver));
    ui::note(&format!("starting {} and one engine to compare with", spec.topology));
    let (cluster, _) = Cluster::start(&spec, events).await?;
    let gateway = format!("http://{}", cluster.gateway_addrs()?.http);
    let reference = format!(
        "http://{}",
        cluster.reference_addrs().context("the reference engine is gone")?.http
    );
    let result = tokio::select! {
        result = report(&args, &gateway, &reference) => result,
        _ = stopping::requested(false) => Err(anyhow::anyhow!("interrupted")),
    };
    cluster.stop(Duration::from_secs(5)).await;
    shown.abort();
    result
}

/// Runs the corpus and says what came of it.
async fn report(args: &VerifyArgs, gateway: &str, reference: &str) -> anyhow::Result<u8> {
    let split = Client::new(gateway)?;
    let one = Client::new(reference)?;
    let limits = one.limits().await.context("the reference engine does not answer")?;
    let cases = corpus::cases(&one, &limits, args.max_tokens).await?;
    let started = Instant::now();
    let (mut tokens, mut handed_over) = (0, 0);
    let mut first: Option<(usize, &Case, Difference)> = None;
    let mut differing = 0;
    for (i, case) in cases.iter().enumerate() {
        let expected =
            one.ask(case).await.with_context(|| format!("one engine fails at {}", case.name))?;
        let got =
            split.ask(case).await.with_context(|| format!("the split fails at {}", case.name))?;
        tokens += expected.completion_tokens;
        handed_over += u64::from(got.handed_over);
        if let Some(difference) = compare::first_difference(&expected, &got) {
            differing += 1;
            first.get_or_insert((i, case, difference));
        }
        if !args.json && (i + 1) % 10 == 0 {
            ui::note(&format!("  {} of {} cases, {tokens} tokens", i + 1, cases.len()));
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        let report = serde_json::json!({
            "cases": cases.len(), "differing": differing, "tokens": tokens, "handed_over": handed_over,
            "seconds": seconds,
            "first_difference": first.as_ref().map(|(i, case, difference)| serde_json::json!({
                "case": i, "name": case.name, "request": case.body, "where": difference.place,
                "one_engine": difference.expected, "split": difference.got,
            })),
        });
        ui::out(&report.to_string());
    } else if let Some((i, case, difference)) = &first {
        ui::out(&format!(
            "{differing} of {} cases differ; the first is case {i}, {}:\n  at {}\n  one engine: {}\n  the split:  {}\n  request: {}",
            cases.len(),
            case.name,
            difference.place,
            difference.expected,
            difference.got,
            case.body
        ));
    } else {
        ui::out(&format!(
            "no difference in {} cases ({tokens} tokens, {handed_over} answers prefilled on one engine and decoded on \
             another, {seconds:.1} s)",
            cases.len()
        ));
    }
    if first.is_some() {
        return Ok(DIFFERS);
    }
    // Equal answers prove nothing about hand-offs when there were none.
    if handed_over == 0 && args.cluster.topology != crate::cluster::Topology::Unified {
        anyhow::bail!(
            "every answer is equal, but none was handed over: the split is not happening"
        );
    }
    Ok(0)
}

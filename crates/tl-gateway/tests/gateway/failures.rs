//! Engines that fail, refuse, break off or lie: what the client gets and who is tried next.

use std::time::{Duration, Instant};

use serde_json::json;
use tl_api::openai::Kind;
use tonic::Code;

use crate::support::{Answer, Cluster, Decode, Prefill};

/// With one prefill and two decode engines, the failures in order, the outcome, and how many
/// prefills and releases it took.
async fn check_prefill(script: &[Prefill], expect: &str, prefills: usize) {
    let c = Cluster::start("p d1 d2").await;
    c.engine("p").prefill(script);
    let answer = c.chat(json!({})).await;
    let got = if answer.status == 200 { answer.text().to_owned() } else { answer.error() };
    assert_eq!(got, expect, "{script:?}");
    assert_eq!(c.world.count("p prefill"), prefills, "{script:?}");
    c.until_clean().await;
}

fn fails(code: Code, message: &'static str) -> Prefill {
    Prefill::Fails(code, message)
}

#[tokio::test]
async fn codes_of_prefill_decide_the_retry() {
    let bad = "400 invalid_request_error/null";
    check_prefill(&[fails(Code::DataLoss, "kv transfer: SECRET")], "Hey", 2).await;
    check_prefill(&[fails(Code::NotFound, "kv transfer: SECRET")], "Hey", 2).await;
    check_prefill(&[fails(Code::FailedPrecondition, "SECRET")], "Hey", 2).await;
    check_prefill(&[fails(Code::ResourceExhausted, "kv transfer: SECRET")], "Hey", 2).await;
    check_prefill(&[fails(Code::ResourceExhausted, "SECRET")], "Hey", 2).await;
    check_prefill(&[fails(Code::Unavailable, "kv transfer: SECRET")], "Hey", 2).await;
    check_prefill(&[fails(Code::InvalidArgument, "SECRET")], bad, 1).await;
    // A prefill engine that breaks is left out: a decode engine serves whole.
    check_prefill(&[fails(Code::Internal, "SECRET")], "ey", 1).await;
    check_prefill(&[fails(Code::Unimplemented, "SECRET")], "ey", 1).await;
    let lost = fails(Code::DataLoss, "SECRET");
    check_prefill(&[lost.clone(), lost.clone(), lost], "ey", 3).await;
    let broken = fails(Code::Unavailable, "kv transfer: SECRET");
    check_prefill(&[broken.clone(), broken], "ey", 2).await;
}

/// What a request got from `workers`, of which `full` say so, while room is waited for so long.
async fn with_full(
    workers: &str,
    full: &[&str],
    said: &'static str,
    wait: u64,
) -> (Cluster, Answer) {
    let c = Cluster::with(workers, |config| config.gateway.admission_wait_ms = wait).await;
    for name in full {
        c.engine(name).prefill(&vec![fails(Code::ResourceExhausted, said); 64]);
    }
    let answer = c.chat(json!({})).await;
    c.until_clean().await;
    for worker in c.workers().await {
        assert_eq!(worker["state"], "healthy", "nobody is to blame: {worker}");
    }
    assert!(c.metric("tl_gateway_decode_alone_total").await == 0.0, "waiting, not doing without");
    (c, answer)
}

#[tokio::test]
async fn a_prefill_engine_that_is_full_is_told_apart_from_a_decode_engine_that_is() {
    let busy = "429 rate_limit_error/rate_limit_exceeded";
    // Another prefill engine takes it, and the decode engine stays.
    let (c, answer) = with_full("p1 p2 d1 d2", &["p1"], "the queue is full", 5000).await;
    assert_eq!((answer.status, answer.text()), (200, "Hey"));
    assert_eq!(answer.headers["x-tl-route-prefill"], "p2");
    assert_eq!(answer.headers["x-tl-route-decode"], "d1");
    assert_eq!((c.world.count("p1 prefill"), c.world.count("d1 release")), (1, 1));
    // There is no other: it is asked again until the wait ends.
    let begun = Instant::now();
    let (c, answer) = with_full("p d1 d2", &["p"], "the queue is full", 900).await;
    assert_eq!(answer.error(), busy);
    assert_eq!(answer.headers["retry-after"], "2");
    assert!((Duration::from_millis(900)..Duration::from_secs(15)).contains(&begun.elapsed()));
    assert!((2..=5).contains(&c.world.count("p prefill")), "{}", c.world.count("p prefill"));
    assert_eq!(c.world.count("d2 release"), 0, "d2 was not tried instead");
    // Both decode engines are full: both were tried.
    let (c, answer) = with_full("p d1 d2", &["p"], "kv transfer: no room", 900).await;
    assert_eq!(answer.error(), busy);
    assert!(c.world.count("d1 release") > 0 && c.world.count("d2 release") > 0);
}

#[tokio::test]
async fn a_prefill_engine_that_has_room_again_serves_who_waited() {
    let c = Cluster::start("p d").await;
    c.engine("p").prefill(&vec![fails(Code::ResourceExhausted, "the queue is full"); 5]);
    let answer = c.chat(json!({})).await;
    assert_eq!((answer.status, answer.text()), (200, "Hey"));
    assert_eq!(c.world.count("p prefill"), 6);
    c.until_clean().await;
}

#[tokio::test]
async fn a_decode_engine_that_fails_excludes_itself_and_not_the_prefill_engine() {
    let c = Cluster::start("p d1 d2").await;
    c.engine("d1").decode(&[Decode::Status(500, "internal_error")]);
    let answer = c.chat(json!({})).await;
    assert_eq!((answer.status, answer.text()), (200, "Hey"));
    assert_eq!(answer.headers["x-tl-route-prefill"], "p");
    assert_eq!(answer.headers["x-tl-route-decode"], "d2");
    assert_eq!(c.world.count("p prefill"), 2);
    c.until("the handle is released", async |c| c.world.count("d1 release") == 1).await;
    assert_eq!(c.metric("tl_gateway_failovers_total").await, 1.0);
    c.until_clean().await;
}

#[tokio::test]
async fn answers_of_decode_are_the_clients_or_another_engines() {
    let check = async |status: u16, code: &'static str, expect: &str| {
        let c = Cluster::start("p d1 d2").await;
        c.engine("d1").decode(&[Decode::Status(status, code)]);
        // Without text in the first token nothing is committed.
        c.engine("p").prefill(&[Prefill::Token(1, "")]);
        let answer = c.chat(json!({"stream": status == 418})).await;
        let got = if answer.status == 200 { answer.text().to_owned() } else { answer.error() };
        assert_eq!(got, expect, "{status} {code}");
        c.until("the handle is released", async |c| c.world.count("d1 release") == 1).await;
        c.until_clean().await;
    };
    let invalid = "invalid_request_error";
    check(400, "", &format!("400 {invalid}/null")).await;
    check(400, "context_length_exceeded", &format!("400 {invalid}/context_length_exceeded")).await;
    check(422, "unsupported_parameter", &format!("422 {invalid}/unsupported_parameter")).await;
    check(404, "kv_handle_not_found", "Hey").await;
    check(409, "", "Hey").await;
    check(429, "rate_limit_exceeded", "Hey").await;
    check(503, "no_capacity", "Hey").await;
    check(404, "model_not_found", "Hey").await;
}

#[tokio::test]
async fn a_clients_mistakes_count_against_nobody() {
    let c = Cluster::start("p d").await;
    c.engine("d").decode(&vec![Decode::Status(400, ""); 5]);
    for _ in 0..5 {
        assert_eq!(c.chat(json!({})).await.status, 400);
    }
    assert_eq!(c.worker("d").await["state"], "healthy");
    assert_eq!(c.chat(json!({})).await.status, 200);
}

#[tokio::test]
async fn a_stream_goes_on_elsewhere_only_from_the_same_first_token() {
    let c = Cluster::start("p d1 d2").await;
    c.engine("d1").decode(&[Decode::Status(500, "internal_error")]);
    assert_eq!(c.chat_stream().await.finish().await.0, "Hey|stop done");
    assert_eq!(c.world.count("p prefill"), 2);
    c.until_clean().await;

    let c = Cluster::start("p d1 d2").await;
    c.engine("d1").decode(&[Decode::Status(500, "internal_error")]);
    c.engine("p").prefill(&[Prefill::Token(72, "H"), Prefill::Token(73, "I")]);
    let (seen, stream) = c.chat_stream().await.finish().await;
    assert_eq!(seen, "H| error");
    assert!(stream.error.unwrap().contains("internal_error"));
    assert_eq!(c.world.count("d2 decode "), 0);
    c.until_clean().await;

    // Replaced once, not twice.
    let c = Cluster::start("p d1 d2 d3").await;
    for name in ["d1", "d2"] {
        c.engine(name).decode(&[Decode::Cut(&[])]);
    }
    assert_eq!(c.chat_stream().await.finish().await.0, "H| error");
    assert_eq!(c.world.count("d3 decode "), 0);
    c.until_clean().await;
}

#[tokio::test]
async fn a_stream_that_breaks_later_ends_with_an_error_event_and_no_done() {
    for step in [Decode::Cut(&["e"]), Decode::ErrorEvent(&["e"])] {
        let c = Cluster::start("p d1 d2").await;
        c.engine("d1").decode(&[step.clone()]);
        let (seen, _) = c.chat_stream().await.finish().await;
        assert_eq!(seen, "He| error", "{step:?}");
        assert_eq!(c.world.count("d2 decode "), 0, "nothing is spliced");
        c.until_clean().await;
    }
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_survives_any_loss_of_its_engine() {
    let c = Cluster::start("p d1 d2").await;
    c.engine("d1").decode(&[Decode::Cut(&["x", "x"])]);
    let answer = c.chat(json!({})).await;
    assert_eq!((answer.status, answer.text()), (200, "Hey"));
    c.until_clean().await;
}

#[tokio::test]
async fn one_failing_choice_fails_the_answer() {
    let c = Cluster::start("p d").await;
    c.engine("d").decode(&[Decode::Tokens(&["e"]), Decode::Status(400, "")]);
    let answer = c.chat(json!({"n": 2})).await;
    assert_eq!(answer.error(), "400 invalid_request_error/null");
    c.until_clean().await;
}

#[tokio::test]
async fn a_silent_engine_is_given_up() {
    let c = Cluster::with("p d1 d2", |config| {
        config.gateway.stall_timeout_ms = 200;
        config.gateway.prefill_timeout_ms = 200;
    })
    .await;
    c.engine("d1").decode(&[Decode::Hangs(&["e"])]);
    assert_eq!(c.chat_stream().await.finish().await.0, "He| error");
    c.until_clean().await;
    c.engine("p").prefill(&[Prefill::Hangs]);
    c.engine("d2").decode(&[Decode::Tokens(&["alone"])]);
    let answer = c.chat(json!({})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    c.until("the prefill is cancelled", async |c| c.world.count("p cancel") == 1).await;
    c.until_clean().await;
}

#[tokio::test]
async fn dead_engines_are_passed_over_at_once() {
    let c = Cluster::start("p d1 d2").await;
    c.engine("d1").die();
    let begun = Instant::now();
    let answer = c.chat(json!({})).await;
    assert_eq!((answer.status, answer.text()), (200, "Hey"));
    assert!(begun.elapsed() < Duration::from_secs(10), "refused is known at once");
    c.engine("p").die();
    let answer = c.chat(json!({})).await;
    assert_eq!((answer.status, answer.text()), (200, "ey"));
    c.engine("d2").die();
    let answer = c.chat(json!({})).await;
    assert_eq!(answer.error(), "503 server_error/no_capacity");
}

#[tokio::test]
async fn an_engine_that_fails_again_and_again_leaves_rotation_and_comes_back() {
    let c = Cluster::start("p d1 d2").await;
    let faults = vec![Decode::Status(500, ""); 3];
    c.engine("d1").decode(&faults);
    for _ in 0..3 {
        assert_eq!(c.chat(json!({})).await.text(), "Hey");
    }
    assert_eq!(c.world.count("d1 decode "), 3);
    assert_ne!(c.worker("d1").await["state"], "healthy");
    // Its next request decides, and it is well again.
    c.until("it comes back", async |c| {
        assert_eq!(c.chat(json!({})).await.text(), "Hey");
        c.worker("d1").await["state"] == "healthy"
    })
    .await;
    assert_eq!(c.world.count("d1 decode "), 4, "one probe");
    c.until_clean().await;
}

#[tokio::test]
async fn a_way_that_no_push_gets_through_is_left_out_and_both_engines_stay() {
    let c = Cluster::start("p d1 d2").await;
    let broken = fails(Code::Unavailable, "kv transfer: refused");
    // The least loaded is d1 each time; whoever it is, the next attempt goes to d2.
    for _ in 0..3 {
        c.engine("p").prefill(&[broken.clone(), Prefill::Ok]);
        assert_eq!(c.chat(json!({})).await.text(), "Hey");
    }
    let refused = c.refused_pairs().await;
    assert_eq!(refused.as_array().map(Vec::len), Some(1), "{refused}");
    assert_eq!(
        (refused[0]["prefill"].as_str(), refused[0]["decode"].as_str()),
        (Some("p"), Some("d1"))
    );
    for worker in c.workers().await {
        assert_eq!(worker["state"], "healthy", "{worker}");
    }
    c.until("it comes back", async |c| {
        assert_eq!(c.chat(json!({})).await.text(), "Hey");
        c.refused_pairs().await == json!([])
    })
    .await;
    assert_eq!(c.metric("tl_gateway_decode_alone_total").await, 0.0);
    c.until_clean().await;
}

#[tokio::test]
async fn while_every_way_is_broken_decode_engines_serve_whole() {
    let c = Cluster::start("p d1 d2").await;
    c.engine("p").prefill(&vec![fails(Code::Unavailable, "kv transfer: refused"); 64]);
    for _ in 0..8 {
        assert_eq!(c.chat(json!({})).await.text(), "ey");
        assert_eq!(c.chat_stream().await.finish().await.0, "ey|stop done");
    }
    let tried = c.world.count("p prefill");
    assert!((6..16).contains(&tried), "{tried} hand-offs: ways that fail are left out for a while");
    c.until_clean().await;
}

#[tokio::test]
async fn without_room_the_wait_is_bounded_and_the_answer_429() {
    let c = Cluster::with("p d", |config| {
        config.gateway.admission_wait_ms = 1500;
        config.gateway.admission_queue = 1;
    })
    .await;
    // 5 prompt tokens and 500 are 32 blocks of 16: two such answers fill the pool.
    c.engine("d").decode(&vec![Decode::GatedMiddle; 3]);
    let large = json!({"max_tokens": 500});
    let mut one = c.stream(Kind::Chat, large.clone()).await;
    let mut two = c.stream(Kind::Chat, large.clone()).await;
    assert!(one.step().await && two.step().await);
    assert_eq!(c.worker("d").await["in_flight"], 2);
    let refused = c.chat(large.clone()).await;
    assert_eq!(refused.error(), "429 rate_limit_error/rate_limit_exceeded");
    assert_eq!(refused.headers["retry-after"], "2");
    assert_eq!(c.world.count("p prefill"), 2, "nothing is computed for it");
    // One that waits is served as soon as there is room: whichever of the two ends first.
    let gates = async {
        c.engine("d").gate();
        c.until("the third decodes", async |c| c.world.count("d decode handle") == 3).await;
        c.engine("d").gate();
        c.engine("d").gate();
    };
    let (third, (first, _), (second, _), ()) =
        tokio::join!(c.chat(large), one.finish(), two.finish(), gates);
    assert_eq!((third.status, third.text()), (200, "Hey"));
    assert_eq!((first.as_str(), second.as_str()), ("Hey|stop done", "Hey|stop done"));
    c.until_clean().await;
}

#[tokio::test]
async fn tokenizers_that_fail_are_replaced_and_a_prompt_they_refuse_is_the_clients() {
    let c = Cluster::start("p1 p2 d").await;
    c.engine("p1").tokenize(&[500]);
    assert_eq!(c.chat(json!({})).await.text(), "Hey");
    assert_eq!(c.world.count("p2 tokenize"), 1);
    c.engine("p1").tokenize(&[400]);
    let answer = c.chat(json!({})).await;
    assert_eq!(answer.error(), "400 invalid_request_error/null");
}

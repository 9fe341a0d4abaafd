//! What a client gets when nothing goes wrong.

use serde_json::{Value, json};
use tl_api::config::{Route, Target};
use tl_api::openai::Kind;

use crate::support::{Cluster, Decode, Prefill};

#[tokio::test]
async fn a_streamed_chat_is_one_answer_from_two_engines() {
    let c = Cluster::start("p d").await;
    let (seen, stream) = c.stream(Kind::Chat, json!({"seed": 7})).await.finish().await;
    assert_eq!(seen, "Hey|stop done");
    let opening: Value = serde_json::from_str(&stream.raw[0]).unwrap();
    assert_eq!(opening["object"], "chat.completion.chunk");
    assert_eq!(opening["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let ids: Vec<Value> = stream
        .raw
        .iter()
        .map(|r| serde_json::from_str::<Value>(r).unwrap()["id"].clone())
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "one id for all chunks");
    // The prompt's side from the prefill engine, the answer's from the decode engine.
    let usage = stream.usage.unwrap();
    assert_eq!((usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens), (5, 3, 3));
    let headers = stream.response.headers();
    let id = headers["x-request-id"].to_str().unwrap();
    assert_eq!(headers["x-tl-route-prefill"], "p");
    assert_eq!(headers["x-tl-route-decode"], "d");
    assert_eq!(headers["x-tl-route-blocks-sent"], "2");
    assert_eq!(headers["x-tl-route-blocks-deduped"], "1");
    assert_eq!(headers["x-tl-route-bytes"], "344");
    assert_eq!(c.world.lines("p prefill"), ["p prefill ids=5 seed=7 max=507 logprobs=0"]);
    assert_eq!(
        c.world.lines("d decode "),
        [format!(
            "d decode handle=true first=Some((72, 1)) ids=5 seed=Some(7) n=1 stream=true usage=true internal=4 id={id}"
        )]
    );
    c.until_clean().await;
    assert_eq!(c.world.count("d release"), 0, "an accepted handle is not released");
    assert_eq!(c.metric("tl_gateway_decode_alone_total").await, 0.0);
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_is_built_from_the_same_stream() {
    let c = Cluster::start("p d").await;
    let answer = c.chat(json!({"max_tokens": 9})).await;
    assert_eq!((answer.status, answer.text()), (200, "Hey"));
    assert_eq!(answer.body["object"], "chat.completion");
    assert_eq!(answer.body["choices"][0]["finish_reason"], "stop");
    assert_eq!(
        answer.body["usage"],
        json!({
            "prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 3},
        })
    );
    assert_eq!(answer.headers["x-tl-route-decode"], "d");
    let text = c.ask(Kind::Completion, json!({})).await;
    assert_eq!((text.status, text.text()), (200, "Hey"));
    assert_eq!(text.body["object"], "text_completion");
    let asked = c.world.lines("p prefill");
    assert!(asked[0].contains("max=9 ") && asked[1].contains("max=16 "), "{asked:?}");
    c.until_clean().await;
}

#[tokio::test]
async fn logprobs_cover_every_token_the_first_included() {
    let c = Cluster::start("p d").await;
    let answer = c.chat(json!({"logprobs": true, "top_logprobs": 1})).await;
    let content = answer.body["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    let seen: Vec<(String, f64)> = content
        .iter()
        .map(|t| (t["token"].as_str().unwrap().to_owned(), t["logprob"].as_f64().unwrap()))
        .collect();
    assert_eq!(seen, [("H".into(), -0.25), ("e".into(), -0.5), ("y".into(), -0.5)]);
    assert!(content.iter().all(|t| t["top_logprobs"].as_array().unwrap().len() == 1));
    assert_eq!(content[0]["bytes"], json!([72]));
    let text = c.ask(Kind::Completion, json!({"logprobs": 1})).await;
    let logprobs = &text.body["choices"][0]["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["H", "e", "y"]));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2]));
    let (_, stream) = c.stream(Kind::Completion, json!({"logprobs": 1})).await.finish().await;
    let offsets: Vec<Value> = stream
        .raw
        .iter()
        .filter_map(|r| {
            let chunk: Value = serde_json::from_str(r).unwrap();
            chunk["choices"][0]["logprobs"]["text_offset"].get(0).cloned()
        })
        .collect();
    assert_eq!(offsets, [json!(0), json!(1), json!(2)]);
}

#[tokio::test]
async fn the_first_token_arrives_before_decode_answers() {
    let c = Cluster::start("p d").await;
    c.engine("d").decode(&[Decode::Gated]);
    let mut stream = c.chat_stream().await;
    assert!(stream.step().await);
    assert_eq!(stream.texts, ["H"]);
    c.engine("d").gate();
    assert_eq!(stream.finish().await.0, "Hey|stop done");
    c.until_clean().await;
}

#[tokio::test]
async fn a_first_token_without_text_arrives_with_decodes_first() {
    let c = Cluster::start("p d").await;
    c.engine("p").prefill(&[Prefill::Token(72, "")]);
    assert_eq!(c.chat_stream().await.finish().await.0, "ey|stop done");
    c.until_clean().await;
}

#[tokio::test]
async fn a_withheld_first_token_has_its_logprob_when_its_text_is_shown_and_only_then() {
    let c = Cluster::start("p d").await;
    let tokens = async |withheld, decode| -> usize {
        c.engine("p").prefill(&[Prefill::Withheld(withheld)]);
        c.engine("d").decode(&[Decode::Tokens(decode)]);
        let answer = c.chat(json!({"logprobs": true})).await;
        answer.body["choices"][0]["logprobs"]["content"].as_array().unwrap().len()
    };
    assert_eq!(tokens("H", &["He", "y"]).await, 3);
    assert_eq!(tokens("H", &[]).await, 0, "it was the beginning of a stop string");
    // A token without bytes: alone before an end of text, or before a stop string of more tokens.
    assert_eq!(tokens("", &[]).await, 1, "a token without text is a token");
    assert_eq!(tokens("", &[""]).await, 0, "one engine reports none before a stop string");
}

#[tokio::test]
async fn a_first_token_that_ends_the_answer_reaches_no_decode_engine() {
    let c = Cluster::start("p d").await;
    let stop_string = Prefill::Ends("H", "", "stop");
    c.engine("p").prefill(&[
        Prefill::Ends("H", "H", "length"),
        Prefill::Ends("", "", "stop"),
        stop_string,
    ]);
    let (seen, stream) = c.chat_stream().await.finish().await;
    assert_eq!((seen.as_str(), stream.usage.unwrap().completion_tokens), ("H|length done", 1));
    let answer = c.chat(json!({})).await;
    assert_eq!((answer.status, answer.text()), (200, ""));
    assert_eq!(answer.body["usage"]["completion_tokens"], 0, "an end of text is no answer");
    let answer = c.chat(json!({"logprobs": true})).await;
    assert_eq!((answer.status, answer.text()), (200, ""));
    assert_eq!(answer.body["usage"]["completion_tokens"], 1, "a token in a stop string counts");
    assert_eq!(answer.body["choices"][0]["logprobs"]["content"], json!([]));
    assert_eq!(c.world.count("d decode"), 0);
    c.until_clean().await;
}

#[tokio::test]
async fn several_choices_are_several_handoffs_with_their_own_seeds() {
    let c = Cluster::start("p d").await;
    let answer = c.chat(json!({"n": 3, "seed": 7})).await;
    let choices = answer.body["choices"].as_array().unwrap();
    let indices: Vec<u64> = choices.iter().map(|c| c["index"].as_u64().unwrap()).collect();
    assert_eq!(indices, [0, 1, 2]);
    assert!(choices.iter().all(|c| c["message"]["content"] == "Hey"));
    assert_eq!(answer.body["usage"]["prompt_tokens"], 5);
    assert_eq!(answer.body["usage"]["completion_tokens"], 9);
    assert_eq!(c.world.count("p tokenize"), 1);
    for index in 0..3 {
        let seed = tl_api::openai::choice_seed(7, index);
        assert_eq!(
            c.world.log.lock().iter().filter(|l| l.contains(&format!("seed={seed} "))).count(),
            1
        );
        let on_d = format!("seed=Some({seed})");
        assert_eq!(c.world.log.lock().iter().filter(|l| l.contains(&on_d)).count(), 1);
    }
    let (seen, _) = c.stream(Kind::Chat, json!({"n": 2})).await.finish().await;
    assert_eq!(seen, "Hey|stop Hey|stop done");
    c.until_clean().await;
}

#[tokio::test]
async fn the_seed_is_reported_where_one_engine_reports_it() {
    let c = Cluster::start("p d").await;
    for n in [1, 2] {
        let mut asked = 0;
        let mut check = async |extra: Value, reported: &str, in_body: Option<u64>| {
            let seed: u64 = reported.parse().unwrap();
            if let Some(named) = extra["seed"].as_u64() {
                assert_eq!(seed, named);
            }
            assert!(seed < 1 << 53 && in_body.is_none_or(|s| s == seed));
            for index in 0..n {
                let seed = tl_api::openai::choice_seed(seed, index);
                let on_p = c.world.lines("p prefill");
                assert!(on_p[asked..].iter().any(|l| l.contains(&format!(" seed={seed} "))));
                let on_d = c.world.lines("d decode ");
                assert!(on_d[asked..].iter().any(|l| l.contains(&format!(" seed=Some({seed}) "))));
            }
            asked += n as usize;
            seed
        };
        let mut drawn = Vec::new();
        for extra in [json!({"n": n}), json!({"n": n, "seed": 7}), json!({"n": n})] {
            let answer = c.chat(extra.clone()).await;
            let header = answer.headers["x-tl-seed"].to_str().unwrap();
            drawn.push(check(extra.clone(), header, answer.body["seed"].as_u64()).await);
            assert!(answer.body["seed"].is_u64());
            let (seen, stream) = c.stream(Kind::Chat, extra.clone()).await.finish().await;
            assert!(seen.ends_with("done"));
            let header = stream.response.headers()["x-tl-seed"].to_str().unwrap();
            drawn.push(check(extra, header, None).await);
        }
        drawn.retain(|seed| *seed != 7);
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 4, "each request its own");
    }
    c.until_clean().await;
}

#[tokio::test]
async fn what_belongs_to_the_inside_is_stripped_from_clients() {
    let c = Cluster::start("p d").await;
    let body = json!({
        "model": "m", "messages": [{"role": "user", "content": "hello"}],
        "tl_prompt_ids": [1, 2], "tl_seed": 99, "seed": 7,
    });
    let answer = c
        .http
        .post(c.url("/v1/chat/completions"))
        .header("x-request-id", "my-id")
        .header("x-tl-kv-handle", "forged")
        .header("x-tl-first-token", "1")
        .header("x-tl-rng-draws", "1")
        .header("x-tl-priority", "100")
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["x-request-id"], "my-id");
    assert!(!answer.headers().contains_key("x-tl-route-decode"), "only when asked for");
    let decoded = c.world.lines("d decode ");
    assert!(decoded[0].contains("first=Some((72, 1)) ids=5 seed=Some(7)"), "{decoded:?}");
    assert!(decoded[0].ends_with("id=my-id"));
    let why: Value =
        c.http.get(c.url("/debug/why/my-id")).send().await.unwrap().json().await.unwrap();
    let events: Vec<&str> =
        why["notes"].as_array().unwrap().iter().map(|n| n["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["routed", "prefilled", "finished"]);
    assert_eq!(why["notes"][0]["decode"], "d");
    let unknown = c.http.get(c.url("/debug/why/never")).send().await.unwrap();
    assert_eq!(unknown.status(), 404);
}

#[tokio::test]
async fn prompts_that_are_ids_are_not_tokenized() {
    let c = Cluster::start("p d").await;
    let answer = c.ask(Kind::Completion, json!({"prompt": [1, 2, 3]})).await;
    assert_eq!(answer.status, 200);
    assert_eq!(c.world.count("p tokenize"), 0);
    assert!(c.world.lines("p prefill")[0].contains("ids=3 "));
}

#[tokio::test]
async fn without_a_prefill_engine_decode_serves_alone_and_it_is_counted() {
    let c = Cluster::start("d").await;
    c.engine("d").decode(&[Decode::Tokens(&["a", "b"]), Decode::Tokens(&["a", "b"])]);
    assert_eq!(c.chat_stream().await.finish().await.0, "ab|stop done");
    let answer = c.chat(json!({})).await;
    assert_eq!((answer.status, answer.text()), (200, "ab"));
    assert_eq!(answer.body["usage"]["prompt_tokens_details"]["cached_tokens"], 5);
    assert!(!answer.headers.contains_key("x-tl-route-prefill"));
    assert!(c.world.lines("d decode ")[0].contains("handle=false first=None ids=0"));
    assert_eq!(c.metric("tl_gateway_decode_alone_total").await, 2.0);
    c.until_clean().await;
}

#[tokio::test]
async fn unified_engines_serve_whole_requests() {
    let c = Cluster::start("u").await;
    c.engine("u").decode(&[Decode::Tokens(&["a"])]);
    let answer = c.chat(json!({})).await;
    assert_eq!((answer.status, answer.text()), (200, "a"));
    assert_eq!(c.metric("tl_gateway_decode_alone_total").await, 0.0);
}

#[tokio::test]
async fn a_prefill_peer_without_the_extensions_leaves_the_first_token_to_decode() {
    let c = Cluster::start("p d").await;
    c.engine("p").status.lock().incarnation = 0;
    c.until("the change is known", async |c| {
        c.worker("p").await["incarnation"] == "0000000000000000"
    })
    .await;
    c.engine("d").decode(&[Decode::Tokens(&["H", "e", "y"])]);
    assert_eq!(c.chat_stream().await.finish().await.0, "Hey|stop done");
    assert!(c.world.lines("d decode ")[0].contains("handle=true first=None"));
}

#[tokio::test]
async fn routes_give_models_other_names() {
    let c = Cluster::with("p d", |config| {
        config.gateway.routes = vec![Route {
            model: "m".into(),
            aliases: vec!["nice".into()],
            targets: vec![Target::Disaggregated],
            backends: vec![],
            cascade: vec![],
        }];
    })
    .await;
    let answer = c.chat(json!({"model": "nice"})).await;
    assert_eq!((answer.status, answer.body["model"].as_str()), (200, Some("nice")));
    let list: Value = c.http.get(c.url("/v1/models")).send().await.unwrap().json().await.unwrap();
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    assert_eq!(list["data"][0]["id"], "m");
    for (id, status) in [("m", 200), ("nice", 200), ("other", 404)] {
        let url = c.url(&format!("/v1/models/{id}"));
        assert_eq!(c.http.get(url).send().await.unwrap().status(), status, "{id}");
    }
}

#[tokio::test]
async fn every_error_has_the_contracts_shape() {
    let c = Cluster::start("p d").await;
    let check = async |method: reqwest::Method, path: &str, body: &str, expect: &str| {
        let sent = c.http.request(method, c.url(path)).body(body.to_owned()).send().await.unwrap();
        let status = sent.status().as_u16();
        assert!(sent.headers().contains_key("x-request-id"));
        let body: Value = sent.json().await.unwrap();
        let headers = reqwest::header::HeaderMap::new();
        let answer = crate::support::Answer { status, headers, body };
        assert_eq!(answer.error(), expect, "{path}");
    };
    let (get, post) = (reqwest::Method::GET, reqwest::Method::POST);
    let chat = "/v1/chat/completions";
    let invalid = "invalid_request_error";
    check(get.clone(), "/nowhere", "", &format!("404 {invalid}/null")).await;
    check(get, chat, "", &format!("405 {invalid}/null")).await;
    check(post.clone(), chat, "{", &format!("400 {invalid}/null")).await;
    let other = r#"{"model":"x","messages":[{"role":"user","content":"a"}]}"#;
    check(post.clone(), chat, other, &format!("404 {invalid}/model_not_found")).await;
    let tools = r#"{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{}]}"#;
    check(post.clone(), chat, tools, &format!("422 {invalid}/unsupported_parameter")).await;
    let large = " ".repeat((4 << 20) + 1);
    check(post.clone(), chat, &large, &format!("413 {invalid}/null")).await;
    let long = json!({"model": "m", "prompt": "x".repeat(600)}).to_string();
    check(post, "/v1/completions", &long, &format!("400 {invalid}/context_length_exceeded")).await;
    assert_eq!(c.world.count("p prefill"), 0);
    c.until_clean().await;
}

#[tokio::test]
async fn operators_see_health_metrics_and_workers() {
    let c = Cluster::start("p d").await;
    let get = async |at: std::net::SocketAddr, path: &str| {
        let answer = c.http.get(format!("http://{at}{path}")).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let (api, health) = (c.at.http, c.at.health);
    for at in [api, health] {
        assert_eq!(get(at, "/healthz").await.0, 200);
        assert_eq!(get(at, "/readyz").await.0, 200);
        let (status, page) = get(at, "/workers").await;
        assert!(status == 200 && page.contains("<td>p<td>prefill<td>m"), "{page}");
    }
    assert_eq!(get(api, "/metrics").await.0, 404);
    let (_, metrics) = get(health, "/metrics").await;
    let line = "tl_gateway_workers{role=\"prefill\",state=\"healthy\"} 1";
    assert!(metrics.contains(line), "{metrics}");
    let d = c.worker("d").await;
    assert_eq!((&d["room"], &d["kv_total_blocks"]), (&json!(64), &json!(64)));
    let empty = Cluster::start("").await;
    let ready = empty.http.get(empty.url("/readyz")).send().await.unwrap();
    assert_eq!(ready.status(), 503);
}

//! Prefill on one engine, decode on another, as a gateway drives them: real gRPC, real HTTP, real
//! pools. The measure is what one engine alone answers.

use crate::common::{
    Answer, CHAT, COMPLETIONS, Server, eventually, settings, stream_choices, whole_choices,
};
use serde_json::{Value, json};
use tl_api::config::EngineRole;
use tl_proto::engine::v1::engine_control_client::EngineControlClient;
use tl_proto::engine::v1::{
    CancelRequest, InfoRequest, PrefillRequest, PrefillResponse, SamplingParams,
};

/// A prefill and a decode engine.
struct Pair {
    p: Server,
    d: Server,
}

impl Pair {
    async fn new() -> Pair {
        let p = Server::start(settings(EngineRole::Prefill)).await;
        let d = Server::start(settings(EngineRole::Decode)).await;
        Pair { p, d }
    }

    async fn prefill(&self, id: &str, prompt: &[u32], sampling: SamplingParams) -> PrefillResponse {
        self.try_prefill(id, prompt, sampling).await.unwrap()
    }

    async fn try_prefill(
        &self,
        id: &str,
        prompt: &[u32],
        sampling: SamplingParams,
    ) -> Result<PrefillResponse, tonic::Status> {
        let target = format!("http://{}", self.p.running.addresses().grpc);
        let request = PrefillRequest {
            request_id: id.to_owned(),
            model: "tiny".to_owned(),
            prompt_ids: prompt.to_vec(),
            sampling: Some(sampling),
            decode_target: self.d.running.addresses().kv.unwrap().to_string(),
            deadline_unix_ms: 0,
            priority: 0,
        };
        let mut client = EngineControlClient::connect(target).await.unwrap();
        client.prefill(request).await.map(tonic::Response::into_inner)
    }

    /// Resumes on D with a body, as the gateway sends it.
    async fn resume(&self, body: &Value, first: &PrefillResponse) -> Answer {
        let draws = first.handle.as_ref().unwrap().rng_draws_consumed.to_string();
        let id = first.handle.as_ref().unwrap().handle_id.clone();
        let token = first.first_token.to_string();
        self.d
            .post_with(
                path_of(body),
                body.to_string(),
                &[
                    ("x-tl-kv-handle", &id),
                    ("x-tl-first-token", &token),
                    ("x-tl-rng-draws", &draws),
                ],
            )
            .await
    }

    fn pending(&self) -> usize {
        self.d.running.receiver().unwrap().pending()
    }

    /// No block in use on either side and no handle waiting.
    async fn baseline(&self) {
        eventually("p is back", || self.p.kv().used == 0).await;
        eventually("d is back", || self.d.kv().used == 0).await;
        assert_eq!(self.pending(), 0);
    }

    async fn metric(&self, series: &str) -> f64 {
        let text = self.d.health("/metrics").await.text;
        let line =
            text.lines().find(|l| l.starts_with(series)).unwrap_or_else(|| panic!("no {series}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

#[tokio::test]
async fn a_prefill_leaves_its_time_to_first_token_under_the_name_of_its_api() {
    let pair = Pair::new().await;
    let target = format!("http://{}", pair.p.running.addresses().grpc);
    let mut client = EngineControlClient::connect(target).await.unwrap();
    let count = async |operation: &str| -> u64 {
        let text = pair.p.health("/metrics").await.text;
        let series = format!(
            "gen_ai_server_time_to_first_token_seconds_count{{gen_ai_operation_name=\"{operation}\",\
             gen_ai_request_model=\"tiny\",tl_engine_role=\"prefill\"}}"
        );
        let line = text.lines().find(|l| l.starts_with(&series));
        line.map_or(0, |l| l.rsplit(' ').next().unwrap().parse().unwrap())
    };
    for (id, operation, max_tokens, expect) in [
        ("a", Some("chat"), 5, (1, 0)),
        ("b", Some("text_completion"), 5, (1, 1)),
        ("c", None, 5, (1, 2)),
        ("d", Some("nonsense"), 1, (1, 3)),
    ] {
        let mut request = tonic::Request::new(PrefillRequest {
            request_id: id.to_owned(),
            model: "tiny".to_owned(),
            prompt_ids: prompt(9, 1),
            sampling: Some(sampling(0.0, 0, max_tokens)),
            decode_target: pair.d.running.addresses().kv.unwrap().to_string(),
            deadline_unix_ms: 0,
            priority: 0,
        });
        if let Some(operation) = operation {
            request.metadata_mut().insert("tl-operation", operation.parse().unwrap());
        }
        let response = client.prefill(request).await.unwrap().into_inner();
        assert!(response.ttft_ms > 0.0);
        assert_eq!((count("chat").await, count("text_completion").await), expect, "{id}");
        pair.d.running.receiver().unwrap().release(id);
    }
    pair.baseline().await;
}

fn path_of(body: &Value) -> &'static str {
    if body.get("messages").is_some() { CHAT } else { COMPLETIONS }
}

fn sampling(temperature: f32, seed: u64, max_new_tokens: i32) -> SamplingParams {
    SamplingParams {
        temperature,
        top_p: 1.0,
        repetition_penalty: 1.0,
        seed,
        max_new_tokens,
        ..SamplingParams::default()
    }
}

/// The body for D, and with `ids` gone the one for a single engine.
fn body(ids: &[u32], temperature: f32, seed: u64, max_tokens: i32) -> Value {
    json!({
        "model": "tiny", "prompt": ids, "temperature": temperature, "seed": seed, "max_tokens": max_tokens,
        "stream": true, "stream_options": {"include_usage": true}, "tl_prompt_ids": ids
    })
}

fn prompt(len: u32, salt: u32) -> Vec<u32> {
    (0..len).map(|i| (i * 31 + salt * 7 + 33) % 256).collect()
}

#[tokio::test]
async fn both_ways_give_one_answer() {
    let pair = Pair::new().await;
    let one = Server::unified().await;
    for (len, temperature, seed) in [
        (1, 0.0, 0),
        (3, 0.9, 11),
        (4, 0.0, 0),
        (8, 1.3, 1 << 40),
        (9, 0.7, 5),
        (33, 0.9, 77),
        (130, 1.0, 3),
        // Blocks of four tokens: 64 of them, and around 128.
        (256, 0.9, 4),
        (508, 0.0, 0),
        (511, 0.9, 6),
        (512, 0.0, 0),
        (513, 0.9, 7),
        (516, 1.2, 8),
    ] {
        let ids = prompt(len, seed as u32);
        let request = body(&ids, temperature, seed, 24);
        let alone = one.post(COMPLETIONS, &request).await;
        let (alone, alone_usage) = stream_choices(&alone.events(), false);
        let first = pair.prefill(&format!("h-{len}"), &ids, sampling(temperature, seed, 24)).await;
        if !first.finish_reason.is_empty() {
            assert_eq!(alone[0].text, first.first_text);
            continue;
        }
        assert_eq!(first.handle.as_ref().unwrap().rng_draws_consumed, u32::from(temperature > 0.0));
        let resumed = pair.resume(&request, &first).await;
        let (resumed, usage) = stream_choices(&resumed.events(), false);
        assert_eq!(first.first_text.clone() + &resumed[0].text, alone[0].text, "{len} tokens");
        assert_eq!(resumed[0].finish, alone[0].finish);
        let (usage, alone_usage) = (usage.unwrap(), alone_usage.unwrap());
        assert_eq!(
            usage["completion_tokens"], alone_usage["completion_tokens"],
            "the first token counts"
        );
        assert_eq!(usage["prompt_tokens"], alone_usage["prompt_tokens"]);
        assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0, "handed over is not cached");
    }
    pair.baseline().await;
    assert!(pair.metric("tl_engine_remote_prefill_total").await >= 4.0);
    assert_eq!(pair.metric("tl_engine_resume_recomputed_tokens_total").await, 0.0);
    assert!(pair.metric("tl_kv_transfer_bytes_total{direction=\"received\"}").await > 0.0);
    let sent = pair.p.health("/metrics").await.text;
    assert!(!sent.contains("tl_kv_transfer_bytes_total{direction=\"sent\"} 0\n"), "{sent}");
}

#[tokio::test]
async fn stop_strings_and_logprobs_go_on_where_the_first_token_left_them() {
    let pair = Pair::new().await;
    let one = Server::unified().await;
    let mut compared = 0;
    for seed in 0..8_u64 {
        let ids = prompt(10, seed as u32);
        let free = one.post(COMPLETIONS, &body(&ids, 1.0, seed, 30)).await;
        let (free, _) = stream_choices(&free.events(), false);
        let chars: Vec<char> = free[0].text.chars().collect();
        if chars.len() < 8 {
            continue;
        }
        // one that begins within the first token's character, one further on
        for stop in [chars[0..2].iter().collect::<String>(), chars[3..6].iter().collect()] {
            let mut request = body(&ids, 1.0, seed, 30);
            request["stop"] = json!([stop]);
            request["logprobs"] = json!(2);
            let alone = one.post(COMPLETIONS, &request).await;
            let (alone, _) = stream_choices(&alone.events(), false);
            let mut params = sampling(1.0, seed, 30);
            params.stop = vec![stop];
            params.logprobs = 2;
            let first = pair.prefill(&format!("s-{seed}-{compared}"), &ids, params).await;
            if !first.finish_reason.is_empty() {
                assert_eq!(first.first_text, alone[0].text);
                continue;
            }
            let resumed = pair.resume(&request, &first).await;
            let (resumed, _) = stream_choices(&resumed.events(), false);
            assert_eq!(first.first_text + &resumed[0].text, alone[0].text);
            assert_eq!(resumed[0].finish, alone[0].finish);
            // The first token's entry came from P; D's entries are the rest.
            let skip = alone[0].logprobs.len() - resumed[0].logprobs.len();
            assert!(skip <= 1, "{skip} entries are missing");
            let values = |entries: &[Value]| {
                entries
                    .iter()
                    .map(|e| (e["tokens"].clone(), e["token_logprobs"].clone()))
                    .collect::<Vec<_>>()
            };
            assert_eq!(values(&resumed[0].logprobs), values(&alone[0].logprobs[skip..]));
            compared += 1;
        }
    }
    assert!(compared > 6, "{compared}");
    pair.baseline().await;
}

#[tokio::test]
async fn without_the_first_token_d_samples_it_again() {
    let pair = Pair::new().await;
    let one = Server::unified().await;
    for (len, seed) in [(9, 5), (8, 6)] {
        let ids = prompt(len, 1);
        let request = body(&ids, 0.8, seed, 16);
        let alone = stream_choices(&one.post(COMPLETIONS, &request).await.events(), false).0;
        let first = pair.prefill(&format!("again-{len}"), &ids, sampling(0.8, seed, 16)).await;
        if !first.finish_reason.is_empty() {
            continue;
        }
        let id = first.handle.unwrap().handle_id;
        let resumed =
            pair.d.post_with(COMPLETIONS, request.to_string(), &[("x-tl-kv-handle", &id)]).await;
        assert_eq!(stream_choices(&resumed.events(), false).0, alone);
    }
    pair.baseline().await;
    assert!(pair.metric("tl_engine_resume_recomputed_tokens_total").await <= 2.0);
}

/// Every refusal of a resume gives the blocks back at once: no lease has to end for it.
#[tokio::test]
async fn a_refused_resume_gives_the_blocks_back() {
    let pair = Pair::new().await;
    let ids = prompt(9, 2);
    let good = body(&ids, 0.0, 1, 8);
    let change = |key: &str, value: Value| {
        let mut changed = good.clone();
        changed[key] = value;
        changed.to_string()
    };
    let mut other_token = ids.clone();
    other_token[8] ^= 1;
    let mut other_block = ids.clone();
    other_block[0] ^= 1;
    let cases: Vec<(&str, String, u16)> = vec![
        ("not json", "{".into(), 400),
        ("another model", change("model", json!("nope")), 404),
        ("a bad value", change("temperature", json!(9)), 400),
        ("not carried", change("echo", json!(true)), 422),
        ("several choices", change("n", json!(2)), 400),
        ("a longer prompt", change("tl_prompt_ids", json!(prompt(10, 2))), 409),
        ("a shorter prompt", change("tl_prompt_ids", json!(prompt(8, 2))), 409),
        ("another first block", change("tl_prompt_ids", json!(other_block)), 409),
        ("too long for the context", change("tl_prompt_ids", json!(prompt(2000, 2))), 400),
        (
            "no vocabulary has it",
            change("tl_prompt_ids", json!([1, 2, 3, 4, 5, 6, 7, 8, 4_000_000])),
            400,
        ),
    ];
    for (i, (what, request, status)) in cases.into_iter().enumerate() {
        let first = pair.prefill(&format!("bad-{i}"), &ids, sampling(0.0, 1, 8)).await;
        assert!(first.finish_reason.is_empty(), "choose a prompt whose answer goes on");
        assert_eq!(pair.pending(), 1);
        let id = first.handle.as_ref().unwrap().handle_id.clone();
        let token = first.first_token.to_string();
        let headers = [
            ("x-tl-kv-handle", id.as_str()),
            ("x-tl-first-token", token.as_str()),
            ("x-tl-rng-draws", "0"),
        ];
        let answer = pair.d.post_with(COMPLETIONS, request, &headers).await;
        // a 409 where a length or a block is wrong; a prompt that is too long is the client's fault
        // first
        assert!(
            answer.status == status || (answer.status == 409 && status == 400),
            "{what}: {} {}",
            answer.status,
            answer.text
        );
        answer.error();
        assert_eq!((pair.pending(), pair.d.kv().used), (0, 0), "{what}");
    }
    for (name, value) in
        [("x-tl-rng-draws", "many"), ("x-tl-priority", "1000"), ("x-tl-first-token", "-1")]
    {
        let first = pair.prefill(&format!("header-{name}"), &ids, sampling(0.0, 1, 8)).await;
        let id = first.handle.as_ref().unwrap().handle_id.clone();
        let answer = pair
            .d
            .post_with(COMPLETIONS, good.to_string(), &[("x-tl-kv-handle", &id), (name, value)])
            .await;
        assert_eq!(answer.status, 400, "{name}");
        answer.error();
        assert_eq!((pair.pending(), pair.d.kv().used), (0, 0), "{name}");
    }
    // and the engine still serves this very prompt
    let first = pair.prefill("good", &ids, sampling(0.0, 1, 8)).await;
    pair.resume(&good, &first).await.events();
    pair.baseline().await;
}

#[tokio::test]
async fn a_handle_is_claimed_once() {
    let pair = Pair::new().await;
    let ids = prompt(9, 2);
    let request = body(&ids, 0.0, 1, 8);
    let first = pair.prefill("once", &ids, sampling(0.0, 1, 8)).await;
    pair.resume(&request, &first).await.events();
    let again = pair.resume(&request, &first).await;
    assert_eq!(again.status, 404);
    assert_eq!(again.error().1.as_deref(), Some("kv_handle_not_found"));
    pair.baseline().await;
}

#[tokio::test]
async fn a_client_that_leaves_during_the_upload_of_a_resume_frees_the_handle() {
    use tokio::io::AsyncWriteExt;
    let pair = Pair::new().await;
    let first = pair.prefill("leaves", &prompt(9, 2), sampling(0.0, 1, 8)).await;
    let id = first.handle.unwrap().handle_id;
    let mut socket = tokio::net::TcpStream::connect(pair.d.running.addresses().http).await.unwrap();
    let head = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: x\r\nx-tl-kv-handle: {id}\r\ncontent-length: 900\r\n\r\n{{"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    drop(socket);
    eventually("the handle is released", || pair.pending() == 0).await;
    pair.baseline().await;
}

#[tokio::test]
async fn every_role_serves_an_ordinary_request_whole() {
    let request = json!({"model": "tiny", "prompt": "hello", "max_tokens": 8, "temperature": 0});
    let mut answers = Vec::new();
    for role in [EngineRole::Unified, EngineRole::Prefill, EngineRole::Decode] {
        let s = Server::start(settings(role)).await;
        answers.push(whole_choices(&s.post(COMPLETIONS, &request).await.ok()));
        s.idle().await;
    }
    assert!(answers.windows(2).all(|w| w[0] == w[1]));
}

#[tokio::test]
async fn only_a_prefill_engine_prefills() {
    let pair = Pair::new().await;
    let ids = prompt(5, 1);
    for (id, params) in
        [("bad-temperature", sampling(-1.0, 1, 8)), ("no-tokens", sampling(0.0, 1, 0))]
    {
        let status = pair.try_prefill(id, &ids, params).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{id}");
    }
    let target = format!("http://{}", pair.d.running.addresses().grpc);
    let mut d = EngineControlClient::connect(target).await.unwrap();
    let request = PrefillRequest {
        request_id: "x".into(),
        prompt_ids: ids,
        sampling: Some(sampling(0.0, 1, 8)),
        decode_target: pair.d.running.addresses().kv.unwrap().to_string(),
        ..PrefillRequest::default()
    };
    assert_eq!(d.prefill(request).await.unwrap_err().code(), tonic::Code::FailedPrecondition);
    let info = d.info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.model.as_str(), info.block_size, info.max_context), ("tiny", 4, 1024));
    assert_eq!(info.roles, ["decode"]);
    assert_ne!((info.incarnation, info.model_fingerprint), (0, 0));
    assert_eq!((info.layers, info.kv_heads, info.head_dim), (3, 2, 16));
    let found = d
        .cancel(CancelRequest { request_id: "never-was".into() })
        .await
        .unwrap()
        .into_inner()
        .found;
    assert!(!found);
    pair.baseline().await;
}

#[tokio::test]
async fn a_first_token_that_ends_the_request_makes_no_handle() {
    let pair = Pair::new().await;
    let first = pair.prefill("one", &prompt(9, 3), sampling(0.0, 1, 1)).await;
    assert!(
        ["length", "stop"].contains(&first.finish_reason.as_str()),
        "{:?}",
        first.finish_reason
    );
    pair.baseline().await;
}

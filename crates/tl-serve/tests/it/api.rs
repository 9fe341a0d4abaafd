//! Routes, errors, headers: what holds for every exchange.

use crate::common::{CHAT, COMPLETIONS, Server, body, settings};
use serde_json::{Value, json};
use tl_api::config::EngineRole;

#[tokio::test]
async fn models_are_listed_and_found() {
    let s = Server::unified().await;
    let list = s.get("/v1/models").await.ok();
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][0]["id"], "tiny");
    let one = s.get("/v1/models/tiny").await.ok();
    assert_eq!(one, list["data"][0]);
    let missing = s.get("/v1/models/org/other").await;
    assert_eq!(missing.status, 404);
    assert_eq!(missing.error().1.as_deref(), Some("model_not_found"));
}

#[tokio::test]
async fn tokenize_gives_the_ids_that_a_completion_uses() {
    let s = Server::unified().await;
    let ids = s
        .post("/v1/tokenize", &json!({"model": "tiny", "text": "hello", "add_special": true}))
        .await
        .ok();
    let ids = ids["ids"].as_array().unwrap().clone();
    assert!(!ids.is_empty());
    let extra = json!({"max_tokens": 4, "temperature": 0});
    let by_text = s.post(COMPLETIONS, &body(COMPLETIONS, "hello", extra.clone())).await.ok();
    let mut request = body(COMPLETIONS, "", extra);
    request["prompt"] = Value::Array(ids.clone());
    let by_ids = s.post(COMPLETIONS, &request).await.ok();
    assert_eq!(by_text["choices"], by_ids["choices"]);
    assert_eq!(by_text["usage"]["prompt_tokens"], ids.len());
}

#[tokio::test]
async fn tokenize_renders_messages_as_a_chat_does() {
    let s = Server::unified().await;
    let messages =
        json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]);
    let ids = s.post("/v1/tokenize", &json!({"model": "tiny", "messages": messages})).await.ok();
    let request = json!({"model": "tiny", "messages": messages, "max_tokens": 1});
    let answer = s.post(CHAT, &request).await.ok();
    assert_eq!(answer["usage"]["prompt_tokens"], ids["ids"].as_array().unwrap().len());
}

#[tokio::test]
async fn a_request_id_is_kept_or_made_and_always_returned() {
    let s = Server::unified().await;
    let long = "x".repeat(129);
    for (given, kept) in
        [("abc-1", true), ("", false), ("with space", false), (long.as_str(), false)]
    {
        let answer = s.post_with(CHAT, "{}", &[("x-request-id", given)]).await;
        let id = &answer.headers["x-request-id"];
        assert_eq!(id == given, kept, "{given:?} became {id:?}");
        assert!((1..=128).contains(&id.len()));
    }
    for path in ["/v1/models", "/nowhere", "/healthz"] {
        assert!(s.get(path).await.headers.contains_key("x-request-id"), "{path}");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_errors_of_the_contract() {
    let s = Server::unified().await;
    for path in ["/", "/v1", "/v1/chat", "/v1/chat/completions/", "/metrics", "/v2/models"] {
        let answer = s.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        answer.error();
    }
    for (method, path) in
        [("GET", CHAT), ("DELETE", CHAT), ("POST", "/v1/models"), ("PUT", "/v1/tokenize")]
    {
        let method: reqwest::Method = method.parse().unwrap();
        let response = s.client.request(method.clone(), s.url(path)).send().await.unwrap();
        let answer = crate::common::Answer::read(response).await;
        assert_eq!(answer.status, 405, "{method} {path}");
        answer.error();
    }
    for path in ["/", "/v1/models"] {
        let answer = s.health(path).await;
        assert_eq!(answer.status, 404);
        answer.error();
    }
    let answer = s.client.post(s.health_url("/readyz")).send().await.unwrap();
    let answer = crate::common::Answer::read(answer).await;
    assert_eq!(answer.status, 405);
    answer.error();
}

#[tokio::test]
async fn health_answers() {
    let s = Server::unified().await;
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(s.health(path).await.status, 200, "{path}");
    }
    assert_eq!(s.health("/metrics").await.headers["content-type"], "text/plain; version=0.0.4");
    assert_eq!(s.get("/healthz").await.status, 200);
}

/// Status, code and param of each refusal.
#[tokio::test]
async fn refusals_have_the_contracts_shape() {
    let s = Server::unified().await;
    let chat = |extra: Value| body(CHAT, "hi", extra).to_string();
    let text = |extra: Value| body(COMPLETIONS, "hi", extra).to_string();
    let unsupported = Some("unsupported_parameter");
    let cases: Vec<(&str, String, u16, Option<&str>, Option<&str>)> = vec![
        (CHAT, String::new(), 400, None, None),
        (CHAT, "{".into(), 400, None, None),
        (CHAT, "[]".into(), 400, None, None),
        (CHAT, "\u{0}\u{1}".into(), 400, None, None),
        (CHAT, "[".repeat(100_000), 400, None, None),
        (
            CHAT,
            json!({"messages": [{"role": "user", "content": "x"}]}).to_string(),
            400,
            None,
            Some("model"),
        ),
        (CHAT, json!({"model": "tiny"}).to_string(), 400, None, Some("messages")),
        (CHAT, chat(json!({"model": "nope"})), 404, Some("model_not_found"), Some("model")),
        (CHAT, chat(json!({"model": 7})), 400, None, Some("model")),
        (CHAT, chat(json!({"messages": []})), 400, None, Some("messages")),
        (CHAT, chat(json!({"temperature": 2.1})), 400, None, Some("temperature")),
        (CHAT, chat(json!({"temperature": "hot"})), 400, None, Some("temperature")),
        (CHAT, chat(json!({"top_p": 0})), 400, None, Some("top_p")),
        (CHAT, chat(json!({"n": 0})), 400, None, Some("n")),
        (CHAT, chat(json!({"n": 1000})), 400, None, Some("n")),
        (CHAT, chat(json!({"seed": -1})), 400, None, Some("seed")),
        (CHAT, chat(json!({"stop": ["a", "b", "c", "d", "e"]})), 400, None, Some("stop")),
        (CHAT, chat(json!({"stop": ""})), 400, None, Some("stop")),
        (CHAT, chat(json!({"max_tokens": 0})), 400, None, Some("max_tokens")),
        (CHAT, chat(json!({"top_logprobs": 3})), 400, None, Some("top_logprobs")),
        (
            CHAT,
            chat(json!({"logprobs": true, "top_logprobs": 21})),
            400,
            None,
            Some("top_logprobs"),
        ),
        (CHAT, chat(json!({"tools": [{"type": "function"}]})), 422, unsupported, Some("tools")),
        (
            CHAT,
            chat(json!({"response_format": {"type": "json_object"}})),
            422,
            unsupported,
            Some("response_format"),
        ),
        (CHAT, chat(json!({"logit_bias": {"1": 5}})), 422, unsupported, Some("logit_bias")),
        (COMPLETIONS, text(json!({"prompt": ""})), 400, None, Some("prompt")),
        (COMPLETIONS, text(json!({"prompt": ["a", "b"]})), 422, unsupported, Some("prompt")),
        (COMPLETIONS, text(json!({"echo": true})), 422, unsupported, Some("echo")),
        (COMPLETIONS, text(json!({"prompt": [1, 4_000_000_000_u32]})), 400, None, None),
        (
            COMPLETIONS,
            text(json!({"prompt": "x".repeat(20_000)})),
            400,
            Some("context_length_exceeded"),
            None,
        ),
        (
            "/v1/embeddings",
            json!({"model": "tiny", "input": "x"}).to_string(),
            422,
            unsupported,
            Some("input"),
        ),
        ("/v1/tokenize", json!({"model": "tiny"}).to_string(), 400, None, Some("text")),
        (
            "/v1/tokenize",
            json!({"model": "no", "text": ""}).to_string(),
            404,
            Some("model_not_found"),
            Some("model"),
        ),
    ];
    for (path, request, status, code, param) in cases {
        let shown: String = request.chars().take(120).collect();
        let answer = s.post_with(path, request, &[]).await;
        assert_eq!(answer.status, status, "{path} {shown}: {}", answer.text);
        let (_, got_code, got_param, _) = answer.error();
        assert_eq!(
            (got_code.as_deref(), got_param.as_deref()),
            (code, param),
            "{path} {shown}: {}",
            answer.text
        );
    }
    assert_eq!(s.kv().used, 0);
}

#[tokio::test]
async fn headers_of_the_inside_are_checked() {
    let s = Server::unified().await;
    let request = body(CHAT, "hi", json!({"max_tokens": 1})).to_string();
    for (name, value, status) in [
        ("x-tl-priority", "101", 400),
        ("x-tl-priority", "high", 400),
        ("x-tl-priority", "-100", 200),
        ("x-tl-first-token", "5", 400),
        ("x-tl-kv-handle", "unknown", 404),
    ] {
        let answer = s.post_with(CHAT, request.clone(), &[(name, value)]).await;
        assert_eq!(answer.status, status, "{name}: {value}: {}", answer.text);
        if status != 200 {
            answer.error();
        }
    }
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused_and_the_answer_arrives() {
    let mut settings = settings(EngineRole::Unified);
    settings.limits.body_bytes = 64 * 1024;
    let s = Server::start(settings).await;
    let fits = body(CHAT, "hi", json!({"max_tokens": 1, "metadata": "x".repeat(60_000)}));
    assert_eq!(s.post(CHAT, &fits).await.status, 200);
    let large = body(CHAT, "hi", json!({"metadata": "x".repeat(4 << 20)}));
    let answer = s.post(CHAT, &large).await;
    assert!([400, 413].contains(&answer.status), "{}", answer.status);
    answer.error();
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_given_up() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut settings = settings(EngineRole::Unified);
    settings.limits.body_time = std::time::Duration::from_millis(50);
    let s = Server::start(settings).await;
    let mut socket = tokio::net::TcpStream::connect(s.running.addresses().http).await.unwrap();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{{");
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

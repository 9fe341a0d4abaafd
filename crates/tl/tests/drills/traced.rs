//! One request, found by its name in the logs of every process it passed.

use serde_json::{Value, json};

use super::parts::{Drill, Part, Shape};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The log lines that name the request, each of which must name the trace too.
fn lines(part: &Part, request_id: &str, trace_id: &str) -> Vec<Value> {
    let log = part.log();
    let about = log.lines().filter(|line| line.contains(request_id));
    about
        .map(|line| {
            let line: Value =
                serde_json::from_str(line).unwrap_or_else(|e| panic!("{}: {e}: {line}", part.name));
            assert_eq!(line["request_id"], request_id, "{line}");
            assert_eq!(line["trace_id"], trace_id, "{line}");
            assert_eq!(line["service"], format!("tl-{}", part.kind()), "{line}");
            for key in ["ts", "level", "msg", "span_id"] {
                assert!(line[key].is_string(), "no {key} in {line}");
            }
            line
        })
        .collect()
}

#[tokio::test]
async fn a_request_is_followed_over_gateway_prefill_and_decode() {
    let shape = Shape::new(1, 1).env("TL_LOG", "debug").env("TL_LOG_FORMAT", "json");
    let drill = Drill::start(shape).await;
    let ask = async |id: &str, traceparent: Option<&str>| {
        let body = json!({"model": "tiny", "prompt": "a name for a request", "max_tokens": 6});
        let mut request =
            drill.http.post(drill.url("/v1/completions")).header("x-request-id", id).json(&body);
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        assert_eq!(request.send().await.unwrap().status(), 200);
    };
    ask("my-request-1", Some(&format!("00-{TRACE}-00f067aa0ba902b7-01"))).await;
    let parts = [&drill.gateway, &drill.prefill[0], &drill.decode[0]];
    let said = |part: &Part, what: &str| {
        lines(part, "my-request-1", TRACE).iter().any(|line| line["msg"] == what)
    };
    drill
        .until("each has said its part", async || {
            said(parts[0], "routed")
                && said(parts[0], "prefilled")
                && said(parts[0], "answered")
                && said(parts[1], "kv blocks delivered")
                && said(parts[2], "http exchange")
        })
        .await;
    // Each process has a span of its own in that trace.
    let mut spans: Vec<String> = parts
        .iter()
        .map(|part| lines(part, "my-request-1", TRACE)[0]["span_id"].to_string())
        .collect();
    spans.sort();
    spans.dedup();
    assert_eq!(spans.len(), 3, "{spans:?}");

    // Without a trace of the client's the gateway begins one, and the engines are in it.
    ask("my-request-2", Some("nonsense")).await;
    drill
        .until("the prefill engine names it", async || {
            let log = drill.prefill[0].log();
            log.lines().any(|l| l.contains("my-request-2"))
        })
        .await;
    let log = drill.gateway.log();
    let line = log.lines().find(|l| l.contains("my-request-2")).expect("the gateway names it");
    let line: Value = serde_json::from_str(line).unwrap();
    let trace = line["trace_id"].as_str().expect("a trace id").to_owned();
    assert!(trace.len() == 32 && trace != TRACE);
    assert!(!lines(&drill.prefill[0], "my-request-2", &trace).is_empty());
    drill
        .until("the decode engine names it", async || {
            !lines(&drill.decode[0], "my-request-2", &trace).is_empty()
        })
        .await;
    drill.until_baseline().await;
}

use super::{
    CappedLabel, EngineMetrics, EngineSample, GatewayMetrics, LABEL_CAP, Operation, RoleLabel,
    ServingMetrics, WorkerCounts, time_per_output_token,
};
use std::time::Duration;

fn families(text: &str) -> Vec<&str> {
    text.lines().filter_map(|l| l.strip_prefix("# TYPE ")).collect()
}

#[track_caller]
fn has(text: &str, line: &str) {
    assert!(text.lines().any(|l| l == line), "no line {line:?} in\n{text}");
}

/// A family with labels appears in the exposition with its first series.
fn observe_all(s: &ServingMetrics) {
    s.first_token(Operation::Chat, "m", Duration::ZERO);
    s.output_tokens(Operation::Chat, "m", Duration::ZERO, Duration::ZERO, 2);
    s.request(Operation::Chat, "m", None, Duration::ZERO);
    s.http("GET", "/", 200, Duration::ZERO);
    s.usage(Operation::Chat, "m", 1, 1);
}

const SERVING: [&str; 5] = [
    "gen_ai_server_time_to_first_token_seconds histogram",
    "gen_ai_server_time_per_output_token_seconds histogram",
    "gen_ai_server_request_duration_seconds histogram",
    "http_server_request_duration_seconds histogram",
    "gen_ai_client_token_usage histogram",
];

#[test]
fn engine_names_and_zeroes() {
    let m = EngineMetrics::new(RoleLabel::Decode);
    observe_all(m.serving());
    let text = m.render(&EngineSample::default());
    let mut expected = SERVING.to_vec();
    expected.extend([
        "tl_engine_kv_blocks gauge",
        "tl_engine_kv_evictions_total counter",
        "tl_engine_queue_depth gauge",
        "tl_engine_active_sequences gauge",
        "tl_engine_batch_tokens gauge",
        "tl_engine_prefix_cache_hit_ratio gauge",
        "tl_engine_spec_accept_rate gauge",
        "tl_engine_preemptions_total counter",
        "tl_kv_transfer_bytes_total counter",
        "tl_kv_transfer_blocks_total counter",
        "tl_engine_remote_prefill_total counter",
        "tl_engine_resume_recomputed_tokens_total counter",
        "tl_kv_handles gauge",
        "tl_kv_handles_ended_total counter",
        "tl_kv_handles_expired_total counter",
    ]);
    assert_eq!(families(&text), expected);
    for line in [
        "tl_engine_kv_blocks{state=\"free\"} 0",
        "tl_engine_kv_blocks{state=\"used\"} 0",
        "tl_engine_kv_blocks{state=\"cached\"} 0",
        "tl_engine_kv_evictions_total 0",
        "tl_engine_queue_depth 0",
        "tl_engine_prefix_cache_hit_ratio 0.0",
        "tl_kv_transfer_bytes_total{direction=\"sent\"} 0",
        "tl_kv_transfer_bytes_total{direction=\"received\"} 0",
        "tl_kv_transfer_blocks_total{outcome=\"sent\"} 0",
        "tl_kv_transfer_blocks_total{outcome=\"deduped\"} 0",
        "tl_kv_handles{state=\"waiting\"} 0",
        "tl_kv_handles_expired_total 0",
        "tl_engine_remote_prefill_total 0",
    ] {
        has(&text, line);
    }
    assert!(!text.contains("# EOF"), "0.0.4 has no end mark");
}

#[test]
fn engine_values_and_labels() {
    let m = EngineMetrics::new(RoleLabel::Prefill);
    let s = m.serving();
    s.first_token(Operation::Chat, "m", Duration::from_millis(30));
    s.output_tokens(Operation::Chat, "m", Duration::from_millis(30), Duration::from_millis(90), 4);
    s.request(Operation::TextCompletion, "m", None, Duration::from_millis(15));
    s.request(Operation::Chat, "m", Some("no_capacity"), Duration::from_secs(100));
    s.http("POST", "/v1/chat/completions", 200, Duration::from_millis(1));
    s.http("BREW", "/v1/models", 405, Duration::from_millis(1));
    s.usage(Operation::Chat, "m", 17, 4);
    m.kv_pushed(344, 2, 1);
    let text = m.render(&EngineSample {
        kv_free: 3,
        kv_used: 2,
        kv_cached: 1,
        prefix_query_tokens: 21,
        prefix_hit_tokens: 8,
        preemptions: 5,
        remote_prefills: 1,
        handles_claimed: 1,
        ..EngineSample::default()
    });
    let who = "gen_ai_operation_name=\"chat\",gen_ai_request_model=\"m\"";
    for line in [
        format!("gen_ai_server_time_to_first_token_seconds_bucket{{{who},tl_engine_role=\"prefill\",le=\"0.02\"}} 0"),
        format!("gen_ai_server_time_to_first_token_seconds_bucket{{{who},tl_engine_role=\"prefill\",le=\"0.04\"}} 1"),
        format!("gen_ai_server_time_per_output_token_seconds_bucket{{{who},tl_engine_role=\"prefill\",le=\"0.01\"}} 0"),
        format!("gen_ai_server_time_per_output_token_seconds_bucket{{{who},tl_engine_role=\"prefill\",le=\"0.025\"}} 1"),
        format!("gen_ai_server_request_duration_seconds_bucket{{{who},error_type=\"no_capacity\",le=\"81.92\"}} 0"),
        format!("gen_ai_server_request_duration_seconds_bucket{{{who},error_type=\"no_capacity\",le=\"+Inf\"}} 1"),
        format!("gen_ai_client_token_usage_bucket{{{who},gen_ai_token_type=\"input\",le=\"16\"}} 0"),
        format!("gen_ai_client_token_usage_bucket{{{who},gen_ai_token_type=\"output\",le=\"4\"}} 1"),
        "http_server_request_duration_seconds_count{http_request_method=\"POST\",http_route=\"/v1/chat/completions\",http_response_status_code=\"200\"} 1".into(),
        "http_server_request_duration_seconds_count{http_request_method=\"_OTHER\",http_route=\"/v1/models\",http_response_status_code=\"405\"} 1".into(),
        "tl_engine_kv_blocks{state=\"free\"} 3".into(),
        "tl_engine_preemptions_total 5".into(),
        "tl_engine_prefix_cache_hit_ratio 0.38095238095238095".into(),
        "tl_kv_transfer_bytes_total{direction=\"sent\"} 344".into(),
        "tl_kv_transfer_blocks_total{outcome=\"sent\"} 2".into(),
        "tl_kv_transfer_blocks_total{outcome=\"deduped\"} 1".into(),
        "tl_engine_remote_prefill_total 1".into(),
        "tl_kv_handles_ended_total{outcome=\"claimed\"} 1".into(),
    ] {
        has(&text, &line);
    }
}

#[test]
fn histogram_bounds_are_the_contract() {
    let m = EngineMetrics::new(RoleLabel::Unified);
    observe_all(m.serving());
    let text = m.render(&EngineSample::default());
    let check = |name: &str, filter: &str, bounds: &str| {
        let prefix = format!("{name}_bucket{{");
        let got: Vec<f64> = text
            .lines()
            .filter(|l| l.contains(filter))
            .filter_map(|l| {
                l.strip_prefix(&prefix)?.split_once(",le=\"")?.1.split('"').next()?.parse().ok()
            })
            .collect();
        let mut expected: Vec<f64> = bounds.split(' ').map(|b| b.parse().unwrap()).collect();
        expected.push(f64::INFINITY);
        assert_eq!(got, expected, "{name}");
    };
    check(
        "gen_ai_server_time_to_first_token_seconds",
        "",
        ".001 .005 .01 .02 .04 .06 .08 .1 .25 .5 .75 1 2.5 5 7.5 10",
    );
    check(
        "gen_ai_server_time_per_output_token_seconds",
        "",
        ".01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5",
    );
    check(
        "gen_ai_server_request_duration_seconds",
        "",
        ".01 .02 .04 .08 .16 .32 .64 1.28 2.56 5.12 10.24 20.48 40.96 81.92",
    );
    check(
        "http_server_request_duration_seconds",
        "",
        ".005 .01 .025 .05 .075 .1 .25 .5 .75 1 2.5 5 7.5 10",
    );
    check(
        "gen_ai_client_token_usage",
        "\"input\"",
        "1 4 16 64 256 1024 4096 16384 65536 262144 1048576 4194304 16777216 67108864",
    );
}

#[test]
fn gateway_names_and_zeroes() {
    let m = GatewayMetrics::new();
    m.request("/v1/chat/completions", 200, "default");
    m.ratelimit_rejection("rpm", "default");
    m.policy_denial("no-secrets");
    m.set_workers(RoleLabel::Decode, WorkerCounts { healthy: 2, draining: 1 });
    observe_all(m.serving());
    let guard = m.enter();
    let text = m.render();
    let mut expected = SERVING.to_vec();
    expected.extend([
        "tl_gateway_requests_total counter",
        "tl_gateway_ratelimit_rejections_total counter",
        "tl_gateway_cache_hits_total counter",
        "tl_gateway_policy_denials_total counter",
        "tl_gateway_workers gauge",
        "tl_gateway_decode_alone_total counter",
        "tl_gateway_failovers_total counter",
        "tl_gateway_inflight gauge",
    ]);
    assert_eq!(families(&text), expected);
    for line in [
        "tl_gateway_requests_total{route=\"/v1/chat/completions\",code=\"200\",tenant=\"default\"} 1",
        "tl_gateway_ratelimit_rejections_total{limit=\"rpm\",tenant=\"default\"} 1",
        "tl_gateway_cache_hits_total 0",
        "tl_gateway_policy_denials_total{rule=\"no-secrets\"} 1",
        "tl_gateway_workers{role=\"decode\",state=\"healthy\"} 2",
        "tl_gateway_workers{role=\"decode\",state=\"draining\"} 1",
        "tl_gateway_workers{role=\"prefill\",state=\"healthy\"} 0",
        "tl_gateway_decode_alone_total 0",
        "tl_gateway_inflight 1",
    ] {
        has(&text, line);
    }
    drop(guard);
    has(&m.render(), "tl_gateway_inflight 0");
}

#[test]
fn a_label_keeps_64_values() {
    let label = CappedLabel::default();
    for i in 0..LABEL_CAP {
        assert_eq!(label.value(&format!("m{i}")), format!("m{i}"));
    }
    assert_eq!(label.value("one more"), "_other");
    assert_eq!(label.value("m0"), "m0");
    assert_eq!(CappedLabel::default().value(&"x".repeat(129)), "_other");
}

#[test]
fn time_per_output_token_needs_two_tokens() {
    let ms = Duration::from_millis;
    assert_eq!(time_per_output_token(ms(10), ms(50), 1), None);
    assert_eq!(time_per_output_token(ms(10), ms(50), 0), None);
    assert_eq!(time_per_output_token(ms(10), ms(50), 5), Some(ms(10)));
}

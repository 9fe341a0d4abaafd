use super::*;

#[test]
fn every_row_has_its_status_type_and_code() {
    let check = |error: ApiError, status: u16, kind: &str, code: Option<&str>| {
        let response = error.to_response();
        assert_eq!(response.status().as_u16(), status);
        assert_eq!(response.headers()["content-type"], "application/json");
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        let inner = body["error"].as_object().unwrap();
        let keys: Vec<&str> = inner.keys().map(String::as_str).collect();
        assert_eq!(keys, ["message", "type", "param", "code"]);
        assert_eq!(inner["type"], kind);
        assert_eq!(inner["code"].as_str(), code);
        assert!(!inner["message"].as_str().unwrap().is_empty());
        assert_eq!(PeerError::read(status, response.body()).code, error.code);
    };
    let invalid = "invalid_request_error";
    check(ApiError::bad_request("m", "p"), 400, invalid, None);
    check(ApiError::context_length("m"), 400, invalid, Some("context_length_exceeded"));
    check(ApiError::invalid_api_key(), 401, invalid, Some("invalid_api_key"));
    check(ApiError::insufficient_scope("s"), 403, "permission_error", Some("insufficient_scope"));
    check(ApiError::model_not_found("m"), 404, invalid, Some("model_not_found"));
    check(ApiError::kv_handle_not_found(), 404, invalid, Some("kv_handle_not_found"));
    check(ApiError::unknown_path("/x"), 404, invalid, None);
    check(ApiError::method_not_allowed("PUT", "/x"), 405, invalid, None);
    check(ApiError::prompt_mismatch("m"), 409, invalid, None);
    check(ApiError::body_too_large(4), 413, invalid, None);
    check(ApiError::unsupported_parameter("p", "m"), 422, invalid, Some("unsupported_parameter"));
    check(ApiError::rate_limited("m", 0), 429, "rate_limit_error", Some("rate_limit_exceeded"));
    check(ApiError::usage_policy("r"), 451, "policy_error", Some("usage_policy"));
    check(ApiError::internal("m"), 500, "server_error", Some("internal_error"));
    check(ApiError::no_capacity("m"), 503, "server_error", Some("no_capacity"));
}

#[test]
fn retry_after_is_whole_seconds_and_at_least_one() {
    assert_eq!(ApiError::rate_limited("m", 0).to_response().headers()["retry-after"], "1");
    assert_eq!(ApiError::rate_limited("m", 7).to_response().headers()["retry-after"], "7");
    assert!(!ApiError::internal("m").to_response().headers().contains_key("retry-after"));
}

#[test]
fn a_peers_body_of_any_kind_is_read() {
    let check = |body: &[u8], code: Option<ErrorCode>, message: &str| {
        let peer = PeerError::read(500, body);
        assert_eq!((peer.code, peer.message.as_str()), (code, message));
    };
    check(b"", None, "");
    check(b"<html>", None, "<html>");
    check(br#"{"error":"flat"}"#, None, r#"{"error":"flat"}"#);
    check(br#"{"error":{"message":"m","code":"no_capacity"}}"#, Some(ErrorCode::NoCapacity), "m");
    check(br#"{"error":{"message":"m","code":"news"}}"#, None, "m");
    assert_eq!(PeerError::read(500, &[b'x'; 5000]).message.len(), 300);
}

#[test]
fn client_text_is_cut_and_escaped() {
    assert_eq!(quoted("a\nb"), r#""a\nb""#);
    assert_eq!(quoted(&"x".repeat(200)).len(), 84);
}

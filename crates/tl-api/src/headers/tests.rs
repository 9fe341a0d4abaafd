use super::*;

fn with(name: HeaderName, value: &[u8]) -> HeaderMap {
    let mut map = HeaderMap::new();
    map.insert(name, HeaderValue::from_bytes(value).unwrap());
    map
}

#[test]
fn a_well_formed_request_id_is_kept_and_any_other_replaced() {
    let kept = |value: &str| request_id(&with(REQUEST_ID, value.as_bytes())) == value;
    assert!(kept("abc"));
    assert!(kept(&"x".repeat(128)));
    assert!(!kept(&"x".repeat(129)));
    assert!(!kept(""));
    assert!(!kept("two words"));
    assert!(request_id(&with(REQUEST_ID, &[0xff, 0xfe])).starts_with("req-"));
    assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
}

#[test]
fn priorities_are_checked() {
    let check = |text: &str, expect: Option<i32>| {
        assert_eq!(priority(&with(PRIORITY, text.as_bytes())).ok(), expect, "{text}");
    };
    check("0", Some(0));
    check("-100", Some(-100));
    check("100", Some(100));
    check("101", None);
    check("+5", None);
    check("1e2", None);
    check("", None);
    assert_eq!(priority(&HeaderMap::new()), Ok(0));
}

#[test]
fn internal_headers_are_known_by_prefix() {
    assert!(is_internal(&HeaderName::from_static("x-tl-anything")));
    assert!(!is_internal(&REQUEST_ID));
}

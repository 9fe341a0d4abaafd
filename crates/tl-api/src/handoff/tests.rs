use proptest::prelude::*;

use super::*;
use crate::openai::Internal;

fn read(call: &DecodeCall, kind: crate::openai::Kind) -> Result<Option<Resume>, ApiError> {
    let request = Generate::parse(kind, &call.body, Internal::Honoured)?;
    Resume::read(&call.headers, &request)
}

proptest! {
    /// What the gateway sends is what the decode engine reads, every field of it.
    #[test]
    fn resumes_cross_unchanged(
        request in crate::openai::tests::generate(),
        handle_id in "[!-~]{1,128}",
        first in proptest::option::of((any::<u32>(), 0u32..=MAX_RNG_DRAWS)),
        request_id in "[!-~]{1,128}",
        priority in -100i32..=100,
        traceparent in proptest::option::of("00-[0-9a-f]{32}-[0-9a-f]{16}-01"),
    ) {
        let kind = request.kind;
        let resume = Resume {
            handle_id,
            first: first.map(|(id, draws)| FirstToken { id, draws }),
            request,
            context: Context {
                request_id,
                priority,
                trace: traceparent.and_then(|text| Trace::parse(&text)),
            },
        };
        let call = resume.to_call();
        prop_assert_eq!(call.path, kind.path());
        prop_assert_eq!(read(&call, kind), Ok(Some(resume)));
    }

    #[test]
    fn plain_requests_have_no_handle(request in crate::openai::tests::generate()) {
        let call = plain_call(&request, &Context { request_id: "r".into(), ..Context::default() });
        prop_assert_eq!(read(&call, request.kind), Ok(None));
    }
}

fn with(pairs: &[(&'static str, &str)]) -> Result<bool, String> {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.insert(*name, HeaderValue::from_str(value).unwrap());
    }
    let body = br#"{"model":"m","prompt":"x"}"#;
    let request =
        Generate::parse(crate::openai::Kind::Completion, body, Internal::Honoured).unwrap();
    Resume::read(&map, &request).map(|r| r.is_some()).map_err(|e| e.message)
}

#[test]
fn bad_headers_are_refused_with_their_name() {
    let handle = ("x-tl-kv-handle", "h");
    assert_eq!(with(&[handle]), Ok(true));
    assert_eq!(with(&[handle, ("x-tl-first-token", "0"), ("x-tl-rng-draws", "1")]), Ok(true));
    let check = |pairs: &[(&'static str, &str)], names: &str| {
        let message = with(pairs).expect_err(names);
        assert!(message.contains(names), "{message}");
    };
    check(&[handle, ("x-tl-first-token", "0")], "x-tl-rng-draws");
    check(&[handle, ("x-tl-rng-draws", "0")], "x-tl-first-token");
    check(&[handle, ("x-tl-first-token", "-1"), ("x-tl-rng-draws", "0")], "x-tl-first-token");
    check(&[handle, ("x-tl-first-token", "1"), ("x-tl-rng-draws", "1025")], "x-tl-rng-draws");
    check(&[("x-tl-first-token", "1"), ("x-tl-rng-draws", "1")], "x-tl-kv-handle");
    check(&[("x-tl-kv-handle", "two words")], "x-tl-kv-handle");
    check(&[("x-tl-kv-handle", "")], "x-tl-kv-handle");
    check(&[handle, ("x-tl-priority", "500")], "x-tl-priority");
}

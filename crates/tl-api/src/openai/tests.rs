use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::error::{ApiError, ErrorCode};

fn chat(extra: Value) -> Result<Generate, ApiError> {
    parse(Kind::Chat, json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}), extra)
}

fn completion(extra: Value) -> Result<Generate, ApiError> {
    parse(Kind::Completion, json!({"model": "m", "prompt": "hi"}), extra)
}

fn parse(kind: Kind, mut body: Value, extra: Value) -> Result<Generate, ApiError> {
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    Generate::parse(kind, body.to_string().as_bytes(), Internal::Ignored)
}

#[test]
fn defaults_are_filled_in() {
    let expect = Generate {
        kind: Kind::Chat,
        model: "m".into(),
        input: Input::Messages(vec![ChatMessage { role: Role::User, content: "hi".into() }]),
        sampling: Sampling::default(),
        stop: vec![],
        max_tokens: None,
        n: 1,
        seed: None,
        logprobs: None,
        stream: false,
        include_usage: false,
        user: None,
        tl_prompt_ids: None,
    };
    assert_eq!(chat(json!({})), Ok(expect.clone()));
    assert_eq!(
        completion(json!({})),
        Ok(Generate {
            kind: Kind::Completion,
            input: Input::Text("hi".into()),
            max_tokens: Some(16),
            ..expect
        })
    );
}

#[test]
fn fields_are_read() {
    let got = chat(json!({
        "temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1,
        "presence_penalty": -0.5, "frequency_penalty": 2, "stop": ["a", "b"], "max_tokens": 7,
        "max_completion_tokens": 9, "n": 3, "seed": 42, "logprobs": true, "top_logprobs": 4,
        "stream": true, "stream_options": {"include_usage": true}, "user": "u",
    }))
    .unwrap();
    let f = |x: f32| f64::from(x);
    assert_eq!(
        got.sampling,
        Sampling {
            temperature: f(0.7),
            top_p: f(0.9),
            top_k: 5,
            min_p: f(0.1),
            repetition_penalty: f(1.1),
            presence_penalty: -0.5,
            frequency_penalty: 2.0,
        }
    );
    assert_eq!((got.stop.len(), got.max_tokens, got.n, got.seed), (2, Some(9), 3, Some(42)));
    assert_eq!((got.logprobs, got.stream, got.include_usage), (Some(4), true, true));
    assert_eq!(chat(json!({"logprobs": true})).unwrap().logprobs, Some(0));
    assert_eq!(completion(json!({"logprobs": 0})).unwrap().logprobs, Some(0));
    assert_eq!(chat(json!({"stop": "x"})).unwrap().stop, ["x"]);
}

#[test]
fn null_is_absent_and_unknown_fields_are_ignored() {
    let names = [
        "temperature",
        "top_p",
        "top_k",
        "stop",
        "max_tokens",
        "n",
        "seed",
        "logprobs",
        "stream",
        "stream_options",
        "user",
        "tools",
        "tool_choice",
        "response_format",
        "logit_bias",
    ];
    let nulls: Value = names
        .iter()
        .map(|n| ((*n).to_owned(), Value::Null))
        .collect::<serde_json::Map<_, _>>()
        .into();
    assert_eq!(chat(nulls), chat(json!({})));
    assert_eq!(chat(json!({"metadata": {"a": 1}, "store": false, "x": [1]})), chat(json!({})));
}

#[test]
fn harmless_defaults_pass() {
    let extras = [
        json!({"tools": []}),
        json!({"tool_choice": "none"}),
        json!({"tool_choice": "auto", "parallel_tool_calls": true}),
        json!({"response_format": {"type": "text"}}),
        json!({"logit_bias": {}}),
        json!({"modalities": ["text"]}),
        json!({"top_logprobs": 0}),
    ];
    for extra in extras {
        assert_eq!(chat(extra.clone()), chat(json!({})), "{extra}");
    }
    for extra in [json!({"echo": false}), json!({"best_of": 1}), json!({"suffix": ""})] {
        assert_eq!(completion(extra.clone()), completion(json!({})), "{extra}");
    }
}

#[test]
fn wrong_values_name_their_field() {
    let check = |result: Result<Generate, ApiError>, param: &str| {
        let error = result.expect_err(param);
        assert_eq!(error.status.as_u16(), 400, "{error}");
        assert_eq!(error.param.as_deref(), Some(param), "{error}");
        assert!(error.message.contains(param), "{error}");
    };
    let one = |name: &str, value: Value| json!({ name: value });
    let ranges: [(&str, &[Value]); 12] = [
        ("temperature", &[json!(-0.1), json!(2.1), json!("1"), json!([]), json!(1e300)]),
        ("top_p", &[json!(0), json!(1.01), json!(1e-60)]),
        ("top_k", &[json!(-1), json!(1.5), json!(4_294_967_296_u64)]),
        ("min_p", &[json!(-0.1), json!(1.1)]),
        ("repetition_penalty", &[json!(0), json!(10.5), json!(-1)]),
        ("presence_penalty", &[json!(-2.5), json!(2.5)]),
        ("frequency_penalty", &[json!(-2.5), json!(true)]),
        ("seed", &[json!(-1), json!(9_223_372_036_854_775_808_u64), json!("7")]),
        ("n", &[json!(0), json!(17), json!(1.0)]),
        ("max_tokens", &[json!(0), json!(-3), json!("5")]),
        ("stream", &[json!("true"), json!(1)]),
        ("stop", &[json!(""), json!(7), json!(["a", "b", "c", "d", "e"])]),
    ];
    for (name, values) in ranges {
        for value in values {
            check(chat(one(name, value.clone())), name);
            check(completion(one(name, value.clone())), name);
        }
    }
    check(chat(json!({"model": ""})), "model");
    check(chat(json!({"model": 3})), "model");
    check(chat(json!({"user": "x".repeat(257)})), "user");
    check(chat(json!({"stop": ["a", ""]})), "stop[1]");
    check(chat(json!({"top_logprobs": 3})), "top_logprobs");
    check(chat(json!({"logprobs": true, "top_logprobs": 21})), "top_logprobs");
    check(chat(json!({"logprobs": 2})), "logprobs");
    check(completion(json!({"logprobs": true})), "logprobs");
    check(chat(json!({"stream_options": {"include_usage": 1}})), "stream_options.include_usage");
    check(chat(json!({"stream_options": true})), "stream_options");
    check(chat(json!({"response_format": {"type": "yaml"}})), "response_format.type");
    check(chat(json!({"tool_choice": "maybe"})), "tool_choice");
    check(chat(json!({"messages": []})), "messages");
    check(chat(json!({"messages": null})), "messages");
    check(chat(json!({"messages": ["hi"]})), "messages[0]");
    check(chat(json!({"messages": [{"role": "robot", "content": ""}]})), "messages[0].role");
    check(chat(json!({"messages": [{"role": "user"}]})), "messages[0].content");
    let part = json!({"type": "text"});
    let message = json!({"role": "user", "content": [part]});
    check(chat(json!({"messages": [message]})), "messages[0].content[0].text");
    check(completion(json!({"prompt": ""})), "prompt");
    check(completion(json!({"prompt": []})), "prompt");
    check(completion(json!({"prompt": null})), "prompt");
    check(completion(json!({"prompt": [1, -1]})), "prompt[1]");
    check(completion(json!({"prompt": [[1, 4_294_967_296_u64]]})), "prompt[0][1]");
    check(completion(json!({"prompt": 7})), "prompt");
}

#[test]
fn known_but_unsupported_parameters_are_named() {
    let check = |result: Result<Generate, ApiError>, param: &str| {
        let error = result.expect_err(param);
        assert_eq!(error.status.as_u16(), 422, "{error}");
        assert_eq!(error.code, Some(ErrorCode::UnsupportedParameter));
        assert_eq!(error.param.as_deref(), Some(param));
    };
    check(chat(json!({"tools": [{"type": "function"}]})), "tools");
    check(chat(json!({"functions": [{}]})), "functions");
    check(chat(json!({"tool_choice": "required"})), "tool_choice");
    check(chat(json!({"tool_choice": {"type": "function"}})), "tool_choice");
    check(chat(json!({"response_format": {"type": "json_object"}})), "response_format");
    check(chat(json!({"response_format": {"type": "json_schema"}})), "response_format");
    check(chat(json!({"logit_bias": {"5": 1}})), "logit_bias");
    check(chat(json!({"modalities": ["audio"]})), "modalities");
    check(completion(json!({"logit_bias": {"5": 1}})), "logit_bias");
    check(completion(json!({"echo": true})), "echo");
    check(completion(json!({"best_of": 2})), "best_of");
    check(completion(json!({"suffix": "x"})), "suffix");
    check(completion(json!({"prompt": ["a", "b"]})), "prompt");
    check(completion(json!({"prompt": [[1], [2]]})), "prompt");
    let calls = json!([{"role": "assistant", "content": null, "tool_calls": [{}]}]);
    check(chat(json!({"messages": calls})), "messages[0].tool_calls");
    let image = json!([{"role": "user", "content": [{"type": "image_url"}]}]);
    check(chat(json!({"messages": image})), "messages[0].content[0].type");
}

#[test]
fn prompts_come_in_four_shapes() {
    let check = |prompt: Value, expect: Input| {
        assert_eq!(completion(json!({"prompt": prompt})).unwrap().input, expect);
    };
    check(json!("a"), Input::Text("a".into()));
    check(json!(["a"]), Input::Text("a".into()));
    check(json!([1, 2]), Input::Ids(vec![1, 2]));
    check(json!([[1, 2]]), Input::Ids(vec![1, 2]));
}

#[test]
fn content_parts_are_joined_and_roles_known() {
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let messages = json!([
        {"role": "developer", "content": "s"}, {"role": "user", "content": parts},
        {"role": "assistant", "content": "x", "tool_calls": []}, {"role": "tool", "content": ""},
    ]);
    let Input::Messages(got) = chat(json!({"messages": messages})).unwrap().input else { panic!() };
    let got: Vec<(&str, &str)> =
        got.iter().map(|m| (m.role.as_str(), m.content.as_str())).collect();
    assert_eq!(got, [("system", "s"), ("user", "ab"), ("assistant", "x"), ("tool", "")]);
}

#[test]
fn bodies_that_are_no_object_are_refused() {
    let check = |body: &[u8], status: u16| {
        let error = Generate::parse(Kind::Chat, body, Internal::Ignored).unwrap_err();
        assert_eq!(error.status.as_u16(), status, "{error}");
    };
    check(b"", 400);
    check(b"[]", 400);
    check(b"{\"model\":", 400);
    check(b"\xff", 400);
    check("[".repeat(100_000).as_bytes(), 400);
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    check(deep.as_bytes(), 400);
    check(&vec![b' '; MAX_BODY_BYTES + 1], 413);
}

#[test]
fn internal_fields_are_read_only_from_servers() {
    let body =
        json!({"model": "m", "prompt": "x", "seed": 5, "tl_seed": u64::MAX, "tl_prompt_ids": [3]});
    let body = body.to_string();
    let client = Generate::parse(Kind::Completion, body.as_bytes(), Internal::Ignored).unwrap();
    assert_eq!((client.seed, client.tl_prompt_ids), (Some(5), None));
    let server = Generate::parse(Kind::Completion, body.as_bytes(), Internal::Honoured).unwrap();
    assert_eq!((server.seed, server.tl_prompt_ids), (Some(u64::MAX), Some(vec![3])));
    let empty = json!({"model": "m", "prompt": "x", "tl_prompt_ids": []}).to_string();
    assert!(Generate::parse(Kind::Completion, empty.as_bytes(), Internal::Honoured).is_err());
}

#[test]
fn choice_seeds_are_child_seeds() {
    assert_eq!(choice_seed(77, 0), 77);
    // child_seed(0, 4) of the contract is 17909611376780542444; ours start at purpose 17.
    let child = |seed: u64, p: u64| {
        choice_seed(seed.wrapping_sub(13u64.wrapping_mul(0x9E37_79B9_7F4A_7C15)), (p - 3) as u32)
    };
    assert_eq!(child(0, 4), 17_909_611_376_780_542_444);
    assert_eq!(child(77, 4), 3_633_191_138_996_939_195);
    assert_ne!(choice_seed(0, 1), choice_seed(0, 2));
}

fn any_generate() -> impl Strategy<Value = Generate> {
    let f32s =
        (0.0f32..=2.0, 0.01f32..=1.0, 0.0f32..=1.0, 0.01f32..=10.0, -2.0f32..=2.0, -2.0f32..=2.0);
    let sampling = (f32s, 0u32..100).prop_map(|((t, p, m, r, pp, fp), k)| Sampling {
        temperature: t.into(),
        top_p: p.into(),
        top_k: k,
        min_p: m.into(),
        repetition_penalty: r.into(),
        presence_penalty: pp.into(),
        frequency_penalty: fp.into(),
    });
    let role =
        prop_oneof![Just(Role::System), Just(Role::User), Just(Role::Assistant), Just(Role::Tool)];
    let message = (role, ".*").prop_map(|(role, content)| ChatMessage { role, content });
    let input = prop_oneof![
        proptest::collection::vec(message, 1..4).prop_map(Input::Messages),
        ".+".prop_map(Input::Text),
        proptest::collection::vec(any::<u32>(), 1..9).prop_map(Input::Ids),
    ];
    let some = (
        proptest::collection::vec(".+", 0..4),
        proptest::option::of(1u64..5000),
        1u32..=16,
        proptest::option::of(any::<u64>()),
        proptest::option::of(0u32..=20),
        any::<(bool, bool)>(),
        proptest::option::of("[a-z]{0,9}"),
        proptest::option::of(proptest::collection::vec(any::<u32>(), 1..9)),
    );
    (input, sampling, some).prop_map(
        |(input, sampling, (stop, max, n, seed, logprobs, (stream, include_usage), user, ids))| {
            let kind = match input {
                Input::Messages(_) => Kind::Chat,
                _ => Kind::Completion,
            };
            Generate {
                kind,
                model: "m".into(),
                input,
                sampling,
                stop,
                // A text completion without a limit has one of 16.
                max_tokens: if kind == Kind::Completion { max.or(Some(16)) } else { max },
                n,
                seed,
                logprobs,
                stream,
                include_usage,
                user,
                tl_prompt_ids: ids,
            }
        },
    )
}

pub(crate) fn generate() -> impl Strategy<Value = Generate> {
    any_generate()
}

proptest! {
    #[test]
    fn what_is_sent_is_what_is_read(request in any_generate()) {
        let body = request.to_body().to_string();
        let back = Generate::parse(request.kind, body.as_bytes(), Internal::Honoured);
        prop_assert_eq!(back, Ok(request.clone()));
        if let Some(tokenize) = Tokenize::of(&request) {
            let body = tokenize.to_body().to_string();
            prop_assert_eq!(Tokenize::parse(body.as_bytes()), Ok(tokenize));
        }
    }

    /// Any JSON in any field: an answer, never a panic.
    #[test]
    fn strange_bodies(name in "model|messages|prompt|stop|tools|stream_options|response_format|logprobs", text in "[\\[\\]{}\",:0-9a-z]{0,20}") {
        for kind in [Kind::Chat, Kind::Completion] {
            let body = format!("{{\"model\":\"m\",\"prompt\":\"p\",\"messages\":[],\"{name}\":{text}}}");
            let _ = Generate::parse(kind, body.as_bytes(), Internal::Honoured);
            let _ = Tokenize::parse(body.as_bytes());
            let _ = parse_chunk(kind, &body);
        }
    }
}

#[test]
fn tokenize_bodies() {
    let parse = |v: Value| Tokenize::parse(v.to_string().as_bytes());
    assert_eq!(
        parse(json!({"model": "m", "text": "a"})).unwrap().input,
        TokenizeInput::Text { text: "a".into(), add_special: false }
    );
    assert_eq!(parse(json!({"model": "m"})).unwrap_err().param.as_deref(), Some("text"));
    assert_eq!(
        parse_tokenize_response(tokenize_response(&[1, 2]).to_string().as_bytes()),
        Some(vec![1, 2])
    );
    assert_eq!(parse_tokenize_response(b"{\"ids\":[-1]}"), None);
}

fn logprob(token: &str, logprob: f64) -> TokenLogprob {
    TokenLogprob {
        token: token.into(),
        logprob,
        bytes: Some(token.as_bytes().to_vec()),
        text_offset: 0,
        top: vec![TopLogprob {
            token: token.into(),
            logprob,
            bytes: Some(token.as_bytes().to_vec()),
        }],
    }
}

fn head(kind: Kind) -> Head {
    let mut head = Head::new(kind, "m", 7).unwrap();
    assert_eq!(head.id.len(), if kind == Kind::Chat { 25 } else { 21 });
    head.id = "x".into();
    head
}

#[test]
fn chat_shapes() {
    let head = head(Kind::Chat);
    let opens = Delta { opens: true, ..Delta::default() };
    assert_eq!(
        head.chunk(&opens).to_string(),
        r#"{"id":"x","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}"#
    );
    let end = Delta { index: 1, finish: Some(FinishReason::Length), ..Delta::default() };
    assert_eq!(
        head.chunk(&end)["choices"][0],
        json!({"index": 1, "delta": {}, "logprobs": null, "finish_reason": "length"})
    );
    let usage = Usage { prompt_tokens: 5, completion_tokens: 2, cached_tokens: 4 };
    let choice = Choice {
        index: 0,
        text: "hi".into(),
        logprobs: Some(vec![logprob("hi", -0.5)]),
        finish: FinishReason::Stop,
    };
    assert_eq!(
        head.answer(&[choice], usage, 77),
        json!({
            "id": "x", "object": "chat.completion", "created": 7, "model": "m",
            "choices": [{
                "index": 0, "message": {"role": "assistant", "content": "hi"},
                "logprobs": {"content": [{
                    "token": "hi", "logprob": -0.5, "bytes": [104, 105],
                    "top_logprobs": [{"token": "hi", "logprob": -0.5, "bytes": [104, 105]}],
                }]},
                "finish_reason": "stop",
            }],
            "usage": {
                "prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 4},
            },
            "seed": 77,
        })
    );
    let last = head.usage_chunk(usage);
    assert_eq!(
        (last["choices"].clone(), last["usage"]["total_tokens"].clone()),
        (json!([]), json!(7))
    );
}

#[test]
fn text_completion_shapes() {
    let head = head(Kind::Completion);
    let at = |token: TokenLogprob, text_offset| TokenLogprob { text_offset, ..token };
    let tokens = vec![at(logprob("grü", -0.5), 10), at(logprob("ß", f64::NEG_INFINITY), 13)];
    let delta = Delta { text: "grüß".into(), logprobs: Some(tokens), ..Delta::default() };
    assert_eq!(
        head.chunk(&delta)["choices"][0],
        json!({
            "index": 0, "text": "grüß",
            "logprobs": {
                "tokens": ["grü", "ß"], "token_logprobs": [-0.5, -9999.0],
                "top_logprobs": [{"grü": -0.5}, {"ß": -9999.0}], "text_offset": [10, 13],
            },
            "finish_reason": null,
        })
    );
    assert_eq!(head.chunk(&delta)["object"], "text_completion");
}

#[test]
fn chunks_are_read_back() {
    for kind in [Kind::Chat, Kind::Completion] {
        let head = head(kind);
        let delta = Delta {
            index: 2,
            opens: true,
            text: "a".into(),
            logprobs: Some(vec![TokenLogprob { text_offset: 3, ..logprob("a", -1.5) }]),
            finish: Some(FinishReason::Stop),
        };
        let parsed = parse_chunk(kind, &head.chunk(&delta).to_string()).unwrap();
        let ParsedChunk::Parts { parts, usage: None } = parsed else { panic!("{parsed:?}") };
        assert_eq!(
            (parts[0].index, parts[0].text.as_str(), parts[0].finish),
            (2, "a", delta.finish)
        );
        let logprobs = parts[0].logprobs.as_ref().unwrap();
        assert_eq!((logprobs[0].token.as_str(), logprobs[0].logprob), ("a", -1.5));
        assert_eq!(logprobs[0].text_offset, if kind == Kind::Completion { 3 } else { 0 });
        assert_eq!(logprobs[0].top.len(), 1);
        let usage = Usage { prompt_tokens: 3, completion_tokens: 2, cached_tokens: 1 };
        let parsed = parse_chunk(kind, &head.usage_chunk(usage).to_string());
        assert_eq!(parsed, Some(ParsedChunk::Parts { parts: vec![], usage: Some(usage) }));
        let error = ApiError::internal("m").body().to_string();
        assert!(matches!(parse_chunk(kind, &error), Some(ParsedChunk::Error(_))));
        assert_eq!(parse_chunk(kind, "{}"), None);
        assert_eq!(parse_chunk(kind, "nonsense"), None);
    }
}

#[test]
fn model_lists() {
    assert_eq!(
        model_list(["a"], 3),
        json!({"object": "list", "data": [{"id": "a", "object": "model", "created": 3, "owned_by": "tl"}]})
    );
}

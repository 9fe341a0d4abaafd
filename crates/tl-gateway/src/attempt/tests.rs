mod world;

use std::time::Instant;

use tl_api::error::{ErrorCode, PeerError};
use tonic::Code;

use super::*;
use crate::registry::Registry;
use crate::registry::tests::status;

/// Slots of six workers; only their identity matters here.
fn slots() -> [Slot; 6] {
    let mut registry = Registry::new(3);
    let now = Instant::now();
    std::array::from_fn(|i| {
        let port = 100 + 10 * i as u16;
        registry.beat(now, &status(&format!("w{i}"), "decode", port)).unwrap().slot
    })
}

/// Actions as short words, with workers by their place in `slots()`.
fn words(actions: &[Action]) -> String {
    let all = slots();
    let name = |s: &Slot| all.iter().position(|x| x == s).map_or("?".into(), |i| i.to_string());
    let names = |list: &[Slot]| list.iter().map(name).collect::<Vec<_>>().join(",");
    let word = |action: &Action| match action {
        Action::Route(tried) => {
            let way = |(p, d): &(Slot, Slot)| format!(" !{}>{}", name(p), name(d));
            let broken: String = tried.broken.iter().map(way).collect();
            let whole = match tried.whole {
                Whole::Otherwise => "",
                Whole::Only => " whole",
                Whole::Never => " pair-only",
            };
            format!("route -{} ~{}{broken}{whole}", names(&tried.exclude), names(&tried.avoid))
        }
        Action::Prefill { prefill, decode, handle } => {
            format!("prefill {}>{} {handle}", name(prefill), name(decode))
        }
        Action::CancelPrefill { prefill, handle } => format!("cancel {} {handle}", name(prefill)),
        Action::Decode { decode, handle } => format!("decode {} {handle}", name(decode)),
        Action::ServeAlone { engine } => format!("alone {}", name(engine)),
        Action::SendFirst => "first".into(),
        Action::SendDecoded => "send".into(),
        Action::Restart => "restart".into(),
        Action::StopDecode => "stop".into(),
        Action::Release { decode, handle } => format!("release {} {handle}", name(decode)),
        Action::Blame(w) => format!("blame {}", name(w)),
        Action::Praise(w) => format!("praise {}", name(w)),
        Action::BlameLink { prefill, decode } => {
            format!("blame {}>{}", name(prefill), name(decode))
        }
        Action::PraiseLink { prefill, decode } => {
            format!("praise {}>{}", name(prefill), name(decode))
        }
        Action::End(End::Failed(e)) => format!("end {}", e.status.as_u16()),
        Action::End(end) => format!("end {end:?}"),
    };
    actions.iter().map(word).collect::<Vec<_>>().join("; ")
}

/// A script: one line per fact, `fact => actions`.
fn check(streamed: bool, script: &[(Fact, &str)]) {
    let mut attempt = Attempt::new("m", streamed, 3);
    assert_eq!(words(&attempt.start()), "route - ~");
    for (step, (fact, expect)) in script.iter().enumerate() {
        let actions = attempt.on(fact.clone());
        assert_eq!(words(&actions), *expect, "step {step}: {fact:?}");
    }
    let ends = script.last().is_some_and(|(_, expect)| expect.contains("end "));
    assert_eq!(attempt.has_ended(), ends);
    if ends {
        assert_eq!(attempt.on(Fact::DecodeOutput), []);
        assert_eq!(attempt.on(Fact::ClientGone), []);
    }
}

fn pair(p: usize, d: usize, handle: &str) -> Fact {
    let all = slots();
    Fact::RoutedPair { prefill: all[p], decode: all[d], handle: handle.into() }
}

fn alone(d: usize) -> Fact {
    Fact::RoutedAlone { engine: slots()[d] }
}

fn first(token: u32) -> Fact {
    Fact::Prefilled(First { token, draws: 1, has_text: true, ends: false })
}

fn silent(token: u32) -> Fact {
    Fact::Prefilled(First { token, draws: 1, has_text: false, ends: false })
}

const FAULT: Fact = Fact::DecodeFailed(DecodeFailure::Fault);

#[test]
fn the_first_token_leaves_before_decode_is_even_asked() {
    check(
        true,
        &[
            (pair(0, 1, "h"), "prefill 0>1 h"),
            (first(5), "praise 0>1; first; decode 1 h"),
            (Fact::DecodeAccepted, ""),
            (Fact::DecodeOutput, "praise 1; send"),
            (Fact::DecodeOutput, "send"),
            (Fact::DecodeEnded, "end FinishedByDecode"),
        ],
    );
}

#[test]
fn a_first_token_without_text_waits_for_decode_and_commits_nothing() {
    check(
        true,
        &[
            (pair(0, 1, "h"), "prefill 0>1 h"),
            (silent(5), "praise 0>1; decode 1 h"),
            (FAULT, "stop; release 1 h; blame 1; route -1 ~"),
            (pair(0, 2, "i"), "prefill 0>2 i"),
            (silent(6), "praise 0>2; decode 2 i"),
            (Fact::DecodeAccepted, ""),
            (Fact::DecodeOutput, "praise 2; first; send"),
            (Fact::DecodeEnded, "end FinishedByDecode"),
        ],
    );
}

#[test]
fn a_first_token_that_ends_the_answer_needs_no_decode() {
    let ends = Fact::Prefilled(First { token: 2, draws: 0, has_text: false, ends: true });
    check(
        true,
        &[
            (pair(0, 1, "h"), "prefill 0>1 h"),
            (ends, "praise 0>1; first; release 1 h; end FinishedByPrefill"),
        ],
    );
}

#[test]
fn a_committed_answer_is_gone_on_from_once_and_only_with_the_same_token() {
    let begin = [
        (pair(0, 1, "h"), "prefill 0>1 h"),
        (first(5), "praise 0>1; first; decode 1 h"),
        (FAULT, "stop; release 1 h; blame 1; route -1 ~ pair-only"),
        (pair(0, 2, "i"), "prefill 0>2 i"),
    ];
    let with = |rest: &[(Fact, &'static str)]| {
        let mut script = begin.to_vec();
        script.extend_from_slice(rest);
        check(true, &script);
    };
    with(&[
        (first(5), "praise 0>2; decode 2 i"),
        (Fact::DecodeOutput, "praise 2; send"),
        (Fact::DecodeEnded, "end FinishedByDecode"),
    ]);
    with(&[(first(6), "praise 0>2; release 2 i; end 500")]);
    let more_draws = Fact::Prefilled(First { token: 5, draws: 2, has_text: true, ends: false });
    with(&[(more_draws, "praise 0>2; release 2 i; end 500")]);
    with(&[(first(5), "praise 0>2; decode 2 i"), (FAULT, "stop; release 2 i; blame 2; end 500")]);
    let fault = Fact::PrefillFailed(PrefillFailure::PrefillFault);
    with(&[(fault, "release 2 i; blame 0; end 500")]);
    // Somebody who is full has not replaced anybody yet.
    let full = Fact::PrefillFailed(PrefillFailure::PrefillFull);
    with(&[
        (full.clone(), "release 2 i; route -1 ~0 pair-only"),
        (pair(0, 3, "k"), "prefill 0>3 k"),
        (first(5), "praise 0>3; decode 3 k"),
        (Fact::DecodeFailed(DecodeFailure::Full), "stop; release 3 k; route -1 ~0,3 pair-only"),
        (Fact::NotRouted(Blocked::NoRoom), "end 500"),
    ]);
}

#[test]
fn after_decodes_own_first_token_a_loss_is_an_error_event() {
    check(
        true,
        &[
            (pair(0, 1, "h"), "prefill 0>1 h"),
            (first(5), "praise 0>1; first; decode 1 h"),
            (Fact::DecodeAccepted, ""),
            (Fact::DecodeOutput, "praise 1; send"),
            (FAULT, "stop; blame 1; end 500"),
        ],
    );
    check(
        true,
        &[
            (alone(1), "alone 1"),
            (Fact::DecodeOutput, "praise 1; send"),
            (FAULT, "stop; blame 1; end 500"),
        ],
    );
}

#[test]
fn an_answer_that_is_not_streamed_is_made_again_from_the_start() {
    check(
        false,
        &[
            (pair(0, 1, "h"), "prefill 0>1 h"),
            (first(5), "praise 0>1; first; decode 1 h"),
            (Fact::DecodeOutput, "praise 1; send"),
            (FAULT, "stop; blame 1; restart; route -1 ~"),
            (pair(0, 2, "i"), "prefill 0>2 i"),
            (first(5), "praise 0>2; first; decode 2 i"),
            (FAULT, "stop; release 2 i; blame 2; restart; route -1,2 ~"),
            (alone(3), "alone 3"),
            (FAULT, "stop; blame 3; end 503"),
        ],
    );
}

#[test]
fn refusals_decide_who_is_tried_next() {
    let after = |failure: PrefillFailure, expect: &str| {
        let routed = (pair(0, 1, "h"), "prefill 0>1 h");
        check(true, &[routed, (Fact::PrefillFailed(failure), expect)]);
    };
    after(PrefillFailure::Corrupt, "release 1 h; blame 0>1; route - ~");
    after(PrefillFailure::Stale, "release 1 h; route - ~");
    after(PrefillFailure::DecodeRefuses, "release 1 h; route -1 ~");
    after(PrefillFailure::DecodeFull, "release 1 h; route - ~1");
    after(PrefillFailure::PrefillFull, "release 1 h; route - ~0");
    after(PrefillFailure::Invalid, "release 1 h; end 400");
    after(PrefillFailure::LinkFault, "release 1 h; blame 0>1; route - ~ !0>1");
    after(PrefillFailure::PrefillFault, "release 1 h; blame 0; route -0 ~");
    after(PrefillFailure::Deadline, "cancel 0 h; release 1 h; blame 0; route -0 ~");
}

#[test]
fn decode_refusals_decide_too() {
    let after = |failure: DecodeFailure, expect: &str| {
        check(
            true,
            &[
                (pair(0, 1, "h"), "prefill 0>1 h"),
                (silent(5), "praise 0>1; decode 1 h"),
                (Fact::DecodeFailed(failure), expect),
            ],
        );
    };
    after(DecodeFailure::Full, "stop; release 1 h; route - ~1");
    after(DecodeFailure::Handle, "stop; release 1 h; route - ~");
    after(DecodeFailure::Fault, "stop; release 1 h; blame 1; route -1 ~");
    let client = DecodeFailure::Client(ApiError::malformed("no"));
    after(client, "stop; release 1 h; end 400");
}

#[test]
fn attempts_are_bounded_and_full_is_429() {
    check(
        true,
        &[
            (pair(0, 1, "h"), "prefill 0>1 h"),
            (Fact::PrefillFailed(PrefillFailure::DecodeFull), "release 1 h; route - ~1"),
            (Fact::NotRouted(Blocked::NoWorker), "end 429"),
        ],
    );
    // Who is full is asked again while the wait lasts, and three failures still end it.
    let full = Fact::PrefillFailed(PrefillFailure::PrefillFull);
    let failed = Fact::PrefillFailed(PrefillFailure::Stale);
    check(
        true,
        &[
            (pair(0, 1, "a"), "prefill 0>1 a"),
            (full.clone(), "release 1 a; route - ~0"),
            (pair(0, 1, "b"), "prefill 0>1 b"),
            (failed.clone(), "release 1 b; route - ~0"),
            (pair(2, 1, "c"), "prefill 2>1 c"),
            (full.clone(), "release 1 c; route - ~0,2"),
            (pair(0, 1, "d"), "prefill 0>1 d"),
            (full.clone(), "release 1 d; route - ~0,2"),
            (pair(0, 1, "e"), "prefill 0>1 e"),
            (failed.clone(), "release 1 e; route - ~0,2"),
            (pair(0, 1, "f"), "prefill 0>1 f"),
            (failed, "release 1 f; end 429"),
        ],
    );
    let mut attempt = Attempt::new("m", true, 3);
    for refused in 1..=MAX_REFUSALS {
        attempt.on(pair(0, 1, &refused.to_string()));
        let actions = words(&attempt.on(full.clone()));
        assert_eq!(actions.ends_with("end 429"), refused == MAX_REFUSALS, "{actions}");
    }
    check(true, &[(Fact::NotRouted(Blocked::NoRoom), "end 429")]);
    check(true, &[(Fact::NotRouted(Blocked::NoWorker), "end 503")]);
    check(true, &[(Fact::NotRouted(Blocked::UnknownModel), "end 404")]);
    check(true, &[(Fact::NotRouted(Blocked::TooLong), "end 400")]);
}

#[test]
fn when_no_hand_off_arrives_one_engine_serves_whole() {
    let broken = Fact::PrefillFailed(PrefillFailure::LinkFault);
    let begin = [
        (pair(0, 1, "a"), "prefill 0>1 a"),
        (broken.clone(), "release 1 a; blame 0>1; route - ~ !0>1"),
        (pair(0, 2, "b"), "prefill 0>2 b"),
        (broken.clone(), "release 2 b; blame 0>2; route - ~ !0>1 !0>2"),
    ];
    let with = |rest: &[(Fact, &'static str)]| {
        let mut script = begin.to_vec();
        script.extend_from_slice(rest);
        check(true, &script);
    };
    // No pair is left.
    with(&[(alone(1), "alone 1"), (Fact::DecodeOutput, "praise 1; send")]);
    // Pairs are left, attempts are not.
    let third = [
        (pair(0, 3, "c"), "prefill 0>3 c"),
        (broken.clone(), "release 3 c; blame 0>3; route - ~ !0>1 !0>2 !0>3 whole"),
    ];
    let after = |rest: &[(Fact, &'static str)]| with(&[&third, rest].concat());
    after(&[(alone(2), "alone 2"), (Fact::DecodeOutput, "praise 2; send")]);
    after(&[(alone(2), "alone 2"), (FAULT, "stop; blame 2; end 503")]);
    after(&[(Fact::NotRouted(Blocked::NoWorker), "end 503")]);
    // What was sent is gone on from by a pair or not at all.
    check(
        true,
        &[
            (pair(0, 1, "h"), "prefill 0>1 h"),
            (first(5), "praise 0>1; first; decode 1 h"),
            (FAULT, "stop; release 1 h; blame 1; route -1 ~ pair-only"),
            (pair(0, 2, "i"), "prefill 0>2 i"),
            (broken, "release 2 i; blame 0>2; end 500"),
        ],
    );
}

#[test]
fn a_way_that_damages_twice_in_a_row_is_left_out() {
    let corrupt = Fact::PrefillFailed(PrefillFailure::Corrupt);
    check(
        true,
        &[
            (pair(0, 1, "a"), "prefill 0>1 a"),
            (corrupt.clone(), "release 1 a; blame 0>1; route - ~"),
            (pair(0, 1, "b"), "prefill 0>1 b"),
            (corrupt.clone(), "release 1 b; blame 0>1; route - ~ !0>1"),
            (pair(0, 2, "c"), "prefill 0>2 c"),
            (corrupt.clone(), "release 2 c; blame 0>2; route - ~ !0>1 whole"),
            (alone(2), "alone 2"),
            (Fact::DecodeOutput, "praise 2; send"),
        ],
    );
    let stale = Fact::PrefillFailed(PrefillFailure::Stale);
    check(
        true,
        &[
            (pair(0, 1, "a"), "prefill 0>1 a"),
            (corrupt.clone(), "release 1 a; blame 0>1; route - ~"),
            (pair(0, 1, "b"), "prefill 0>1 b"),
            (stale, "release 1 b; route - ~"),
            (pair(0, 1, "c"), "prefill 0>1 c"),
            (corrupt, "release 1 c; blame 0>1; end 503"),
        ],
    );
}

#[test]
fn a_client_that_leaves_frees_everything_at_every_stage() {
    check(true, &[(Fact::ClientGone, "end Gone")]);
    let begin = (pair(0, 1, "h"), "prefill 0>1 h");
    let left = (Fact::ClientGone, "cancel 0 h");
    check(true, &[begin.clone(), left.clone(), (first(5), "release 1 h; end Gone")]);
    let fault = Fact::PrefillFailed(PrefillFailure::PrefillFault);
    check(true, &[begin.clone(), left, (fault, "release 1 h; end Gone")]);
    let sent = (first(5), "praise 0>1; first; decode 1 h");
    let stop = (Fact::ClientGone, "stop; release 1 h; end Gone");
    check(true, &[begin.clone(), sent.clone(), stop]);
    let accepted = (Fact::DecodeAccepted, "");
    check(true, &[begin, sent, accepted, (Fact::ClientGone, "stop; end Gone")]);
    check(true, &[(alone(1), "alone 1"), (Fact::ClientGone, "stop; end Gone")]);
}

#[test]
fn grpc_codes() {
    use PrefillFailure::*;
    let check = |code: Code, message: &str, reached: bool, expect: PrefillFailure| {
        assert_eq!(prefill_failure(code, message, reached), expect, "{code:?} {message}");
    };
    check(Code::DataLoss, "", true, Corrupt);
    check(Code::NotFound, "kv transfer: x", true, Stale);
    check(Code::AlreadyExists, "kv transfer: x", true, Stale);
    check(Code::FailedPrecondition, "", true, DecodeRefuses);
    check(Code::ResourceExhausted, "the queue is full", true, PrefillFull);
    check(Code::ResourceExhausted, "kv transfer: no room", true, DecodeFull);
    check(Code::ResourceExhausted, "", false, PrefillFault);
    check(Code::InvalidArgument, "", true, Invalid);
    check(Code::InvalidArgument, "kv transfer: x", true, PrefillFault);
    check(Code::Unavailable, "kv transfer: x", true, LinkFault);
    check(Code::Unavailable, "draining", true, PrefillFault);
    check(Code::Unavailable, "", false, PrefillFault);
    check(Code::DeadlineExceeded, "", true, Deadline);
    check(Code::DeadlineExceeded, "", false, Deadline);
    check(Code::Internal, "", true, PrefillFault);
    check(Code::Internal, "kv transfer: x", true, LinkFault);
    check(Code::DeadlineExceeded, "kv transfer: x", true, LinkFault);
    check(Code::Unimplemented, "", true, PrefillFault);
    check(Code::Unauthenticated, "", true, PrefillFault);
    check(Code::Unknown, "", false, PrefillFault);
}

#[test]
fn http_answers() {
    let check = |status: u16, code: Option<ErrorCode>, expect: &str| {
        let message = "secret words of a peer".to_owned();
        let param = Some("messages[0].role".to_owned());
        let got = decode_refusal(&PeerError { status, code, message, param });
        let shown = match &got {
            DecodeFailure::Client(e) => {
                assert!(!e.message.contains("secret"));
                format!("client {}", e.status.as_u16())
            }
            other => format!("{other:?}"),
        };
        assert_eq!(shown, expect, "{status} {code:?}");
    };
    check(400, None, "client 400");
    check(400, Some(ErrorCode::ContextLengthExceeded), "client 400");
    check(413, None, "client 400");
    check(422, Some(ErrorCode::UnsupportedParameter), "client 422");
    check(404, Some(ErrorCode::KvHandleNotFound), "Handle");
    check(404, Some(ErrorCode::ModelNotFound), "Fault");
    check(409, None, "Handle");
    check(429, Some(ErrorCode::RateLimitExceeded), "Full");
    check(503, Some(ErrorCode::NoCapacity), "Full");
    check(500, Some(ErrorCode::InternalError), "Fault");
    check(502, None, "Fault");
}

use tl_kv::Code;
use tl_kv::handoff::{BlockSend, SendAction, SendFact, SendPlan};

fn kinds(blocks: &[BlockSend]) -> String {
    blocks
        .iter()
        .map(|b| match b {
            BlockSend::Send { .. } => 'S',
            BlockSend::Dedup { .. } => 'd',
            BlockSend::Tail => 't',
        })
        .collect()
}

fn show(action: &SendAction) -> String {
    match action {
        SendAction::Ask => "ask".into(),
        SendAction::Push(blocks) => format!("push {}", kinds(blocks)),
        SendAction::Done(s) => {
            format!("done {} sent {} dedup {} pushes {}", s.chunks, s.sent, s.deduped, s.pushes)
        }
        SendAction::Fail { code, .. } => format!("fail {}", code.name()),
        SendAction::Nothing => "nothing".into(),
    }
}

fn ack(received: u32, deduped: u32) -> SendFact {
    SendFact::Acked { handle_id: "h".into(), received, deduped }
}

#[track_caller]
fn check(n_blocks: usize, hashes: &[u64], facts: &[SendFact], want: &[&str]) {
    let mut plan = SendPlan::new("h", n_blocks, hashes.to_vec());
    let mut got = vec![show(&plan.start())];
    got.extend(facts.iter().map(|fact| show(&plan.step(fact))));
    assert_eq!(got, want);
}

#[test]
fn asks_pushes_and_is_done() {
    use SendFact::Present;
    let (h2, h3) = (&[7, 8][..], &[7, 8, 9][..]);
    check(
        3,
        h2,
        &[Present(vec![true, false]), ack(2, 1)],
        &["ask", "push dSt", "done 3 sent 2 dedup 1 pushes 1"],
    );
    check(
        2,
        h2,
        &[Present(vec![true, true]), ack(0, 2)],
        &["ask", "push dd", "done 2 sent 0 dedup 2 pushes 1"],
    );
    check(
        3,
        h3,
        &[Present(vec![false; 3]), ack(3, 0)],
        &["ask", "push SSS", "done 3 sent 3 dedup 0 pushes 1"],
    );
    check(1, &[], &[ack(1, 0)], &["push t", "done 1 sent 1 dedup 0 pushes 1"]);
    check(
        2,
        &[7, 0],
        &[Present(vec![true, true]), ack(1, 1)],
        &["ask", "push dt", "done 2 sent 1 dedup 1 pushes 1"],
    );
}

#[test]
fn a_stale_answer_is_repaired_once() {
    use SendFact::{Present, PushFailed};
    let stale = [Present(vec![true, true]), PushFailed(Code::NotFound)];
    let with = |last: SendFact| [&stale[..], &[last]].concat();
    check(
        3,
        &[7, 8],
        &with(ack(3, 0)),
        &["ask", "push ddt", "push SSt", "done 3 sent 3 dedup 0 pushes 2"],
    );
    check(
        3,
        &[7, 8],
        &with(PushFailed(Code::NotFound)),
        &["ask", "push ddt", "push SSt", "fail not_found"],
    );
    let nothing_named = [Present(vec![false, false]), PushFailed(Code::NotFound)];
    check(3, &[7, 8], &nothing_named, &["ask", "push SSt", "fail not_found"]);
}

#[test]
fn failures_end_it_and_say_what_to_report() {
    use SendFact::{AskFailed, Present, PushFailed};
    for (code, reported) in [
        (Code::Unknown, "fail unavailable"),
        (Code::Cancelled, "fail unavailable"),
        (Code::DeadlineExceeded, "fail unavailable"),
        (Code::Unavailable, "fail unavailable"),
        (Code::DataLoss, "fail data_loss"),
        (Code::FailedPrecondition, "fail failed_precondition"),
        (Code::ResourceExhausted, "fail resource_exhausted"),
        (Code::AlreadyExists, "fail already_exists"),
        (Code::Internal, "fail internal"),
    ] {
        check(1, &[7], &[AskFailed(code), ack(1, 0)], &["ask", reported, "nothing"]);
        let pushed = [Present(vec![false]), PushFailed(code), PushFailed(code)];
        check(1, &[7], &pushed, &["ask", "push S", reported, "nothing"]);
    }
}

#[test]
fn answers_that_cannot_be_true() {
    use SendFact::{Present, PushFailed};
    check(2, &[7, 8], &[Present(vec![true])], &["ask", "fail internal"]);
    check(2, &[7, 8], &[ack(2, 0)], &["ask", "fail internal"]);
    check(1, &[7], &[Present(vec![false]), ack(0, 1)], &["ask", "push S", "fail internal"]);
    let other = SendFact::Acked { handle_id: "x".into(), received: 1, deduped: 0 };
    check(1, &[7], &[Present(vec![false]), other], &["ask", "push S", "fail internal"]);
    check(1, &[7], &[PushFailed(Code::NotFound)], &["ask", "fail internal"]);
    check(0, &[], &[], &["fail internal"]);
    check(1, &[7, 8], &[], &["fail internal"]);
    let mut plan = SendPlan::new("h", 1, vec![]);
    plan.start();
    assert_eq!(plan.start(), SendAction::Nothing);
}

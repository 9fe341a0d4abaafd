//! The checker can fail: defects built in on purpose, one at a time, are found, each by the rule
//! that it breaks, and the shortest way to it is the one in `tests/traces`.
//!
//! `UPDATE=1 cargo test -p tl-life` writes the traces anew.

use std::path::Path;

use tl_life::run;
use tl_life::setting::{Defect, Faults, Setting};

/// Explores `setting` with and without the defect.
#[track_caller]
fn check(name: &str, defect: Defect, setting: Setting, rule: &str) {
    let sound = run(setting.clone(), usize::MAX).report;
    assert!(sound.complete && sound.found.is_none(), "{name}, without the defect:\n{sound}");
    let report = run(Setting { defect, ..setting }, usize::MAX).report;
    let Some(trace) = report.found else { panic!("{name} is not found:\n{report}") };
    assert_eq!(trace.broken.rule, rule, "{name}:\n{trace}");
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(format!("{name}.txt"));
    let text = trace.to_string();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, text).expect("the trace is written");
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name}: not the trace of {}", path.display());
}

/// One request, nothing goes wrong, no time passes, and waits end only when nobody answers.
fn calm() -> Setting {
    Setting { delay: false, time: false, leave: false, ..Setting::one(0) }
}

/// One attempt of one request, time passes, and one fault of the kinds that `pick` allows.
fn one_fault(pick: impl FnOnce(&mut Faults)) -> Setting {
    let mut faults = Faults { total: 1, ..Faults::NONE };
    pick(&mut faults);
    Setting { delay: false, leave: false, max_attempts: 1, faults, ..Setting::one(0) }
}

#[test]
fn a_lease_without_a_timer() {
    let setting = one_fault(|f| f.crash_g = 1);
    check("lease_without_timer", Defect::LeaseWithoutTimer, setting, "lease_ends");
}

#[test]
fn an_ack_before_the_checksum() {
    let setting = one_fault(|f| f.damage = 1);
    check("ack_before_landing", Defect::AckBeforeLanding, setting, "acked_is_proved");
}

#[test]
fn checksums_that_are_believed() {
    let setting = one_fault(|f| f.damage = 1);
    check("no_checksum", Defect::NoChecksum, setting, "acked_is_proved");
}

#[test]
fn ends_that_are_forgotten_at_once() {
    let setting =
        Setting { leave: true, max_attempts: 1, ..Setting { delay: false, ..Setting::one(0) } };
    check("no_tombstone", Defect::NoTombstone, setting, "late_adopts_nothing");
}

#[test]
fn pushes_that_do_not_say_which_life_they_come_from() {
    let setting = Setting { fence: true, ..one_fault(|f| f.crash_p = 1) };
    check("no_incarnation", Defect::NoIncarnation, setting, "fenced_is_out");
}

#[test]
fn a_connection_that_reads_on_after_its_call() {
    let setting = Setting { delay: false, time: false, ..Setting::two(0) };
    check("no_fence", Defect::NoFence, setting, "no_stale_read");
}

#[test]
fn blocks_given_back_before_they_are_sent() {
    let setting = Setting { delay: false, time: false, leave: false, ..Setting::two(0) };
    check("free_before_ack", Defect::FreeBeforeAck, setting, "no_stale_read");
}

#[test]
fn a_refused_push_that_keeps_its_blocks() {
    let setting = one_fault(|f| f.damage = 1);
    check("leak_on_refusal", Defect::LeakOnRefusal, setting, "used_is_owned");
}

#[test]
fn a_push_that_frees_what_it_has_handed_over() {
    check("double_free", Defect::DoubleFree, calm(), "used_is_owned");
}

#[test]
fn a_claim_that_copies() {
    check("claim_copies", Defect::ClaimCopies, calm(), "used_is_owned");
}

#[test]
fn a_claim_of_whatever_is_ready() {
    let setting = Setting { delay: false, time: false, leave: false, ..Setting::two(0) };
    check("claim_any", Defect::ClaimAny, setting, "right_blocks");
}

#[test]
fn a_push_that_is_not_told_that_its_handle_ended() {
    let setting = one_fault(|f| f.lose = 1);
    check("no_wake", Defect::NoWake, setting, "settled");
}

/// Time stands still: what is left to a lease is left for ever.
#[test]
fn handles_that_the_gateway_leaves_to_their_leases() {
    let setting = Setting { leave: true, ..calm() };
    check("no_release", Defect::NoRelease, setting, "settled");
}

/// The early release is harmless while tombstones keep what comes after it out; here they do not.
#[test]
fn a_release_that_does_not_wait_for_the_prefill() {
    let setting = Setting { leave: true, ..calm() };
    check("release_before_answer", Defect::ReleaseBeforeAnswer, setting, "late_adopts_nothing");
}

#[test]
fn gathered_tokens_that_are_not_taken_back() {
    let setting = Setting { streamed: false, max_attempts: 2, ..one_fault(|f| f.crash_d = 1) };
    check("no_restart", Defect::NoRestart, setting, "right_tokens");
}

#[test]
fn promises_that_the_gateway_does_not_give_back() {
    check("no_ledger", Defect::NoLedger, calm(), "settled");
}

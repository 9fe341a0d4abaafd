//! Engines and a client that do anything they may, in any order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A world that may do anything an engine or a client may do, and keeps the books.
#[derive(Default)]
struct World {
    streamed: bool,
    /// Handle -> the blocks may wait (true) or are accepted or given back (false).
    handles: BTreeMap<String, bool>,
    current: Option<String>,
    next: u32,
    firsts: u32,
    decoded_out: u32,
    left_anything: bool,
    ends: u32,
    pending: Pending,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Pending {
    Route(Whole),
    Prefill,
    Decode,
    #[default]
    Nothing,
}

impl World {
    fn run(&mut self, actions: Vec<Action>) {
        for action in actions {
            assert_eq!(self.ends, 0, "nothing comes after the end");
            match action {
                Action::Route(tried) => self.pending = Pending::Route(tried.whole),
                Action::Prefill { handle, .. } => {
                    let known = self.handles.insert(handle.clone(), true);
                    assert!(known.is_none(), "handles are fresh");
                    self.current = Some(handle);
                    self.pending = Pending::Prefill;
                }
                Action::Decode { handle, .. } => {
                    assert!(self.handles[&handle], "a handle given back is not resumed");
                    self.pending = Pending::Decode;
                }
                Action::ServeAlone { .. } => {
                    let out = (self.firsts, self.decoded_out);
                    assert_eq!(out, (0, 0), "alone begins at the start");
                    self.current = None;
                    self.pending = Pending::Decode;
                }
                Action::SendFirst => {
                    let out = (self.firsts, self.decoded_out);
                    assert_eq!(out, (0, 0), "one first token, before all others");
                    self.firsts += 1;
                    self.left_anything |= self.streamed;
                }
                Action::SendDecoded => {
                    self.decoded_out += 1;
                    self.left_anything |= self.streamed;
                }
                Action::Restart => {
                    assert!(!self.left_anything, "what has left is not taken back");
                    (self.firsts, self.decoded_out) = (0, 0);
                }
                Action::Release { handle, .. } => {
                    self.handles.insert(handle, false);
                }
                Action::End(end) => {
                    self.ends += 1;
                    self.pending = Pending::Nothing;
                    if end == End::FinishedByPrefill {
                        assert_eq!(self.firsts, 1);
                    }
                }
                Action::CancelPrefill { .. } | Action::StopDecode => {}
                Action::Blame(_) | Action::Praise(_) => {}
                Action::BlameLink { .. } | Action::PraiseLink { .. } => {}
            }
        }
    }

    fn fact(&mut self, roll: u8) -> Fact {
        let all = slots();
        match self.pending {
            Pending::Route(whole) => match roll % 8 {
                0 => Fact::NotRouted(Blocked::NoRoom),
                1 => Fact::NotRouted(Blocked::NoWorker),
                2 | 3 if whole != Whole::Never => {
                    Fact::RoutedAlone { engine: all[usize::from(roll) % 6] }
                }
                4..=7 if whole == Whole::Only => {
                    Fact::RoutedAlone { engine: all[usize::from(roll) % 6] }
                }
                _ => {
                    self.next += 1;
                    let (p, d) = (usize::from(roll) % 3, 3 + usize::from(roll / 3) % 3);
                    let handle = format!("h{}", self.next);
                    Fact::RoutedPair { prefill: all[p], decode: all[d], handle }
                }
            },
            Pending::Prefill => match roll % 13 {
                0 => Fact::PrefillFailed(PrefillFailure::Corrupt),
                1 => Fact::PrefillFailed(PrefillFailure::Stale),
                2 => Fact::PrefillFailed(PrefillFailure::DecodeRefuses),
                3 => Fact::PrefillFailed(PrefillFailure::DecodeFull),
                12 => Fact::PrefillFailed(PrefillFailure::PrefillFull),
                4 => Fact::PrefillFailed(PrefillFailure::LinkFault),
                5 => Fact::PrefillFailed(PrefillFailure::PrefillFault),
                6 => Fact::PrefillFailed(PrefillFailure::Deadline),
                7 => Fact::PrefillFailed(PrefillFailure::Invalid),
                n => Fact::Prefilled(First {
                    token: u32::from(roll / 13 % 2),
                    draws: 1,
                    has_text: n != 8,
                    ends: n == 9,
                }),
            },
            Pending::Decode => match roll % 10 {
                0 => Fact::DecodeFailed(DecodeFailure::Full),
                1 => Fact::DecodeFailed(DecodeFailure::Handle),
                2 => Fact::DecodeFailed(DecodeFailure::Fault),
                3 => Fact::DecodeFailed(DecodeFailure::Client(ApiError::malformed("x"))),
                4 => {
                    self.accept();
                    Fact::DecodeAccepted
                }
                5 if self.decoded_out > 0 => Fact::DecodeEnded,
                _ => {
                    self.accept();
                    Fact::DecodeOutput
                }
            },
            Pending::Nothing => Fact::DecodeOutput,
        }
    }

    fn accept(&mut self) {
        if let Some(handle) = &self.current {
            self.handles.insert(handle.clone(), false);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_handle_is_settled_and_the_client_gets_one_outcome(
        streamed: bool,
        rolls in proptest::collection::vec((any::<u8>(), 0u8..20), 60),
    ) {
        let mut attempt = Attempt::new("m", streamed, 3);
        let mut world = World { streamed, ..World::default() };
        world.run(attempt.start());
        let mut gone = false;
        for (roll, leaves) in &rolls {
            if *leaves == 0 && !gone {
                gone = true;
                world.run(attempt.on(Fact::ClientGone));
            }
            if attempt.has_ended() {
                break;
            }
            let fact = world.fact(*roll);
            world.run(attempt.on(fact));
        }
        if !attempt.has_ended() {
            let prefilling = world.pending == Pending::Prefill;
            world.run(attempt.on(Fact::ClientGone));
            if prefilling {
                world.run(attempt.on(Fact::PrefillFailed(PrefillFailure::Deadline)));
            }
        }
        prop_assert!(attempt.has_ended());
        prop_assert_eq!(world.ends, 1);
        let counted = attempt.attempts() - attempt.refusals;
        prop_assert!(counted <= 4 && attempt.refusals <= MAX_REFUSALS, "{counted}");
        let waiting: Vec<&String> =
            world.handles.iter().filter(|(_, waits)| **waits).map(|(h, _)| h).collect();
        prop_assert!(waiting.is_empty(), "handles nobody gave back: {:?}", waiting);
    }
}

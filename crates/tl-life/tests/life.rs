//! The life of blocks, proved: every state of these worlds is visited, and no rule is broken in
//! any. What each world leaves out is in docs/block-life.md.

use std::collections::BTreeSet;

use tl_life::check::Broken;
use tl_life::event::Event;
use tl_life::explore::{Model, Report, explore};
use tl_life::setting::{Faults, Setting};
use tl_life::world::World;
use tl_life::{Life, run};

/// Explores a whole world. Gives the combinations of outcomes in which every client was told.
#[track_caller]
fn check(name: &str, setting: Setting) -> (Report, BTreeSet<String>) {
    let found = run(setting, usize::MAX);
    let report = found.report;
    eprintln!("{name}: {report}");
    assert!(report.complete && report.found.is_none(), "{name}: {report}");
    let told = found.outcomes.iter().filter(|all| !all.contains(&"open"));
    (report, told.map(|all| all.join(", ")).collect())
}

fn set(outcomes: &[&str]) -> BTreeSet<String> {
    outcomes.iter().map(|&o| o.to_owned()).collect()
}

/// No faults, no client that leaves, and waits end only when nobody is going to answer.
fn calm(setting: Setting) -> Setting {
    Setting { delay: false, time: false, leave: false, faults: Faults::NONE, ..setting }
}

/// Not only do all the rules hold where nothing happens: where nothing goes wrong, all goes well.
#[test]
fn where_nothing_goes_wrong_every_client_gets_its_answer() {
    for streamed in [true, false] {
        for warm in [true, false] {
            let setting = Setting { streamed, warm, ..calm(Setting::one(0)) };
            assert_eq!(check("one, calm", setting).1, set(&["finished"]));
            let room =
                Setting { p_blocks: 4, d_blocks: 4, streamed, warm, ..calm(Setting::two(0)) };
            assert_eq!(check("two, calm", room).1, set(&["finished, finished"]));
        }
    }
}

/// Messages take as long as they like, clocks run as they like, the client leaves when it likes.
#[test]
fn one_request_with_any_delay() {
    let (report, outcomes) = check("one, delayed", Setting::one(0));
    assert_eq!(outcomes, set(&["failed", "finished"]));
    assert!(report.states > 100_000 && report.longest < 100, "{report}");
}

/// A lease is over when its time is, not when the timer comes to it.
#[test]
fn one_request_whose_timer_is_late() {
    let faults = Faults { lose: 1, ..Faults::each(0, 1) };
    let setting = Setting { late: true, delay: false, leave: false, faults, ..Setting::one(1) };
    let outcomes = check("one, late timer", setting).1;
    assert_eq!(outcomes, set(&["failed", "finished"]));
}

/// A crash of any engine or of the gateway, a message lost, doubled, overtaken or damaged.
#[test]
fn one_request_with_any_one_fault() {
    let setting = Setting { delay: false, max_attempts: 1, ..Setting::one(1) };
    let (report, outcomes) = check("one, one fault", setting);
    assert_eq!(outcomes, set(&["cut off", "failed", "finished"]));
    assert!(report.states > 100_000 && report.longest < 100, "{report}");
}

/// Blocks that the decode engine has are only named, and may be gone when the name arrives. An
/// answer that is not streamed may be made again.
#[test]
fn one_request_with_cached_blocks_and_any_one_fault() {
    for streamed in [true, false] {
        let max_attempts = if streamed { 1 } else { 2 };
        let faults = if streamed {
            Faults::each(1, 1)
        } else {
            Faults { crash_d: 1, evict: 1, ..Faults::each(0, 1) }
        };
        let setting = Setting {
            warm: true,
            delay: false,
            leave: false,
            streamed,
            max_attempts,
            faults,
            ..Setting::one(1)
        };
        let outcomes = check("one, warm", setting).1;
        assert!(outcomes.contains("finished"), "{outcomes:?}");
    }
}

/// After the prefill engine's death the decode engine may be told so, at any moment.
#[test]
fn one_request_whose_prefill_engine_dies_and_is_fenced() {
    let faults = Faults { crash_p: 1, ..Faults::each(0, 1) };
    let setting = Setting { fence: true, delay: false, leave: false, faults, ..Setting::one(1) };
    let outcomes = check("one, fenced", setting).1;
    assert_eq!(outcomes, set(&["failed", "finished"]));
}

/// Two requests with a common beginning, in pools where they get in each other's way.
#[test]
fn two_requests_that_share_a_block() {
    let two = Setting { delay: false, max_attempts: 1, ..Setting::two(0) };
    let timed = Setting { leave: false, ..two.clone() };
    let outcomes = check("two, timed", timed).1;
    assert!(outcomes.contains("finished, finished"), "{outcomes:?}");
    let left = Setting { time: false, max_attempts: 2, ..two };
    assert_eq!(check("two, leaving", left).1, set(&["finished, finished"]));
}

/// Two requests while time stands still, so that nothing is left to a lease, with one fault of
/// those that leave nothing to one.
fn two_and_a_fault(duplicate: u8) -> Setting {
    let faults = Faults { lose: 0, crash_g: 0, overtake: 0, duplicate, ..Faults::each(1, 1) };
    Setting { faults, delay: false, time: false, leave: false, max_attempts: 1, ..Setting::two(1) }
}

#[test]
fn two_requests_while_an_engine_dies_or_bytes_are_damaged() {
    let outcomes = check("two, one fault", two_and_a_fault(0)).1;
    assert_eq!(
        outcomes,
        set(&["failed, failed", "failed, finished", "finished, failed", "finished, finished"])
    );
}

/// Minutes and gigabytes; `TL_LIFE_LARGE=1 cargo test --release -p tl-life -- larger_worlds`.
#[test]
fn larger_worlds() {
    if std::env::var_os("TL_LIFE_LARGE").is_none() {
        eprintln!("larger_worlds: skipped, TL_LIFE_LARGE is not set");
        return;
    }
    let still = Setting { delay: false, leave: false, ..Setting::one(1) };
    check("one, one fault, two attempts", still);
    let delayed = Setting { leave: false, max_attempts: 1, ..Setting::one(1) };
    check("one, one fault, delayed", delayed);
    check("two, one fault or an echo", two_and_a_fault(1));
}

/// As [`Life`], with states told apart by everything that they hold.
struct Exactly(Life, Setting);

impl Model for Exactly {
    type State = World;
    type Event = Event;
    type Key = Vec<u8>;

    fn first(&self) -> World {
        self.0.first()
    }

    fn events(&self, state: &World) -> Vec<Event> {
        self.0.events(state)
    }

    fn after(&self, state: &World, event: Event) -> Result<World, Broken> {
        self.0.after(state, event)
    }

    fn key(&self, state: &World) -> Vec<u8> {
        state.exact(&self.1)
    }

    fn is_bound(&self, event: Event) -> bool {
        self.0.is_bound(event)
    }

    fn check_end(&self, state: &World) -> Result<(), Broken> {
        self.0.check_end(state)
    }

    fn tell(&self, state: &World, event: Event) -> Vec<String> {
        self.0.tell(state, event)
    }
}

#[test]
fn no_two_states_have_one_key() {
    let setting = Setting { delay: false, ..Setting::one(0) };
    let exact = explore(&mut Exactly(Life::new(setting.clone()), setting.clone()), usize::MAX);
    let hashed = explore(&mut Life::new(setting), usize::MAX);
    assert!(exact.complete && exact.states > 10_000);
    assert_eq!(exact, hashed);
}

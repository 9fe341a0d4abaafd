//! The search itself, on worlds small enough to know by heart.

use tl_life::check::{Broken, PROGRESS};
use tl_life::explore::{Model, explore};

/// A number that grows by one or by three, and may be `back` at 2.
struct Count {
    worst: u32,
    end: u32,
    back: bool,
}

impl Model for Count {
    type State = u32;
    type Event = u32;
    type Key = u32;

    fn first(&self) -> u32 {
        0
    }

    fn events(&self, state: &u32) -> Vec<u32> {
        let ahead = [1, 3].into_iter().filter(|by| state + by <= self.end);
        ahead.chain((self.back && *state == 5).then_some(0)).collect()
    }

    fn after(&self, state: &u32, by: u32) -> Result<u32, Broken> {
        let next = if by == 0 { 2 } else { state + by };
        if next == self.worst {
            return Err(Broken { rule: "worst", detail: next.to_string() });
        }
        Ok(next)
    }

    fn key(&self, state: &u32) -> u32 {
        *state
    }

    fn is_bound(&self, by: u32) -> bool {
        by != 3
    }

    fn check_end(&self, state: &u32) -> Result<(), Broken> {
        let settled = *state == self.end;
        settled.then_some(()).ok_or(Broken { rule: "end", detail: state.to_string() })
    }

    fn tell(&self, state: &u32, by: u32) -> Vec<String> {
        vec![format!("{state} by {by}")]
    }
}

const NEVER: u32 = u32::MAX;

#[test]
fn every_state_once_and_the_longest_way_to_the_end() {
    let report = explore(&mut Count { worst: NEVER, end: 7, back: false }, usize::MAX);
    assert_eq!((report.states, report.steps, report.ends), (8, 12, 1));
    assert_eq!((report.depth, report.longest, report.complete), (3, 7, true));
    assert_eq!(report.found, None);
}

#[test]
fn the_shortest_way_to_a_broken_rule() {
    let report = explore(&mut Count { worst: 7, end: 9, back: false }, usize::MAX);
    let trace = report.found.expect("7 is reached");
    let steps: Vec<String> = trace.steps.concat();
    assert_eq!(steps, ["0 by 1", "1 by 3", "4 by 3"]);
    assert_eq!((trace.broken.rule, report.complete), ("worst", false));
}

#[test]
fn a_way_round_is_no_progress() {
    let report = explore(&mut Count { worst: NEVER, end: 7, back: true }, usize::MAX);
    assert_eq!(report.found.expect("5, 2, 3, 4, 5").broken.rule, PROGRESS);
}

#[test]
fn a_limit_is_no_proof() {
    let report = explore(&mut Count { worst: NEVER, end: 70, back: false }, 10);
    assert!(!report.complete && report.found.is_none() && report.states >= 10);
}

//! The forms of a report.

use serq_sim::{NoObserver, Options};

use crate::support::{compile, run};

const SMALL: &str = "
    pool slots { cap 2; }
    pool spare[2] { cap inf; }
    stage E : step { budget 8; cost 0.5 + ntok / 8; memory slots; }
    stage S : fifo (2);
    workload { arrive poisson (1); }
    session {
      set t = now;
      hold slots (1) { run E prefill (1 + floor(~exp(3))); }
      run S (~exp(0.5));
      observe response = now - t;
      observe turns = turn_no;
    }
    run { horizon 200; warmup 20; seed 7; }";

/// Bit for bit, on every machine: every number of this report is written out in full.
#[test]
fn a_report_is_the_same_everywhere() {
    let options = Options { quantiles: vec![0.25], ..Options::default() };
    let mut report = serq_sim::run(&compile(SMALL), &options, &mut NoObserver).unwrap();
    report.serq_version = "any".to_owned();
    let golden = include_str!("data/report.json");
    assert_eq!(report.to_json(), golden, "\n{}", report.to_json());
}

#[test]
fn tables_are_aligned() {
    let text = run(SMALL).report.to_text();
    let golden = include_str!("data/report.txt");
    assert_eq!(text, golden, "\n{text}");
}

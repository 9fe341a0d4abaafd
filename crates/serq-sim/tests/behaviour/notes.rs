//! What a report says about itself.

use serq_sim::{Options, Report};

use crate::support::{compile, run, run_program};

fn codes(r: &Report) -> Vec<&str> {
    r.notes.iter().map(|n| n.code).collect()
}

fn queue(lambda: f64, more: &str) -> String {
    format!(
        "stage S : fifo;
         stage think : delay;
         workload {{ arrive poisson ({lambda}); }}
         session {{ run S (~exp(1)); {more} }}
         run {{ horizon 5000; warmup 500; }}"
    )
}

/// A queue that gets 1.2 times what it serves is called overloaded, one that gets 0.8 times is
/// not called anything, whatever the seed.
#[test]
fn overload_is_told_from_load() {
    for (rho, expected) in [(0.8, vec![]), (1.2, vec!["overloaded"])] {
        let program = compile(&queue(rho, ""));
        for seed in 1..=20 {
            let options = Options { seed: Some(seed), ..Options::default() };
            let report = run_program(&program, &options).report;
            assert_eq!(codes(&report), expected, "rho {rho}, seed {seed}: {:?}", report.notes);
            if let [note] = &report.notes[..] {
                assert!(note.text.contains("stage S grew most"), "{}", note.text);
            }
        }
    }
}

/// Clients that think for longer than the run are more and more, but the queue is not overloaded:
/// the run is too short.
#[test]
fn a_population_that_still_grows_is_not_overload() {
    let report = run(&queue(0.5, "run think (10000);")).report;
    assert_eq!(codes(&report), ["not-steady"]);
    assert!(report.notes[0].text.contains("alive grew"), "{}", report.notes[0].text);
}

#[test]
fn work_that_is_left_over() {
    let text = "
        stage S : fifo;
        workload { arrive batch (3); }
        session { run S (4); }
        run { horizon 10; }";
    let report = run(text).report;
    assert_eq!(codes(&report), ["unfinished"]);
    assert_eq!(report.notes[0].text, "1 of 3 sessions had not ended");
    assert!(codes(&run(&text.replace("10", "12")).report).is_empty());
}

//! Tables in costs, and what a cost knows of the step it is the cost of.

use crate::support::{compile, fault, run, same_without_coalescing};
use serq_lang::ir::Program;
use serq_sim::{Iteration, Observer, Options};

/// Durations of iterations.
#[derive(Default)]
struct Durations(Vec<f64>);

impl Observer for Durations {
    fn iteration(&mut self, iteration: &Iteration<'_>) {
        self.0.push(iteration.duration);
    }

    fn wants_iterations(&self) -> bool {
        true
    }
}

fn durations(program: &Program) -> Vec<f64> {
    let mut all = Durations::default();
    serq_sim::run(program, &Options::default(), &mut all).expect("runs");
    all.0
}

fn engine(cost: &str, body: &str) -> Program {
    compile(&format!(
        "table t(tokens, context) {{ (1, 0): 1, (1, 100): 2, (8, 0): 8, (8, 100): 16 }}
         pool kv {{ cap 1000; }}
         pool slots {{ cap 8; admit via e; }}
         stage e : step {{ budget 8; memory kv; cost {cost}; }};
         workload {{ arrive batch(2); }}
         session {{ hold kv (0), slots (1) {{ {body} }} }}
         run {{ horizon 1000; }}"
    ))
}

const TWO: &str = "run e prefill (6) growing kv; run e decode (2) growing kv;";

/// Two prompts of 6 with a budget of 8: 6 + 2, then a decode and the other 4, then decodes.
#[test]
fn a_cost_knows_chunks_and_contexts() {
    let check = |cost: &str, expected: &[f64]| {
        assert_eq!(durations(&engine(cost, TWO)), expected, "{cost}");
    };
    check("1 + nchunk", &[3.0, 2.0, 1.0, 1.0]);
    // The second chunk of the second prompt has 2 behind it.
    check("1 + ctxp", &[1.0, 9.0, 1.0, 1.0]);
    // Contexts of the decodes, their own token with them.
    check("1 + ctxb", &[1.0, 8.0, 16.0, 9.0]);
    check("1 + ndec", &[1.0, 2.0, 3.0, 2.0]);
}

#[test]
fn a_table_is_read_where_the_step_is() {
    // (8, 0), (5, 7), (2, 15), (1, 8).
    let read = |x: f64, y: f64| {
        let (low, high) = (1.0 + 1.0 * (y / 100.0), 8.0 + 8.0 * (y / 100.0));
        low + (high - low) * ((x - 1.0) / 7.0)
    };
    let expected = [8.0, read(5.0, 7.0), read(2.0, 15.0), read(1.0, 8.0)];
    assert_eq!(durations(&engine("t(ntok, ctxb)", TWO)), expected);
}

/// A run that grows no pool has no position: its context is its own tokens.
#[test]
fn without_memory_the_context_is_the_step() {
    let cost = "1 + ctxb + 10 * ctxp";
    let body = "run e prefill (3); run e decode (1);";
    assert_eq!(durations(&engine(cost, body)), [1.0, 3.0]);
}

/// A context grows with every token, so that coasting engines ask again for every step.
#[test]
fn coasting_changes_no_bit() {
    let program = engine(
        "t(ntok, ctxb) / 1000",
        "run e prefill (9) growing kv; run e decode (90) growing kv;",
    );
    same_without_coalescing(&program, &Options::default(), "a cost by context");
    let all = durations(&program);
    assert!(all.windows(2).skip(4).all(|w| w[0] != w[1]), "{all:?}");
}

#[test]
fn tables_are_read_anywhere() {
    let text = "table t(x) in ms outside clamp { 1: 500, 3: 1500 }
        stage s : ps(t(n));
        workload { arrive batch(2); }
        session { set a = t(serial); run s (t(a * 4)); observe left = now; }
        run { horizon 100; }";
    // Work of t(2) = 1 for each, at a capacity of t(2) = 1 for both.
    assert_eq!(run(text).values("left"), [2.0, 2.0]);
}

#[test]
fn outside_can_be_refused() {
    let text = "table t(x) outside refuse { 1: 1, 3: 2 }
        stage s : fifo;
        workload { arrive batch(5); }
        session { run s (t(serial + 1)); }
        run { horizon 100; }";
    let fault = fault(text);
    assert_eq!(fault.code, "table");
    assert!(fault.to_string().contains("`x` is 4, and 1 to 3 were measured"), "{fault}");
}

//! Engines over shared memory that count samples, run many iterations at a time: no bit depends on it.

use proptest::prelude::*;
use serq_sim::Options;

use crate::support::{compile, same_without_coalescing};

/// One engine as a scheduler's program writes it, or two over one memory.
fn text(blocks: u32, block: u32, engines: u32, pick: &[u8]) -> String {
    let of = |k: usize, all: &[&str]| {
        let n = usize::from(pick.get(k).copied().unwrap_or(0));
        all[n % all.len()].to_owned()
    };
    let cap = blocks * block;
    let preempt =
        of(0, &["lifo", "by (admission) requeue (0)", "by (p, admission) requeue (1)", "none"]);
    let chunk = of(1, &["0", "7", "holders(kv) + queued(turn[0]) > 1 ? 5 : 0", "queue(E[0])"]);
    let budget = of(2, &["40", "inf", "9"]);
    let cost =
        of(3, &["0.01", "0.01 + ntok / 5000", "0.01 + kvb / 100000", "0.002 + 0.01 / (1 + now)"]);
    let serve = of(4, &["admission", "by (0 - admission)", "decode first", "by (a)"]);
    let samples = of(5, &["answers a first t", "answers a", "answers half first t", "", "first t"]);
    let content = of(
        6,
        &["content (g: 3 * g, serial: inf);", "content (g: inf);", "content (1: 30, g: 50);", ""],
    );
    let when =
        of(7, &["", "when (free(kv) - taking(kv, known) >= owed(kv))", "when (free(kv) > 0)"]);
    let rest = of(8, &["", "until (now + 2)", "shield"]);
    let shared = of(9, &["shared;", "shared;", "shared;", ""]);
    let load = of(10, &["", "", "load kv (min(2, p)); "]);
    let run = format!(
        "{load}run E[e] prefill (known - min(known - 1, cached)) decode (o) growing kv {samples};"
    );
    let body = if rest.is_empty() { run } else { format!("{rest} {{ {run} }}") };
    let content = if shared.is_empty() { String::new() } else { content };
    format!(
        "pool turn[{engines}] {{ cap inf; admit via E; }}
         pool kv {{ cap {cap}; block {block}; {shared} preempt {preempt}; }}
         stage E[{engines}] : step {{ budget {budget}; chunk {chunk}; cost {cost}; memory kv; serve {serve}; }};
         stage tool : delay;
         workload {{
           arrive poisson (1.5);
           init {{ set a = 0; set t = 0; set half = 0.3; set known = 0; set e = 0;
                  set p = 1 + floor(~exp(20)); set o = floor(~exp(60)); set g = floor(~uniform(1, 9)); }}
         }}
         session {{
           {content}
           set e = serial - {engines} * floor(serial / {engines});
           set known = p;
           hold turn[e] (0), kv (min(p, 6)) reuse (p - 1) {when} {{ observe found = cached; {body} }}
           observe a = a + half + t; observe seen = used(kv) + cachedin(kv);
         }}
         run {{ horizon 40; warmup 3; }}"
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn coalescing_changes_nothing(
        blocks in 12u32..200,
        block in 1u32..9,
        engines in 1u32..3,
        pick in prop::collection::vec(any::<u8>(), 11),
    ) {
        let text = text(blocks, block, engines, &pick);
        same_without_coalescing(&compile(&text), &Options::default(), &text);
    }
}

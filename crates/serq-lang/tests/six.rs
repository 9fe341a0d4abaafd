//! What version 6 adds, from text to representation.

mod common;

use common::linked;
use serq_lang::ir::{
    Arrival, CExpr, CHold, CQueue, CShare, CStageKind, CStmt, Program, Rate, Slo, VERSION,
    VERSION_6,
};

const REST: &str = "\nworkload { arrive poisson(1); }\nrun { horizon 10; }";

fn kernel(text: &str) -> Program {
    let program = linked("six.sq", &format!("{text}{REST}"));
    assert_eq!(program.version, VERSION_6, "{text}");
    program
}

#[test]
fn a_binding_is_kept_for_the_body_that_reads_it() {
    let p = kernel(
        "pool kv { cap 9; } stage s : fifo;
         session {
           hold kv (a + b) at admission (a = 1, b = a * used(kv), c = 7) { run s (b); }
           hold kv (b) at admission (b = 2) { run s (b); hold kv (b) at admission (a = 3) { run s (a + b); } }
         }",
    );
    let holds: Vec<_> = p
        .blocks
        .iter()
        .flatten()
        .filter_map(|s| match s {
            CStmt::Hold(hold) => {
                Some(hold.binds.iter().map(|b| p.attrs[b.0].as_str()).collect::<Vec<_>>())
            }
            _ => None,
        })
        .collect();
    // The inner hold reads the outer's; two holds never share an attribute.
    let mut sorted = holds.clone();
    sorted.sort();
    assert_eq!(sorted, [vec!["a"], vec!["b"], vec!["b.2"]]);
}

#[test]
fn a_name_that_means_something_else_keeps_that_meaning() {
    let text = format!(
        "pool kv {{ cap 9; }} stage s : fifo;
         session {{ hold kv (u) at admission (u = 1) {{ set u = 2; run s (u); }} }}{REST}"
    );
    let p = linked("five.sq", &text);
    assert_eq!(p.version, VERSION);
}

#[test]
fn while_queue_keys_gauges_and_integral() {
    let p = kernel(
        "pool kv { cap 9; queue by (-waited, serial) live; }
         pool plain { cap 9; queue by (serial, now); }
         stage e : step { cost 1; integral; };
         gauge full = used(kv) / 9;
         session { set x = 3; while (x > 0) { run e decode (1); set x = x - 1; } }",
    );
    let Some(CQueue::Keys { keys, live: true }) = &p.pools[0].queue else {
        panic!("{:?}", p.pools)
    };
    assert_eq!(keys.len(), 2);
    assert!(matches!(&p.pools[1].queue, Some(CQueue::Keys { live: false, .. })));
    assert!(matches!(&p.stages[0].kind, CStageKind::Step(step) if step.integral));
    assert_eq!(p.gauges[0].name, "full");
    assert!(matches!(p.blocks[2][1], CStmt::While(..)));
    assert_eq!(p.spans.as_ref().map(|s| s.gauges.len()), Some(1));
}

#[test]
fn arrivals() {
    let check = |law: &str, run: &str, version: u32| {
        let text =
            format!("stage s : fifo; workload {{ arrive {law}; }} session {{ run s (1); }} {run}");
        let p = linked("six.sq", &text);
        assert_eq!(p.version, version, "{law}");
        p
    };
    let long = "run { horizon 10; }";
    let p = check("renewal(~exp(2))", long, VERSION_6);
    assert!(matches!(p.arrival, Arrival::Renewal(CExpr::Sample(..))));
    let p = check("rates(1 from 0, 0 from 5, 2 from 7)", long, VERSION_6);
    assert_eq!(p.arrival, Arrival::Rates(vec![Rate(1., 0.), Rate(0., 5.), Rate(2., 7.)]));
    // With an end of their own, runs need none.
    let p = check("at(0, 1.5, 1.5)", "", VERSION_6);
    assert_eq!((p.arrival, p.horizon), (Arrival::Times(vec![0., 1.5, 1.5]), f64::INFINITY));
    let p = check("poisson(2) for 100", "run { seed 7; warmup 3; }", VERSION_6);
    assert_eq!((p.limit, p.horizon, p.seed, p.warmup), (Some(100), f64::INFINITY, 7, 3.0));
    check("batch(3)", "", VERSION_6);
    check("batch(3)", long, VERSION);
}

#[test]
fn flows_bookings_and_shared_pools() {
    let text = "
        share bottleneck;
        pool dst { cap 9; }
        pool kv { cap 160; block 16; shared; }
        stage a[2] : ps(1);
        stage b : ps(2);
        workload { arrive poisson(1); session { turn; request; } turn { set k = serial; } }
        server {
          book room;
          content (1: 16, k: inf);
          admit if kv (32) fit where hit = cachedin(kv) { run a[1], b (2 + hit); }
          enter room if dst (3) reserve (4) fit reuse (0) {
            transfer on a[0], b (2) from dst to dst (1);
          } keep (1)
        }
        run { horizon 10; }";
    let p = linked("six.sq", text);
    assert_eq!((p.version, p.share), (VERSION_6, Some(CShare::Bottleneck)));
    assert!(p.pools[1].shared);
    let all: Vec<&CStmt> = p.blocks.iter().flatten().collect();
    let flows = all.iter().filter(|s| matches!(s, CStmt::Run(r) if r.also.len() == 1)).count();
    assert_eq!(flows, 2);
    assert!(all.iter().any(|s| matches!(s, CStmt::Book(0))));
    let booked = |h: &CHold| h.booked == Some(0) && h.cache.is_some() && h.pools[0].2.is_some();
    assert!(all.iter().any(|s| matches!(s, CStmt::Hold(h) if booked(h))));
    assert!(all.iter().any(|s| matches!(s, CStmt::Hold(h) if h.binds.len() == 1)));
    assert!(
        all.iter().any(|s| matches!(s, CStmt::Content { add: false, parts } if parts.len() == 2))
    );
}

#[test]
fn objectives() {
    let text = |slo: &str| {
        format!(
            "let late = 0.4;
             stage e : step {{ cost 1; }};
             workload {{ arrive poisson(1); }}
             session {{ run e decode (1); }}
             {slo}
             run {{ horizon 10; }}"
        )
    };
    let p = linked("six.sq", &text("slo ttft 2 * late tpot 0.05 e2e 30;"));
    let slo = Slo { ttft: Some(0.8), tpot: Some(0.05), itl: None, e2e: Some(30.0) };
    assert_eq!((p.version, p.slo), (VERSION_6, Some(slo)));
    let p = linked("six.sq", &text("def usual(t) { slo ttft t; } usual(late);"));
    assert_eq!(p.slo, Some(Slo { ttft: Some(0.4), ..Slo::default() }));
    assert_eq!(linked("six.sq", &text("")).slo, None);
}

/// Everything new, in the common layout and inside of a definition.
#[test]
fn definitions_and_layout_know_it() {
    let text = "\
share maxmin;
def tier(E) {
  pool E.kv {
    cap 160;
    block 16;
    shared;
    queue by (waited, serial) live;
  }
  stage E : ps(1);
  gauge E.full = used(E.kv);
}
def move(E, F, n) {
  book F.room;
  while (x > 0) { set x = x - 1; run E, F (n); }
  content (x: n, serial: inf);
  admit if E.kv (n) fit { run E (n); }
  enter F.room if F.out (n) fit { run F (n); }
}
tier(A);
pool B.out { cap 10; }
stage B : ps(1);
workload {
  arrive rates(1 from 0, 2 from 5) for 10;
  session { turn; request; }
}
server {
  set x = 2;
  move(A, B, 3);
}
";
    let laid_out = serq_lang::fmt::format("a.sq", text).expect("it parses");
    assert_eq!(laid_out, text);
    let p = linked("a.sq", text);
    assert_eq!(p.gauges[0].name, "A.full");
    assert_eq!(serq_lang::ir::from_json(&serq_lang::ir::to_json(&p)).expect("it reads"), p);
}

//! Measures of requests that no program spells out: figures by hand, and those a program has.

use std::collections::BTreeMap;

use serq_sim::{Observer, Options, Report, Request, Sample, Slo};

use crate::support::{compile, compile_with};

#[derive(Default)]
struct Rows {
    requests: Vec<Request>,
    samples: Vec<Sample>,
}

impl Observer for Rows {
    fn sample(&mut self, sample: &Sample) {
        self.samples.push(*sample);
    }

    fn request(&mut self, request: &Request) {
        self.requests.push(*request);
    }
}

/// What is measured of a program's requests, and each of them, in order of session and turn.
#[track_caller]
fn run(text: &str, options: &Options) -> (Report, Rows) {
    let mut rows = Rows::default();
    let report = serq_sim::run(&compile(text), options, &mut rows).unwrap();
    rows.requests.sort_by_key(|r| (r.session, r.turn));
    (report, rows)
}

/// Start, first token, last token, tokens, longest gap of every request.
#[track_caller]
fn check(text: &str, expected: &[(f64, f64, f64, u64, f64)]) -> Report {
    let (report, rows) = run(text, &Options::default());
    let got: Vec<_> =
        rows.requests.iter().map(|r| (r.start, r.first, r.last, r.tokens, r.longest_gap)).collect();
    assert_eq!(got, expected);
    assert_eq!(report.requests.as_ref().unwrap().count, expected.len() as u64);
    report
}

/// An engine on a unit clock with blocks of 16 tokens, and requests given as prompt, tokens
/// answered and arrival by serial number.
fn engine(blocks: u32, budget: u32, requests: &[[u32; 3]], run: &str) -> String {
    let choose = |k: usize| {
        let arms = requests.iter().enumerate().map(|(i, r)| format!("serial == {i} ? {} : ", r[k]));
        arms.collect::<String>() + "0"
    };
    format!(
        "pool kv {{ cap {blocks} * 16; block 16; preempt lifo; admit via E; }}
         stage E : step {{ budget {budget}; cost 1; memory kv; }}
         stage clock : delay;
         workload {{
           arrive batch ({});
           turn {{ set prompt = {}; set o = {}; }}
           init {{ set due = {}; }}
         }}
         session {{
           run clock (due);
           turn;
           set known = prompt;
           hold kv (min(max(known, computed + 1), budget_left(E)))
               reserve (max(known, computed + 1)) {{
             set known = max(known, computed + 1);
             run E prefill (known) growing kv;
             run E decode (o - 1 - (known - prompt)) growing kv;
           }}
           run clock (5);
         }}
         run {{ horizon 100; {run} }}",
        requests.len(),
        choose(0),
        choose(1),
        choose(2),
    )
}

const CHUNKED: [[u32; 3]; 3] = [[3000, 2, 0], [700, 5, 1], [100, 3, 1]];

/// Steps 1 and 2 prefill 1024 tokens of the first request, step 3 the last 952 and 72 of the
/// second, step 4 decodes the first's second token and prefills the other two.
#[test]
fn chunked_prefill() {
    let text = engine(999, 1024, &CHUNKED, "");
    let report =
        check(&text, &[(0.0, 3.0, 4.0, 2, 1.0), (1.0, 4.0, 8.0, 5, 1.0), (1.0, 4.0, 6.0, 3, 1.0)]);
    let r = report.requests.unwrap();
    assert_eq!((r.ttft.mean, r.tpot.mean, r.itl.mean), (3.0, 1.0, 1.0));
    assert_eq!((r.e2e.p50, r.e2e.p99, r.output_tokens.max), (5.0, 7.0, 5.0));
    assert_eq!((r.itl.count, r.unfinished, r.rejected), (7, 0, 0));
    assert_eq!((r.per_second, r.tokens_per_second), (0.03, 0.1));
    // Steps 5 and 6 decode two requests, 4, 7 and 8 one.
    assert_eq!(report.stages[0].split.unwrap().mean_decode_batch, 7.0 / 5.0);
}

/// Both prompts end in step 1 with a first token each and fill the memory. The first's next token
/// takes a block of the second, which comes back when the first ends at 30, computes its prompt
/// and its token again in step 31, which gives the second token, and decodes 28 more.
#[test]
fn recomputation_after_the_first_token() {
    let text = engine(10, 200, &[[80, 30, 0], [80, 30, 0]], "");
    let report = check(&text, &[(0.0, 1.0, 30.0, 30, 1.0), (0.0, 1.0, 59.0, 30, 30.0)]);
    assert_eq!(report.pools[0].preemptions, 1);
    let r = report.requests.unwrap();
    assert_eq!((r.tpot.mean, r.tpot.max, r.itl.mean, r.itl.max), (1.5, 2.0, 1.5, 30.0));
}

/// No decode run: the first token is the last, and there is no time per token.
#[test]
fn one_token() {
    let text = engine(99, 4, &[[10, 1, 7]], "");
    let report = check(&text, &[(7.0, 10.0, 10.0, 1, 0.0)]);
    let r = report.requests.unwrap();
    assert_eq!((r.tpot.count, r.itl.count, r.e2e.mean), (0, 0, 3.0));
    assert!(r.tpot.mean.is_nan() && r.itl.p99.is_nan());
}

/// Only what starts after the warm-up counts; the rates count what is answered after it.
#[test]
fn warm_up_by_the_start() {
    let (report, _) = run(&engine(999, 1024, &CHUNKED, "warmup 1;"), &Options::default());
    let r = report.requests.unwrap();
    assert_eq!((r.count, r.itl.count, r.per_second), (2, 6, 3.0 / 99.0));
}

/// 1 s of prefill at P, 2.5 s of transfer, 1 s for the last prompt token at D, then 3 tokens. A
/// second turn of 1 s of prefill alone. The think time between counts for neither.
#[test]
fn prefill_elsewhere_and_turns() {
    let text = "
        stage P : step { budget 100; cost 1; }
        stage D : step { budget 100; cost 1; }
        stage link : delay;
        stage think : delay;
        workload { arrive batch (1); }
        session {
          turn;
          run P prefill (50);
          run link (2.5);
          run D prefill (1);
          run D decode (3);
          run think (10);
          turn;
          run P prefill (20);
        }
        run { horizon 100; }";
    check(text, &[(0.0, 4.5, 7.5, 4, 1.0), (17.5, 18.5, 18.5, 1, 0.0)]);
    // At the end of the run the request that waits for its transfer is not answered, the one
    // whose client thinks is.
    for (horizon, count, unfinished) in [(2.0, 0, 1), (6.0, 0, 1), (12.0, 1, 0), (18.0, 1, 1)] {
        let options = Options { horizon: Some(horizon), ..Options::default() };
        let r = run(text, &options).0.requests.unwrap();
        assert_eq!((r.count, r.unfinished), (count, unfinished), "at {horizon}");
    }
}

/// Requests of 4, 7 and 5 s with first tokens after 3 s, then one that can never fit.
#[test]
fn objectives() {
    let mut requests = CHUNKED.to_vec();
    let attained = |requests: &[[u32; 3]], slo: Slo| {
        let options = Options { slo, ..Options::default() };
        let report = run(&engine(999, 1024, requests, ""), &options).0;
        let slo = report.requests.unwrap().slo.unwrap();
        (slo.attainment, slo.goodput)
    };
    let slo = Slo { ttft: Some(3.0), e2e: Some(5.0), ..Slo::default() };
    assert_eq!(attained(&requests, slo), (2.0 / 3.0, 0.02));
    assert_eq!(attained(&requests, Slo { ttft: Some(2.9), ..slo }), (0.0, 0.0));
    assert_eq!(attained(&requests, Slo { tpot: Some(1.0), ..Slo::default() }), (1.0, 0.03));
    assert_eq!(attained(&requests, Slo { itl: Some(0.9), ..Slo::default() }), (0.0, 0.0));
    requests.push([16_000, 1, 0]);
    assert_eq!(attained(&requests, slo), (0.5, 0.02));
    // A hitch of one token breaks a bound on gaps, not one on their mean.
    let stalled = [[80, 30, 0], [80, 30, 0]];
    let within = |slo: Slo| {
        let options = Options { slo, ..Options::default() };
        run(&engine(10, 200, &stalled, ""), &options).0.requests.unwrap().slo.unwrap().attainment
    };
    assert_eq!(within(Slo { itl: Some(2.0), ..Slo::default() }), 0.5);
    assert_eq!(within(Slo { tpot: Some(2.0), ..Slo::default() }), 1.0);
}

#[test]
fn bounds_are_checked() {
    let options = Options { slo: Slo { ttft: Some(-1.0), ..Slo::default() }, ..Options::default() };
    let program = compile(&engine(99, 4, &[[10, 1, 7]], ""));
    let error = serq_sim::run(&program, &options, &mut serq_sim::NoObserver).unwrap_err();
    assert!(error.to_string().contains("ttft"), "{error}");
}

/// The example's own `observe ttft` and `observe response` are the built-in measures, bit for
/// bit, under memory pressure with preemptions on both sides too.
#[test]
fn a_program_that_spells_them_out_agrees() {
    let text = include_str!("../../../../examples/llmd_pd.sq");
    for sets in [&[][..], &["blocks_p=1200", "blocks_d=1200", "lambda=1.2"]] {
        let program = compile_with(text, sets);
        let options = Options { horizon: Some(200.0), warmup: Some(0.0), ..Options::default() };
        let mut rows = Rows::default();
        let report = serq_sim::run(&program, &options, &mut rows).unwrap();
        let preempted = report.pools.iter().map(|p| p.preemptions).sum::<u64>();
        assert_eq!(preempted > 0, !sets.is_empty());
        let observed = |name: &str| -> BTreeMap<(u64, u64), f64> {
            let k = program.observes.iter().position(|o| o == name).unwrap();
            let of = rows.samples.iter().filter(|s| s.observe == k);
            of.map(|s| ((s.session, s.turn), s.value)).collect()
        };
        let (ttft, response) = (observed("ttft"), observed("response"));
        assert!(rows.requests.len() > 500);
        assert_eq!(rows.requests.len(), response.len());
        for r in &rows.requests {
            assert_eq!(r.ttft().to_bits(), ttft[&(r.session, r.turn)].to_bits(), "{r:?}");
            assert_eq!(r.e2e().to_bits(), response[&(r.session, r.turn)].to_bits(), "{r:?}");
        }
        let (r, o) = (report.requests.as_ref().unwrap(), report.observe("response").unwrap());
        assert_eq!((r.e2e.mean, r.e2e.half_width), (o.mean, o.half_width));
        assert_eq!((r.e2e.p50, r.e2e.p99, r.e2e.max), (o.p50, o.p99, o.max));
        // Mean gap and mean time per token weigh requests differently, but add up to the same.
        let gaps = r.itl.mean * r.itl.count as f64;
        let spans: f64 = rows.requests.iter().map(|r| r.last - r.first).sum();
        assert!(gaps >= spans && gaps < spans * 1.02 + 10.0, "{gaps} {spans}");
    }
}

/// Bounds of the program count, and those of the options instead of them if there are any.
#[test]
fn a_program_says_what_its_requests_must_meet() {
    let mut p = compile(
        "pool slots { cap 4; admit via e; }
         stage e : step { budget 100; cost 1; };
         workload { arrive batch (2); }
         session { hold slots (1) { run e prefill (100); run e decode (1); } }
         run { horizon 20; }",
    );
    let attainment = |p: &serq_lang::ir::Program, slo: Slo| {
        let options = Options { slo, ..Options::default() };
        let report = serq_sim::run(p, &options, &mut serq_sim::NoObserver).expect("it runs");
        report.requests.expect("requests").slo.map(|slo| (slo.bounds.ttft, slo.attainment))
    };
    assert_eq!(attainment(&p, Slo::default()), None);
    p.slo = Some(Slo { ttft: Some(1.5), ..Slo::default() });
    p.version = serq_lang::ir::version_needed(&p);
    assert_eq!(attainment(&p, Slo::default()), Some((Some(1.5), 0.5)));
    let other = Slo { ttft: Some(3.0), ..Slo::default() };
    assert_eq!(attainment(&p, other), Some((Some(3.0), 1.0)));
}

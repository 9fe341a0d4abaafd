//! Queueing theory: exact results, inside the run's own confidence intervals.
//!
//! Seeds are fixed, so a test either always passes or never does. The allowance is three times
//! the reported 95 % half-width (a correct simulator misses that about once in a million), and the
//! half-width itself must be small, so that a test cannot pass by being vague.

use serq_sim::{Options, Report};

use crate::support::{Run, compile, run, run_program};

/// Mean of an observe against its exact value.
#[track_caller]
fn agrees(run: &Run, observe: &str, exact: f64, precision: f64) {
    let o = run.report.observe(observe).unwrap();
    let (off, allowed) = ((o.mean - exact).abs(), 3.0 * o.half_width);
    assert!(off <= allowed, "{observe}: {} is not {exact} +- {allowed}", o.mean);
    assert!(
        o.half_width <= precision * exact,
        "{observe}: {exact} is known only to {}",
        o.half_width
    );
    little(&run.report);
}

/// Little's law at every stage and pool: the mean number present is the rate times the mean time.
/// It holds up to those who were there at either end.
#[track_caller]
pub(crate) fn little(r: &Report) {
    let span = r.run.horizon - r.run.warmup;
    let check = |what: String, number: f64, count: u64, time: f64| {
        let expected = if count == 0 { 0.0 } else { count as f64 * time / span };
        let ends = 8.0 * (number + 1.0) * if count == 0 { span } else { time } / span;
        assert!(
            (number - expected).abs() <= 0.01 * expected + ends,
            "{what}: {number}, {expected} by Little's law"
        );
    };
    for s in &r.stages {
        check(s.name.clone(), s.mean_present, s.completed, s.mean_wait + s.mean_service);
    }
    for p in &r.pools {
        check(format!("{} waiting", p.name), p.mean_queue, p.waits, p.mean_wait);
        check(format!("{} held", p.name), p.mean_holders, p.holds, p.mean_hold);
    }
}

fn queue(stage: &str, lambda: f64, service: &str, horizon: f64) -> String {
    format!(
        "stage S : {stage};
         workload {{ arrive poisson ({lambda}); init {{ set work = {service}; }} }}
         session {{
           set t = now;
           run S (work);
           observe sojourn = now - t;
           observe wait = now - t - work;
           observe slowdown = (now - t) / work;
           observe late = (now - t) > 10;
         }}
         run {{ horizon {horizon}; warmup {}; seed 5; }}",
        horizon / 10.0
    )
}

#[test]
fn mm1() {
    for (rho, wait) in [(0.5, 1.0), (0.8, 4.0), (0.9, 9.0)] {
        let run = run(&queue("fifo", rho, "~exp(1)", 500_000.0));
        agrees(&run, "wait", wait, 0.1);
        // P(W > t) = exp(-(1 - rho) t).
        agrees(&run, "late", libm::exp(-(1.0 - rho) * 10.0), 0.2);
        let s = run.report.stage("S").unwrap();
        assert!((s.utilisation - rho).abs() < 0.01);
        assert!((s.mean_present / (rho / (1.0 - rho)) - 1.0).abs() < 0.1);
    }
}

#[test]
fn mmc() {
    for (c, rho, wait) in [
        (2, 0.5, 0.333_333),
        (2, 0.8, 1.777_778),
        (4, 0.8, 0.745_541),
        (4, 0.9, 1.969_383),
        (16, 0.9, 0.369_590),
    ] {
        let lambda = rho * f64::from(c);
        let run = run(&queue(&format!("fifo({c})"), lambda, "~exp(1)", 400_000.0 / lambda));
        agrees(&run, "wait", wait, 0.12);
    }
}

/// Pollaczek-Khinchine, `rho (1 + cv2) / (2 (1 - rho))`, for the laws of cv2 0, 1/4, 1 and 4.
#[test]
fn mg1() {
    for (law, cv2) in [("1", 0.0), ("~erlang(4, 1)", 0.25), ("~exp(1)", 1.0), ("~h2(1, 4)", 4.0)] {
        for rho in [0.5, 0.8] {
            let run = run(&queue("fifo", rho, law, 500_000.0));
            agrees(&run, "wait", rho * (1.0 + cv2) / (2.0 * (1.0 - rho)), 0.1);
        }
    }
}

/// Under processor sharing the mean slowdown is `1 / (1 - rho)`, whatever the law.
#[test]
fn ps_is_insensitive() {
    for law in ["1", "~exp(1)", "~h2(1, 4)"] {
        let run = run(&queue("ps(1)", 0.8, law, 300_000.0));
        agrees(&run, "slowdown", 5.0, 0.08);
    }
}

/// A shared stage with room for two at full speed is a two-server queue in the number present:
/// sojourn 16/7 at lambda 1.5.
#[test]
fn fifo_2_is_ps_min_n_2_in_the_mean() {
    for stage in ["fifo(2)", "ps(min(n, 2))"] {
        let run = run(&queue(stage, 1.5, "~exp(1)", 300_000.0));
        agrees(&run, "sojourn", 16.0 / 7.0, 0.05);
    }
}

/// Sessions that find `places` taken leave: M/M/1/K and Erlang B.
fn blocking(stage: &str, places: u32, lambda: f64, horizon: f64) -> Run {
    run(&format!(
        "pool places {{ cap {places}; }}
         stage S : {stage};
         workload {{ arrive poisson ({lambda}); init {{ set work = ~exp(1); }} }}
         session {{
           set full = holders(places) == {places};
           observe blocked = full;
           branch (full) {{ end; }}
           set t = now;
           hold places (1) {{ run S (work); }}
           observe sojourn = now - t;
         }}
         run {{ horizon {horizon}; seed 3; }}"
    ))
}

#[test]
fn mm1k() {
    for (lambda, k, blocked, number) in [
        (0.8, 5, 0.088_819_50, 1.868_332),
        (1.2, 5, 0.250_588_12, 3.021_172),
        (0.9, 20, 0.013_651_39, 6.419_888),
    ] {
        let run = blocking("fifo", k, lambda, 400_000.0);
        agrees(&run, "blocked", blocked, 0.12);
        let s = run.report.stage("S").unwrap();
        assert!((s.mean_present / number - 1.0).abs() < 0.03, "{} {number}", s.mean_present);
    }
}

#[test]
fn erlang_b() {
    for (servers, load, blocked) in [(10, 8.0, 0.121_661_06), (100, 90.0, 0.026_957_38)] {
        let run = blocking(&format!("fifo({servers})"), servers, load, 400_000.0 / load);
        agrees(&run, "blocked", blocked, 0.12);
    }
}

/// Jackson: two stages in a row are two queues.
#[test]
fn tandem() {
    let run = run("
        stage A : fifo; stage B : fifo;
        workload { arrive poisson (0.5); }
        session {
          set t = now;
          run A (~exp(1));
          observe a = now - t;
          set t = now;
          run B (~exp(1.6));
          observe b = now - t;
        }
        run { horizon 1000000; warmup 10000; seed 2; }");
    agrees(&run, "a", 2.0, 0.03);
    agrees(&run, "b", 1.6 * 5.0, 0.08);
}

/// Jackson with feedback: a job goes round again with probability 1/2, so the stage sees twice the
/// arrivals: load 0.8, mean number 4, and by Little's law sojourn 10 at lambda 0.4.
#[test]
fn feedback() {
    let run = run("
        stage A : fifo;
        workload { arrive poisson (0.4); }
        session {
          set t = now;
          loop {
            run A (~exp(1));
            branch with (0.5) { observe sojourn = now - t; end; }
          }
        }
        run { horizon 1000000; warmup 10000; seed 2; }");
    agrees(&run, "sojourn", 10.0, 0.08);
}

/// Machine repair: N machines run for Exp(10) and are repaired one at a time in Exp(1). The exact
/// response by mean-value analysis: `R(n) = 1 + Q(n-1)`, `X(n) = n / (10 + R(n))`, `Q(n) = X R`.
#[test]
fn machine_repair() {
    for n in [3u32, 10, 15] {
        let (mut q, mut r) = (0.0, 0.0);
        for k in 1..=n {
            r = 1.0 + q;
            q = f64::from(k) / (10.0 + r) * r;
        }
        let run = run(&format!(
            "stage repair : fifo; stage running : delay;
             workload {{ arrive closed ({n}); }}
             session {{
               loop {{
                 run running (~exp(10));
                 set t = now;
                 run repair (~exp(1));
                 observe response = now - t;
               }}
             }}
             run {{ horizon {}; warmup 1000; seed 4; }}",
            2_000_000 / n
        ));
        agrees(&run, "response", r, 0.02);
    }
}

/// A server that takes everything waiting as one batch: the sojourn is below
/// `1.5 t0 / (1 - l a) + (a / 2) (l a + 2) / (1 - l^2 a^2)`, and near it. The numbers are of an
/// independent simulation.
#[test]
fn batching_stays_below_its_bound() {
    for (l, a, t0, known) in
        [(0.5, 1.0, 1.0, 4.407), (0.8, 1.0, 1.0, 11.306), (0.5, 1.0, 4.0, 13.604)]
    {
        let run = run(&format!(
            "stage E : step {{ budget inf; cost {t0} + {a} * ntok; }}
             workload {{ arrive poisson ({l}); }}
             session {{
               set t = now;
               run E prefill (1);
               observe sojourn = now - t;
             }}
             run {{ horizon 600000; warmup 1000; seed 6; }}"
        ));
        let load = l * a;
        let bound = 1.5 * t0 / (1.0 - load) + a / 2.0 * (load + 2.0) / (1.0 - load * load);
        agrees(&run, "sojourn", known, 0.02);
        assert!(run.mean("sojourn") < bound);
    }
}

/// N users who decode all the time: every step costs c0 + c1 N, exactly.
#[test]
fn closed_loop() {
    let run = run("
        stage E : step { budget 64; cost 0.25 + 0.125 * ndec; }
        workload { arrive closed (6); }
        session {
          loop {
            set t = now;
            run E decode (32);
            observe tpot = (now - t) / 32;
          }
        }
        run { horizon 3200; }");
    let tpot = run.report.observe("tpot").unwrap();
    assert_eq!((tpot.min, tpot.max), (1.0, 1.0));
    assert_eq!(run.report.stage("E").unwrap().split.unwrap().decode_tokens, 6.0 * 3200.0);
}

/// The estimates a policy can read: an M/M/1 at load 0.5.
#[test]
fn online_estimates_find_the_load() {
    let run = run("
        stage S : fifo;
        workload { arrive poisson (0.5); }
        session {
          observe rho = est_rho(S);
          observe lambda = est_lambda(S);
          observe price = price(S, 1, 1);
          run S (~exp(1));
        }
        run { horizon 100000; warmup 1000; seed 8; }");
    assert!((run.mean("rho") - 0.5).abs() < 0.03);
    assert!((run.mean("lambda") - 0.5).abs() < 0.03);
    // 1 + l (4 - 1) / (2 (1 - r)) + l W / (1 - r) with l = r = 1/2 and W = 1: 3.5.
    assert!((run.mean("price") - 3.5).abs() < 0.4, "{}", run.mean("price"));
}

/// One seed, one result, byte for byte; another seed, another.
#[test]
fn a_seed_is_a_result() {
    let program = compile(&queue("fifo(2)", 1.5, "~h2(1, 4)", 20_000.0));
    let json = |seed| {
        let options = Options { seed: Some(seed), ..Options::default() };
        run_program(&program, &options).report.to_json()
    };
    assert_eq!(json(1), json(1));
    assert_ne!(json(1), json(2));
}

/// Two deployments under one seed serve the same sessions: arrivals, requests, thinking times.
#[test]
fn deployments_see_the_same_traffic() {
    let traffic = |servers: u32| {
        let run = run(&format!(
            "stage S : fifo({servers}); stage tool : delay;
             workload {{
               arrive poisson (1);
               init {{ set class = ~bernoulli(0.5); }}
               turn {{ set size = ~exp(1); set more = ~bernoulli(0.7); }}
             }}
             session {{
               observe born = now;
               loop {{
                 turn;
                 observe size = size + class;
                 set pause = ~exp(1);
                 observe pause = pause;
                 run S (size);
                 branch (more) {{ tool pause; }} else {{ end; }}
               }}
             }}
             run {{ horizon 2000; }}"
        ));
        let mut seen: Vec<_> =
            run.samples.iter().map(|s| (s.session, s.turn, s.observe, s.value.to_bits())).collect();
        seen.sort_unstable();
        // The last sessions may not have come to their end under both.
        seen.retain(|(session, ..)| *session < 1500);
        seen
    };
    assert_eq!(traffic(4), traffic(9));
}

/// What the caller gives takes the place of what the program says.
#[test]
fn options_are_honoured() {
    let program = compile(&queue("fifo", 0.5, "~exp(1)", 1000.0));
    let options = Options {
        horizon: Some(500.0),
        warmup: Some(100.0),
        quantiles: vec![0.95],
        seed: Some(9),
        ..Options::default()
    };
    let report = run_program(&program, &options).report;
    assert_eq!((report.run.horizon, report.run.warmup, report.run.seed), (500.0, 100.0, 9));
    let sojourn = report.observe("sojourn").unwrap();
    assert!(sojourn.quantiles[0].value <= sojourn.p99 && sojourn.quantiles[0].value >= sojourn.p90);
}

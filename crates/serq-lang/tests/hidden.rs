//! What comes from a hidden attribute: what it may do, and what a message tells of its way. Programs that
//! are refused are in `tests/refused`.

use serq_lang::compile;
use serq_lang::diag::render_all;

const HEAD: &str = "\
stage s : fifo;
stage e : step { cost 1; }
pool kv { cap inf; preempt lifo; }
pool kw[9] { queue by (prompt); }
workload {
  arrive poisson(1);
  turn {
    set o = 1 + floor(~exp(5));
    set prompt = K + 100;
  }
  session {
    loop {
      turn;
      branch (o > 900) { end; }
      request;
      set K = prompt + o;
    }
  }
  hidden o;
}
";

fn program(server: &str) -> String {
    format!("{HEAD}server {{\n{server}\n}}\nrun {{ horizon 10; }}\n")
}

#[test]
fn what_is_known_may_decide() {
    for server in [
        // It sizes work and what stays cached.
        "hold kv (prompt) { run s (o); } cache (prompt + o);",
        // Once a run of it has ended it decides: itself, and what came from it.
        "run s (o); branch (o > 5) { run s (1); }",
        "set n = o / 2; run s (n); branch (o > 5) { run s (1); } hold kv (n) { run s (1); }",
        "set n = o; run s (o - 1); choose i in 9 by (abs(n - used(kw[i])));",
        "set n = o; run e prefill (10) decode (o); hold kv (9) { grow kv (n); load kv (o); run s (1); }",
        // On all ways.
        "branch with (0.5) { run s (o); } else { run s (2 * o); } branch (o > 5) { run s (1); }",
        "branch with (0.5) { end_of(); } run s (o);",
        "while (turn_no < 3) { run s (o); } set n = 1; run s (o); branch (o > n) { run s (1); }",
        "loop { run s (o); branch (o > 5) { run s (1); } }",
        "until (now + 9) { shield { run s (o); } } else { run s (o); } branch (o > 5) { run s (1); }",
        // What was set again comes from it no longer.
        "set n = o; set n = 3; branch (n > 5) { run s (1); } run s (o);",
        "set n = o; choose n in 9 by (used(kw[n])); hold kw[n] (1) { run s (o); }",
        // What is answered is known as it comes.
        "hold kv (prompt + a) {
           run e prefill (prompt + a) decode (o - 1) growing kv answers a first t;
         }
         branch (a > 5) { run s (1); }",
        // A way that is a constant is the only one.
        "branch (0) { branch (o > 5) { run s (1); } } run s (o);",
        "branch (1) { run s (o); } else { run s (1); } branch (o > 5) { run s (1); }",
        // In a hold that nobody preempts the header is read before the body.
        "hold kw[0] (1 + n) { run s (o); set n = 0; }",
        "book room; enter room if kv (9) fit { run s (o); set n = o; } branch (n > 1) { run s (1); }",
        // Measuring decides nothing.
        "observe length = o; set n = o; observe half = n / 2; run s (o);",
    ] {
        let text = program(server).replace("end_of();", "run s (o);");
        let compiled = compile("a.sq", text.as_bytes(), &[]);
        let shown = render_all(&compiled.diagnostics, &compiled.sources);
        assert!(compiled.program.is_some(), "{server}\n{shown}");
    }
}

#[test]
fn a_message_tells_the_way() {
    let text = program(
        "set n = o * 2;\nset m = n + 1;\nrun s (1);\nbranch (m > 5) { run s (1); }\nrun s (o);",
    );
    let compiled = compile("a.sq", text.as_bytes(), &[]);
    let shown = render_all(&compiled.diagnostics, &compiled.sources);
    for part in [
        "error[E0509]: `m` decides this branch, and comes from the hidden attribute `o`",
        "hidden here",
        "`n` is set from `o` here",
        "`m` is set from `n` here",
        "before a run of that size has ended",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let lines: Vec<u32> = compiled.diagnostics[0]
        .labels
        .iter()
        .map(|l| compiled.sources.start(l.span).line)
        .collect();
    assert_eq!((compiled.diagnostics.len(), lines), (1, vec![19, 22, 23]));
}

/// Loops in loops, long chains and many attributes are followed soon, or refused.
#[test]
fn large_programs_end_soon() {
    let began = std::time::Instant::now();
    let loops = format!(
        "set n = 0; {} run s (1); {}",
        "while (turn_no > n) { ".repeat(90),
        "set m = n; set n = m + 1; }".repeat(90)
    );
    let chain: String = (0..20_000).map(|i| format!("set a{} = a{i};\n", i + 1)).collect();
    let chain = format!("set a0 = o;\n{chain}run s (o);");
    let held = format!("hold kv (1) {{ {chain} }}");
    for body in [&loops, &chain, &held] {
        let _ = compile("a.sq", program(body).as_bytes(), &[]);
    }
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

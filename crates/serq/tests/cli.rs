//! The command as a process: what it prints where, and its exit codes.

use std::path::Path;
use std::process::{Command, Output};

const QUEUE: &str = "\
let lambda = 0.5;
stage server : fifo;
workload { arrive poisson(lambda); }
session {
  set came = now;
  run server (~exp(1));
  observe sojourn = now - came;
}
run { horizon 2000; warmup 200; }
";

/// A folder with `queue.sq` and what `extra` lists.
fn folder(extra: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, text) in [("queue.sq", QUEUE)].iter().chain(extra) {
        std::fs::write(dir.path().join(name), text).expect("a file");
    }
    dir
}

fn serq(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_serq")).current_dir(dir).args(args).output().expect("it runs")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Runs and compares the exit code, and what both outputs must contain.
fn check(dir: &Path, args: &[&str], code: i32, stdout: &[&str], stderr: &[&str]) -> Output {
    let output = serq(dir, args);
    let (o, e) = (out(&output), err(&output));
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{o}\n{e}");
    for want in stdout {
        assert!(o.contains(want), "{args:?}: {want:?} in\n{o}");
    }
    for want in stderr {
        assert!(e.contains(want), "{args:?}: {want:?} in\n{e}");
    }
    output
}

#[test]
fn usage() {
    let dir = folder(&[]);
    let at = dir.path();
    check(at, &["--help"], 0, &["serq new mine", "serq explain", "Exit codes"], &[]);
    check(at, &["run", "--help"], 0, &["--seeds", "Examples:"], &[]);
    check(at, &[], 2, &[], &["Usage"]);
    check(at, &["frobnicate"], 2, &[], &["frobnicate"]);
    check(at, &["run", "queue.sq", "--seeds", "0"], 2, &[], &["--seeds"]);
    check(at, &["run", "none.sq"], 1, &[], &["cannot read none.sq"]);
}

#[test]
fn check_and_overrides() {
    let bad = QUEUE.replace("(~exp(1))", "(~expo(1))");
    let dir = folder(&[("bad.sq", &bad)]);
    let at = dir.path();
    check(at, &["check", "queue.sq"], 0, &["queue.sq: ok: 0 pools, 1 stage"], &[]);
    check(
        at,
        &["check", "queue.sq", "bad.sq"],
        1,
        &["queue.sq: ok"],
        &["error[E0305]: unknown distribution `expo`", "--> bad.sq:6:16", "did you mean `exp`?"],
    );
    let json = check(at, &["check", "--json", "bad.sq"], 1, &[], &[]);
    let findings: serde_json::Value = serde_json::from_str(&out(&json)).expect("JSON");
    assert_eq!(findings[0]["code"], "E0305");
    assert_eq!(findings[0]["primary"]["line"], 6);
    assert_eq!(findings[0]["suggestion"]["replacement"], "exp");
    check(at, &["check", "queue.sq", "--set", "lambda=1/4"], 0, &["ok"], &[]);
    check(
        at,
        &["check", "queue.sq", "--set", "lamda=1"],
        2,
        &[],
        &["error[E0601]", "--> --set:1:1", "did you mean `lambda`?"],
    );
    check(at, &["check", "queue.sq", "--set", "lambda=-1"], 1, &[], &["E0408"]);
    check(at, &["check", "queue.sq", "--set", "lambda"], 2, &[], &["expected `=`"]);
}

#[test]
fn used_files_stand_beside_the_program() {
    let dir = folder(&[
        ("main.sq", "use \"parts.sq\";\nuse \"./parts.sq\";\ndesk(0.5);\nrun { horizon 200; }\n"),
        (
            "parts.sq",
            "def desk(rate) {\n  stage q : fifo;\n  workload { arrive poisson(rate); }\n  session { run q (cost); }\n}\nlet cost = 1;\n",
        ),
        ("bad.sq", "use \"none.sq\";\n"),
    ]);
    let above = dir.path().parent().expect("a folder");
    let inside = dir.path().file_name().expect("a name").to_string_lossy().into_owned();
    check(above, &["run", &format!("{inside}/main.sq")], 0, &["q"], &[]);
    check(dir.path(), &["run", "main.sq", "--set", "cost=0.5"], 0, &["q"], &[]);
    check(
        dir.path(),
        &["run", "main.sq", "--set", "cost=-1"],
        1,
        &[],
        &["parts.sq:4", "main.sq:3"],
    );
    check(dir.path(), &["check", "bad.sq"], 1, &[], &["E0605", "none.sq"]);
    check(dir.path(), &["fmt", "--check", "main.sq", "parts.sq"], 0, &[], &[]);
}

#[test]
fn requests_of_other_tools_are_replayed() {
    let program = "stage s : delay;\nworkload { arrive trace; trace \"azure.csv\"; }\nsession { turn; observe came = now; observe size = new * 1000 + out; run s (1); }\n";
    let dir = folder(&[
        ("replay.sq", program),
        (
            "azure.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6800000,374,44\n2023-11-16 18:15:50.6800000,396,109\n",
        ),
        (
            "mooncake.jsonl",
            "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [1, 2]}\n{\"timestamp\": 3000, \"input_length\": 512, \"output_length\": 7, \"hash_ids\": [1]}\n",
        ),
        ("sessions.csv", "1,1,10,20,0\n"),
    ]);
    let at = dir.path();
    let samples = |args: &[&str], file: &str| {
        check(at, &[&["run", "replay.sq", "--csv", "out"], args].concat(), 0, &[], &[]);
        let text = std::fs::read_to_string(at.join("out").join(file)).expect("samples");
        text.lines()
            .skip(1)
            .map(|l| l.rsplit(',').next().unwrap_or("").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(samples(&[], "came.csv"), ["0", "4"]);
    assert_eq!(samples(&[], "size.csv"), ["374044", "396109"]);
    assert_eq!(samples(&["--rate-scale", "2"], "came.csv"), ["0", "2"]);
    assert_eq!(samples(&["--trace", "mooncake.jsonl"], "size.csv"), ["600005", "512007"]);
    check(at, &["run", "replay.sq", "--trace", "sessions.csv"], 1, &[], &["has no times"]);
    check(at, &["run", "queue.sq", "--rate-scale", "2"], 2, &[], &["arrive trace"]);
}

#[test]
fn run_is_a_function_of_program_settings_and_seed() {
    let dir = folder(&[]);
    let at = dir.path();
    let first = check(at, &["run", "queue.sq"], 0, &["sojourn", "server"], &[]);
    assert_eq!(out(&first), out(&serq(at, &["run", "queue.sq"])));
    assert_ne!(out(&first), out(&serq(at, &["run", "queue.sq", "--seed", "2"])));
    assert_ne!(out(&first), out(&serq(at, &["run", "queue.sq", "--set", "lambda=0.6"])));

    let json = check(at, &["run", "queue.sq", "--json", "--quantile", "0.95"], 0, &[], &[]);
    let report: serde_json::Value = serde_json::from_str(&out(&json)).expect("JSON");
    assert_eq!(report["run"]["horizon"], 2000.0);
    assert_eq!(report["observes"]["sojourn"]["quantiles"][0]["q"], 0.95);

    // Several seeds are the single runs, in order, however many cores there are.
    let seeds = check(at, &["run", "queue.sq", "--seeds", "3", "--json"], 0, &[], &[]);
    let seeds: serde_json::Value = serde_json::from_str(&out(&seeds)).expect("JSON");
    let single = serq(at, &["run", "queue.sq", "--seed", "3", "--json"]);
    let single: serde_json::Value = serde_json::from_str(&out(&single)).expect("JSON");
    assert_eq!(seeds["reports"].as_array().map(Vec::len), Some(3));
    assert_eq!(seeds["reports"][2], single);
    let means: Vec<f64> = (0..3)
        .map(|k| seeds["reports"][k]["observes"]["sojourn"]["mean"].as_f64().expect("a number"))
        .collect();
    let mean = seeds["across"]["sojourn mean"]["mean"].as_f64().expect("a number");
    assert!((mean - means.iter().sum::<f64>() / 3.0).abs() < 1e-12);
    check(at, &["run", "queue.sq", "--seeds", "3"], 0, &["seeds 1 to 3", "sojourn mean"], &[]);

    check(at, &["run", "queue.sq", "--horizon", "100"], 2, &[], &["give --warmup as well"]);
    check(
        at,
        &["run", "queue.sq", "--horizon", "100", "--warmup", "10"],
        0,
        &["horizon 100 s"],
        &[],
    );
}

#[test]
fn samples_go_to_files() {
    let dir = folder(&[]);
    let at = dir.path();
    let report = serq(at, &["run", "queue.sq", "--json", "--csv", "samples"]);
    let report: serde_json::Value = serde_json::from_str(&out(&report)).expect("JSON");
    let text = std::fs::read_to_string(at.join("samples/sojourn.csv")).expect("the samples");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("time,session,turn,value"));
    let values: Vec<f64> =
        lines.map(|l| l.rsplit(',').next().expect("a value").parse().expect("a number")).collect();
    assert_eq!(Some(values.len() as u64), report["observes"]["sojourn"]["count"].as_u64());
    let mean = report["observes"]["sojourn"]["mean"].as_f64().expect("a number");
    assert!((values.iter().sum::<f64>() / values.len() as f64 - mean).abs() < 1e-9);
    check(at, &["run", "queue.sq", "--seeds", "2", "--csv", "all"], 0, &[], &[]);
    assert!(at.join("all/seed-2/sojourn.csv").exists());
    check(at, &["run", "queue.sq", "--csv", "queue.sq"], 1, &[], &["cannot write samples"]);
}

#[test]
fn the_json_form_runs_too() {
    let dir = folder(&[]);
    let at = dir.path();
    let ir = out(&serq(at, &["ir", "queue.sq"]));
    std::fs::write(at.join("queue.json"), &ir).expect("a file");
    assert_eq!(out(&serq(at, &["run", "queue.sq"])), out(&serq(at, &["run", "queue.json"])));
    assert_eq!(out(&serq(at, &["ir", "queue.json"])), ir);
    assert!(!out(&serq(at, &["ir", "queue.sq", "--no-spans"])).contains("spans"));
    check(at, &["run", "queue.json", "--set", "lambda=1"], 2, &[], &["has none"]);
    check(at, &["check", "queue.json"], 0, &["ok"], &[]);
    std::fs::write(at.join("bad.json"), ir.replace("\"base\": 0", "\"base\": 7")).expect("a file");
    check(at, &["check", "bad.json"], 1, &[], &["error[ir-index]", "bad.json"]);
}

#[test]
fn traces_beside_the_program_and_here() {
    let replay = "\
stage server : fifo;
stage tool : delay;
workload { arrive batch(2); trace \"two.csv\" ordered; }
session {
  loop {
    turn;
    run server (new);
    observe done = now;
    branch (!more) { end; }
    tool think;
  }
}
run { horizon 100; }
";
    let two = "session,turn,new,out,think\na,1,2,1,5\na,2,3,1,0\nb,1,4,1,0\n";
    let dir = folder(&[]);
    let at = dir.path();
    std::fs::create_dir(at.join("sub")).expect("a folder");
    std::fs::write(at.join("sub/replay.sq"), replay).expect("a file");
    std::fs::write(at.join("sub/two.csv"), two).expect("a file");
    std::fs::write(at.join("one.csv"), "x,1,7,1,0\n").expect("a file");
    let done = |args: &[&str]| {
        let output = check(at, args, 0, &[], &[]);
        assert_eq!(err(&output), "");
        let text = std::fs::read_to_string(at.join("csv/done.csv")).expect("the samples");
        let values = text.lines().skip(1).map(|l| l.rsplit(',').next().unwrap_or("").to_owned());
        values.collect::<Vec<_>>().join(" ")
    };
    // a: 0..2, thinks 5, 7..10; b waits for a: 2..6.
    assert_eq!(done(&["run", "sub/replay.sq", "--csv", "csv"]), "2 6 10");
    assert_eq!(done(&["run", "sub/replay.sq", "--csv", "csv", "--trace", "one.csv"]), "7 14");
    let inlined = out(&serq(at, &["ir", "sub/replay.sq", "--inline-trace"]));
    std::fs::write(at.join("inlined.json"), inlined).expect("a file");
    assert_eq!(done(&["run", "inlined.json", "--csv", "csv"]), "2 6 10");
    check(at, &["run", "sub/replay.sq", "--trace", "none.csv"], 1, &[], &["cannot read the trace"]);
    std::fs::write(at.join("bad.csv"), "a,1,2,1,5\na,2,three,1,0\na,3,1\n").expect("a file");
    check(
        at,
        &["run", "sub/replay.sq", "--trace", "bad.csv"],
        1,
        &[],
        &[
            "error[E0603]: `new` is `three`",
            "--> bad.csv:2:1",
            "3 columns instead of 5 or 6",
            "2 errors",
        ],
    );
}

/// An error of a run names the program's line, the time and the session.
#[test]
fn run_time_errors_have_a_place() {
    let text = QUEUE.replace("run server (~exp(1));", "run server (1 - serial);");
    let dir = folder(&[("negative.sq", &text)]);
    check(
        dir.path(),
        &["run", "negative.sq"],
        1,
        &[],
        &["--> negative.sq:6:3", "6 |   run server (1 - serial);", "session 2", "at time"],
    );
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&out(output)).expect("JSON")
}

/// With `--json`, findings are those of `check --json`, byte for byte, on the same stream.
#[test]
fn run_has_findings_as_check_has_them() {
    let bad = QUEUE.replace("(~exp(1))", "(~expo(1), )");
    let trace = QUEUE.replace("arrive poisson(lambda);", "arrive batch(1); trace \"t.csv\";");
    let bad_trace = "a,1,2,three,5\n";
    let dir = folder(&[("bad.sq", &bad), ("trace.sq", &trace), ("t.csv", bad_trace)]);
    let at = dir.path();
    for (args, code) in
        [(&["bad.sq"][..], 1), (&["queue.sq", "--set", "lamda=1"], 2), (&["none.sq"], 1)]
    {
        let both = |word: &str| check(at, &[&[word, "--json"], args].concat(), code, &[], &[]);
        let (checked, run) = (both("check"), both("run"));
        assert_eq!(err(&run), err(&checked), "{args:?}");
        if args != ["none.sq"] {
            assert_eq!(out(&run), out(&checked), "{args:?}");
            assert_eq!(err(&run), "", "{args:?}");
            assert!(json(&run)[0]["code"].is_string());
        }
        let seeds = serq(at, &[&["run", "--json", "--seeds", "3"], args].concat());
        assert_eq!((out(&seeds), err(&seeds)), (out(&run), err(&run)), "{args:?}");
    }
    let recorded = check(at, &["run", "--json", "trace.sq"], 1, &[], &[]);
    assert_eq!(json(&recorded)[0]["code"], "E0603");
    assert_eq!(json(&recorded)[0]["primary"]["file"], "t.csv");
    assert_eq!(err(&recorded), "");
}

#[test]
fn run_has_its_errors_as_json() {
    let negative = QUEUE.replace("run server (~exp(1));", "run server (1 - serial);");
    let unlucky = QUEUE.replace("run server (~exp(1));", "run server (~exp(1) - 0.0005);");
    let dir = folder(&[("negative.sq", &negative), ("unlucky.sq", &unlucky)]);
    let at = dir.path();
    let output = check(at, &["run", "negative.sq", "--json", "--seed", "7"], 1, &[], &[]);
    assert_eq!(err(&output), "");
    let found = json(&output);
    let [error] = &found["errors"].as_array().expect("a list")[..] else { panic!("{found}") };
    assert_eq!(error["code"], "amount");
    let place = serde_json::json!({ "file": "negative.sq", "line": 6, "column": 3 });
    assert_eq!(error["place"], place);
    assert_eq!((&error["session"], &error["seed"]), (&2.into(), &7.into()));
    assert!(error["time"].as_f64().expect("a time") > 0.0);
    assert!(error["path"].as_str().expect("a path").starts_with("blocks["));
    assert!(error["reason"].as_str().expect("a reason").contains("-1"), "{error}");
    assert!(error["help"].is_string());

    // Of several seeds, the first that fails: the same object as alone.
    let alone = |seed: u32| {
        let seed = seed.to_string();
        serq(at, &["run", "unlucky.sq", "--horizon", "900", "--json", "--seed", &seed])
    };
    let first = (1..100).map(alone).find(|o| o.status.code() == Some(1)).expect("one fails");
    let seed = json(&first)["errors"][0]["seed"].as_u64().expect("its seed");
    assert!(seed > 1, "some run before it does not fail");
    let all = ["run", "unlucky.sq", "--horizon", "900", "--json", "--seeds", "100"];
    assert_eq!(out(&check(at, &all, 1, &[], &[])), out(&first));
    let named = format!("this was the run with seed {seed}");
    check(at, &[&all[..4], &all[5..]].concat(), 1, &[], &[&named]);

    // Mistakes of the JSON form, in the same object.
    let ir = out(&serq(at, &["ir", "queue.sq"]));
    std::fs::write(at.join("bad.json"), ir.replace("\"base\": 0", "\"base\": 7")).expect("a file");
    let output = check(at, &["run", "bad.json", "--json"], 1, &[], &[]);
    assert_eq!(err(&output), "");
    let error = &json(&output)["errors"][0];
    assert_eq!(error["code"], "ir-index");
    assert!(error["path"].is_string() && error["time"].is_null(), "{error}");
}

#[test]
fn strict_refuses_rejections() {
    let text = "\
pool kv { cap 10; }
stage server : fifo;
workload { arrive batch(3); }
session { hold kv (8 + serial * 2) { run server (1); } }
run { horizon 10; }
";
    let dir = folder(&[("big.sq", text)]);
    check(dir.path(), &["run", "big.sq"], 0, &["kv"], &[]);
    check(dir.path(), &["run", "big.sq", "--strict"], 1, &["kv"], &["asked for more than its cap"]);
}

#[test]
fn fmt_in_place_and_from_standard_input() {
    let messy = QUEUE.replace("let lambda = 0.5;", "let   lambda=0.5 ;");
    let dir = folder(&[("messy.sq", &messy), ("broken.sq", "let a = ;\n")]);
    let at = dir.path();
    let read = |name: &str| std::fs::read_to_string(at.join(name)).expect("a file");
    check(at, &["fmt", "--check", "queue.sq"], 0, &[], &[]);
    check(at, &["fmt", "--check", "queue.sq", "messy.sq"], 1, &["messy.sq"], &[]);
    assert_eq!(read("messy.sq"), messy);
    check(at, &["fmt", "messy.sq"], 0, &[], &[]);
    assert_eq!(read("messy.sq"), QUEUE);
    check(at, &["fmt", "broken.sq"], 1, &[], &["E0105"]);
    assert_eq!(read("broken.sq"), "let a = ;\n");
    assert_eq!(std::fs::read_dir(at).expect("the folder").count(), 3, "nothing is left over");
}

#[test]
fn explain_and_new() {
    let dir = folder(&[]);
    let at = dir.path();
    check(at, &["explain", "e0501"], 0, &["E0501", "at admission", "hold kv"], &[]);
    check(at, &["explain"], 0, &["E0101", "W0703"], &[]);
    check(at, &["explain", "index"], 0, &["an error of a run", "s[serial]"], &[]);
    check(at, &["explain", "hold-cap"], 0, &["E0412"], &[]);
    check(
        at,
        &["explain", "overloaded"],
        0,
        &["a note of a report", "--strict", "poisson(2)"],
        &[],
    );
    check(at, &["explain", "overload"], 2, &[], &["did you mean `overloaded`?"]);
    check(at, &["explain"], 0, &["Notes of a report", "deadlock *", "constant  ", "releases"], &[]);
    check(at, &["explain", "E051"], 2, &[], &["no code `E051`"]);
    check(at, &["new", "mine"], 0, &["serq run mine.sq"], &[]);
    check(at, &["run", "mine.sq", "--horizon", "20", "--warmup", "2"], 0, &["ttft"], &[]);
    check(at, &["new", "mine"], 1, &[], &["exists already"]);
}

const ENGINE: &str = "\
stage E[2] : step { budget 8; cost 1; };
stage think : delay;
workload { arrive batch(2); }
session {
  turn;
  run E[serial] prefill (16);
  run E[serial] decode (serial * 2);
  run think (1);
}
run { horizon 10; }
";

/// One session answers one token, the other three: rows, columns and objectives by hand.
#[test]
fn requests_and_iterations_go_to_files() {
    let dir = folder(&[("engine.sq", ENGINE)]);
    let at = dir.path();
    let args = ["run", "engine.sq", "--requests", "r.csv", "--csv", "d", "--iterations", "--json"];
    let slo = ["--slo", "ttft=2,e2e=3", "--percentile", "75"];
    let json = check(at, &[&args[..], &slo[..]].concat(), 0, &[], &[]);
    let head = "session,turn,start,first,last,tokens,ttft,tpot,e2e,longest_gap\n";
    let rows = format!("{head}0,1,0,2,2,1,2,,2,0\n1,1,0,2,4,3,2,1,4,1\n");
    let read = |name: &str| std::fs::read_to_string(at.join(name)).expect("a file");
    assert_eq!((read("r.csv"), read("d/by-request.csv")), (rows.clone(), rows));
    assert_eq!(
        read("d/by-iteration.csv"),
        "stage,time,duration,session,turn,mode,tokens\n\
         E[0],0,1,0,1,prefill,8\nE[1],0,1,1,1,prefill,8\n\
         E[0],1,1,0,1,prefill,8\nE[1],1,1,1,1,prefill,8\n\
         E[1],2,1,1,1,decode,1\nE[1],3,1,1,1,decode,1\n"
    );
    let report: serde_json::Value = serde_json::from_str(&out(&json)).expect("JSON");
    let requests = &report["requests"];
    assert_eq!(requests["count"], 2);
    assert_eq!(requests["e2e"]["quantiles"][0]["value"], 4.0);
    assert_eq!(requests["slo"]["attainment"], 0.5);
    assert_eq!(requests["slo"]["goodput"], 0.1);
    let text = ["slo ttft 2 e2e 3: 50 %", "2 answered", "decode batch"];
    check(at, &["run", "engine.sq", "--slo", "ttft=2,e2e=3"], 0, &text, &[]);
    let text = ["requests attainment         0.5000  0.0000", "request ttft mean"];
    check(at, &["run", "engine.sq", "--slo", "e2e=3", "--seeds", "2"], 0, &text, &[]);
    for (args, message) in [
        (&["--slo", "ttft"][..], "name=seconds"),
        (&["--slo", "ttfb=1"], "not ttft"),
        (&["--slo", "ttft=1,ttft=2"], "twice"),
        (&["--slo", "ttft=-1"], "no number of seconds"),
        (&["--percentile", "101"], "between 0 and 100"),
        (&["--iterations"], "--csv"),
        (&["--requests", "r.csv", "--seeds", "2"], "by-request.csv"),
    ] {
        check(at, &[&["run", "engine.sq"], args].concat(), 2, &[], &[message]);
    }
    check(at, &["run", "engine.sq", "--requests", "none/r.csv"], 1, &[], &["none/r.csv"]);
}

/// The interval over seeds is Student's t times the deviation of the runs' means.
#[test]
fn intervals_over_seeds() {
    let dir = folder(&[]);
    let args = ["run", "queue.sq", "--seeds", "4", "--json"];
    let report: serde_json::Value =
        serde_json::from_str(&out(&check(dir.path(), &args, 0, &[], &[]))).expect("JSON");
    let number = |v: &serde_json::Value| v.as_f64().expect("a number");
    let values: Vec<f64> =
        (0..4).map(|k| number(&report["reports"][k]["stages"][0]["utilisation"])).collect();
    let mean = values.iter().sum::<f64>() / 4.0;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 3.0;
    let across = &report["across"]["server utilisation"];
    assert!((number(&across["mean"]) - mean).abs() < 1e-12);
    // 97.5 % point with three degrees of freedom.
    let expected = 3.182_446 * (variance / 4.0).sqrt();
    assert!((number(&across["half_width"]) / expected - 1.0).abs() < 1e-6);
}

#[test]
fn strict_refuses_overload_and_leftovers() {
    let overloaded = QUEUE.replace("0.5", "1.5");
    let dir = folder(&[("over.sq", &overloaded), ("engine.sq", ENGINE)]);
    let at = dir.path();
    check(at, &["run", "queue.sq", "--strict"], 0, &[], &[]);
    check(at, &["run", "over.sq"], 0, &["overloaded: "], &[]);
    check(at, &["run", "over.sq", "--strict"], 1, &["sojourn"], &["overloaded: seed 1: "]);
    check(at, &["run", "engine.sq", "--strict"], 0, &[], &[]);
    let short = ["run", "engine.sq", "--horizon", "3", "--strict"];
    check(at, &short, 1, &[], &["unfinished: seed 1: 1 of 2 sessions"]);
}

#[test]
fn programs_beside_recorded_schedulers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let programs = root.join("../../examples/oracle");
    let traces = root.join("tests/data/oracle");
    let dir = folder(&[("broken.json", "{}")]);
    let at = dir.path();
    let of = |folder: &Path, name: &str| folder.join(name).display().to_string();
    let colocated = of(&programs, "vllm_colocated.sq");
    let (one, two) = (of(&traces, "co01_basic.json"), of(&traces, "co13_priority.json"));
    let agree = "all            5 of 5 requests agree, 31 of 31 steps agree\n";
    check(at, &["oracle", &colocated, &one, &two], 0, &["co01_basic     2 of 2", agree], &[]);
    let differ = ["first difference at tick 5, engine C", "C in vLLM: free", "C here:    free"];
    check(at, &["oracle", &colocated, &two, "--set", "C.policy=0"], 1, &differ, &[]);
    // Every file that cannot be read is named.
    let wrong = ["error: no.json: ", "error: broken.json: not a trace of vLLM's schedulers"];
    check(at, &["oracle", &colocated, "no.json", &one, "broken.json"], 1, &[], &wrong);
    let pull = of(&traces, "pd01_basic.json");
    let engine = "pd01_basic: the program has a stage C, an engine that the scenario has not";
    check(at, &["oracle", &colocated, &pull], 1, &[], &[engine, "help: see examples/oracle"]);
    let lacks = "co13_priority: the scenario has an engine C, and the program no step stage";
    check(at, &["oracle", "queue.sq", &two], 1, &[], &[lacks]);
    std::fs::write(
        at.join("engine.sq"),
        "pool kv { cap 9; } stage C : step { cost 1; memory kv; };
         workload { arrive batch(1); } session { run C decode (1); }",
    )
    .expect("a file");
    let lacks = "co13_priority: the scenario sets C.blocks to 13, and the program has no `let";
    check(at, &["oracle", "engine.sq", &two], 1, &[], &[lacks]);
    check(at, &["oracle", "queue.sq", "--set", "x=1", &two], 2, &[], &["no `let x`"]);
    check(at, &["oracle", &colocated], 2, &[], &["TRACE"]);
}

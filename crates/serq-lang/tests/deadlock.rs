//! The warning about sessions that can come to wait for each other for ever (W0703): which ways it
//! sees, and that it keeps silent where nobody can.

use std::path::{Path, PathBuf};

use serq_lang::diag::Code;
use serq_lang::{Used, compile_with};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines of all warnings of this kind, with what stands there; nothing else is wrong.
#[track_caller]
fn warnings(name: &str, text: &str) -> Vec<(u32, String)> {
    let mut beside = |from: &str, path: &str| {
        let at = Path::new(from).parent().expect("a folder").join(path);
        let text = std::fs::read(&at).map_err(|e| e.to_string())?;
        Ok(Used { name: at.display().to_string(), text })
    };
    let compiled = compile_with(name, text.as_bytes(), &[], &mut beside);
    assert!(compiled.program.is_some(), "{name}: {:?}", compiled.diagnostics);
    let of = |d: &serq_lang::diag::Diagnostic| {
        assert_eq!(d.code, Code::W0703, "{name}: {}", d.message);
        (compiled.sources.start(d.primary.span).line, d.primary.text.clone())
    };
    compiled.diagnostics.iter().map(of).collect()
}

/// The statements of a session between pools `a`, `b`, `c` of four units and `free` without bound.
fn session(statements: &str) -> String {
    format!(
        "pool a {{ cap 4; }} pool b {{ cap 4; }} pool c {{ cap 4; }} pool free {{ cap inf; }}
         pool f[2] {{ cap 4; }} pool g[2] {{ cap 4; }}
         stage s : fifo; workload {{ arrive poisson(1); init {{ set way = serial > 3; }} }}
         session {{\n{statements}\n}} run {{ horizon 10; }}"
    )
}

const WAIT: &str = "a session that holds `a` waits here at `b`";

#[test]
fn ways_that_can_deadlock() {
    for (what, statements, at) in [
        (
            "two orders",
            "branch (way) { hold a (1) { hold b (1) { run s (1); } } }
             else { hold b (1) { hold a (1) { run s (1); } } }",
            5,
        ),
        (
            "behind a head that holds nothing",
            "branch (way) { hold a (1) { run s (1);
             hold b (1) { run s (1); } } }
             else { hold b (1), a (1) { run s (1); } }",
            6,
        ),
        (
            "a head that only looks",
            "branch (way) { hold a (1) { hold b (1) { run s (1); } } }
             else { hold b (1), a (0) reserve (2) { run s (1); } }",
            5,
        ),
        (
            "a lease, round a loop",
            "loop {
             hold b (1) { hold a (1) { run s (1); } }
             hold a (1) { run s (1); } lease a (inf);
             hold c (1) { run s (1); } }",
            6,
        ),
        (
            "three in a ring",
            "choose k in 3 by (k);
             branch (k == 0) { hold a (1) { hold b (1) { run s (1); } } }
             branch (k == 1) { hold b (1) { hold c (1) { run s (1); } } }
             branch (k == 2) { hold c (1) { hold a (1) { run s (1); } } }",
            6,
        ),
        (
            "a shield in a deadline",
            "until (now + 1) { shield {
             hold a (1) { hold b (1) { run s (1); } } hold b (1) { hold a (1) { run s (1); } } } }",
            6,
        ),
    ] {
        let found = warnings("inline.sq", &session(statements));
        assert_eq!(found.len(), 1, "{what}: {found:?}");
        assert_eq!(found[0], (at, WAIT.to_owned()), "{what}");
    }
    let rings = "hold a (1) { hold b (1) { run s (1); } } hold b (1) { hold a (1) { run s (1); } }
        hold f[0] (1) { hold g[0] (1) { run s (1); } } hold g[0] (1) { hold f[0] (1) { run s (1); } }";
    assert_eq!(warnings("inline.sq", &session(rings)).len(), 2, "one each");
}

#[test]
fn ways_that_cannot() {
    for (what, statements) in [
        ("one order", "hold a (1) { hold b (1) { run s (1); } } hold a (1), b (1) { run s (1); }"),
        (
            "at once, in either order",
            "hold a (1), b (1) { run s (1); } hold b (1), a (1) { run s (1); }",
        ),
        (
            "no bound",
            "hold a (1) { hold free (1) { run s (1); } } hold free (1) { hold a (1) { run s (1); } }",
        ),
        (
            "nothing claimed",
            "hold a (1) { hold b (1) { run s (1); } } hold b (1), a (0) { run s (1); }",
        ),
        (
            "given back before",
            "hold a (1) { run s (1); release a; hold b (1) { run s (1); } }
             hold b (1) { hold a (1) { run s (1); } }",
        ),
        (
            "a lease that ends",
            "hold a (1) { run s (1); } lease a (5); hold b (1) { hold a (1) { run s (1); } }",
        ),
        (
            "a lease that was released",
            "hold a (1) { run s (1); } lease a (inf); release a;
             hold b (1) { hold a (1) { run s (1); } }",
        ),
        (
            "a deadline",
            "hold a (1) { until (now + 5) { hold b (1) { run s (1); } } }
             hold b (1) { hold a (1) { run s (1); } }",
        ),
        (
            "a way that is switched off",
            "branch (0) { hold a (1) { hold b (1) { run s (1); } } }
             hold b (1) { hold a (1) { run s (1); } }",
        ),
        (
            "other members",
            "hold f[0] (1) { hold g[0] (1) { run s (1); } }
             hold g[0] (1) { hold f[1] (1) { run s (1); } }",
        ),
        (
            "behind the end",
            "branch (way) { hold a (1) { run s (1); } lease a (inf); end; } hold b (1) { hold a (1) { run s (1); } }",
        ),
    ] {
        assert_eq!(warnings("inline.sq", &session(statements)), [], "{what}");
    }
}

/// A local prefill that waits for blocks in the queue of the slots, while requests with blocks want
/// a slot: what the simulator shows to stand still after a while.
#[test]
fn a_local_prefill_in_the_queue_of_the_slots() {
    const LOCAL: &str =
        "admit if kvD[j] (min(known, hit + budget_left(D[j]))) reserve (known), reqsD[j] (1)";
    const SLOTS: &str =
        "admit if reqsD[j] (1), kvD[j] (min(known, hit + budget_left(D[j]))) reserve (known)";
    let path = root().join("examples/llmd_pd.sq");
    let text = std::fs::read_to_string(path).expect("a text");
    assert!(text.contains(LOCAL));
    let slots = text.replace(LOCAL, SLOTS);
    let inner = text.lines().position(|l| l.trim() == "admit if reqsD[j] (1) fit {");
    let line = inner.expect("there") as u32 + 1;
    assert_eq!(
        warnings("llmd_pd.sq", &slots),
        [(line, "a session that holds `kvD` waits here at `reqsD`".to_owned())]
    );
}

/// No program of the repository is warned of.
#[test]
fn examples_are_free_of_it() {
    let mut folders = vec![root().join("examples")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "sq")
                && path.file_stem().is_some_and(|stem| stem != "engine")
            {
                let text = std::fs::read_to_string(&path).expect("a text");
                assert_eq!(warnings(&path.display().to_string(), &text), [], "{path:?}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 16, "{seen} programs");
}

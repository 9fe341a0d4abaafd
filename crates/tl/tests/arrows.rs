//! The arrows of ARCHITECTURE.md, held by the build graph itself.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Normal (not dev) dependencies by crate name, from `cargo metadata`.
fn graph() -> Graph {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let deps = package["dependencies"].as_array().expect("dependencies");
            let normal = deps.iter().filter(|dep| dep["kind"].is_null());
            let names = normal.map(|dep| dep["name"].as_str().expect("name").to_owned());
            (package["name"].as_str().expect("name").to_owned(), names.collect())
        })
        .collect()
}

/// Everything reachable inside the workspace, and the outside crates it names directly.
fn reach(graph: &Graph, from: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(name) = open.pop() {
        for dep in graph.get(&name).into_iter().flatten() {
            if seen.insert(dep.clone()) {
                open.push(dep.clone());
            }
        }
    }
    seen
}

#[test]
fn crates_point_one_way() {
    let graph = graph();
    let allowed: &[(&str, &[&str])] = &[
        ("tl-proto", &[]),
        ("tl-kv", &[]),
        ("tl-kernels", &[]),
        ("tl-api", &[]),
        ("tl-model", &["tl-kv", "tl-kernels"]),
        ("tl-engine", &["tl-kv", "tl-kernels", "tl-model", "tl-proto"]),
        ("tl-serve", &["tl-api", "tl-engine", "tl-kv", "tl-kernels", "tl-model", "tl-proto"]),
        ("tl-gateway", &["tl-api", "tl-proto"]),
        ("tl-testkit", &["tl-kv"]),
        ("tl-life", &["tl-api", "tl-gateway", "tl-kv", "tl-proto"]),
        ("serq-lang", &[]),
        ("serq-sim", &["serq-lang"]),
        ("serq", &["serq-lang", "serq-sim"]),
    ];
    for (name, allowed) in allowed {
        assert!(graph.contains_key(*name), "{name} is not in the workspace");
        let inside: Vec<_> =
            reach(&graph, name).into_iter().filter(|dep| graph.contains_key(dep)).collect();
        for dep in inside {
            assert!(allowed.contains(&dep.as_str()), "{name} must not depend on {dep}");
        }
    }
}

#[test]
fn cores_know_nothing_of_runtimes_and_sockets() {
    let graph = graph();
    for name in ["tl-kv", "tl-kernels", "tl-model", "tl-api", "serq-lang", "serq-sim"] {
        let reached = reach(&graph, name);
        for outside in ["tokio", "tonic", "axum", "hyper", "reqwest"] {
            assert!(!reached.contains(outside), "{name} must not depend on {outside}");
        }
    }
}

#[test]
fn test_support_is_never_shipped() {
    for (name, deps) in graph() {
        for tool in ["tl-testkit", "tl-life"] {
            assert!(!deps.contains(tool), "{name} ships {tool}");
        }
    }
}

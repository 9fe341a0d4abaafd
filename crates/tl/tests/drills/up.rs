//! The command as a user starts it: `tl up` with models and addresses that are not the usual ones.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tl_testkit::folder;

use super::parts::{PATIENCE, wait_for};

/// A running `tl up --json`, and what it said when it was ready.
struct Up {
    child: Child,
    ready: Value,
}

impl Up {
    fn start(args: &[&str], cache: &Path) -> Up {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tl"))
            .args(["up", "--port", "0", "--json", "--quiet", "--threads", "2", "--kv-blocks", "64"])
            .args(args)
            .env("TL_CACHE", cache)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let stdout = child.stdout.take().expect("piped");
        let stderr = child.stderr.take().expect("piped");
        let (lines, first) = mpsc::channel();
        let log = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = lines.send(Ok(line));
            }
        });
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = log.send(Err(line));
            }
        });
        let mut said = Vec::new();
        loop {
            match first.recv_timeout(PATIENCE) {
                Ok(Ok(line)) => {
                    let ready: Value = serde_json::from_str(&line).expect("JSON");
                    assert_eq!(ready["event"], "ready", "{ready}");
                    return Up { child, ready };
                }
                Ok(Err(line)) => said.push(line),
                Err(_) => {
                    let _ = child.kill();
                    panic!("not ready; it said: {said:#?}");
                }
            }
        }
    }

    /// SIGINT, and a clean end.
    fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"));
        nix::sys::signal::kill(pid, Signal::SIGINT).expect("it can be signalled");
        let status = wait_for(PATIENCE, || self.child.try_wait().expect("it can be waited for"));
        assert_eq!(status.and_then(|s| s.code()), Some(0));
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder as model hubs have them, served with prefill and decode apart: its template makes the
/// prompt, its tokenizer the text, and the answer is the one that one engine gives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hugging_face_folder_is_served() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("made-for-this-test");
    std::fs::create_dir(&model).expect("a folder");
    folder::write(&model, 5).expect("written");
    let path = model.to_str().expect("UTF-8");
    let http = reqwest::Client::builder().timeout(PATIENCE).build().expect("a client");
    let question = "wh\u{e4}t?";
    let body = |name: &str| {
        json!({
            "model": name, "messages": [{"role": "user", "content": question}],
            "max_tokens": 24, "temperature": 0.8, "seed": 3, "logprobs": true,
        })
    };
    let mut answers = Vec::new();
    for topology in ["1p1d", "unified"] {
        let up = Up::start(&["--model", path, "--topology", topology], dir.path());
        let name = up.ready["model"].as_str().expect("a name").to_owned();
        let url =
            format!("{}/chat/completions?debug=route", up.ready["base_url"].as_str().unwrap());
        let answer = http.post(url).json(&body(&name)).send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        let split = answer.headers().contains_key("x-tl-route-prefill");
        assert_eq!(split, topology == "1p1d");
        let edges = up.ready["edges"].as_array().expect("the self-test's report");
        assert_eq!(edges.len(), usize::from(split), "one block over every edge: {edges:?}");
        let mut answer: Value = answer.json().await.expect("JSON");
        let prompt = folder::chat_ids(&[("user", question)]);
        assert_eq!(answer["usage"]["prompt_tokens"], prompt.len());
        assert!(answer["usage"]["completion_tokens"].as_u64().unwrap() > 0, "{answer}");
        for key in ["id", "created"] {
            answer[key].take();
        }
        answers.push(answer);
        up.stop();
    }
    assert_eq!(answers[0], answers[1]);
    let content = answers[0]["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert!(content.len() > 2, "it says something: {}", answers[0]);
}

/// The API alone leaves this machine; everything that trusts its peers stays on loopback, so that no
/// token is needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_off_loopback_opens_the_api_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a folder");
    let up = Up::start(&["--model", "tiny", "--topology", "1p1d", "--host", "0.0.0.0"], dir.path());
    let gateway = up.ready["gateway"].as_str().expect("an address");
    assert!(gateway.starts_with("http://0.0.0.0:"), "{gateway}");
    for part in up.ready["parts"].as_array().expect("parts") {
        for key in ["health", "grpc", "kv", "registry"] {
            if let Some(address) = part[key].as_str() {
                assert!(address.starts_with("127.0.0.1:"), "{key} of {part}");
            }
        }
    }
    let http = reqwest::Client::builder().timeout(PATIENCE).build().expect("a client");
    let body = json!({"model": "tiny", "prompt": "hello", "max_tokens": 4});
    let url = format!("{gateway}/v1/completions");
    let answer = http.post(url).json(&body).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let drain = http.post(format!("{gateway}/admin/v1/models/tiny:drain")).json(&json!({}));
    assert_eq!(drain.send().await.expect("an answer").status(), 404, "for this machine alone");
    up.stop();
}

//! Engines and gateways as processes of their own, for drills that kill and restart them.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tl_testkit::eventually_blocking;
use toml::Table;

/// Generous: a loaded CI machine must not turn a wait into a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One `tl engine` or `tl gateway`.
pub struct Part {
    pub name: String,
    kind: &'static str,
    config: Table,
    path: PathBuf,
    child: Option<(Child, ChildStdin)>,
    addrs: Value,
    /// Environment of the process.
    env: Vec<(String, String)>,
}

impl Part {
    pub fn start(
        dir: &Path,
        name: &str,
        kind: &'static str,
        section: Table,
        env: &[(String, String)],
    ) -> Part {
        let config = Table::from_iter([(kind.to_owned(), toml::Value::Table(section))]);
        let path = dir.join(format!("{name}.toml"));
        let mut part = Part {
            name: name.to_owned(),
            kind,
            config,
            path,
            child: None,
            addrs: Value::Null,
            env: env.to_vec(),
        };
        part.launch();
        part
    }

    /// Starts the process and waits for the line that says where it listens.
    fn launch(&mut self) {
        std::fs::write(&self.path, self.config.to_string())
            .expect("the configuration can be written");
        let log =
            std::fs::File::create(self.path.with_extension("log")).expect("the log can be written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_tl"))
            .arg(self.kind)
            .arg("--config")
            .arg(&self.path)
            .args(["--announce", "--watch-stdin"])
            .envs(self.env.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the command starts");
        let stdin = child.stdin.take().expect("piped");
        let stdout = child.stdout.take().expect("piped");
        let (lines, first) = mpsc::channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut line = String::new();
            let _ = reader.read_line(&mut line);
            let _ = lines.send(line);
            let _ = reader.read_to_end(&mut Vec::new());
        });
        self.child = Some((child, stdin));
        let line = first.recv_timeout(PATIENCE).unwrap_or_default();
        let announced: Value = serde_json::from_str(&line).unwrap_or_default();
        self.addrs = announced["listening"].clone();
        assert!(self.addrs.is_object(), "{} does not listen; its log:\n{}", self.name, self.log());
    }

    pub fn addr(&self, key: &str) -> String {
        self.addrs[key]
            .as_str()
            .unwrap_or_else(|| panic!("{} has no {key} address", self.name))
            .to_owned()
    }

    /// `engine` or `gateway`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path.with_extension("log")).unwrap_or_default()
    }

    pub fn pid(&self) -> i32 {
        let (child, _) = self.child.as_ref().expect("it runs");
        i32::try_from(child.id()).expect("a pid")
    }

    /// SIGKILL: no destructor runs, every socket just closes.
    pub fn kill(&mut self) {
        let (mut child, _) = self.child.take().expect("it runs");
        child.kill().expect("it can be killed");
        child.wait().expect("it can be waited for");
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal)
            .expect("it can be signalled");
    }

    /// SIGTERM, and the exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        let code = self.exit_code();
        self.child = None;
        code
    }

    /// Its exit code, once it has ended.
    pub fn exit_code(&mut self) -> Option<i32> {
        let (child, _) = self.child.as_mut().expect("it runs");
        let status = wait_for(PATIENCE, || child.try_wait().expect("it can be waited for"));
        status.and_then(|status| status.code())
    }

    /// Starts it again on the addresses it had.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "{} still runs", self.name);
        let section = self.config[self.kind].as_table_mut().expect("a section");
        let listen = if self.kind == "gateway" { "listen" } else { "http_listen" };
        for (key, at) in [
            (listen, "http"),
            ("health_listen", "health"),
            ("grpc_listen", "grpc"),
            ("kv_listen", "kv"),
            ("registry_listen", "registry"),
        ] {
            if let Some(address) = self.addrs[at].as_str() {
                section.insert(key.to_owned(), address.into());
            }
        }
        self.launch();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Polls until there is something, at most so long.
pub fn wait_for<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut found = None;
    eventually_blocking(patience, || {
        found = look();
        found.is_some()
    });
    found
}

/// A gateway with engines of the built-in model.
pub struct Drill {
    pub gateway: Part,
    pub prefill: Vec<Part>,
    pub decode: Vec<Part>,
    pub unified: Vec<Part>,
    pub http: reqwest::Client,
    /// Configuration files and logs; gone with the drill.
    _dir: tempfile::TempDir,
}

/// What differs between drills.
#[derive(Clone)]
pub struct Shape {
    pub prefill: usize,
    pub decode: usize,
    /// Added to every engine's section.
    pub engine: Table,
    /// Added to the gateway's section.
    pub gateway: Table,
    /// Added to every process's environment.
    pub env: Vec<(String, String)>,
    /// Engines that serve requests whole, beside the others and unknown to the gateway.
    pub unified: usize,
}

impl Shape {
    pub fn new(prefill: usize, decode: usize) -> Shape {
        let (engine, gateway) = (Table::new(), Table::new());
        Shape { prefill, decode, engine, gateway, env: Vec::new(), unified: 0 }
    }

    pub fn engine(mut self, key: &str, value: impl Into<toml::Value>) -> Shape {
        self.engine.insert(key.to_owned(), value.into());
        self
    }

    pub fn env(mut self, key: &str, value: &str) -> Shape {
        self.env.push((key.to_owned(), value.to_owned()));
        self
    }

    pub fn unified(mut self, unified: usize) -> Shape {
        self.unified = unified;
        self
    }

    pub fn gateway(mut self, key: &str, value: impl Into<toml::Value>) -> Shape {
        self.gateway.insert(key.to_owned(), value.into());
        self
    }
}

const ANY: &str = "127.0.0.1:0";

impl Drill {
    pub async fn start(shape: Shape) -> Drill {
        let dir = tempfile::tempdir().expect("a folder");
        let mut section = shape.gateway.clone();
        for key in ["listen", "health_listen", "registry_listen"] {
            section.entry(key).or_insert_with(|| ANY.into());
        }
        section.insert("debug".to_owned(), true.into());
        let gateway = Part::start(dir.path(), "gateway", "gateway", section, &shape.env);
        let registry = gateway.addr("registry");
        let engine = |name: String, role: &str| {
            let mut section = Table::new();
            section.insert("role".to_owned(), role.into());
            section.insert("model_dir".to_owned(), "tiny".into());
            for key in ["http_listen", "health_listen", "grpc_listen", "kv_listen"] {
                section.insert(key.to_owned(), ANY.into());
            }
            if role != "unified" {
                section.insert("gateway_registry".to_owned(), registry.clone().into());
            }
            section.insert("kv_blocks".to_owned(), 512.into());
            section.insert("threads".to_owned(), 1.into());
            section.extend(shape.engine.clone());
            Part::start(dir.path(), &name, "engine", section, &shape.env)
        };
        let prefill =
            (0..shape.prefill).map(|i| engine(format!("prefill-{i}"), "prefill")).collect();
        let decode = (0..shape.decode).map(|i| engine(format!("decode-{i}"), "decode")).collect();
        let unified =
            (0..shape.unified).map(|i| engine(format!("unified-{i}"), "unified")).collect();
        let http = reqwest::Client::builder().timeout(PATIENCE).build().expect("a client");
        let drill = Drill { gateway, prefill, decode, unified, http, _dir: dir };
        drill.until_workers(shape.prefill + shape.decode).await;
        drill
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.gateway.addr("http"))
    }

    /// What the gateway says of its workers.
    pub async fn workers(&self) -> Vec<Value> {
        let answer = match self.http.get(self.url("/admin/v1/workers")).send().await {
            Ok(answer) => answer.json::<Value>().await.unwrap_or_default(),
            Err(_) => Value::Null,
        };
        answer["data"].as_array().cloned().unwrap_or_default()
    }

    pub async fn until_workers(&self, n: usize) {
        self.until(&format!("the gateway knows {n} workers"), async || {
            self.workers().await.len() == n
        })
        .await;
    }

    /// Polls a condition; fails with every log when it does not come true.
    pub async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let started = Instant::now();
        while !condition().await {
            if started.elapsed() > PATIENCE {
                let parts = std::iter::once(&self.gateway).chain(&self.prefill).chain(&self.decode);
                let logs: String =
                    parts.map(|part| format!("--- {}\n{}\n", part.name, part.log())).collect();
                panic!("not within {} s: {what}\n{logs}", PATIENCE.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// One series of a part's metrics, such as `tl_engine_kv_blocks{state="used"}`.
    pub async fn metric(&self, part: &Part, series: &str) -> Option<f64> {
        let text = self
            .http
            .get(format!("http://{}/metrics", part.addr("health")))
            .send()
            .await
            .ok()?
            .text()
            .await
            .ok()?;
        text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    /// Every engine's pool, queue and running count, and the gateway's own in-flight count, read zero.
    pub async fn until_baseline(&self) {
        self.until_baseline_of_living(&[]).await;
    }

    /// The same where some decode engines do not run.
    pub async fn until_baseline_of_living(&self, dead: &[usize]) {
        let living =
            self.decode.iter().enumerate().filter(|(i, _)| !dead.contains(i)).map(|(_, part)| part);
        for part in self.prefill.iter().chain(living) {
            for series in [
                "tl_engine_kv_blocks{state=\"used\"}",
                "tl_engine_queue_depth",
                "tl_engine_active_sequences",
                "tl_kv_handles{state=\"waiting\"}",
            ] {
                let what = format!("{series} of {} is 0", part.name);
                self.until(&what, async || self.metric(part, series).await == Some(0.0)).await;
            }
        }
        self.until("nothing is in flight at the gateway", async || {
            self.metric(&self.gateway, "tl_gateway_inflight").await == Some(0.0)
        })
        .await;
    }
}

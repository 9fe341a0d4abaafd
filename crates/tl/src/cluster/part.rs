//! One part of the cluster as a child process: started, watched, its log kept, started again when it dies.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use toml::Table;

use super::addrs::{Addrs, Announcement};
use super::config;

/// Waits between a death and the next start, in milliseconds; the last one repeats.
const BACKOFF_MS: [u64; 6] = [100, 250, 500, 1000, 2000, 5000];

/// A part that ran this long has recovered: its next death is a first one again.
const RECOVERED: Duration = Duration::from_secs(30);

/// Lines of a dead part's log shown with the reason.
const TAIL: usize = 12;

/// Deaths before a part ever listened: after these its start is given up.
const FIRST_STARTS: usize = 3;

/// What happens to parts, for whoever shows it.
#[derive(Debug)]
pub(crate) enum PartEvent {
    Log { part: String, index: usize, line: String },
    Died { part: String, index: usize, why: String, tail: Vec<String>, log: PathBuf },
    Restarted { part: String, index: usize, pid: Option<u32> },
}

/// Where a part stands, for whoever waits for it.
#[derive(Debug, Clone)]
enum State {
    Starting,
    Listening(Addrs, Option<u32>),
    Dead,
    GivenUp(String),
    Stopped,
}

/// A supervised child process. Dropping it kills the child at once.
#[derive(Debug)]
pub(crate) struct Part {
    name: String,
    state: watch::Receiver<State>,
    stop: watch::Sender<Option<Duration>>,
    task: tokio::task::JoinHandle<()>,
}

impl Part {
    pub(super) fn start(
        name: &str,
        index: usize,
        config: Table,
        dir: &Path,
        events: &mpsc::UnboundedSender<PartEvent>,
    ) -> anyhow::Result<Part> {
        let (state_tx, state) = watch::channel(State::Starting);
        let (stop, stop_rx) = watch::channel(None);
        let log = dir.join(format!("{name}.log"));
        let supervisor = Supervisor {
            name: name.to_owned(),
            index,
            config,
            config_path: dir.join(format!("{name}.toml")),
            log_file: File::create(&log)
                .with_context(|| format!("cannot create {}", log.display()))?,
            log,
            binary: std::env::current_exe().context("cannot find the path of this program")?,
            events: events.clone(),
            state: state_tx,
            stop: stop_rx,
        };
        let task = tokio::spawn(supervisor.run());
        Ok(Part { name: name.to_owned(), state, stop, task })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn addrs(&self) -> Option<Addrs> {
        match &*self.state.borrow() {
            State::Listening(addrs, _) => Some(addrs.clone()),
            _ => None,
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        match &*self.state.borrow() {
            State::Listening(_, pid) => *pid,
            _ => None,
        }
    }

    /// Waits until it listens, or says why it never will.
    pub(super) async fn listening(&self, deadline: Duration) -> anyhow::Result<Addrs> {
        let mut state = self.state.clone();
        let wait = async {
            loop {
                match &*state.borrow_and_update() {
                    State::Listening(addrs, _) => return Ok(addrs.clone()),
                    State::GivenUp(why) => bail!("{} does not start: {why}", self.name),
                    State::Stopped => bail!("{} was stopped", self.name),
                    State::Starting | State::Dead => {}
                }
                if state.changed().await.is_err() {
                    bail!("{} is gone", self.name);
                }
            }
        };
        tokio::time::timeout(deadline, wait).await.with_context(|| {
            format!("{} does not listen after {} s", self.name, deadline.as_secs())
        })?
    }

    /// SIGTERM, then SIGKILL when the deadline has passed.
    pub(super) async fn stop(mut self, deadline: Duration) {
        let _ = self.stop.send(Some(deadline));
        let _ = (&mut self.task).await;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Supervisor {
    name: String,
    index: usize,
    config: Table,
    config_path: PathBuf,
    log: PathBuf,
    log_file: File,
    binary: PathBuf,
    events: mpsc::UnboundedSender<PartEvent>,
    state: watch::Sender<State>,
    stop: watch::Receiver<Option<Duration>>,
}

/// How one life of the child ended.
enum Ended {
    Asked,
    Died { why: String, tail: Vec<String>, listened: bool, lived: Duration },
}

impl Supervisor {
    async fn run(mut self) {
        let mut deaths = 0;
        let mut ever_listened = false;
        loop {
            let (why, tail, listened, lived) = match self.live(deaths > 0).await {
                Ok(Ended::Asked) => break,
                Ok(Ended::Died { why, tail, listened, lived }) => (why, tail, listened, lived),
                Err(error) => (format!("{error:#}"), Vec::new(), false, Duration::ZERO),
            };
            ever_listened |= listened;
            deaths = if lived > RECOVERED { 1 } else { deaths + 1 };
            let last =
                tail.iter().rev().find(|line| !line.trim().is_empty()).cloned().unwrap_or_default();
            let _ = self.state.send(State::Dead);
            self.say(PartEvent::Died {
                part: self.name.clone(),
                index: self.index,
                why: why.clone(),
                tail,
                log: self.log.clone(),
            });
            // A wrong model or a taken port does not heal by itself: say so instead of trying for ever.
            if !ever_listened && deaths >= FIRST_STARTS || why.contains("exit code 2") {
                let _ = self.state.send(State::GivenUp(format!("{why}: {last}")));
                return;
            }
            let wait = BACKOFF_MS[(deaths - 1).min(BACKOFF_MS.len() - 1)];
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(wait)) => {}
                _ = self.stop.wait_for(Option::is_some) => break,
            }
        }
        let _ = self.state.send(State::Stopped);
    }

    /// One life: from the start to the end of the process.
    async fn live(&mut self, again: bool) -> anyhow::Result<Ended> {
        std::fs::write(&self.config_path, self.config.to_string())
            .with_context(|| format!("cannot write {}", self.config_path.display()))?;
        let kind = if self.config.contains_key("gateway") { "gateway" } else { "engine" };
        let mut child = Command::new(&self.binary)
            .arg(kind)
            .arg("--config")
            .arg(&self.config_path)
            .args(["--announce", "--watch-stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: Ctrl-C in the terminal reaches us, and we drain the parts in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        let born = Instant::now();
        let pid = child.id();
        // Held open for the child's life: its end tells the child that we are gone.
        let _stdin = child.stdin.take();
        let mut out = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let mut err =
            BufReader::new(child.stderr.take().context("no standard error")?).split(b'\n');
        let mut tail = std::collections::VecDeque::new();
        let mut listened = false;
        let mut stop = self.stop.clone();
        let (mut out_open, mut err_open) = (true, true);
        let mut killed_at = None;
        loop {
            tokio::select! {
                line = out.next_line(), if out_open => match line {
                    Ok(Some(line)) => {
                        if let Ok(announced) = serde_json::from_str::<Announcement>(&line) {
                            config::pin(&mut self.config, &announced.listening);
                            let _ = self.state.send(State::Listening(announced.listening, pid));
                            listened = true;
                            if again {
                                self.say(PartEvent::Restarted { part: self.name.clone(), index: self.index, pid });
                            }
                        } else {
                            self.log_line(line, &mut tail);
                        }
                    }
                    Ok(None) | Err(_) => out_open = false,
                },
                line = err.next_segment(), if err_open => match line {
                    Ok(Some(line)) => self.log_line(String::from_utf8_lossy(&line).into_owned(), &mut tail),
                    Ok(None) | Err(_) => err_open = false,
                },
                asked = stop.wait_for(Option::is_some), if killed_at.is_none() => {
                    let patience = asked.ok().and_then(|value| *value).unwrap_or_default();
                    terminate(&child);
                    killed_at = Some(tokio::time::Instant::now() + patience);
                }
                () = until(killed_at) => {
                    // It had its time to drain.
                    let _ = child.start_kill();
                    killed_at = Some(tokio::time::Instant::now() + Duration::from_secs(3600));
                }
                status = child.wait(), if !out_open && !err_open => {
                    let status = status.context("cannot wait for the process")?;
                    if killed_at.is_some() {
                        return Ok(Ended::Asked);
                    }
                    return Ok(Ended::Died { why: describe(status), tail: tail.into(), listened, lived: born.elapsed() });
                }
            }
        }
    }

    fn log_line(&mut self, line: String, tail: &mut std::collections::VecDeque<String>) {
        let _ = writeln!(self.log_file, "{line}");
        if tail.len() == TAIL {
            tail.pop_front();
        }
        tail.push_back(line.clone());
        self.say(PartEvent::Log { part: self.name.clone(), index: self.index, line });
    }

    fn say(&self, event: PartEvent) {
        // Nobody listening (the command is about to end) is no reason to stop supervising.
        let _ = self.events.send(event);
    }
}

async fn until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn terminate(child: &Child) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(9)) => {
            "was killed (SIGKILL; the system does this when memory runs out)".to_owned()
        }
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

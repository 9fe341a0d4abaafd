//! The input of a trace: engines, and requests with their prompts as chains of content.

use std::collections::BTreeMap;

use serde::Deserialize;
use serq_sim::content::Chain;

use super::run::Side;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Colocated,
    Pull,
    Push,
}

/// Order of waiting requests, and who is preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// First come first served; the last of the running list is preempted.
    Fcfs,
    /// Smallest priority number, then arrival; the greatest is preempted.
    Priority,
}

/// What a decode engine does with a request whose read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// It ends with an error.
    Fail,
    /// The engine computes the prompt.
    Recompute,
}

/// Settings of an engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Engine {
    /// Usable blocks: one of the configured ones is never used.
    pub blocks: u64,
    /// Tokens in a block.
    pub block: u32,
    /// Tokens in a step.
    pub budget: u64,
    /// Requests that may run at once.
    pub slots: u64,
    pub prefix_caching: bool,
    /// Most tokens of one request in a step, if another is there too; 0 for no limit.
    pub long_prefill: u64,
    /// A request is admitted only if its whole known sequence fits.
    pub whole_prompt: bool,
    /// Share of the blocks, null block included, that admissions leave free while something runs.
    pub watermark: f64,
    pub policy: Policy,
    /// Schedules a step before the output of the last one is known.
    pub asynchronous: bool,
    pub on_failure: OnFailure,
    /// Seconds.
    pub lease: f64,
    /// Steps that a read takes unless the request says otherwise.
    pub transfer_steps: u64,
    pub handshake_steps: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub id: String,
    /// Tick at which the client sends it.
    pub arrive: u64,
    pub prompt: Chain,
    /// Key of the tokens it produces; no other request's.
    pub answer_key: u64,
    /// Tokens to produce.
    pub out: u64,
    /// The decode engine computes the prompt itself.
    pub local: bool,
    pub transfer_steps: Option<u64>,
    /// Its read fails.
    pub transfer_fails: bool,
    /// The decode engine never hears of it.
    pub dropped: bool,
    pub priority: i64,
    /// When the client leaves, by engine.
    pub aborts: BTreeMap<Side, u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub mode: Mode,
    pub engines: BTreeMap<Side, Engine>,
    /// In the order in which those of one tick arrive.
    pub requests: Vec<Request>,
    /// Seconds in a tick.
    pub tick_seconds: f64,
    /// Ticks from the prefill engine's answer to the decode leg.
    pub router_delay: u64,
    /// Ticks that a notification takes beyond the next step.
    pub notification_delay: u64,
    /// Push: both legs are sent at once.
    pub concurrent: bool,
    /// Tick from which the decode engine is dead.
    pub crash: Option<u64>,
    pub max_ticks: u64,
}

impl Scenario {
    pub fn request(&self, id: &str) -> Option<&Request> {
        self.requests.iter().find(|r| r.id == id)
    }
}

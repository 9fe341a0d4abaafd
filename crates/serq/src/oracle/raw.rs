//! The file as it is written. Unknown fields are refused: what is not understood must not be ignored.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::read::End;
use super::run::{Reason, Side};
use super::scenario::{Mode, OnFailure, Policy};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: String,
    #[serde(default)]
    pub(super) about: String,
    pub(super) scenario: Scenario,
    pub(super) trace: Record,
}

/// The scenario's own fields and an engine's settings, which it may give for all engines at once: serde
/// cannot both flatten and refuse unknown fields.
macro_rules! settings {
    ({ $($field:ident: $type:ty,)* }) => {
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct Settings {
            $(pub(super) $field: Option<$type>,)*
        }

        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct Scenario {
            pub(super) requests: Vec<Request>,
            #[serde(default = "pull")]
            pub(super) mode: Mode,
            #[serde(rename = "C")]
            pub(super) colocated: Option<Settings>,
            #[serde(rename = "P")]
            pub(super) prefill: Option<Settings>,
            #[serde(rename = "D")]
            pub(super) decode: Option<Settings>,
            pub(super) tick_seconds: Option<f64>,
            pub(super) router_delay: Option<u64>,
            pub(super) notif_delay: Option<u64>,
            pub(super) dispatch: Option<Dispatch>,
            #[serde(rename = "crash_D_at")]
            pub(super) crash_d_at: Option<u64>,
            pub(super) max_ticks: Option<u64>,
            $($field: Option<$type>,)*
        }

        impl Scenario {
            /// The settings for every engine.
            pub(super) fn common(&self) -> Settings {
                Settings { $($field: self.$field,)* }
            }
        }

        impl Settings {
            /// These, and where they say nothing, the others.
            pub(super) fn or(&self, others: &Settings) -> Settings {
                Settings { $($field: self.$field.or(others.$field),)* }
            }
        }
    };
}

settings!({
    block_size: u32,
    num_blocks: u64,
    max_num_batched_tokens: u64,
    max_num_seqs: u64,
    max_model_len: u64,
    prefix_caching: bool,
    long_prefill_token_threshold: u64,
    reserve_full_isl: bool,
    watermark: f64,
    policy: Policy,
    async_scheduling: bool,
    kv_load_failure_policy: OnFailure,
    lease: f64,
    transfer_steps: u64,
    handshake_steps: u64,
});

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Dispatch {
    Serial,
    Concurrent,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    pub(super) id: String,
    #[serde(default)]
    pub(super) arrive: u64,
    pub(super) out: u64,
    pub(super) prompt: Option<Vec<u64>>,
    pub(super) prompt_parts: Option<Vec<(u64, u64)>>,
    #[serde(default)]
    pub(super) local: bool,
    pub(super) transfer_steps: Option<u64>,
    #[serde(default)]
    pub(super) transfer_fail: bool,
    #[serde(default)]
    pub(super) drop_decode_leg: bool,
    #[serde(default)]
    pub(super) priority: i64,
    #[serde(default)]
    pub(super) abort: BTreeMap<Side, u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) vllm: String,
    pub(super) ticks: u64,
    pub(super) requests: BTreeMap<String, Summary>,
    pub(super) end: BTreeMap<Side, End>,
    pub(super) steps: Vec<Step>,
}

/// What became of a request, as the file sums it up.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Summary {
    pub(super) arrive: Option<u64>,
    #[serde(rename = "P_arrive")]
    pub(super) p_arrive: Option<u64>,
    #[serde(rename = "D_arrive")]
    pub(super) d_arrive: Option<u64>,
    pub(super) remote_blocks: Option<u64>,
    pub(super) remote_num_tokens: Option<u64>,
    #[serde(rename = "D_park")]
    pub(super) park: Option<u64>,
    #[serde(rename = "D_recv_done")]
    pub(super) recv_done: Option<u64>,
    #[serde(rename = "D_recv_failed")]
    pub(super) recv_failed: Option<u64>,
    #[serde(rename = "P_free")]
    pub(super) free: Option<u64>,
    #[serde(rename = "C_admit", alias = "P_admit")]
    pub(super) admit: Option<u64>,
    #[serde(rename = "C_first_token", alias = "P_first_token")]
    pub(super) first_token: Option<u64>,
    #[serde(rename = "C_finish", alias = "P_finish")]
    pub(super) finish: Option<u64>,
    #[serde(rename = "C_reason", alias = "P_reason")]
    pub(super) reason: Option<Reason>,
    #[serde(rename = "C_preempt", alias = "P_preempt")]
    pub(super) preempt: Vec<u64>,
    #[serde(rename = "C_readmit", alias = "P_readmit")]
    pub(super) readmit: Vec<u64>,
    #[serde(rename = "C_aborted", alias = "P_aborted")]
    pub(super) aborted: Option<u64>,
    #[serde(rename = "D_admit")]
    pub(super) d_admit: Option<u64>,
    #[serde(rename = "D_first_token")]
    pub(super) d_first_token: Option<u64>,
    #[serde(rename = "D_finish")]
    pub(super) d_finish: Option<u64>,
    #[serde(rename = "D_reason")]
    pub(super) d_reason: Option<Reason>,
    #[serde(rename = "D_preempt")]
    pub(super) d_preempt: Vec<u64>,
    #[serde(rename = "D_readmit")]
    pub(super) d_readmit: Vec<u64>,
    #[serde(rename = "D_aborted")]
    pub(super) d_aborted: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) t: u64,
    pub(super) side: Side,
    #[serde(default)]
    pub(super) arrived: Vec<String>,
    #[serde(default)]
    pub(super) aborted: Vec<String>,
    #[serde(default)]
    pub(super) sched: Vec<(String, u64, u64)>,
    #[serde(default)]
    pub(super) admit: Vec<Admit>,
    #[serde(default)]
    pub(super) preempt: Vec<String>,
    #[serde(default)]
    pub(super) park: Vec<Park>,
    // Transfers begin in the step that parks, or when both sides are known: other fields tell.
    #[serde(default, rename = "read")]
    _read: IgnoredAny,
    #[serde(default, rename = "write")]
    _write: IgnoredAny,
    #[serde(default)]
    pub(super) recv_done: Vec<String>,
    #[serde(default)]
    pub(super) recv_failed: Vec<String>,
    #[serde(default)]
    pub(super) send_done: Vec<String>,
    #[serde(default)]
    pub(super) tokens: Vec<(String, u64)>,
    #[serde(default)]
    pub(super) finish: Vec<(String, Reason)>,
    #[serde(default)]
    pub(super) running: Vec<String>,
    #[serde(default)]
    pub(super) waiting: Vec<String>,
    #[serde(default)]
    pub(super) holding: Vec<(String, String, u64)>,
    #[serde(default)]
    pub(super) held: Vec<(String, u64)>,
    #[serde(default)]
    pub(super) lease_until: BTreeMap<String, f64>,
    pub(super) free_sched: Option<u64>,
    pub(super) free: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Admit {
    pub(super) id: String,
    pub(super) hit: u64,
    pub(super) resumed: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Park {
    pub(super) id: String,
    pub(super) local: u64,
    pub(super) remote: u64,
    pub(super) blocks: u64,
}

fn pull() -> Mode {
    Mode::Pull
}

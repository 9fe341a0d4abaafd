//! Where blocks may be sent.
//!
//! `decode_target` comes with the request. An engine that connected to whatever it is
//! told would be a way into every network it can reach, carrying its users' prompts.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// Which decode targets an engine accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TargetPolicy {
    /// This machine only.
    #[default]
    Loopback,
    /// These `host:port`s only.
    Listed(BTreeSet<String>),
    /// Wherever the gateway says. The gateway takes targets from its registry alone,
    /// and both registry and `EngineControl` demand the cluster token, so this is for
    /// an engine that has one.
    Registered,
}

impl TargetPolicy {
    /// Why `target` is not accepted, if it is not.
    pub fn refuse(&self, target: &str) -> Option<String> {
        match self {
            TargetPolicy::Loopback if is_loopback(target) => None,
            TargetPolicy::Loopback => Some(format!(
                "decode_target {target:?} is not on this machine, and this engine sends nowhere else \
                 without a [cluster].token"
            )),
            TargetPolicy::Listed(targets) if targets.contains(target) => None,
            TargetPolicy::Listed(_) => {
                Some(format!("decode_target {target:?} is not one this engine may send to"))
            }
            TargetPolicy::Registered => None,
        }
    }
}

/// Names other than `localhost` are not resolved: what they resolve to can change
/// between the check and the connection.
fn is_loopback(target: &str) -> bool {
    let Some((host, _port)) = target.rsplit_once(':') else { return false };
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

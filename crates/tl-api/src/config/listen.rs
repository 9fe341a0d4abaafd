//! Addresses to listen on: `host:port`, an empty host being all interfaces.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    host: String,
    port: u16,
}

impl Listen {
    /// 127.0.0.1 at `port`.
    pub fn loopback(port: u16) -> Listen {
        Listen { host: "127.0.0.1".into(), port }
    }

    /// 0 lets the system choose.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port` for a socket; an empty host becomes `0.0.0.0`.
    pub fn bind_address(&self) -> String {
        let host = if self.host.is_empty() { "0.0.0.0" } else { &self.host };
        if host.contains(':') {
            format!("[{host}]:{}", self.port)
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Whether only this machine can reach it.
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback(),
            Err(_) => self.host == "localhost",
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let rule =
            || format!("{text:?} is no listen address; write host:port, 127.0.0.1:8080 or :8080");
        let (host, port) = text.rsplit_once(':').ok_or_else(rule)?;
        let port = port.parse().map_err(|_| rule())?;
        let host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            Some(v6) if matches!(v6.parse(), Ok(IpAddr::V6(_))) => v6,
            None if !host.contains([':', '/', '[', ']', ' ']) => host,
            _ => return Err(rule()),
        };
        Ok(Listen { host: host.to_owned(), port })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Listen, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

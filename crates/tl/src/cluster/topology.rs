//! Which engines a cluster has, and how they share the cores.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// What an engine does for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Unified,
    Prefill,
    Decode,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Unified => "unified",
            Role::Prefill => "prefill",
            Role::Decode => "decode",
        }
    }
}

/// `unified`, or N prefill and M decode engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topology {
    Unified,
    Split { prefill: usize, decode: usize },
}

/// More engines of one kind than this on one machine is a typing error.
const MOST: usize = 64;

impl Topology {
    /// Names and roles in start order.
    pub(crate) fn roles(self) -> Vec<(String, Role)> {
        match self {
            Topology::Unified => vec![("engine-0".to_owned(), Role::Unified)],
            Topology::Split { prefill, decode } => {
                let prefills = (0..prefill).map(|i| (format!("prefill-{i}"), Role::Prefill));
                let decodes = (0..decode).map(|i| (format!("decode-{i}"), Role::Decode));
                prefills.chain(decodes).collect()
            }
        }
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Topology::Unified => f.write_str("unified"),
            Topology::Split { prefill, decode } => write!(f, "{prefill}p{decode}d"),
        }
    }
}

impl FromStr for Topology {
    type Err = String;

    fn from_str(text: &str) -> Result<Topology, String> {
        if text == "unified" {
            return Ok(Topology::Unified);
        }
        let wrong = || {
            format!(
                "{text:?} is no topology: write `unified` or NpMd, such as 1p2d (1 to {MOST} of each)"
            )
        };
        let (prefill, rest) = text.split_once('p').ok_or_else(wrong)?;
        let decode = rest.strip_suffix('d').ok_or_else(wrong)?;
        let count =
            |digits: &str| digits.parse().ok().filter(|n| (1..=MOST).contains(n)).ok_or_else(wrong);
        Ok(Topology::Split { prefill: count(prefill)?, decode: count(decode)? })
    }
}

/// Threads of each engine: the cores shared evenly, the first ones (prefill, which is bound by compute)
/// taking what is left over; never less than one.
pub(crate) fn thread_shares(threads: usize, engines: usize) -> Vec<usize> {
    let all = if threads == 0 {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    } else {
        threads
    };
    (0..engines).map(|i| (all / engines + usize::from(i < all % engines)).max(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Option<(&str, usize)>) {
        let got = text.parse::<Topology>().ok().map(|t| (t.to_string(), t.roles().len()));
        assert_eq!(got, expect.map(|(name, n)| (name.to_owned(), n)), "{text}");
    }

    #[test]
    fn topologies() {
        check("unified", Some(("unified", 1)));
        check("1p2d", Some(("1p2d", 3)));
        check("2p2d", Some(("2p2d", 4)));
        check("3p1d", Some(("3p1d", 4)));
        for wrong in ["", "1p", "p2d", "1p2", "0p2d", "1p0d", "1p2dx", "-1p2d", "65p1d", "1P2D"] {
            check(wrong, None);
        }
    }

    #[test]
    fn cores_are_shared_and_every_engine_has_one() {
        assert_eq!(thread_shares(8, 3), [3, 3, 2]);
        assert_eq!(thread_shares(2, 3), [1, 1, 1]);
        assert_eq!(thread_shares(6, 3), [2, 2, 2]);
    }
}

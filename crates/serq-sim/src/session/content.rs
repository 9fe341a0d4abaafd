//! What a session's tokens are: a chain of segments, each the first tokens of what a key names.
//!
//! Keys of programs, of sessions given as data and of what a session has for itself are three name spaces,
//! told apart here by the highest bits of the number a chain has.

use serq_lang::ir::Arrival;

use crate::content::{Chain, Segment};
use crate::engine::Engine;
use crate::error::{Reason, Result};
use crate::program::Compiled;

/// What a session has for itself, by serial number.
const OWN: u64 = 1 << 63;
/// What a program names.
const NAMED: u64 = 1 << 62;
/// Every whole number below is an exact `f64`.
const WHOLE: f64 = 9_007_199_254_740_992.0;

impl Engine<'_> {
    /// The content a session has when it comes: that of its data, else one of its own without end.
    pub(crate) fn first_content(&mut self, s: u32, data: Option<usize>) {
        self.chains += 1;
        let session = &mut self.w.sessions[s as usize];
        session.chain_stamp = self.chains;
        // Recorded sessions come in the order of the record.
        let data = match self.c.ir.arrival {
            Arrival::Trace => usize::try_from(session.serial).ok(),
            _ => data,
        };
        let given = data.map_or(&[][..], |i| self.c.data_content(i));
        if given.is_empty() {
            session.chain.restart(Segment { key: OWN | session.serial, len: u64::MAX });
            return;
        }
        session.chain.clear();
        for part in given {
            let len = tokens(part.1);
            session.chain.push(Segment { key: self.c.data_key(part.0), len });
        }
    }

    /// `content` and `content add`.
    pub(crate) fn set_content(&mut self, s: u32, k: u32) -> Result<()> {
        let plan = &self.c.contents[k as usize];
        let mut parts = Vec::with_capacity(plan.parts.len());
        for &(key, len) in &plan.parts {
            let key = self.value(s, key)?;
            if !(key >= 0.0 && key < WHOLE && key.fract() == 0.0) {
                return Err(Reason::new(
                    "content",
                    format!("a segment of content has the key {key}"),
                    "a key is a whole number, 0 or more",
                ));
            }
            let len = self.value(s, len)?;
            let whole = len >= 0.0 && len < WHOLE && len.fract() == 0.0;
            if !whole && len != f64::INFINITY {
                return Err(Reason::new(
                    "content",
                    format!("a segment of content has {len} tokens"),
                    "a length is a whole number, 0 or more, or infinite",
                ));
            }
            parts.push(Segment { key: NAMED | key as u64, len: tokens(len) });
        }
        let shared = |p: u32| self.w.pools[p as usize].shared.is_some();
        let session = &self.w.sessions[s as usize];
        let held = session.claims.iter().any(|c| c.active && shared(c.pool))
            || session.bookings.iter().any(|b| b.granted.iter().any(|c| shared(c.pool)));
        if held && !plan.add {
            return Err(Reason::new(
                "content",
                "the content changes while the session holds some of it".into(),
                "set it before the hold, or add to it",
            ));
        }
        self.chains += 1;
        let session = &mut self.w.sessions[s as usize];
        session.chain_stamp = self.chains;
        if !plan.add {
            session.chain.clear();
        }
        for part in parts {
            push(&mut session.chain, part)?;
        }
        Ok(())
    }
}

/// Appends a segment. The same key again goes on where it ended, in this chain.
fn push(chain: &mut Chain, part: Segment) -> Result<()> {
    if chain.is_endless() {
        return Err(Reason::new(
            "content",
            "content is added behind a segment without end".into(),
            "give the segment before it a length",
        ));
    }
    chain.push(part);
    Ok(())
}

fn tokens(len: f64) -> u64 {
    if len < WHOLE { len as u64 } else { u64::MAX }
}

impl Compiled<'_> {
    /// The number of a key of the workload's data: keys are any numbers, so each stands for its place
    /// among them.
    fn data_key(&self, key: u64) -> u64 {
        self.data_keys.partition_point(|k| *k < key) as u64
    }
}

//! What the receiving side has done, for the metrics page.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counters of the receiving side; they only grow.
        #[derive(Debug, Default)]
        pub struct ReceiverCounters { $(pub(super) $name: AtomicU64),+ }

        /// The counters at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ReceiverSnapshot { $($(#[$doc])* pub $name: u64),+ }

        impl ReceiverCounters {
            /// Reads every counter. They are read one after the other: sums over
            /// them can be off by what happens meanwhile.
            pub fn snapshot(&self) -> ReceiverSnapshot {
                ReceiverSnapshot { $($name: self.$name.load(Ordering::Relaxed)),+ }
            }
        }
    };
}

counters! {
    /// Blocks that arrived with their content.
    blocks_received,
    /// Bytes of the envelopes of those blocks.
    bytes_received,
    /// Blocks that were already here and got one more reference.
    blocks_deduped,
    /// Pushes that completed: a handle was made.
    handles_created,
    /// Handles whose blocks went to a resumed request.
    handles_claimed,
    /// Handles given back by a Release.
    handles_released,
    /// Handles nobody claimed before their lease ended.
    handles_expired,
    /// Handles that ended because the engine that pushed them did.
    handles_fenced,
    /// Pushes answered with an error.
    pushes_refused,
    /// Pushes whose stream broke, or whose caller went away.
    pushes_abandoned,
}

pub(super) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

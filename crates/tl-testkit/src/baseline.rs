//! Where a pool's blocks were before, and whether they are back.

use std::time::Duration;

use tl_kv::{KvStats, SharedKv, lock};

use crate::eventually;

/// Pools and their counters at one moment.
#[derive(Debug)]
pub struct Baseline {
    pools: Vec<(&'static str, SharedKv, KvStats)>,
}

impl Baseline {
    /// Remembers each pool's counters under a name.
    pub fn of(pools: &[(&'static str, &SharedKv)]) -> Baseline {
        let pools =
            pools.iter().map(|&(name, pool)| (name, pool.clone(), lock(pool).stats())).collect();
        Baseline { pools }
    }

    /// Whether every pool has as many used blocks as it had. Blocks may have become
    /// cached meanwhile: they are nobody's and can be taken.
    pub fn is_restored(&self) -> bool {
        self.pools.iter().all(|(_, pool, before)| lock(pool).stats().used == before.used)
    }

    /// Panics with the difference unless [`Baseline::is_restored`], and checks every
    /// invariant of the pools.
    #[track_caller]
    pub fn assert_restored(&self) {
        for (name, pool, before) in &self.pools {
            let (now, checked) = {
                let books = lock(pool);
                (books.stats(), books.check())
            };
            assert_eq!(now.used, before.used, "pool {name}: was {before:?}, is {now:?}");
            assert_eq!(checked, Ok(()), "pool {name}");
            assert_eq!(lock(pool).violations(), 0, "pool {name}");
        }
    }

    /// As [`Baseline::assert_restored`], and nothing else has moved either.
    #[track_caller]
    pub fn assert_unchanged(&self) {
        self.assert_restored();
        for (name, pool, before) in &self.pools {
            assert_eq!(lock(pool).stats(), *before, "pool {name}");
        }
    }

    /// Waits for [`Baseline::is_restored`], then asserts it.
    pub async fn await_restored(&self, deadline: Duration) {
        eventually(deadline, || self.is_restored()).await;
        self.assert_restored();
    }
}

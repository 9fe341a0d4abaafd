//! Jobs that do not know of each other, over all cores.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Does jobs `0..jobs`, each on whichever core is free, and returns what came of them in their
/// order. After one that failed no further job is begun: those are `None`.
pub fn on_all<T: Send + Sync, E: Send + Sync>(
    jobs: usize,
    one: impl Fn(usize) -> Result<T, E> + Sync,
) -> Vec<Option<Result<T, E>>> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results: Vec<OnceLock<Result<T, E>>> = (0..jobs).map(|_| OnceLock::new()).collect();
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(place) = results.get(at) else { return };
            let result = place.get_or_init(|| one(at));
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(jobs);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(work);
        }
    });
    results.into_iter().map(OnceLock::into_inner).collect()
}

#[cfg(test)]
mod tests {
    use super::on_all;

    #[test]
    fn results_stand_in_the_order_of_the_jobs() {
        let squares = on_all(100, |at| Ok::<_, ()>(at * at));
        assert!(squares.iter().enumerate().all(|(at, r)| *r == Some(Ok(at * at))));
        assert_eq!(on_all(0, Ok::<_, ()>), []);
    }

    #[test]
    fn after_a_failure_nothing_begins() {
        let results = on_all(10_000, |at| if at < 3 { Ok(at) } else { Err("no") });
        assert_eq!(results[..3], [Some(Ok(0)), Some(Ok(1)), Some(Ok(2))]);
        assert!(results.iter().any(|r| *r == Some(Err("no"))));
        assert!(results[9_999].is_none());
    }
}

//! A program on a trace's scenario, compared with the trace.
//!
//! When several leases end with one step, vLLM walks a set of request ids, in an order of Python's string
//! hashes, and the blocks reach the free list in that order. The program has one order; where the
//! runs part behind such a step, the others are tried, since each of them is one that vLLM could have
//! had.

use std::fmt;

use serq_lang::ir::Program;
use serq_sim::{Options, RunError};
use thiserror::Error;

use super::compare::{Agreement, compare};
use super::read::Trace;
use super::run::Side;
use super::watch::{Group, Watch};
use super::workload::{Unfit, places, prepare};

/// Most runs of one trace.
const MOST_RUNS: usize = 64;

/// Most leases that end together for their orders to be tried.
const MOST_TOGETHER: usize = 5;

/// Why there is nothing to compare.
#[derive(Debug, Error)]
pub enum PlayError {
    #[error(transparent)]
    Unfit(#[from] Unfit),
    #[error(transparent)]
    Run(#[from] RunError),
}

/// An order of simultaneous releases other than the program's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseOrder {
    pub tick: u64,
    pub side: Side,
    /// Requests whose blocks were given back, in this order.
    pub ids: Vec<String>,
}

impl fmt::Display for ReleaseOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tick {}, engine {}: {}", self.tick, self.side, self.ids.join(" before "))
    }
}

/// Runs a program, whose settings are the scenario's, and compares.
///
/// Errors: the program lacks what the scenario needs, or it fails.
pub fn play(trace: &Trace, program: &Program) -> Result<Agreement, PlayError> {
    let places = places(trace, program)?;
    let (program, ids) = prepare(trace, program.clone())?;
    let mut search = Search {
        one: &mut |releases: &[(u64, Vec<usize>)]| {
            let options = Options { releases: releases.to_vec(), ..Options::default() };
            let mut watch = Watch::new(trace, &places, &ids);
            serq_sim::run(&program, &options, &mut watch)?;
            let (run, groups) = watch.finish();
            Ok((compare(trace, &run), groups))
        },
        runs: 0,
    };
    let (mut best, groups) = search.run(&[])?;
    if !best.all() {
        search.others(&mut best, &groups, &mut Vec::new(), &mut Vec::new())?;
    }
    Ok(best)
}

type Orders = Vec<(u64, Vec<usize>)>;

struct Search<'a> {
    one: &'a mut dyn FnMut(&[(u64, Vec<usize>)]) -> Result<(Agreement, Vec<Group>), PlayError>,
    runs: usize,
}

impl Search<'_> {
    fn run(&mut self, orders: &[(u64, Vec<usize>)]) -> Result<(Agreement, Vec<Group>), PlayError> {
        self.runs += 1;
        (self.one)(orders)
    }

    /// Tries other orders behind those of `orders`, depth first; true once one agrees. `best` becomes the
    /// run that agrees, or else the one that parts last.
    fn others(
        &mut self,
        best: &mut Agreement,
        groups: &[Group],
        orders: &mut Orders,
        said: &mut Vec<ReleaseOrder>,
    ) -> Result<bool, PlayError> {
        let Some(parting) = best.first.as_ref().map(|d| d.tick) else { return Ok(true) };
        let next = orders.last().map_or(0, |(number, _)| number + 1);
        let open =
            |g: &&Group| g.number >= next && g.tick <= parting && g.ids.len() <= MOST_TOGETHER;
        // The nearest group before the difference first.
        for group in groups.iter().filter(open).rev() {
            for order in permutations(group.ids.len()) {
                if self.runs >= MOST_RUNS {
                    return Ok(false);
                }
                let ids = order.iter().map(|k| group.ids[*k].clone()).collect();
                orders.push((group.number, order));
                said.push(ReleaseOrder { tick: group.tick, side: group.side, ids });
                let (mut found, groups) = self.run(orders)?;
                found.orders.clone_from(said);
                let later = found.first.as_ref().is_none_or(|d| d.tick > parting);
                let mut agrees = found.all();
                if later {
                    *best = found;
                    if !agrees {
                        agrees = self.others(best, &groups, orders, said)?;
                    }
                }
                orders.pop();
                said.pop();
                if agrees {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// Every order of `n` things but their own.
fn permutations(n: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..n {
        let longer = all.iter().flat_map(|p: &Vec<usize>| {
            let rest = (0..n).filter(|k| !p.contains(k)).collect::<Vec<_>>();
            rest.into_iter().map(|k| [p.as_slice(), &[k]].concat()).collect::<Vec<_>>()
        });
        all = longer.collect();
    }
    all.retain(|p| !p.is_sorted());
    all
}

#[cfg(test)]
mod tests {
    use super::permutations;

    #[test]
    fn every_other_order_comes_once() {
        assert_eq!(permutations(2), [[1, 0]]);
        assert_eq!(permutations(3).len(), 5);
        assert_eq!(permutations(3)[0], [0, 2, 1]);
        assert!(permutations(1).is_empty());
    }
}

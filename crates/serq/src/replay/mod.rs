//! A recorded run of a real engine, replayed by a program and compared in its latencies.
//!
//! The recording is a log of requests as benchmarks of vLLM write them, one JSON object a line: lengths
//! and times of arrival, first and last token. What the prompts share is in no log; it comes from a trace
//! with block ids, if there is one. The program gets a session for each request and nothing else:
//! it is told when requests come and how long they are, and says when their tokens do.

mod figures;
mod log;
mod settings;
mod workload;

pub use figures::{Comparison, Line, Stats, compare};
pub use log::{Entry, read as read_log};
pub use settings::read as read_settings;
pub use workload::{Mismatch, prepare};

use serq_lang::ir::Program;
use serq_sim::{Observer, Options, Request, RunError};

/// Runs a prepared program. The requests as they were answered, in order of arrival; `None` where one was
/// not.
pub fn play(program: &Program) -> Result<Vec<Option<Request>>, RunError> {
    let sessions = match &program.arrival {
        serq_lang::ir::Arrival::Sessions(all) => all.len(),
        _ => 0,
    };
    let mut watch = Watch { answered: vec![None; sessions] };
    serq_sim::run(program, &Options::default(), &mut watch)?;
    Ok(watch.answered)
}

struct Watch {
    answered: Vec<Option<Request>>,
}

impl Observer for Watch {
    fn request(&mut self, request: &Request) {
        if let Some(place) = self.answered.get_mut(request.session as usize) {
            // A request that was preempted is one request: what counts is its first token and its last.
            let first = place.as_ref().map_or(request.first, |r| r.first);
            *place = Some(Request { first, ..*request });
        }
    }
}

#[cfg(test)]
mod tests;

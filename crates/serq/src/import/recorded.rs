//! A recording as a program's traffic.

use serq_lang::ir::{Arrival as Law, Content, Program, Trace, TraceTurn};
use serq_sim::content::Chain;

use super::{Arrival, Workload, own_key};

/// Recorded sessions.
#[derive(Debug, Default)]
pub struct Recorded {
    pub sessions: Vec<Vec<TraceTurn>>,
    /// When each comes, if the file says so; seconds.
    pub times: Vec<f64>,
    /// What the tokens of each are, if the file tells requests.
    pub content: Vec<Vec<Content>>,
}

impl Recorded {
    /// Lets `program` replay this: its turns, and its times and contents if that is where the
    /// program's arrivals and caches take them from.
    pub fn attach(self, program: &mut Program) {
        program.trace = Some(Trace::Inline(self.sessions));
        if program.arrival == Law::Trace {
            program.trace_times = self.times;
            if program.pools.iter().any(|pool| pool.shared) {
                program.trace_content = self.content;
            }
        }
    }
}

impl Workload {
    /// Each request as a session of one turn.
    pub fn recorded(&self) -> Recorded {
        let turn = |r: &Arrival| TraceTurn(r.prompt.len() as f64, r.output as f64, 0.0, 0.0);
        let requests = &self.requests;
        Recorded {
            sessions: requests.iter().map(|r| vec![turn(r)]).collect(),
            times: requests.iter().map(|r| r.at).collect(),
            content: requests.iter().map(|r| content(&r.prompt, r.line)).collect(),
        }
    }
}

/// A prompt's chain, and after it what is this request's own: the rest of a block, its answer.
fn content(prompt: &Chain, line: usize) -> Vec<Content> {
    let own = own_key(line);
    let shared = prompt.segments().iter().filter(|segment| segment.key != own);
    let mut chain: Vec<Content> =
        shared.map(|segment| Content(segment.key, segment.len as f64)).collect();
    chain.push(Content(own, f64::INFINITY));
    chain
}

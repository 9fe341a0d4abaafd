//! What of a state's names matters.
//!
//! Jobs, pushes and runs are numbered as they come, and nothing depends on the numbers but which of
//! two came first. Handles that ended are remembered by the decode engine, and nothing depends on
//! that once nothing can come under their name. States that differ in such things alone go on in
//! the same way, so a state is told apart by this view of it.

use std::hash::{Hash, Hasher};

use crate::decode::Decode;
use crate::message::Message;
use crate::prefill::{Prefill, Stage};

/// The names in use in one state, ascending.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    jobs: Vec<u8>,
    pushes: Vec<u8>,
    runs: Vec<u8>,
    /// Handles under which a push may still come.
    handles: Vec<u8>,
}

fn rank(names: &[u8], name: u8) -> u8 {
    names.binary_search(&name).map_or(u8::MAX, |place| place as u8)
}

impl View {
    pub(crate) fn of(p: &Prefill, d: &Decode, net: &[Message]) -> Self {
        let mut view = Self::default();
        for job in &p.jobs {
            view.jobs.push(job.id);
            view.handles.push(job.handle);
            if let Stage::Pushing { stream, .. } = &job.stage {
                view.pushes.push(stream.push);
            }
        }
        for zombie in &p.zombies {
            view.pushes.push(zombie.push);
            view.handles.push(zombie.handle);
        }
        for session in &d.sessions {
            view.pushes.push(session.push);
            view.handles.extend(session.incoming.handle().map(crate::message::number));
        }
        view.runs.extend(d.runs.iter().map(|run| run.id));
        for message in net {
            match message {
                Message::Prefill { handle, .. } => view.handles.push(*handle),
                Message::Has { job, .. } | Message::HasAnswer { job, .. } => view.jobs.push(*job),
                Message::Chunk { push, chunk, .. } => {
                    view.pushes.push(*push);
                    view.handles.push(chunk.handle);
                }
                Message::Close { push } | Message::PushAnswer { push, .. } => {
                    view.pushes.push(*push);
                }
                Message::Stream { run, .. } => view.runs.push(*run),
                Message::Cancel { .. }
                | Message::Prefilled { .. }
                | Message::Release { .. }
                | Message::Resume { .. }
                | Message::Whole { .. } => {}
            }
        }
        for names in [&mut view.jobs, &mut view.pushes, &mut view.runs, &mut view.handles] {
            names.sort_unstable();
            names.dedup();
        }
        view
    }

    pub(crate) fn job(&self, job: u8) -> u8 {
        rank(&self.jobs, job)
    }

    pub(crate) fn push(&self, push: u8) -> u8 {
        rank(&self.pushes, push)
    }

    pub(crate) fn run(&self, run: u8) -> u8 {
        rank(&self.runs, run)
    }

    /// Whether a push may still come under this handle.
    pub(crate) fn comes(&self, handle: u8) -> bool {
        self.handles.binary_search(&handle).is_ok()
    }

    /// Feeds a message to a hasher.
    pub(crate) fn message(&self, message: &Message, out: &mut impl Hasher) {
        match message {
            Message::Has { job, hashes } => (1u8, self.job(*job), hashes).hash(out),
            Message::HasAnswer { job, present } => (2u8, self.job(*job), present).hash(out),
            Message::Chunk { push, index, chunk } => {
                (3u8, self.push(*push), index, chunk).hash(out);
            }
            Message::Close { push } => (4u8, self.push(*push)).hash(out),
            Message::PushAnswer { push, answer } => (5u8, self.push(*push), answer).hash(out),
            Message::Stream { call, run, seq, item } => {
                (6u8, call, self.run(*run), seq, item).hash(out);
            }
            Message::Prefill { .. }
            | Message::Cancel { .. }
            | Message::Prefilled { .. }
            | Message::Release { .. }
            | Message::Resume { .. }
            | Message::Whole { .. } => (0u8, message).hash(out),
        }
    }
}

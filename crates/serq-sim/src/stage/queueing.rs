//! Fifo and delay stages: service at rate 1, the end known at the start.

use super::Kind;
use crate::engine::Engine;
use crate::error::Result;
use crate::event::Event;

impl Engine<'_> {
    /// Idle servers take the jobs that wait, in order of arrival.
    pub(super) fn start_waiting(&mut self, stage: u32) {
        loop {
            let Kind::Fifo(fifo) = &mut self.w.stages[stage as usize].kind else { return };
            if fifo.serving.len() >= fifo.servers {
                return;
            }
            let Some(id) = fifo.queue.pop_front() else { return };
            fifo.serving.push(id);
            self.start_delay(stage, id);
        }
    }

    /// Service begins now and lasts as long as the work.
    #[inline]
    pub(super) fn start_delay(&mut self, stage: u32, id: u32) {
        self.begin_service(stage, id);
        let job = &mut self.w.jobs[id as usize];
        job.finish = self.w.now + job.work;
        let (at, epoch) = (job.finish, job.epoch);
        self.schedule(at, Event::Finish { job: id, epoch });
    }

    /// The end of a fifo or delay job, unless it left before.
    #[inline]
    pub(crate) fn finish(&mut self, id: u32, epoch: u32) -> Result<()> {
        let job = &self.w.jobs[id as usize];
        if !job.alive || job.epoch != epoch {
            return Ok(());
        }
        let stage = job.stage;
        if let Kind::Fifo(fifo) = &mut self.w.stages[stage as usize].kind {
            if let Some(at) = fifo.serving.iter().position(|j| *j == id) {
                fifo.serving.remove(at);
            }
            self.start_waiting(stage);
        }
        self.complete(id)
    }
}

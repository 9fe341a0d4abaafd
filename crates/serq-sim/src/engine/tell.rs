//! What an observer who follows a run step by step is told. One who does not costs a test each time.

use serq_lang::ir::Fun;

use super::Engine;
use crate::stage::Kind;
use crate::{EngineState, Happening, Phase, What};

impl Engine<'_> {
    /// Tells the observer how many units of an engine's memory are free.
    pub(crate) fn show_engine(&mut self, stage: u32, phase: Phase) {
        if !self.watched {
            return;
        }
        let memory = self.w.plans[stage as usize].as_ref().and_then(|p| p.memory);
        let free = memory.map(|p| self.w.pool_observable(Fun::Free, p, None));
        self.observer.engine(&EngineState { time: self.w.now, stage: stage as usize, phase, free });
    }

    pub(super) fn show_idle(&mut self) {
        for stage in 0..self.w.stages.len() as u32 {
            if matches!(&self.w.stages[stage as usize].kind, Kind::Step(step) if !step.running) {
                self.show_engine(stage, Phase::Idle);
            }
        }
    }

    /// Tells the observer what happened to a session, by its serial number.
    pub(crate) fn tell_of(&mut self, session: u64, what: What) {
        if self.watched {
            self.observer.happened(&Happening { time: self.w.now, session, what });
        }
    }

    /// The same by its slot.
    #[inline]
    pub(crate) fn tell(&mut self, s: u32, what: What) {
        if self.watched {
            self.tell_of(self.w.sessions[s as usize].serial, what);
        }
    }
}

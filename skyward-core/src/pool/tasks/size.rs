//! Reports to workers how many workers the pool may have, and so how many calls may run at a time.

use super::after::After;
use super::shared::Shared;
use super::state::State;
use crate::worker::link::Sender;
use crate::worker::message::ToWorker;

impl Shared {
    /// The pool may have this many machines from now on, and its workers call as many workers.
    pub(crate) fn on_most(&self, machines: u32) {
        let mut after = After::default();
        {
            let mut state = self.lock();
            state.fleet.set_most(machines);
            let size = self.size(&state);
            for rank in state.workers.ranks() {
                state.push_to_worker(rank, size.clone(), &mut after);
            }
        }
        after.flush.iter().for_each(Sender::flush);
    }

    /// How many workers the pool may have.
    pub(crate) fn most_workers(&self) -> usize {
        let state = self.lock();
        state.scheduler.layout().workers(state.fleet.most()) as usize
    }

    /// The message that reports the size of the pool to a worker.
    pub(super) fn size(&self, state: &State) -> ToWorker<'static> {
        ToWorker::Size { workers: state.scheduler.layout().workers(state.fleet.most()) }
    }
}

//! Moves a pool from one phase to the next, and reports each phase once.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::life::Life;
use super::shared::Shared;
use crate::compute::PoolPhase;
use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::pool::command::Command;
use crate::pool::foreign::foreign;

impl Shared {
    /// The driver begins a phase.
    pub(crate) fn enter(&self, phase: PoolPhase) {
        self.live(|life| life.enter(phase));
    }

    /// The pool has failed for this reason: it takes no tasks any more, and its driver ends it when
    /// no task runs.
    pub(crate) fn on_failed(&self, error: &Error) {
        self.fail(error);
        self.emit(PoolEvent::Failed { error: error.clone() });
        self.enter(PoolPhase::Failed);
    }

    /// The pool ends for this reason, although nobody has shut it down.
    pub(crate) fn fail(&self, error: &Error) {
        self.live(|life| life.fail(error));
    }

    /// The driver is lost. Callers that wait for tasks receive this error; what was started must
    /// still be ended.
    pub(crate) fn on_driver_lost(&self, error: Error) {
        self.emit(PoolEvent::Failed { error: error.clone() });
        self.live(|life| life.lose_driver(&error));
        self.close_queue();
        // The panic may have left inconsistent tables.
        let failed = catch_unwind(AssertUnwindSafe(|| {
            self.act(|state, now| {
                state.held.release_all();
                state.scheduler.drain(now, &error);
            });
        }));
        if failed.is_err() {
            // When the other end of a handle is dropped, the handle reports that the pool is gone.
            let mut state = self.lock();
            let left = (std::mem::take(&mut state.tasks), std::mem::take(&mut state.held));
            drop(state);
            foreign(|| drop(left));
        }
    }

    /// A panic has interrupted a change of the state. What was to follow from the change is lost,
    /// and some callers would wait for it for ever, so the pool ends.
    pub(super) fn on_interrupted(&self, panic: Box<dyn Any + Send>) -> ! {
        self.command(Command::Panicked(panicked("a part of the pool", &*panic)));
        resume_unwind(panic)
    }

    /// The pool has ended with this result. Callers that wait for the end, or for anything that
    /// cannot happen any more, continue.
    pub(crate) fn conclude(&self, gone: Result<()>) {
        self.close_queue();
        self.movers.close();
        self.live(|life| life.conclude(gone));
    }

    /// The driver has ended the pool, with this result. What other threads have left to a task that
    /// ends with the driver is done here.
    pub(crate) fn on_driver_ended(&self, gone: Result<()>) {
        self.conclude(gone);
        self.leave_rest();
    }

    /// Waits for the pool's end.
    pub(crate) async fn end(&self) -> Result<()> {
        self.until(|state| state.life.end()).await
    }

    /// Waits until the pool has failed, and returns why; `None` if it ends without that.
    pub(crate) async fn failed(&self) -> Option<Error> {
        self.until(|state| match state.life.failure() {
            Some(error) => Some(Some(error.clone())),
            None => state.life.end().map(|_| None),
        })
        .await
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.lock().life.end().is_some()
    }

    /// The error with which the pool refuses new tasks.
    pub(crate) fn refusal(&self) -> Error {
        self.lock().life.refusal()
    }

    /// Changes the pool's life, and reports each phase once.
    fn live(&self, change: impl FnOnce(&mut Life)) {
        let (before, after) = {
            let mut state = self.lock();
            let before = state.life.phase();
            change(&mut state.life);
            let after = state.life.phase();
            if after == PoolPhase::Closed {
                state.nodes.truncate(0);
            }
            (before, after)
        };
        self.waiters.wake();
        match after {
            PoolPhase::Draining | PoolPhase::Failed if !before.is_ending() => self.emit(PoolEvent::Draining),
            PoolPhase::Closed if before != after => self.emit(PoolEvent::Closed),
            _ => {}
        }
    }
}

/// The error of a pool that ends because of a panic.
pub(crate) fn panicked(who: &str, panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::new(ErrorKind::Closed, format!("{who} panicked: {}", text.unwrap_or("without a message")))
        .with_hint("this is a defect, of this library or of the provider or plugin that it called: please report it with the backtrace")
}

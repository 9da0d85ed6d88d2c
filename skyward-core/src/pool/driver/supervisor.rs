//! Makes sure that a pool ends, in whichever way its driver ends: it returns, it panics, or its
//! runtime ends.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::run::Driver;
use super::timing::PANIC_PAUSE;
use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::pool::blueprint::Blueprint;
use crate::pool::custody::cleanup::{Cleanup, REAP};
use crate::pool::tasks::phase::panicked;
use crate::pool::tasks::shared::Shared;
use crate::provider::Machine;

/// Runs a pool's driver, and ends what the driver did not end.
pub(crate) struct Supervisor(Remains);

/// What is left to be ended.
#[derive(Clone)]
struct Remains {
    shared: Arc<Shared>,
    cleanup: Cleanup,
}

impl Supervisor {
    pub(crate) fn new(shared: Arc<Shared>, cleanup: Cleanup) -> Self {
        Self(Remains { shared, cleanup })
    }

    /// Runs the driver. When this returns, the pool has ended.
    pub(crate) async fn run(self, driver: Driver, blueprint: Blueprint, ready: oneshot::Sender<Result<()>>) {
        let driven = AssertUnwindSafe(driver.run(blueprint, ready)).catch_unwind().await;
        if let Err(panic) = driven {
            self.0.shared.on_driver_lost(panicked("the pool's driver", &*panic));
            self.0.end().await;
        }
    }
}

impl Drop for Supervisor {
    /// The runtime may be ending, so the rest of the work is done on a thread of its own.
    fn drop(&mut self) {
        let Remains { shared, cleanup } = &self.0;
        if !shared.has_ended() {
            let what = "the pool failed because the runtime that started it has ended";
            let hint = "start the pool in a runtime that lives until `shutdown` has returned";
            shared.on_driver_lost(Error::new(ErrorKind::Closed, what).with_hint(hint));
        }
        if cleanup.is_done() {
            return self.0.conclude(Ok(()));
        }
        let remains = self.0.clone();
        let thread = std::thread::Builder::new().name("skyward-cleanup".into()).spawn(move || {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime.block_on(remains.end()),
                Err(error) => remains.conclude(Err(remains.not_gone(no_thread(error)))),
            }
        });
        if let Err(error) = thread {
            self.0.conclude(Err(self.0.not_gone(no_thread(error))));
        }
    }
}

impl Remains {
    /// Ends the machines.
    async fn end(&self) {
        let Self { shared, cleanup } = self;
        let node_of = shared.node_of();
        let gone = |machine: &Machine| {
            shared.emit(PoolEvent::NodeGone { node: node_of(machine), machine: machine.id.clone() });
        };
        if cleanup.is_done() {
            return self.conclude(Ok(()));
        }
        let end = Instant::now() + shared.limits.shutdown;
        let mut ended = Ok(());
        for tries in 0..TRIES {
            // A panic about one machine does not keep the other machines from being ended.
            tokio::time::sleep(PANIC_PAUSE * tries).await;
            ended = match AssertUnwindSafe(cleanup.end_all(end, gone)).catch_unwind().await {
                Ok(ended) => {
                    let is_ended = ended.is_ok();
                    // The error names the machines already.
                    self.conclude(ended.map_err(|error| error.with_context("pool", &shared.pool)));
                    if is_ended {
                        cleanup.remove_rest().await;
                    }
                    return;
                }
                Err(panic) => Err(self.not_gone(panicked("the provider", &*panic))),
            };
            if Instant::now() >= end {
                break;
            }
        }
        self.conclude(ended);
    }

    fn not_gone(&self, error: Error) -> Error {
        not_gone(&self.shared, &self.cleanup, error)
    }

    fn conclude(&self, ended: Result<()>) {
        if !self.shared.has_ended() {
            self.shared.conclude(ended);
        }
    }
}

/// Adds to an error of a pool which of its machines are not confirmed gone, and what ends them.
pub(crate) fn not_gone(shared: &Shared, cleanup: &Cleanup, error: Error) -> Error {
    let names: Vec<String> = cleanup.unconfirmed().iter().map(ToString::to_string).collect();
    let what = match names.len() {
        0 => "the provider has not confirmed that all resources of the pool are gone".to_owned(),
        1 => format!("1 machine of the pool is not confirmed gone: {}", names[0]),
        many => format!("{many} machines of the pool are not confirmed gone: {}", names.join(", ")),
    };
    let lease = format!("the lease of the machines ends them within {:?}", shared.limits.lease);
    let message = format!("{}; {what}", error.message());
    let error = error.with_message(message).with_context("pool", &shared.pool);
    let error = if names.is_empty() { error } else { error.with_further_hint(&lease) };
    if cleanup.is_recorded() { error.with_further_hint(REAP) } else { error }
}

fn no_thread(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, "no thread could be started to end the pool's machines").with_source(error)
}

/// How often a provider may panic before its machines are left to their leases.
const TRIES: u32 = 4;

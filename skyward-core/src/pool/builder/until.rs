//! What ends a start or a scope from outside: a signal to the program, usually.

use std::fmt;
use std::future::{Future, pending};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::signal::unix::{SignalKind, signal};

use crate::error::{Error, ErrorKind};

/// The future that ends a start or a scope. It keeps its outcome, so a scope sees what has completed
/// during its start.
#[derive(Clone, Default)]
pub(super) struct Until(Option<Shared<BoxFuture<'static, ()>>>);

impl Until {
    pub(super) fn new(stop: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Some(stop.boxed().shared()))
    }

    /// Waits until the start or the scope must end.
    pub(super) async fn completed(self) {
        match self.0 {
            Some(stop) => stop.await,
            None => pending().await,
        }
    }

    /// The error of a start or a scope that was ended from outside.
    pub(super) fn error(what: &str) -> Error {
        Error::new(ErrorKind::Cancelled, format!("{what} was ended by the future of `until`, such as a signal"))
    }
}

impl fmt::Debug for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Until(..)" } else { "Until(never)" })
    }
}

/// Completes when the process receives SIGINT, as by Ctrl-C, or SIGTERM. For
/// [`PoolBuilder::until`](crate::pool::PoolBuilder::until), and for services.
///
/// From its first poll, both signals do not end the process by themselves any more, also after this
/// future has completed or was dropped: the program must end itself.
///
/// ```no_run
/// # use skyward_core as skyward;
/// use skyward::pool::{Pool, interrupted};
///
/// # async fn example() -> skyward::Result<()> {
/// Pool::builder().until(interrupted()).scope(async |pool| {
///     // If the program is interrupted here, this future is dropped, and the machines end.
///     std::future::pending().await
/// })
/// .await
/// # }
/// ```
///
/// # Panics
///
/// Outside of a tokio runtime with I/O enabled.
///
/// # Cancel safety
///
/// A signal that arrives between two calls completes neither of them.
pub async fn interrupted() {
    let both = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = both else {
        tracing::error!("the handlers of SIGINT and SIGTERM cannot be installed: the signals end the process");
        return pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

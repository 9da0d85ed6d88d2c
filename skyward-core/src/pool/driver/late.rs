//! Machines that are still being made ready when the pool starts without them.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::{BoxFuture, MaybeDone};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::pool::fleet::launch::Launch;
use crate::pool::node::make::{Node, Prepared};
use crate::pool::tasks::shared::Shared;

/// A machine that is being made ready; the pool may start without it.
pub(crate) struct Late {
    pub(crate) launch: Launch,
    /// When it was begun, and how long it may take, without the time for which the machine is
    /// queued.
    pub(crate) began: Instant,
    pub(crate) limit: Duration,
    pub(crate) prepared: MaybeDone<BoxFuture<'static, Result<Prepared>>>,
}

impl Future for Late {
    type Output = (Launch, Result<Prepared>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let launch = self.launch;
        let mut prepared = Pin::new(&mut self.prepared);
        ready!(prepared.as_mut().poll(context));
        // The output is taken once, as any future's is.
        prepared.take_output().map_or(Poll::Pending, |prepared| Poll::Ready((launch, prepared)))
    }
}

/// Does some work while late machines are made ready: their leases are renewed, and nothing that was
/// asked of their provider or of them stands still.
pub(crate) async fn beside<T>(late: &mut [Late], work: impl Future<Output = T>) -> T {
    let making: FuturesUnordered<_> = late.iter_mut().map(|late| &mut late.prepared).collect();
    let making = async {
        making.for_each(|()| std::future::ready(())).await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        biased;
        result = work => result,
        never = making => match never {},
    }
}

/// Waits for a machine that was requested at the start of the pool and is not ready yet.
pub(crate) async fn connect_late(shared: Arc<Shared>, late: Late, layout: Layout) -> Result<Node> {
    let (began, limit, machine) = (late.began, late.limit, late.launch.machine);
    let mut late = std::pin::pin!(late);
    let Ok((launch, prepared)) = shared.until_ready(began, limit, machine, late.as_mut()).await else {
        let error = Error::new(ErrorKind::Timeout, format!("the machine was not ready after {limit:?}"))
            .with_hint("`Limits::start` and `Limits::environment` give more time");
        return Err(shared.lock().making.explain(error, Some(machine)));
    };
    prepared?.join(&shared, launch.node, layout).await
}

//! The driver's main loop: brings the pool up, reacts to commands and timers, and ends the pool.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tracing::Instrument;

use super::pulse::watch_runtime;
use super::serving::Serving;
use super::start::Started;
use super::timing::{BUDGET_CHECK, IDLE, LAST_TASKS_CHECK, SCREEN};
use crate::compute::PoolPhase;
use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::pool::blueprint::Blueprint;
use crate::pool::checkpoints::desk::{Desk, DeskEnd};
use crate::pool::command::Command;
use crate::pool::custody::cleanup::Cleanup;
use crate::pool::custody::reap::take_up;
use crate::pool::mover::News;
use crate::pool::node::make::Node;
use crate::pool::tasks::life::closed;
use crate::pool::tasks::shared::Shared;
use crate::pool::tasks::state::State;
use crate::provider::clock;

/// The driver of a pool.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedReceiver<Command>,
    cleanup: Cleanup,
    deadline: Option<Duration>,
    /// The task that shows events on the terminal.
    screen: Option<JoinHandle<()>>,
    /// The news of movers, if workers may have requests.
    news: Option<mpsc::UnboundedReceiver<News>>,
    /// Ends the desk of checkpoints.
    desk: Option<DeskEnd>,
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        commands: mpsc::UnboundedReceiver<Command>,
        cleanup: Cleanup,
        screen: Option<JoinHandle<()>>,
        news: Option<mpsc::UnboundedReceiver<News>>,
    ) -> Self {
        Self { shared, commands, cleanup, deadline: None, screen, news, desk: None }
    }

    /// Brings the pool up, reports whether it is ready, runs it, and ends it. The end is reached
    /// whatever happens.
    pub(crate) async fn run(mut self, blueprint: Blueprint, mut ready: oneshot::Sender<Result<()>>) {
        let shared = Arc::clone(&self.shared);
        let cleanup = self.cleanup.clone();
        // These tasks end with the driver, in whichever way the driver ends.
        let mut beside = JoinSet::new();
        beside.spawn(run_background(Arc::clone(&shared)).in_current_span());
        beside.spawn(watch_runtime(Arc::clone(&shared)).in_current_span());
        beside.spawn(take_up(blueprint.provider.clone()).in_current_span());
        if let Some(news) = self.news.take() {
            let (desk, end) = Desk::new(&shared, news);
            beside.spawn(desk.run().in_current_span());
            self.desk = Some(end);
        }
        let up = tokio::select! {
            biased;
            up = bring_up(&blueprint, &shared, &cleanup) => up,
            error = budget_spent(&shared) => {
                self.on_spent(&error).await;
                Err(error)
            }
            // The caller does not wait for the pool any more.
            () = ready.closed() => Err(closed()),
        };
        match up {
            Ok(started) => {
                let mut serving = Serving::new(&shared, &cleanup, started);
                let over = match ready.send(Ok(())) {
                    Ok(()) => self.serve(&mut serving).await,
                    Err(_) => None,
                };
                let (nodes, _world) = serving.leave();
                self.end(nodes, over).await;
            }
            Err(error) => {
                let error = self.end(Vec::new(), Some(error)).await;
                if let Some(error) = error {
                    let _ = ready.send(Err(error));
                }
            }
        }
    }

    /// Runs the pool until it must end; returns the reason if it ends by itself.
    async fn serve(&mut self, serving: &mut Serving) -> Option<Error> {
        serving.begin_to_serve();
        let mut over: Option<Over> = None;
        loop {
            if let Some(error) = serving.failed.take() {
                serving.give_up(&error);
                self.shared.on_failed(&error);
                self.close(&error).await;
                over = Some(Over { error, end: self.limit_by_budget() });
            }
            let look = serving.next_look();
            let ending = until_over(&self.shared, over.as_ref());
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(Command::Shutdown { deadline }) => {
                        self.deadline = Some(deadline);
                        return over.map(|over| over.error);
                    }
                    Some(Command::Drain { deadline }) if over.is_none() => {
                        over = Some(self.drain(serving, deadline).await);
                    }
                    // It drains already.
                    Some(Command::Drain { .. }) => {}
                    Some(Command::Panicked(error)) => {
                        self.shared.on_failed(&error);
                        return Some(error);
                    }
                    Some(command) => serving.on_command(command),
                    None => return over.map(|over| over.error),
                },
                () = serving.next_end() => {}
                () = tokio::time::sleep_until(look) => serving.look(),
                spent = ending => match spent {
                    Some(error) => {
                        serving.give_up(&error);
                        self.on_spent(&error).await;
                        over = Some(Over { error, end: self.limit_by_budget() });
                    }
                    None => return over.map(|over| over.error),
                },
            }
        }
    }

    /// The user lets running tasks finish.
    async fn drain(&self, serving: &mut Serving, deadline: Duration) -> Over {
        let waiting = Error::new(ErrorKind::Closed, "the pool is draining, and the task had not begun")
            .with_hint("submit the task to another pool");
        serving.give_up(&waiting);
        self.shared.enter(PoolPhase::Draining);
        self.close(&waiting).await;
        let error = Error::new(
            ErrorKind::Closed,
            format!("the pool was drained, and the task did not end within {deadline:?}"),
        )
        .with_hint("give `drain` a longer deadline");
        let end = Instant::now() + deadline;
        Over { error, end: Some(self.limit_by_budget().map_or(end, |paid| paid.min(end))) }
    }

    /// The budget is nearly spent.
    async fn on_spent(&self, error: &Error) {
        let spent = self.shared.account().spent(clock::now());
        self.shared.emit(PoolEvent::BudgetSpent { spent });
        self.shared.fail(error);
        self.close(error).await;
    }

    /// No new task is accepted, and those that wait fail.
    async fn close(&self, error: &Error) {
        self.shared.act_in_slices(|state, _| state.scheduler.close(error.clone())).await;
        self.shared.close_queue();
    }

    /// Until when running tasks may go on, if the budget limits that. The workers are notified.
    fn limit_by_budget(&self) -> Option<Instant> {
        let lasts = self.shared.account().lasts(clock::now())?;
        self.shared.on_budget_end(Instant::now().into_std().checked_add(lasts)?);
        Instant::now().checked_add(lasts.saturating_sub(self.shared.limits.shutdown).max(lasts / 2))
    }

    /// Ends everything that was started; returns the error that the pool failed with, if it did.
    async fn end(&mut self, nodes: Vec<Arc<Node>>, error: Option<Error>) -> Option<Error> {
        let deadline = self.deadline.unwrap_or(self.shared.limits.shutdown);
        if !self.shared.lock().life.phase().is_ending() {
            self.shared.enter(PoolPhase::Draining);
        }
        self.shared.close_queue();
        let reason = error.clone().unwrap_or_else(|| {
            Error::new(ErrorKind::Closed, "the pool was shut down before the task ended")
                .with_hint("await the tasks before the scope ends, or before you call `shutdown`")
        });
        self.shared.act_in_slices(|state, now| state.scheduler.drain(now, &reason)).await;
        let desk = async {
            if let Some(desk) = self.desk.take() {
                desk.end().await;
            }
        };
        let (ended, ()) = tokio::join!(self.cleanup.end(&self.shared, nodes, deadline), desk);
        let close = |state: &mut State, now| {
            state.scheduler.drain(now, &closed());
            state.held.release_all();
        };
        self.shared.act_in_slices(close).await;
        self.shared.enter(PoolPhase::Closed);
        if let Some(screen) = self.screen.take() {
            // The caller should see the last lines before it goes on, but a stuck terminal must not
            // hold it up.
            let _ = tokio::time::timeout(SCREEN, screen).await;
        }
        self.shared.on_driver_ended(ended.clone());
        if ended.is_ok() {
            // Nothing is paid for any more, so the caller does not wait for this.
            self.cleanup.remove_rest().await;
        }
        if let Err(left) = &ended {
            tracing::error!(pool = %self.shared.pool, error = %left, "not everything could be ended");
        }
        error.map(|error| error.with_left(ended))
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("pool", &self.shared.pool).finish_non_exhaustive()
    }
}

/// Brings the pool up, once its storage is known to keep what is committed, and its data sets are known
/// to be there.
async fn bring_up(blueprint: &Blueprint, shared: &Arc<Shared>, cleanup: &Cleanup) -> Result<Started> {
    if let Some(storage) = &shared.storage {
        storage.check().await?;
    }
    shared.data.check().await?;
    let mut up = std::pin::pin!(blueprint.bring_up(shared, cleanup));
    // The files are read while the machines start.
    tokio::select! {
        biased;
        up = &mut up => up,
        () = shared.data.read() => up.await,
    }
}

/// Why a pool ends by itself, and until when its running tasks may go on.
struct Over {
    error: Error,
    end: Option<Instant>,
}

/// Waits until the budget is nearly spent, and returns that as an error. If the pool ends already
/// (`over`), waits until no task runs or until the time for the tasks is over, and returns `None`.
async fn until_over(shared: &Arc<Shared>, over: Option<&Over>) -> Option<Error> {
    let Some(over) = over else { return Some(budget_spent(shared).await) };
    let end = async {
        match over.end {
            Some(end) => tokio::time::sleep_until(end).await,
            None => std::future::pending().await,
        }
    };
    let idle = async {
        while shared.lock().scheduler.is_busy() {
            tokio::time::sleep(LAST_TASKS_CHECK).await;
        }
    };
    tokio::select! {
        biased;
        () = idle => {}
        () = end => {}
        never = async {
            Arc::clone(shared).remind().await;
            std::future::pending::<Infallible>().await
        } => match never {},
    }
    None
}

/// Waits until the pool must end because of its budget.
async fn budget_spent(shared: &Shared) -> Error {
    loop {
        let now = clock::now();
        let end = shared.account().ends_at(now);
        let changed = shared.spending.notified();
        match end {
            Some(end) if end <= now => return shared.account().exhausted(now),
            // A timer does not count the time for which the host is suspended.
            Some(end) => {
                drop(tokio::time::timeout_at(clock::timer(end).min(Instant::now() + BUDGET_CHECK), changed).await)
            }
            None => changed.await,
        }
    }
}

/// The pool's own task: fires the scheduler's timers, and does what other threads have left.
async fn run_background(shared: Arc<Shared>) {
    loop {
        let next = next_timeout(&shared).unwrap_or_else(|| Instant::now() + IDLE);
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(next) => {
                shared.act_in_slices(|state, now| state.scheduler.on_timeout(now)).await;
                if next_timeout(&shared).is_some_and(|next| next <= Instant::now()) {
                    tokio::task::yield_now().await;
                }
            }
            () = shared.background.notified() => shared.act_in_slices(|_, _| ()).await,
        }
    }
}

fn next_timeout(shared: &Shared) -> Option<Instant> {
    shared.lock().next_timeout().map(Instant::from_std)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{LaunchId, MachineNumber};
    use crate::pool::fleet::account::Account;
    use crate::pool::tasks::replies::tests::pool;
    use crate::provider::Offer;
    use crate::spec::Budget;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_budget_is_spent_while_the_host_of_the_client_is_suspended() {
        for budget in [Budget::default().hours(4.0), Budget::default().usd(24.0)] {
            let shared = pool();
            *shared.account() = Account::new(budget, Duration::ZERO);
            let offer = Offer::new("m", "p", 1, 1).usd_per_hour(6.0);
            shared.account().admit(&LaunchId::new("l"), MachineNumber(0), &offer, 1, clock::now()).unwrap();
            let watched = Arc::clone(&shared);
            let spent = tokio::spawn(async move { budget_spent(&watched).await });
            tokio::time::sleep(HOUR / 2).await;
            assert!(!spent.is_finished() && shared.is_paid());
            clock::SUSPENDED.set(clock::SUSPENDED.get() + HOUR * 5);
            tokio::time::sleep(BUDGET_CHECK).await;
            assert!(!shared.is_paid(), "nobody renews a lease");
            assert_eq!(spent.await.unwrap().kind(), ErrorKind::Budget);
            assert!(shared.account().spent(clock::now()).machine_hours > 5.4);
        }
    }
}

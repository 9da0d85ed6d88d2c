//! The trainings of the service, and the one pool that they share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use skyward::prelude::*;
use tokio::sync::{Notify, Semaphore};

use super::journal::{Event, Journal};
use super::problem::Problem;
use super::run::{self, Submitted};
use super::training::{Epoch, Report, Request};

/// Bounds of the service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// How many trainings may wait, beside those that run.
    pub(crate) waiting: usize,
    /// How many events each training keeps for its followers.
    pub(crate) events: usize,
    /// How many ended trainings can still be queried.
    pub(crate) ended: usize,
}

/// The state of the service.
#[derive(Clone)]
pub(crate) struct Trainings(Arc<Inner>);

struct Inner {
    pool: Arc<dyn ComputePool>,
    bounds: Bounds,
    capacity: usize,
    /// A permit for each training that runs or waits.
    room: Arc<Semaphore>,
    stopping: AtomicBool,
    next: AtomicU64,
    all: Mutex<BTreeMap<u64, Arc<Training>>>,
}

/// One training.
pub(crate) struct Training {
    pub(crate) id: String,
    pub(crate) request: Request,
    pub(crate) journal: Arc<Journal>,
    pub(crate) cancel: Notify,
    state: Mutex<State>,
}

/// The state of a training.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum State {
    Waiting,
    Running {
        attempt: u32,
        rank: u32,
        #[serde(flatten)]
        progress: Option<Epoch>,
    },
    Finished {
        report: Report,
    },
    Failed {
        error: Problem,
    },
    Cancelled,
}

impl Trainings {
    pub(crate) fn new(pool: Arc<dyn ComputePool>, bounds: Bounds) -> Self {
        let capacity = pool.status().workers.len() + bounds.waiting;
        let room = Arc::new(Semaphore::new(capacity));
        let (stopping, next) = (AtomicBool::new(false), AtomicU64::new(1));
        Self(Arc::new(Inner { pool, bounds, capacity, room, stopping, next, all: Mutex::default() }))
    }

    pub(crate) fn pool(&self) -> &dyn ComputePool {
        self.0.pool.as_ref()
    }

    /// Takes a request. When this returns, the pool has the task, and the journal records the
    /// training's events from now on.
    pub(crate) async fn begin(&self, request: Request) -> Result<Arc<Training>, Problem> {
        if self.is_stopping() {
            return Err(Problem::stopping());
        }
        // The service refuses at once when it is full. In the pool's own queue the caller would
        // wait.
        let room = Arc::clone(&self.0.room).try_acquire_owned().map_err(|_| Problem::full(self.0.capacity))?;
        let first = self.submit(&request).await.map_err(|error| Problem::from(&error))?;
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let training = Arc::new(Training {
            // The pool's id keeps it unique after a restart of the service.
            id: format!("{}-{number}", self.0.pool.status().pool),
            request,
            journal: Arc::new(Journal::new(self.0.bounds.events)),
            cancel: Notify::new(),
            state: Mutex::new(State::Waiting),
        });
        training.journal.tell(Event::Queued);
        let mut all = self.all();
        forget_oldest(&mut all, self.0.bounds.ended);
        all.insert(number, Arc::clone(&training));
        drop(all);
        let (trainings, running) = (self.clone(), Arc::clone(&training));
        tokio::spawn(async move {
            run::run(&trainings, &running, first).await;
            drop(room);
        });
        Ok(training)
    }

    /// Submits the call. The events are subscribed to before, so that none of the task's events is
    /// missed.
    pub(crate) async fn submit(&self, request: &Request) -> skyward::Result<Submitted> {
        let events = self.0.pool.events();
        let handle = self.0.pool.submit(request.call().into_task()?, Target::Any).await?;
        Ok(Submitted { handle, events })
    }

    pub(crate) fn get(&self, id: &str) -> Result<Arc<Training>, Problem> {
        let all = self.all();
        let found = all.values().find(|training| training.id == id);
        found.cloned().ok_or_else(|| {
            let kept = self.0.bounds.ended;
            Problem::not_found(&format!("training {id}")).hint(format!("the last {kept} that have ended are kept"))
        })
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.0.stopping.load(Ordering::SeqCst)
    }

    /// Refuses trainings from now on.
    pub(crate) fn stop(&self) {
        self.0.stopping.store(true, Ordering::SeqCst);
    }

    /// Waits until no training runs or waits. Returns false at the deadline.
    pub(crate) async fn idle(&self, deadline: Duration) -> bool {
        tokio::time::timeout(deadline, self.0.room.acquire_many(self.0.capacity as u32)).await.is_ok()
    }

    /// How many more trainings the service would take now.
    pub(crate) fn room(&self) -> usize {
        self.0.room.available_permits()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Training>>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Training {
    pub(crate) fn state(&self) -> State {
        self.lock().clone()
    }

    pub(crate) fn set(&self, state: State) {
        *self.lock() = state;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running { .. } => "running",
            Self::Finished { .. } => "finished",
            Self::Failed { .. } => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn is_end(&self) -> bool {
        !matches!(self, Self::Waiting | Self::Running { .. })
    }
}

fn forget_oldest(all: &mut BTreeMap<u64, Arc<Training>>, kept: usize) {
    let ended: Vec<u64> =
        all.iter().filter(|(_, training)| training.state().is_end()).map(|(number, _)| *number).collect();
    for number in ended.iter().take((ended.len() + 1).saturating_sub(kept.max(1))) {
        all.remove(number);
    }
}
